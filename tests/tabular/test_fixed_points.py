"""Where training ends, loss by loss: a tabular policy, the real loss code, exact expectations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.kl import exact_reverse
from tests.tabular.fixed_points import exponential, hyperbolic, sequence_optimum, token_fixed_point
from tests.tabular.world import World, expected_gradient, mode, total_variation, train, world

CLOSE = 1e-3
seeds, betas = st.integers(0, 100_000), st.floats(0.2, 1.5)
sizes = st.sampled_from([(2, 3, True), (2, 3, False), (3, 2, True), (3, 2, False), (3, 3, True), (4, 1, False)])
"""Vocabulary, longest response, and whether token 0 ends a response early."""
draws = settings(max_examples=20, deadline=None, derandomize=True)


def distance(w: World, estimator: str, beta: float, target: torch.Tensor) -> float:
    # The natural gradient with step 1 / beta would jump onto the fixed point of the reverse KL at a state; half of that
    # halves the distance with every step. For k3 the curvature is at most range(Q) + beta * mass(a) <= 1 + 1.4 * beta.
    if estimator == "k3":
        logits = train(w, mode(estimator, beta), rate=1 / (1 + 1.4 * beta), steps=120)
    else:
        logits = train(w, mode(estimator, beta), rate=0.5 / beta, steps=25)
    return total_variation(w.responses(logits), target)


@draws
@given(seed=seeds, beta=betas, size=sizes)
def test_in_the_reward_training_ends_at_the_maximiser_of_the_objective(
    seed: int, beta: float, size: tuple[int, int, bool]
) -> None:
    w = world(seed, vocabulary=size[0], length=size[1], end_token=size[2])
    assert distance(w, "reverse_exact", beta, sequence_optimum(w, beta)) < CLOSE


@pytest.mark.parametrize("estimator", ["reverse_exact", "k2", "k1_ratio", "k3_ratio", "exact"])
@draws
@given(seed=seeds, beta=betas, vocabulary=st.integers(2, 4))
def test_with_one_token_every_reverse_kl_ends_at_the_maximiser(
    estimator: str, seed: int, beta: float, vocabulary: int
) -> None:
    w = world(seed, vocabulary=vocabulary, length=1, end_token=False)
    assert distance(w, estimator, beta, sequence_optimum(w, beta)) < CLOSE


@pytest.mark.parametrize("estimator", ["k2", "k3_ratio", "exact"])
@draws
@given(seed=seeds, beta=betas, size=sizes)
def test_with_more_tokens_the_reverse_kl_in_the_loss_ends_at_its_own_fixed_point(
    estimator: str, seed: int, beta: float, size: tuple[int, int, bool]
) -> None:
    """pi(v | s) proportional to q * ref(v | s) * exp(Q(s, v) / beta), with Q free of KL."""
    w = world(seed, vocabulary=size[0], length=size[1], end_token=size[2])
    assert distance(w, estimator, beta, token_fixed_point(w, beta, exponential)) < CLOSE


@draws
@given(seed=seeds, beta=betas, size=sizes)
def test_k3_in_the_loss_ends_where_its_derivation_says(seed: int, beta: float, size: tuple[int, int, bool]) -> None:
    """K09: pi(v | s) = beta * q * ref(v | s) / (level - Q(s, v))."""
    w = world(seed, vocabulary=size[0], length=size[1], end_token=size[2])
    assert distance(w, "k3", beta, token_fixed_point(w, beta, hyperbolic)) < CLOSE


def rare_and_right(length: int) -> World:
    """The last of the responses pays 1, the others nothing; the reference is uniform and the guide favours token 1."""
    w = world(0, vocabulary=2, length=length, end_token=False)
    rewards = torch.zeros_like(w.rewards)
    rewards[-1] = 1.0
    reference = torch.full_like(w.reference, 0.5).log()
    log_q = torch.tensor([0.6, 1.4], dtype=torch.float64).log().expand_as(reference)
    return World(
        tokens=w.tokens, states=w.states, mask=w.mask, rewards=rewards, reference=reference, log_q=log_q.clone()
    )


@pytest.mark.parametrize("length", [1, 3])
def test_the_three_ends_are_different_places(length: int) -> None:
    """K09: the tests above could not tell the losses apart if their fixed points agreed."""
    w, beta = rare_and_right(length), 0.5
    ends = {
        "reverse_exact": sequence_optimum(w, beta),
        "k3_ratio": token_fixed_point(w, beta, exponential),
        "k3": token_fixed_point(w, beta, hyperbolic),
    }
    for estimator in ends:
        distances = {name: distance(w, estimator, beta, end) for name, end in ends.items()}
        assert distances[estimator] < CLOSE
        if length > 1:
            assert min(value for name, value in distances.items() if name != estimator) > 0.03
    assert total_variation(ends["k3"], ends["reverse_exact"]) > 0.05
    if length == 1:
        torch.testing.assert_close(ends["k3_ratio"], ends["reverse_exact"])


def test_k3_on_one_token_by_hand() -> None:
    """Two tokens, ref 1/2 each, no guide, r = (0, 1), beta = 1/2.

    p = b a / (level - 1) and 1 - p = b a / level with b a = 1/4: 1/4 (1 / (l - 1) + 1 / l) = 1, so 4 l^2 - 6 l + 1 = 0,
    l = (3 + sqrt 5) / 4 = 1.30902 and p = 0.25 / 0.30902 = 0.80902. The reverse KL gives 1 / (1 + e^-2) = 0.88080.
    """
    w = world(0, vocabulary=2, length=1, end_token=False)
    even = torch.full((1, 2), 0.5, dtype=torch.float64).log()
    rewards, none = torch.tensor([0.0, 1.0], dtype=torch.float64), torch.zeros_like(even)
    w = World(tokens=w.tokens, states=w.states, mask=w.mask, rewards=rewards, reference=even, log_q=none)
    for estimator, p in (("k3", 0.80902), ("k2", 0.88080), ("k3_ratio", 0.88080), ("reverse_exact", 0.88080)):
        target = torch.tensor([1 - p, p], dtype=torch.float64)
        assert distance(w, estimator, 0.5, target) < 1e-4


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=seeds, beta=betas, size=sizes)
def test_in_the_reward_the_mean_gradient_is_that_of_the_objective(
    seed: int, beta: float, size: tuple[int, int, bool]
) -> None:
    """Not only the end point: at any policy the loss has the gradient of -J = -E[r] + beta KL(pi || q ref / Z)."""
    w = world(seed, vocabulary=size[0], length=size[1], end_token=size[2])
    logits = torch.randn(w.reference.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    logits.requires_grad_()
    responses = w.table(logits).sum(-1)
    anchor = w.pick(w.reference + w.log_q).sum(-1).log_softmax(-1)
    objective = (responses.exp() * w.rewards).sum() - beta * exact_reverse(responses, anchor)
    exact = -torch.autograd.grad(objective, logits)[0]
    torch.testing.assert_close(expected_gradient(w, logits, mode("reverse_exact", beta)), exact)
