"""Estimators against exact enumeration of a small vocabulary: the mean over tokens is a sum with weights pi(v)."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.maths.kl import bounded_ratio, exact_forward, exact_reverse, k1, k2, k3, score_ratio

LOGITS = [0.2, -0.1, 0.4]
REFERENCE = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REVERSE_GRADIENT = [-0.1732, -0.0756, 0.2488]
FORWARD_GRADIENT = [-0.1624, -0.0499, 0.2123]

seeds = st.integers(0, 10_000)


def distributions(seed: int) -> tuple[Tensor, Tensor]:
    """Logits of a policy of 6 tokens with gradient, and log-probs of a reference."""
    both = 1.5 * torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return both[0].clone().requires_grad_(), both[1].log_softmax(-1)


def gradient(loss: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss(logits.log_softmax(-1)), logits)[0]


def expected(
    estimator: Callable[[Tensor], Tensor], anchor: Tensor, *, ratio: bool = False
) -> Callable[[Tensor], Tensor]:
    """The on-policy mean of a token loss: the weights are the policy's probabilities without gradient."""

    def loss(policy: Tensor) -> Tensor:
        weight = score_ratio(policy, policy.detach(), 10.0) if ratio else 1.0
        return (policy.detach().exp() * weight * estimator(anchor - policy)).sum()

    return loss


def case(q: float = 1.0) -> tuple[Tensor, Tensor]:
    return torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True), (q * REFERENCE).log()


def assert_gradient(found: Tensor, numbers: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(numbers, dtype=torch.float64), rtol=0, atol=5.1e-5)


def test_k3_descends_the_forward_kl_and_the_others_the_reverse_kl() -> None:
    """K09."""
    logits, anchor = case()
    assert_gradient(gradient(lambda policy: exact_reverse(policy, anchor), logits), REVERSE_GRADIENT)
    assert_gradient(gradient(expected(k2, anchor), logits), REVERSE_GRADIENT)
    assert_gradient(gradient(expected(k3, anchor, ratio=True), logits), REVERSE_GRADIENT)
    assert_gradient(gradient(expected(k1, anchor, ratio=True), logits), REVERSE_GRADIENT)
    # pi - ref = (.3262 - .5, ...) for a normalised anchor.
    assert_gradient(gradient(lambda policy: exact_forward(policy, anchor), logits), FORWARD_GRADIENT)
    assert_gradient(gradient(expected(k3, anchor), logits), FORWARD_GRADIENT)


def test_k1_as_a_loss_has_no_expected_gradient() -> None:
    """K10."""
    logits, anchor = case()
    assert gradient(expected(k1, anchor), logits).abs().max() < 1e-7


def test_a_factor_shared_by_all_tokens_scales_k3_and_cancels_in_the_reverse_kl() -> None:
    """K12: q = (1.4, 1.4, 1.4); for k3 1.4 * (-.1624, -.0499, .2123) = (-.2274, -.0699, .2973)."""
    logits, anchor = case(q=1.4)
    assert_gradient(gradient(lambda policy: exact_reverse(policy, anchor), logits), REVERSE_GRADIENT)
    assert_gradient(gradient(expected(k3, anchor, ratio=True), logits), REVERSE_GRADIENT)
    assert_gradient(gradient(expected(k2, anchor), logits), REVERSE_GRADIENT)
    assert_gradient(gradient(expected(k3, anchor), logits), [-0.2274, -0.0699, 0.2973])
    assert_gradient(gradient(lambda policy: exact_forward(policy, anchor), logits), [-0.2274, -0.0699, 0.2973])


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_k1_and_k3_have_the_kl_as_their_mean(seed: int) -> None:
    logits, anchor = distributions(seed)
    policy = logits.log_softmax(-1)
    exact = exact_reverse(policy, anchor)
    torch.testing.assert_close(expected(k1, anchor)(policy), exact)
    torch.testing.assert_close(expected(k3, anchor)(policy), exact)


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_gradients_equal_exact_enumeration(seed: int) -> None:
    logits, anchor = distributions(seed)
    reverse = gradient(lambda policy: exact_reverse(policy, anchor), logits)
    forward = gradient(lambda policy: exact_forward(policy, anchor), logits)
    torch.testing.assert_close(gradient(expected(k2, anchor), logits), reverse)
    torch.testing.assert_close(gradient(expected(k1, anchor, ratio=True), logits), reverse)
    torch.testing.assert_close(gradient(expected(k3, anchor, ratio=True), logits), reverse)
    torch.testing.assert_close(gradient(expected(k3, anchor), logits), forward)
    torch.testing.assert_close(forward, logits.softmax(-1) - anchor.exp())


def test_k2_times_the_ratio_is_biased() -> None:
    """Why no estimator of that name exists: its expected gradient is E[(d^2 / 2 - d) grad log pi], and the one of -d
    alone is that of the reverse KL."""
    logits, anchor = distributions(0)
    reverse = gradient(lambda policy: exact_reverse(policy, anchor), logits)
    excess = gradient(expected(k2, anchor, ratio=True), logits) - reverse
    policy = logits.log_softmax(-1)
    half_square = 0.5 * (anchor - policy.detach()).square()
    torch.testing.assert_close(excess, torch.autograd.grad((policy.exp() * half_square).sum(), logits)[0])
    assert excess.norm() > 0.1 * reverse.norm()


@settings(max_examples=60, deadline=None)
@given(d=st.floats(-80, 80, width=32))
def test_k3_is_never_negative(d: float) -> None:
    assert k3(torch.tensor(d)).item() >= 0


@settings(max_examples=25, deadline=None)
@given(seed=seeds, mass=st.floats(0.2, 3.0))
def test_the_generalised_forward_kl_is_never_negative(seed: int, mass: float) -> None:
    logits, anchor = distributions(seed)
    assert exact_forward(logits.log_softmax(-1), anchor + torch.tensor(mass).log()).item() >= 0


def test_every_divergence_is_zero_where_policy_and_anchor_agree() -> None:
    policy = torch.tensor(LOGITS).log_softmax(-1)
    for estimator in (k1, k2, k3):
        assert not estimator(policy - policy).any()
    assert exact_reverse(policy, policy).item() == 0
    assert exact_forward(policy, policy).item() == pytest.approx(0, abs=1e-7)


def test_ratios_are_exactly_one_on_policy_and_bounded_off_it() -> None:
    policy = torch.tensor([-1.0, -1.0, -4.0], requires_grad=True)
    old = torch.tensor([-1.0, -4.0, -1.0])
    # e^0 = 1; e^3 = 20.1 is cut to 10; e^-3.
    wanted = torch.tensor([1.0, 10.0, torch.tensor(-3.0).exp().item()])
    assert torch.equal(bounded_ratio(policy, old, 10.0), wanted)
    assert not bounded_ratio(policy, old, 10.0).requires_grad
    ratio = score_ratio(policy, old, 10.0)
    assert torch.equal(ratio.detach(), wanted)
    # d(ratio) / d(log pi) = ratio, with the bound in place of a ratio beyond it.
    torch.testing.assert_close(torch.autograd.grad(ratio.sum(), policy)[0], wanted)
