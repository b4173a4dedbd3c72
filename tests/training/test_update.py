"""The update on the real tiny model: invariances, and what each plug-in may not change."""

from dataclasses import replace

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.training.advantages import with_advantages
from sage.training.beta import AdaptiveBeta
from sage.training.learner import Learner
from sage.training.metrics import update_metrics
from sage.training.optimiser import LearningRate, adamw
from sage.training.packing import pack
from sage.training.response_anchor import ResponseAnchor
from sage.training.update import accumulate, accumulate_anchor, update
from sage.types import BatchCounts, ImportanceSampling, Stat
from tests.fakes import group, small_bank, tiny_policy


def plugin(name, option, **changes):
    return instantiate(OmegaConf.load(conf_dir() / name / f"{option}.yaml"), **changes, _convert_="all")


def options(name):
    return sorted(p.stem for p in (conf_dir() / name).glob("*.yaml"))


def make_learner(
    policy, *, guide="none", kl_mode="reverse", algorithm="grpo", micro_batch_size=8, rate=1e-2, **changes
):
    mode = plugin("kl_mode", kl_mode) if isinstance(kl_mode, str) else kl_mode
    guide = guide if not isinstance(guide, str) else plugin("guide", guide)
    return Learner(
        policy=policy,
        guide=guide,
        anchor=None if mode.bank is None else ResponseAnchor.shape(small_bank(), guide, mode),
        kl_mode=mode,
        beta=AdaptiveBeta(mode.beta, None),
        algorithm=plugin("algorithm", algorithm, **changes),
        optimizer=adamw(policy.trainable_parameters(), (0.9, 0.99), 1e-8, 0.0),
        learning_rate=LearningRate(peak=rate, warmup_steps=0, schedule="constant", num_steps=100),
        num_steps=100,
        max_grad_norm=1.0,
        temperature=0.9,
        micro_batch_size=micro_batch_size,
        seed=0,
        importance_sampling=ImportanceSampling(level=None, min=0.0, max=2.0),
    )


def refusal(guide, mode):
    """As the command asks for it."""
    return guide.refusal(mode) or mode.refusal(guide)


def batch_of(step=0, rewards=((1, 0, 0, 1), (0, 1, 0, 0))):
    """Two groups of four with prompts and responses of different lengths."""
    responses = [
        [(5, 7, 107), (5, 8, 9, 100, 107), (1,), (44, 45, 46, 47, 48, 49, 50, 51)],
        [(60, 107), (61, 62, 63, 107), (107,), (64, 65, 66)],
    ]
    prompts = [(3, 7, 106), (1, 2, 3, 4, 106)]
    groups = [group(str(i), prompts[i], responses[i], rewards[i]) for i in range(2)]
    return pack(groups, noise_seed=(0, "guide", step), max_completion_tokens=8)


def move(policy, size=0.05):
    """Take the policy away from its reference, so that the KL and its gradient are not 0."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def gradients(learner, batch):
    """Of one optimiser step, before it is taken."""
    batch = with_advantages(learner, batch, 0)
    counts = BatchCounts(sequences=len(batch), tokens=int(batch.mask.sum()), max_completion_tokens=8)
    loss = 0.0
    for start in range(0, len(batch), learner.micro_batch_size):
        loss += accumulate(learner, batch.rows(slice(start, start + learner.micro_batch_size)), counts, 0).loss
    drawn = None if learner.anchor is None else learner.anchor.draw(batch.problem_ids, 0, learner.seed, "cpu")
    for start in range(0, 0 if drawn is None else len(drawn), learner.micro_batch_size):
        loss += accumulate_anchor(learner, drawn.rows(slice(start, start + learner.micro_batch_size))).loss
    # A critic that the algorithm does not use gets no gradient.
    parameters = [p for p in learner.policy.trainable_parameters() if p.grad is not None]
    result = torch.cat([p.grad.flatten() for p in parameters])
    for p in parameters:
        p.grad = None
    return result, loss


@pytest.mark.parametrize("algorithm", [a for a in options("algorithm") if a != "bnpo"])
@pytest.mark.parametrize(
    ("guide", "kl_mode"),
    [("token", "reverse"), ("branch", "forward"), ("random", "reverse_exact"), ("verdict_flat", "forward_bank")],
)
def test_the_gradient_does_not_depend_on_the_micro_batches(tmp_path, algorithm, guide, kl_mode):
    """K19: 1x8, 2x4 and 8x1 give one gradient. Guide noise is drawn for the batch, so it takes part."""
    policy = tiny_policy(tmp_path)
    move(policy)
    policy.add_critic(separate=False, seed=0)
    whole, *cuts = (
        gradients(
            make_learner(policy, guide=guide, kl_mode=kl_mode, algorithm=algorithm, micro_batch_size=size), batch_of()
        )
        for size in (8, 4, 1, 3)
    )
    for cut, loss in cuts:
        torch.testing.assert_close(cut, whole[0], rtol=1e-5, atol=1e-6 * whole[0].abs().max().item())
        assert loss == pytest.approx(whole[1], rel=1e-5, abs=1e-7)


def test_bnpo_is_the_exception_whose_gradient_depends_on_the_cut(tmp_path):
    policy = tiny_policy(tmp_path)
    whole, cut = (gradients(make_learner(policy, algorithm="bnpo", micro_batch_size=s), batch_of())[0] for s in (8, 1))
    assert (whole - cut).abs().max() > 1e-3 * whole.abs().max()


@pytest.mark.parametrize(
    ("guide", "kl_mode"),
    [
        (guide, kl_mode)
        for guide in options("guide")
        for kl_mode in options("kl_mode")
        if "none" not in (guide, kl_mode) and (kl_mode == "forward_bank") == guide.startswith("verdict")
    ],
)
def test_strength_zero_gives_the_weights_of_no_guide_bit_for_bit(tmp_path, guide, kl_mode):
    """After 5 steps, noise and all."""
    trained = []
    for name, arm in enumerate((replace(plugin("guide", guide), strength=0.0), plugin("guide", "none"))):
        policy = tiny_policy(tmp_path / str(name))
        learner = make_learner(policy, guide=arm, kl_mode=kl_mode)
        for step in range(5):
            update(learner, with_advantages(learner, batch_of(step), step), step)
        trained.append(torch.cat([p.detach().flatten() for p in policy.trainable_parameters()]))
    assert torch.equal(*trained)


def test_at_the_first_step_the_loss_is_zero_and_the_gradient_is_not(tmp_path):
    """K18: on-policy the ratio is 1, so the surrogate is minus the mean advantage, and KL to the reference is 0."""
    gradient, loss = gradients(make_learner(tiny_policy(tmp_path), algorithm="grpo"), batch_of())
    assert loss == pytest.approx(0, abs=1e-7)
    assert gradient.norm() > 1e-3


def test_without_a_kl_term_no_reference_is_ever_asked_for(tmp_path, monkeypatch):
    policy = tiny_policy(tmp_path)
    monkeypatch.setattr(policy, "reference_stats", None)
    learner = make_learner(policy, kl_mode="none")
    assert Stat.REFERENCE not in learner.needs
    update(learner, with_advantages(learner, batch_of(), 0), 0)


def test_one_update_a_batch_skips_the_old_forward_and_several_take_it(tmp_path):
    policy = tiny_policy(tmp_path)
    assert with_advantages(make_learner(policy), batch_of(), 0).old is None
    several = with_advantages(make_learner(policy, minibatches=2), batch_of(), 0)
    assert several.old is not None
    with torch.no_grad():
        now = policy.token_stats(several, temperature=0.9).logprobs
    torch.testing.assert_close(several.old.logprobs, now)


@pytest.mark.parametrize("kl_mode", [k for k in options("kl_mode") if k != "none"])
def test_every_kl_mode_pulls_on_a_policy_that_has_left_its_reference(tmp_path, kl_mode):
    """Against kl=none on the same batch: a mode that the loop forgot to ask would give the same gradient."""
    policy = tiny_policy(tmp_path)
    move(policy)
    with_kl, without = (gradients(make_learner(policy, kl_mode=mode), batch_of())[0] for mode in (kl_mode, "none"))
    assert (with_kl - without).norm() > 1e-3 * without.norm()


def test_several_epochs_and_minibatches_take_that_many_optimiser_steps(tmp_path):
    learner = make_learner(tiny_policy(tmp_path), epochs=3, minibatches=2)
    result = update(learner, with_advantages(learner, batch_of(), 0), 0)
    assert len(result.grad_norms) == 6
    ratios = [t.ratio[t.mask] for t in result.terms]
    assert ratios[0].eq(1).all(), "the first mini-batch is on-policy"
    assert ratios[-1].ne(1).any(), "later ones are not"
    seen = sum(int(t.mask.sum()) for t in result.terms[:2])
    assert seen == batch_of().mask.sum(), "an epoch sees every token once"


def test_a_schedule_moves_with_the_optimiser_step_and_not_with_the_micro_batch(tmp_path):
    """K13: 2 batches x 2 epochs in micro-batches of 2: positions 0, 1, 2, 3, each seen by four micro-batches."""
    seen = []

    class Spy(type(plugin("guide", "token"))):
        def q(self, inputs):
            seen.append((inputs.step, inputs.num_steps))
            return super().q(inputs)

    spy = Spy(**vars(plugin("guide", "token")))
    learner = make_learner(tiny_policy(tmp_path), guide=spy, micro_batch_size=2, epochs=2)
    for step in range(2):
        update(learner, with_advantages(learner, batch_of(step), step), step)
    assert seen == [(position, 100) for position in range(4) for _ in range(4)]


def test_a_group_without_spread_gets_no_policy_gradient(tmp_path):
    """K01: with kl=none nothing at all moves."""
    constant = batch_of(rewards=((1, 1, 1, 1), (0, 0, 0, 0)))
    gradient, loss = gradients(make_learner(tiny_policy(tmp_path), kl_mode="none"), constant)
    assert loss == 0
    assert gradient.eq(0).all()


def test_a_batch_whose_completions_all_abstain_changes_nothing(tmp_path):
    """K03, K07: no token is left, the loss is 0 and finite."""
    policy = tiny_policy(tmp_path)
    before = torch.cat([p.detach().flatten() for p in policy.trainable_parameters()])
    learner = make_learner(policy)
    batch = batch_of(rewards=((None,) * 4, (None,) * 4))
    result = update(learner, with_advantages(learner, batch, 0), 0)
    assert result.terms[0].loss == 0
    assert torch.equal(before, torch.cat([p.detach().flatten() for p in policy.trainable_parameters()]))


def test_a_loss_that_is_not_finite_stops_with_step_and_problems(tmp_path):
    policy = tiny_policy(tmp_path)
    learner = make_learner(policy, kl_mode="none")
    batch = with_advantages(learner, batch_of(), 0)
    broken = batch.replace(advantages=batch.advantages * float("inf"))
    with pytest.raises(FloatingPointError, match=r"step 7: loss is .*; problems 0, 1"):
        update(learner, broken, 7)


def test_minibatches_that_do_not_divide_are_refused(tmp_path):
    learner = make_learner(tiny_policy(tmp_path), minibatches=3)
    with pytest.raises(ValueError, match="minibatches=3 does not divide"):
        update(learner, with_advantages(learner, batch_of(), 0), 0)


REVERSE = [
    {"estimator": estimator, "placement": placement}
    for estimator in ("k1", "k2", "k3", "k1_ratio", "k3_ratio", "exact")
    for placement in ("loss", "reward")
]


def variants():
    """Every KL mode as its yaml has it, and ``reverse`` with every estimator and placement."""
    yield from ((name, {}) for name in options("kl_mode"))
    yield from (("reverse", changes) for changes in REVERSE)


@pytest.mark.parametrize("algorithm", options("algorithm"))
@pytest.mark.parametrize("guide", options("guide"))
def test_every_combination_trains_two_finite_steps_or_is_refused_with_a_reason(tmp_path, guide, algorithm):
    """The whole product guide x KL mode x estimator x placement x algorithm."""
    trained = 0
    for number, (kl_mode, changes) in enumerate(variants()):
        try:
            mode = plugin("kl_mode", kl_mode, **changes)
        except InstantiationException as error:
            assert "; type " in str(error.__cause__), "a refusal says what to type instead"  # noqa: PT017
            continue
        reason = refusal(plugin("guide", guide), mode)
        if reason is not None:
            assert "type " in reason
            continue
        policy = tiny_policy(tmp_path / str(number))
        policy.add_critic(separate=False, seed=0)
        learner = make_learner(policy, guide=guide, kl_mode=mode, algorithm=algorithm, micro_batch_size=3)
        for step in range(2):
            result = update(learner, with_advantages(learner, batch_of(step), step), step)
            assert all(torch.isfinite(t.q).all() and t.q.min() > 0 for t in result.terms)
        assert all(torch.isfinite(p).all() for p in policy.trainable_parameters())
        trained += 1
    assert trained > 0


def test_statistics_of_a_group_come_from_the_whole_group_however_it_is_cut(tmp_path):
    """K04: mini-batches of 1 sequence tear every group apart; the advantages are those of the whole batch."""
    policy = tiny_policy(tmp_path)
    whole = with_advantages(make_learner(policy), batch_of(), 0).advantages
    torn = with_advantages(make_learner(policy, minibatches=8), batch_of(), 0).advantages
    assert torch.equal(whole, torn)
    # rewards 1 0 0 1: mean .5, sample std sqrt(4 * .25 / 3) = .57735; (1 - .5) / (.57735 + 1e-4) = .86588
    assert whole[0, 0].item() == pytest.approx(0.86588, abs=1e-5)


def test_each_optimiser_step_is_normalised_by_its_own_tokens(tmp_path):
    """K20: two mini-batches of a batch, each with the token count of its own rows, not of the batch."""
    seen = []

    class Spy(type(plugin("algorithm", "dapo"))):
        def aggregate(self, token_loss, mask, counts):
            seen.append((int(mask.sum()), counts.tokens, counts.sequences))
            return super().aggregate(token_loss, mask, counts)

    spy = Spy(**vars(plugin("algorithm", "dapo", minibatches=2)))
    learner = replace(make_learner(tiny_policy(tmp_path)), algorithm=spy)
    update(learner, with_advantages(learner, batch_of(), 0), 0)
    assert [sequences for _, _, sequences in seen] == [4, 4]
    assert all(in_mask == tokens for in_mask, tokens, _ in seen)
    assert sum(tokens for _, tokens, _ in seen) == batch_of().mask.sum()


@pytest.mark.parametrize("separate", [False, True])
def test_the_critic_of_ppo_learns_what_responses_return(tmp_path, separate):
    """Explained variance rises on a batch that is seen again and again; never to 1, as responses share their first state."""
    policy = tiny_policy(tmp_path)
    policy.add_critic(separate=separate, seed=0)
    learner = make_learner(
        policy, kl_mode="none", algorithm="ppo", value_clip=float("inf"), value_coefficient=1.0, trace=1.0, rate=3e-3
    )
    seen = []
    for step in range(40):
        result = update(learner, with_advantages(learner, batch_of(), step), step)
        seen.append(update_metrics(result)["value/explained_variance"])
    assert seen[0] < 0.1
    assert seen[-1] > 0.5


def test_a_separate_critic_leaves_the_policy_to_the_policy_gradient(tmp_path):
    """With constant advantages of 0 (whitened constant returns) the value loss moves the critic's trunk only."""
    policy = tiny_policy(tmp_path)
    policy.add_critic(separate=True, seed=0)
    learner = make_learner(policy, kl_mode="none", algorithm="ppo", epochs=1, minibatches=1)
    batch = with_advantages(learner, batch_of(), 0)
    before = policy.token_stats(batch, temperature=1.0).logprobs.detach()
    update(learner, batch.replace(advantages=torch.zeros_like(batch.advantages)), 0)
    assert torch.equal(before, policy.token_stats(batch, temperature=1.0).logprobs.detach())
    with torch.no_grad():
        values = policy.token_stats(batch, temperature=1.0, values=True).values
    assert not torch.equal(values, batch.old.values)


def test_a_separate_critic_beside_an_adapter_is_refused(tmp_path):
    policy = tiny_policy(tmp_path, lora={"rank": 2, "alpha": 4, "dropout": 0.0, "targets": "all-linear"})
    with pytest.raises(ValueError, match=r"type algorithm\.critic=trunk"):
        policy.add_critic(separate=True, seed=0)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda q: q[:, :1], ValueError, r"Own\.q has shape \(8, 1\): expected \[B, T\] = \(8, 8\)"),
        (lambda q: q * float("nan"), FloatingPointError, r"Own\.q is not a number on"),
        (lambda q: q.tolist(), TypeError, r"Own\.q gave list: expected a tensor"),
    ],
)
@pytest.mark.parametrize("kl_mode", ["reverse", "reverse_exact"])
def test_a_guide_that_gives_no_q_is_named_before_it_becomes_a_loss(tmp_path, wrong, error, message, kl_mode):
    class Own(type(plugin("guide", "token"))):
        def q(self, inputs):
            return wrong(super().q(inputs))

    learner = make_learner(tiny_policy(tmp_path), guide=Own(**vars(plugin("guide", "token"))), kl_mode=kl_mode)
    with pytest.raises(error, match=message):
        update(learner, with_advantages(learner, batch_of(), 0), 0)
