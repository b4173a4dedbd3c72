import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.maths.advantages import gae, group_relative, leave_one_out, whiten
from sage.maths.masking import response_mask

NAN = float("nan")
rewards_of_four = st.lists(st.floats(-5, 5, width=32), min_size=4, max_size=4)


@pytest.mark.parametrize("scale_by_std", [True, False])
def test_a_group_of_equal_rewards_gets_exact_zeros(scale_by_std: bool) -> None:
    """K01: [1, 1, 1, 1] gives zeros; [1, 0, 0, 0] is finite and sums to 0."""
    result = group_relative(torch.tensor([1.0, 1, 1, 1, 1, 0, 0, 0]), 4, scale_by_std=scale_by_std)
    assert torch.equal(result[:4], torch.zeros(4))
    assert result[4:].sum().item() == pytest.approx(0, abs=1e-6)
    assert result[4] > 0 > result[5]


def test_equal_rewards_whose_mean_rounds_get_exact_zeros() -> None:
    """K01: (0.1 + 0.1 + 0.1) / 3 is not 0.1 in floating point."""
    assert not group_relative(torch.full((3,), 0.1, dtype=torch.float64), 3, scale_by_std=True).any()


def test_the_standard_deviation_is_that_of_a_sample() -> None:
    # Rewards 1, 0, 0, 0: mean 1/4, squares 9/16 + 3/16 = 3/4, over 3 is 1/4, so std 1/2; (3/4) / (1/2 + 1e-4).
    result = group_relative(torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), 4, scale_by_std=True)
    assert result.tolist() == pytest.approx([0.75 / 0.5001] + [-0.25 / 0.5001] * 3)
    # Without scaling: the distance from the mean.
    plain = group_relative(torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), 4, scale_by_std=False)
    assert plain.tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("scale_by_std", [True, False])
def test_one_completion_a_prompt_has_advantage_zero(scale_by_std: bool) -> None:
    """K02: the spread of one number is not NaN."""
    assert torch.equal(group_relative(torch.tensor([1.0, 0, 3, 2]), 1, scale_by_std=scale_by_std), torch.zeros(4))


def test_a_missing_reward_drops_out_and_the_others_stay_finite() -> None:
    """K03: [1, NaN, 0, 1]."""
    result = group_relative(torch.tensor([1, NAN, 0, 1], dtype=torch.float64), 4, scale_by_std=True)
    # Of 1, 0, 1: mean 2/3, squares 1/9 + 4/9 + 1/9 = 2/3, over 2 is 1/3.
    std = (1 / 3) ** 0.5
    assert result.tolist() == pytest.approx([1 / 3 / (std + 1e-4), 0, -2 / 3 / (std + 1e-4), 1 / 3 / (std + 1e-4)])


def test_groups_with_one_reward_or_none_left_get_zeros() -> None:
    """K03."""
    result = group_relative(torch.tensor([NAN, 1.0, NAN, NAN]), 2, scale_by_std=True)
    assert torch.equal(result, torch.zeros(4))


@settings(max_examples=25, deadline=None)
@given(rewards=rewards_of_four, order=st.permutations(range(4)), scale_by_std=st.booleans())
def test_the_order_within_a_group_is_irrelevant(rewards: list[float], order: list[int], scale_by_std: bool) -> None:
    values = torch.tensor(rewards, dtype=torch.float64)
    shuffled = group_relative(values[order], 4, scale_by_std=scale_by_std)
    torch.testing.assert_close(shuffled, group_relative(values, 4, scale_by_std=scale_by_std)[order])


@settings(max_examples=25, deadline=None)
@given(rewards=rewards_of_four, other=rewards_of_four, scale_by_std=st.booleans())
def test_groups_do_not_see_each_other(rewards: list[float], other: list[float], scale_by_std: bool) -> None:
    alone = group_relative(torch.tensor(rewards), 4, scale_by_std=scale_by_std)
    together = group_relative(torch.tensor(other + rewards), 4, scale_by_std=scale_by_std)
    assert torch.equal(together[4:], alone)
    assert together.isfinite().all()


def test_rows_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="6 rewards do not divide into groups of 4"):
        group_relative(torch.zeros(6), 4, scale_by_std=True)


def test_the_baseline_of_a_response_is_the_mean_of_the_others() -> None:
    # 1 - (0 + 0.5 + 0)/3, 0 - (1 + 0.5 + 0)/3, 0.5 - (1 + 0 + 0)/3, 0 - (1 + 0 + 0.5)/3
    found = leave_one_out(torch.tensor([1.0, 0.0, 0.5, 0.0], dtype=torch.float64), 4)
    assert found.tolist() == pytest.approx([5 / 6, -1 / 2, 1 / 6, -1 / 2])


@settings(max_examples=40, deadline=None)
@given(
    rewards=st.lists(st.one_of(st.floats(-5, 5, width=32), st.just(NAN)), min_size=6, max_size=6),
    group_size=st.sampled_from([1, 2, 3, 6]),
)
def test_leave_one_out_equals_brute_force(rewards: list[float], group_size: int) -> None:
    """K03: missing rewards drop out, as a response and as a baseline."""
    found = leave_one_out(torch.tensor(rewards, dtype=torch.float64), group_size).tolist()
    for i, reward in enumerate(rewards):
        start = i // group_size * group_size
        others = [r for j, r in enumerate(rewards[start : start + group_size], start) if j != i and r == r]
        if reward != reward or not others:
            assert found[i] == 0
        else:
            assert found[i] == pytest.approx(reward - sum(others) / len(others), abs=1e-12)


def test_leave_one_out_gives_exact_zeros_for_equal_rewards() -> None:
    """K01, K02: also where the mean of equal rewards rounds, and for a group of one."""
    assert not leave_one_out(torch.full((6,), 0.1, dtype=torch.float64), 3).any()
    assert not leave_one_out(torch.tensor([1.0, 0.0]), 1).any()


def test_leave_one_out_leaves_the_policy_gradient_unbiased() -> None:
    """The mean over all groups of two is the exact gradient of E[r]; the mean baseline gives half of it."""
    logits = torch.tensor([0.3, -0.2, 0.8], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 0.4], dtype=torch.float64)
    policy = logits.log_softmax(-1)
    first, second = torch.arange(3).repeat_interleave(3), torch.arange(3).repeat(3)
    chance = (policy[first] + policy[second]).exp().detach()
    exact = torch.autograd.grad((policy.exp() * rewards).sum(), logits, retain_graph=True)[0]
    pairs = torch.stack([first, second], dim=-1).flatten()
    for advantages, share in (
        (leave_one_out(rewards[pairs], 2), 1.0),
        (group_relative(rewards[pairs], 2, scale_by_std=False), 0.5),
    ):
        score = (advantages * policy[pairs]).view(-1, 2).mean(-1)
        found = torch.autograd.grad((chance * score).sum(), logits, retain_graph=True)[0]
        torch.testing.assert_close(found, share * exact)


def test_gae_by_hand() -> None:
    # gamma 1/2, lambda 1/2. Errors: 1 + 4/2 - 2 = 1, 0 + 8/2 - 4 = 0, 2 + 0 - 8 = -6.
    # Advantages from the end: -6, 0 - 6/4 = -1.5, 1 - 1.5/4 = 0.625; returns add the values 2, 4, 8.
    mask = response_mask(torch.tensor([3]), 4)
    rewards, values = torch.tensor([[1.0, 0.0, 2.0, 9.0]]), torch.tensor([[2.0, 4.0, 8.0, 9.0]])
    advantages, returns = gae(rewards, values, mask, discount=0.5, trace=0.5)
    assert advantages.tolist() == [[0.625, -1.5, -6.0, 0.0]]
    assert returns.tolist() == [[2.625, 2.5, 2.0, 0.0]]


def brute_force_gae(rewards: list[float], values: list[float], discount: float, trace: float) -> list[float]:
    """The definition: the geometric mean over n of the n-step advantages (the paper's equation 14), last one completed."""
    count = len(rewards)

    def n_step(t: int, n: int) -> float:
        end = min(t + n, count)
        tail = discount ** (end - t) * values[end] if end < count else 0.0
        return sum(discount ** (s - t) * rewards[s] for s in range(t, end)) + tail - values[t]

    def advantage(t: int) -> float:
        left = count - t
        weighted = [(1 - trace) * trace ** (n - 1) * n_step(t, n) for n in range(1, left)]
        return sum(weighted) + trace ** (left - 1) * n_step(t, left)

    return [advantage(t) for t in range(count)]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999), length=st.integers(0, 5), discount=st.floats(0, 1), trace=st.floats(0.01, 1))
def test_gae_equals_the_mean_of_n_step_advantages(seed: int, length: int, discount: float, trace: float) -> None:
    rewards, values = torch.randn(2, 1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mask = response_mask(torch.tensor([length]), 5)
    found, returns = gae(rewards, values, mask, discount=discount, trace=trace)
    exact = brute_force_gae(rewards[0, :length].tolist(), values[0, :length].tolist(), discount, trace)
    assert found[0].tolist() == pytest.approx(exact + [0.0] * (5 - length))
    torch.testing.assert_close(returns[mask], found[mask] + values[mask])


def test_gae_without_trace_is_the_one_step_error_and_with_full_trace_the_return() -> None:
    rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.25, 0.5, 0.75]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert gae(rewards, values, mask, discount=1.0, trace=0.0)[0].tolist() == [[0.25, 0.25, 0.25]]
    assert gae(rewards, values, mask, discount=1.0, trace=1.0)[0].tolist() == [[0.75, 0.5, 0.25]]


def test_gae_looks_at_no_padding_and_keeps_no_gradient() -> None:
    mask = response_mask(torch.tensor([2, 0]), 3)
    rewards = torch.ones(2, 3).masked_fill(~mask, NAN)
    values = torch.ones(2, 3).masked_fill(~mask, torch.inf).requires_grad_()
    advantages, returns = gae(rewards, values, mask, discount=0.9, trace=0.9)
    assert advantages.isfinite().all()
    assert not advantages[~mask].any()
    assert not advantages.requires_grad
    assert not returns.requires_grad


def test_whitened_values_have_mean_zero_and_deviation_one_over_trained_tokens() -> None:
    values: Tensor = torch.tensor([[2.0, 4.0, NAN], [6.0, NAN, NAN]])
    # 2, 4, 6: mean 4, sample standard deviation 2.
    found = whiten(values, ~values.isnan())
    torch.testing.assert_close(found, torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))


def test_whitening_equal_values_gives_exact_zeros() -> None:
    """K01."""
    values, mask = torch.full((2, 3), 0.1), response_mask(torch.tensor([3, 2]), 3)
    assert not whiten(values, mask).any()
    assert not whiten(values, response_mask(torch.tensor([1, 0]), 3)).any()
    assert not whiten(values, torch.zeros(2, 3, dtype=torch.bool)).any()
