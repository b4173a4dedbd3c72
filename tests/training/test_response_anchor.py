"""What is drawn from the anchor of whole responses, and the gradient that it gives, against enumeration of the bank."""

import math
from dataclasses import replace

import pytest
import torch

from sage.interfaces import Reward
from sage.rollout.native import NativeEngine
from sage.training.advantages import with_advantages
from sage.training.loop import Position, Training, train
from sage.training.metrics import update_metrics
from sage.training.response_anchor import ResponseAnchor
from sage.training.update import accumulate_anchor, update
from sage.types import Problem, Verdict, VerdictReason
from tests.fakes import SAMPLING, MemoryLogger, SilentProgress, small_bank, tiny_policy
from tests.training.test_update import batch_of, make_learner, move, plugin

GUIDES = ("none", "verdict", "verdict_flat")
# Of the samples of problem "0": wrong, two writings of "a", wrong, one of "b", wrong. Flat: "a" 1/4 each, "b" 1/2.
EXPECTED = {
    "none": [1 / 6] * 6,
    "verdict": [0, 1 / 3, 1 / 3, 0, 1 / 3, 0],
    "verdict_flat": [0, 1 / 4, 1 / 4, 0, 1 / 2, 0],
}


def shaped(guide, **changes):
    return ResponseAnchor.shape(small_bank(), plugin("guide", guide), plugin("kl_mode", "forward_bank", **changes))


@pytest.mark.parametrize("guide", GUIDES)
def test_the_anchor_is_the_bank_reweighted_by_the_guide(guide):
    anchor = shaped(guide)
    assert anchor.weights["0"].tolist() == pytest.approx(EXPECTED[guide])
    assert anchor.weights["2"].tolist() == ([0.5, 0.5] if guide == "none" else [0, 0])


@pytest.mark.parametrize("guide", GUIDES)
def test_draws_come_as_often_as_the_anchor_says_and_never_from_samples_without_weight(guide):
    drawn = shaped(guide, draws=6000).draw(["0"], 0, 0, "cpu").batch
    responses = [tuple(row[: int(m.sum())].tolist()) for row, m in zip(drawn.response_ids, drawn.mask, strict=True)]
    expected: dict[tuple, float] = {}
    for c, weight in zip(small_bank().groups["0"].completions, EXPECTED[guide], strict=True):
        expected[c.token_ids] = expected.get(c.token_ids, 0) + weight
    for response, share in expected.items():
        # Standard error of a share p of 6000 draws: at most sqrt(.25 / 6000) = .0065; four of them.
        assert responses.count(response) / 6000 == pytest.approx(share, abs=0.026 if share else 0)


def test_draws_are_functions_of_seed_step_and_problem_and_of_nothing_else():
    anchor = shaped("none", draws=20)

    def tokens(names, step=0, seed=0):
        return [c.token_ids for name in names for c in anchor._drawn(name, step, seed).completions]

    assert tokens(["0", "1"]) == tokens(["0"]) + tokens(["1"])
    assert len({tuple(tokens(["0"], *at)) for at in ((0, 0), (1, 0), (0, 1))}) == 3
    rows = anchor.draw(["1", "0"], 0, 0, "cpu").batch
    assert rows.problem_ids == ("1", "0")


@pytest.mark.parametrize(("weighting", "weights"), [("uniform", (1, 1)), ("hardness", (1, 1.5))])
def test_rows_weigh_their_problem_by_problems_and_draws(weighting, weights):
    """Problem "0" has pass rate 1/2, "1" 1/4, so hardness 1 and 1.5; three problems of two draws each: divided by 6."""
    rows = shaped("verdict", weighting=weighting, draws=2).draw(["0", "1", "2"], 0, 0, "cpu")
    assert rows.weights.tolist() == pytest.approx([weights[0] / 6] * 2 + [weights[1] / 6] * 2)


def test_problems_with_nothing_to_draw_give_no_rows_but_count_in_the_mean():
    anchor = shaped("verdict_flat", draws=1)
    assert anchor.draw(["2"], 0, 0, "cpu") is None
    assert anchor.draw(["0", "2"], 0, 0, "cpu").weights.tolist() == [0.5]
    solved = small_bank()
    always = replace(solved.groups["0"], verdicts=(solved.groups["0"].verdicts[1],) * 6)
    easy = ResponseAnchor.shape(
        replace(solved, groups={"0": always}),
        plugin("guide", "none"),
        plugin("kl_mode", "forward_bank", weighting="hardness"),
    )
    assert easy.draw(["0"], 0, 0, "cpu") is None, "hardness 2 * (1 - 1) = 0"


def enumerated_loss(policy, anchor, names, temperature, beta):
    """``beta * mean_x w(x) * sum_i anchor_i * -(1/|y_i|) log pi(y_i)``, one response at a time by plain softmax."""
    total = torch.zeros(())
    for name in names:
        group = anchor.bank.groups[name]
        for weight, sample in zip(anchor.weights[name].tolist(), group.completions, strict=True):
            ids = torch.tensor([*group.prompt_ids, *sample.token_ids])
            logprobs = (policy.model(ids[None]).logits[0, :-1] / temperature).log_softmax(-1)
            chosen = logprobs[torch.arange(len(ids) - 1), ids[1:]][len(group.prompt_ids) - 1 :]
            total = total - anchor.problem_weights[name] * weight * chosen.sum() / len(sample.token_ids)
    return beta * total / len(names)


def gradient_of(policy):
    found = torch.cat([p.grad.flatten() for p in policy.trainable_parameters()])
    for p in policy.trainable_parameters():
        p.grad = None
    return found


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("weighting", ["uniform", "hardness"])
def test_loss_and_gradient_of_many_draws_are_those_of_the_exact_expectation(tmp_path, guide, weighting):
    """4000 draws a problem against the sum over the bank, at the sampling temperature (K14)."""
    policy = tiny_policy(tmp_path)
    move(policy)
    mode = plugin("kl_mode", "forward_bank", weighting=weighting, draws=4000)
    learner = make_learner(policy, guide=guide, kl_mode=mode, micro_batch_size=4096)
    names = ["0", "1", "2"]
    exact = enumerated_loss(policy, learner.anchor, names, 0.9, mode.beta)
    exact.backward()
    expected = gradient_of(policy)
    drawn = learner.anchor.draw(names, 0, 0, "cpu")
    loss = sum(
        accumulate_anchor(learner, drawn.rows(slice(start, start + 4096))).loss for start in range(0, len(drawn), 4096)
    )
    assert loss == pytest.approx(exact.item(), rel=0.02)
    assert (gradient_of(policy) - expected).norm() < 0.05 * expected.norm()


def test_a_single_drawable_sample_gives_the_formula_to_rounding(tmp_path):
    """Problem "1" has one right sample, so the draws are the expectation."""
    policy = tiny_policy(tmp_path)
    move(policy)
    learner = make_learner(policy, guide="verdict", kl_mode="forward_bank")
    exact = enumerated_loss(policy, learner.anchor, ["1"], 0.9, learner.kl_mode.beta)
    exact.backward()
    expected = gradient_of(policy)
    terms = accumulate_anchor(learner, learner.anchor.draw(["1"], 0, 0, "cpu"))
    assert terms.loss == pytest.approx(exact.item(), rel=1e-5)
    torch.testing.assert_close(gradient_of(policy), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (1, 2), (2, 4), (1, 8)])
def test_the_mean_over_the_optimiser_steps_of_a_batch_is_the_whole_mean(tmp_path, epochs, minibatches):
    """With a learning rate of 0; three draws for each of two problems do not divide by four or eight."""
    policy = tiny_policy(tmp_path)
    mode = plugin("kl_mode", "forward_bank", draws=3)

    def results(**changes):
        learner = make_learner(policy, guide="none", kl_mode=mode, rate=0.0, micro_batch_size=2, **changes)
        return update(learner, with_advantages(learner, batch_of(), 0), 0)

    whole, dealt = results(), results(epochs=epochs, minibatches=minibatches)
    assert len(dealt.grad_norms) == epochs * minibatches
    expected = sum(t.loss for t in whole.anchor_terms)
    found = sum(t.loss for t in dealt.anchor_terms) / (epochs * minibatches)
    assert found == pytest.approx(expected, rel=1e-5)
    assert sum(len(t.cross_entropy) for t in dealt.anchor_terms) == 6 * epochs
    metrics = update_metrics(dealt)
    assert metrics["bank/loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["bank/draws"] == 6 * epochs


def test_a_step_whose_problems_have_nothing_to_draw_trains_on_the_rewards_alone(tmp_path):
    policy = tiny_policy(tmp_path)
    learner = make_learner(policy, guide="verdict", kl_mode="forward_bank")
    batch = batch_of().replace(problem_ids=("2", "2"))
    result = update(learner, with_advantages(learner, batch, 0), 0)
    assert result.anchor_terms == []
    assert "kl/anchor" not in update_metrics(result)


def test_no_reference_is_ever_asked_for(tmp_path, monkeypatch):
    policy = tiny_policy(tmp_path)
    monkeypatch.setattr(policy, "reference_stats", None)
    learner = make_learner(policy, guide="verdict", kl_mode="forward_bank")
    update(learner, with_advantages(learner, batch_of(), 0), 0)


def test_a_loss_of_the_bank_that_is_not_finite_stops_with_step_and_problems(tmp_path):
    learner = make_learner(tiny_policy(tmp_path), guide="verdict", kl_mode="forward_bank")
    broken = replace(learner.anchor, problem_weights={"0": math.inf, "1": 1.0, "2": 1.0})
    batch = with_advantages(learner, batch_of(), 0)
    with pytest.raises(FloatingPointError, match=r"step 4: loss of the bank is .*; problems 0, 1"):
        update(replace(learner, anchor=broken), batch, 4)


def test_a_mode_with_a_bank_needs_an_anchor_and_others_take_none(tmp_path):
    learner = make_learner(tiny_policy(tmp_path), guide="verdict", kl_mode="forward_bank")
    with pytest.raises(ValueError, match="expected a response anchor with a bank, and only then"):
        replace(learner, anchor=None)
    with pytest.raises(ValueError, match="expected a response anchor with a bank, and only then"):
        replace(learner, kl_mode=plugin("kl_mode", "reverse"))
    with pytest.raises(ValueError, match="ReverseKL has no bank"):
        ResponseAnchor.shape(small_bank(), plugin("guide", "none"), plugin("kl_mode", "reverse"))


class PaysEven(Reward):
    """Right when the first token is even."""

    def score(self, problem, completion):
        good = completion.token_ids[0] % 2 == 0
        return Verdict(reward=float(good), reason=VerdictReason.CORRECT if good else VerdictReason.WRONG)


@pytest.mark.parametrize("guide", GUIDES)
def test_the_loop_trains_logs_finite_numbers_and_counts_the_bank_as_spent(tmp_path, guide):
    policy, engine, logger = tiny_policy(tmp_path), NativeEngine(max_rows=64), MemoryLogger()
    engine.load_weights(policy)
    train(
        Training(
            learner=make_learner(policy, guide=guide, kl_mode="forward_bank"),
            engine=engine,
            reward=PaysEven(),
            problems=[Problem(id=name, prompt=f"{name} 7 :", answer="") for name in small_bank().groups],
            sampling=SAMPLING,
            steps=2,
            problems_per_step=2,
            completions_per_problem=4,
            seed=0,
            logger=logger,
            progress=SilentProgress(),
            after_step=lambda position: None,
            start=Position(step=0, samples=12, tokens=28),  # of the bank
        )
    )
    rows = [row for _, row in logger.rows]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert all(row["kl/anchor"] > 0 and row["kl/beta"] == 0.1 for row in rows)
    assert [row["progress/samples"] for row in rows] == [12 + 8, 12 + 16]
    assert rows[0]["progress/tokens"] == 28 + 8 * rows[0]["completion/tokens_mean"]
