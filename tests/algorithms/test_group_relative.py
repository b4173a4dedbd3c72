from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.algorithms.group_relative import GroupRelative
from sage.maths.masking import response_mask
from sage.types import Batch, BatchCounts, Group, Problem, Verdict, VerdictReason

CONF = Path(__file__).parents[2] / "conf" / "algorithm"


def group_relative(**changes: Any) -> GroupRelative:
    options: dict[str, Any] = {
        "epochs": 1,
        "minibatches": 1,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "baseline": "mean",
        "scale_by_std": False,
        "ratio": "token",
        "aggregation": "grpo",
        "overlong_share": 0.0,
        "dynamic_sampling": 0,
    }
    return GroupRelative(**(options | changes))


def batch(rewards: list[float], lengths: list[int], group_size: int) -> Batch:
    mask = response_mask(torch.tensor(lengths), max(lengths))
    ids = torch.zeros_like(mask, dtype=torch.long)
    return Batch(
        input_ids=ids,
        prompt_lengths=torch.ones(len(rewards), dtype=torch.long),
        response_ids=ids,
        mask=mask,
        sampler_logprobs=torch.zeros(mask.shape),
        rewards=torch.tensor(rewards),
        noise_keys=torch.arange(len(rewards)),
        group_size=group_size,
        max_completion_tokens=max(lengths),
    )


def test_every_trained_token_gets_the_advantage_of_its_response() -> None:
    # Rewards 1 and 0 of one group: +1/2 and -1/2.
    advantages = group_relative().advantages(batch([1.0, 0.0], [3, 1], 2), None)
    assert advantages.tolist() == [[0.5, 0.5, 0.5], [-0.5, 0.0, 0.0]]


def test_token_rewards_count_on_trained_tokens_only() -> None:
    # Returns 1 + (0.5 + 0.5) = 2 and 0 + 1 = 1; the 9s stand on padding.
    token_rewards = torch.tensor([[0.5, 0.5, 9.0], [1.0, 9.0, 9.0]])
    rows = batch([1.0, 0.0], [3, 1], 2).replace(mask=response_mask(torch.tensor([2, 1]), 3))
    advantages = group_relative().advantages(rows, token_rewards)
    assert advantages.tolist() == [[0.5, 0.5, 0.0], [-0.5, 0.0, 0.0]]


def test_an_abstained_verdict_leaves_the_others_finite() -> None:
    """K03: rewards [1, NaN, 0, 1]; the second response is masked."""
    rows = batch([1.0, float("nan"), 0.0, 1.0], [2, 0, 2, 2], 4)
    advantages = group_relative().advantages(rows, torch.zeros(4, 2))
    # Mean of 1, 0, 1 is 2/3.
    torch.testing.assert_close(advantages[:, 0], torch.tensor([1 / 3, 0.0, -2 / 3, 1 / 3]))


@pytest.mark.parametrize("scale_by_std", [True, False])
def test_groups_of_equal_rewards_get_exact_zeros(scale_by_std: bool) -> None:
    """K01."""
    rows = batch([1.0] * 4 + [1.0, 0.0, 0.0, 0.0], [2] * 8, 4)
    advantages = group_relative(scale_by_std=scale_by_std).advantages(rows, None)
    assert not advantages[:4].any()
    assert advantages.isfinite().all()
    torch.testing.assert_close(advantages[4:, 0].sum(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_a_fully_masked_micro_batch_trains_nothing() -> None:
    """K07, through surrogate and aggregation, with log-probs that are not numbers."""
    mask = torch.zeros(4, 3, dtype=torch.bool)
    counts = BatchCounts(sequences=4, tokens=0, max_completion_tokens=3)
    for aggregation in ("grpo", "bnpo", "dapo", "dr_grpo", "sum"):
        policy = torch.full((4, 3), float("nan"), requires_grad=True)
        algorithm = group_relative(aggregation=aggregation)
        term = algorithm.surrogate(policy, torch.zeros(4, 3), torch.zeros(4, 3), mask)
        loss = algorithm.aggregate(term.loss, mask, counts)
        assert loss.item() == 0
        assert not torch.autograd.grad(loss, policy)[0].any()
        assert not term.clipped.any()
        assert torch.equal(term.ratio, torch.ones(4, 3))


def test_on_policy_the_gradient_is_that_of_the_policy_gradient() -> None:
    """The loss is minus the mean advantage, here 0, while its gradient is -A / rows a token of length-1 responses."""
    policy = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    advantages, mask = torch.tensor([[0.5], [-0.5]]), torch.ones(2, 1, dtype=torch.bool)
    algorithm = group_relative()
    term = algorithm.surrogate(policy, policy.detach(), advantages, mask)
    loss = algorithm.aggregate(term.loss, mask, BatchCounts(sequences=2, tokens=2, max_completion_tokens=1))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, policy)[0].tolist() == [[-0.25], [0.25]]
    assert not term.ratio.requires_grad


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("grpo", {"scale_by_std": True}),
        ("bnpo", {"scale_by_std": True, "aggregation": "bnpo"}),
        (
            "dapo",
            {
                "scale_by_std": True,
                "aggregation": "dapo",
                "clip_high": 0.28,
                "overlong_share": 0.2,
                "dynamic_sampling": 3,
            },
        ),
        ("dr_grpo", {"aggregation": "dr_grpo"}),
        ("rloo", {"baseline": "leave_one_out", "aggregation": "sum"}),
        ("gspo", {"scale_by_std": True, "ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4, "minibatches": 4}),
    ],
)
def test_each_variant_is_a_yaml_of_the_same_class(name: str, changes: dict[str, Any]) -> None:
    assert instantiate(OmegaConf.load(CONF / f"{name}.yaml")) == group_relative(**changes)


RLOO = group_relative(baseline="leave_one_out", aggregation="sum")


def test_rloo_compares_each_return_with_the_mean_of_the_others() -> None:
    # Returns 1, 0, 0 - 0.5: 1 - (0 - 0.5)/2, 0 - (1 - 0.5)/2, -0.5 - (1 + 0)/2.
    rows = batch([1.0, 0.0, 0.0], [2, 1, 1], 3)
    token_rewards = torch.tensor([[0.0, 0.0], [0.0, 9.0], [-0.5, 9.0]])
    advantages = RLOO.advantages(rows, token_rewards)
    assert advantages.tolist() == [[1.25, 1.25], [-0.25, 0.0], [-1.0, 0.0]]


def test_rloo_drops_an_abstained_verdict() -> None:
    """K03: of 1, 0, 1 the others' means are 1/2, 1, 1/2."""
    advantages = RLOO.advantages(batch([1.0, float("nan"), 0.0, 1.0], [1, 0, 1, 1], 4), None)
    torch.testing.assert_close(advantages, torch.tensor([[0.5], [0.0], [-1.0], [0.5]]))


def test_rloo_gives_equal_returns_exact_zeros() -> None:
    """K01."""
    assert not RLOO.advantages(batch([0.1] * 3, [2] * 3, 3), None).any()


def test_rloo_adds_up_the_tokens_of_a_response() -> None:
    """The gradient of a token is -A / rows, however long its response is."""
    policy = torch.full((2, 3), -1.0, requires_grad=True)
    mask = response_mask(torch.tensor([3, 1]), 3)
    advantages = torch.tensor([[1.0] * 3, [-1.0] * 3]) * mask
    term = RLOO.surrogate(policy, policy.detach(), advantages, mask)
    loss = RLOO.aggregate(term.loss, mask, BatchCounts(sequences=2, tokens=4, max_completion_tokens=3))
    assert torch.autograd.grad(loss, policy)[0].tolist() == [[-0.5, -0.5, -0.5], [0.5, 0.0, 0.0]]


def test_a_sequence_ratio_clips_whole_responses() -> None:
    policy = torch.tensor([[0.4, 0.0], [0.1, 0.1]], requires_grad=True)
    # exp(0.2) = 1.2214 is above 1.2 and clipped on both tokens, although the second token's own ratio is 1; exp(0.1) is not.
    mask, advantages = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2)
    term = group_relative(ratio="sequence").surrogate(policy, torch.zeros(2, 2), advantages, mask)
    assert term.clipped.tolist() == [[True, True], [False, False]]
    torch.testing.assert_close(term.ratio[:, 0], torch.tensor([0.2, 0.1]).exp())
    gradient = torch.autograd.grad(term.loss.sum(), policy)[0]
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0], [-1.105171, -1.105171]]))


def test_on_policy_token_and_sequence_ratios_have_the_same_gradient() -> None:
    policy = torch.tensor([[-0.4, -1.0, -2.0], [-0.1, -3.0, 0.0]], requires_grad=True)
    mask, advantages = response_mask(torch.tensor([3, 2]), 3), torch.tensor([[1.0] * 3, [-2.0] * 3])
    gradients = [
        torch.autograd.grad(
            group_relative(ratio=ratio).surrogate(policy, policy.detach(), advantages, mask).loss.sum(), policy
        )[0]
        for ratio in ("token", "sequence")
    ]
    torch.testing.assert_close(*gradients)


def group(*rewards: float | None) -> Group:
    verdicts = tuple(Verdict(reward=reward, reason=VerdictReason.WRONG) for reward in rewards)
    problem = Problem(id="p", prompt="", answer="")
    return Group(problem=problem, prompt_ids=(1,), completions=(), verdicts=verdicts)


def test_dynamic_sampling_keeps_groups_with_spread() -> None:
    """K01: a group of equal rewards teaches nothing; one that abstains has no reward at all."""
    dapo = group_relative(dynamic_sampling=3)
    assert dapo.max_refills == 3
    assert [dapo.keep(group(*rewards)) for rewards in ((1.0, 0.0), (1.0, 1.0), (1.0, None), (None, None))] == [
        True,
        False,
        False,
        False,
    ]
    assert group_relative().keep(group(1.0, 1.0))


def test_overlong_responses_are_paid_less() -> None:
    """DAPO: the last fifth of 10 tokens, 2, is the slope: 8, 9 and 10 tokens lose 0, 1/2 and 1."""
    rows = batch([1.0, 1.0, 1.0], [8, 9, 10], 3)
    advantages = group_relative(overlong_share=0.2).advantages(rows, None)
    # Rewards 1, 1/2, 0 have the mean 1/2.
    torch.testing.assert_close(advantages[:, 0], torch.tensor([0.5, 0.0, -0.5]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregation": "mean"}, r"algorithm\.aggregation=mean: expected one of grpo, bnpo, dapo, dr_grpo, sum"),
        ({"baseline": "value"}, r"algorithm\.baseline=value: expected one of mean, leave_one_out"),
        ({"ratio": "response"}, r"algorithm\.ratio=response: expected one of token, sequence"),
        (
            {"baseline": "leave_one_out", "scale_by_std": True},
            r"algorithm\.scale_by_std=true with algorithm\.baseline=leave_one_out.*type algorithm\.baseline=mean",
        ),
        ({"clip_low": 1.5}, r"algorithm\.clip_low=1\.5: expected a number in \[0, 1\]"),
        ({"clip_high": -0.1}, r"algorithm\.clip_high=-0\.1"),
        ({"overlong_share": 1.5}, r"algorithm\.overlong_share=1\.5: expected a number in \[0, 1\]"),
        ({"dynamic_sampling": -1}, r"algorithm\.dynamic_sampling=-1: expected a whole number >= 0"),
        ({"epochs": 0}, r"algorithm\.epochs=0: expected a whole number >= 1"),
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_relative(**changes)


def test_a_kl_in_the_reward_keeps_its_size_where_verdicts_agree() -> None:
    """All verdicts 0, token rewards -beta and +beta: advantages are proportional to beta, not of unit size."""
    algorithm = group_relative(scale_by_std=True)
    for beta in (1e-3, 1.0, 1e3):
        advantages = algorithm.advantages(batch([0.0, 0.0], [1, 1], 2), torch.tensor([[-beta], [beta]]))
        torch.testing.assert_close(advantages, torch.tensor([[-beta], [beta]]))


def test_a_small_kl_in_the_reward_is_not_lost_beside_a_verdict() -> None:
    """1 + 1e-9 is 1 in float32: the two are centred apart. An abstained row takes no part."""
    algorithm = group_relative(scale_by_std=True)
    rewards = torch.tensor([[-1e-9], [1e-9], [5.0]])
    advantages = algorithm.advantages(batch([1.0, 1.0, float("nan")], [1, 1, 1], 3), rewards)
    torch.testing.assert_close(advantages, torch.tensor([[-1e-9], [1e-9], [0.0]]), atol=0, rtol=1e-5)


def test_verdicts_are_scaled_and_a_kl_in_the_reward_is_added_to_them() -> None:
    """Verdicts 1 0: mean .5, sample std .70711, +-.5/(.70711 + 1e-4) = +-.70701; token rewards .2 0 centred: +-.1."""
    algorithm = group_relative(scale_by_std=True)
    advantages = algorithm.advantages(batch([1.0, 0.0], [1, 1], 2), torch.tensor([[0.2], [0.0]]))
    torch.testing.assert_close(advantages, torch.tensor([[0.80701], [-0.80701]]), atol=1e-5, rtol=0)
