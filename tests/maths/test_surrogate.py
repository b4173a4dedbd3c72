import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.masking import masked_mean, response_mask
from sage.maths.surrogate import (
    clip_active,
    clipped_policy_term,
    clipped_value_term,
    explained_variance,
    importance_ratio,
    sequence_ratio,
)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "active"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -2.56, True),  # -1.28 * 2
        (1.5, -2.0, 3.0, False),  # the clip would make it smaller: min(-3, -2.56) = -3
        (0.5, -2.0, 1.6, True),  # 0.8 * 2
        (0.5, 2.0, -1.0, False),  # min(1, 1.6) = 1
        (1.25, 2.0, -2.5, False),  # inside the wider upper side
    ],
)
def test_the_clip_is_pessimistic_and_its_flag_knows_the_sign(
    ratio: float, advantage: float, loss: float, active: bool
) -> None:
    ratios = torch.tensor([ratio], requires_grad=True)
    term = clipped_policy_term(ratios, torch.tensor([advantage]), 0.2, 0.28)
    assert term.item() == pytest.approx(loss)
    assert clip_active(ratios.detach(), torch.tensor([advantage]), 0.2, 0.28).item() is active
    (gradient,) = torch.autograd.grad(term.sum(), ratios)
    assert gradient.item() == pytest.approx(0.0 if active else -advantage)


def test_masked_tokens_have_ratio_one_and_no_gradient_whatever_they_hold() -> None:
    policy = torch.tensor([[-1.0, float("nan"), float("inf")]], requires_grad=True)
    old = torch.tensor([[-1.5, 0.0, -200.0]])
    ratio = importance_ratio(policy, old, torch.tensor([[True, False, False]]))
    # e^0.5 = 1.6487
    torch.testing.assert_close(ratio.detach(), torch.tensor([[1.648721, 1.0, 1.0]]))
    (gradient,) = torch.autograd.grad(ratio.sum(), policy)
    torch.testing.assert_close(gradient, torch.tensor([[1.648721, 0.0, 0.0]]))


@settings(max_examples=40, deadline=None)
@given(log_ratio=st.floats(-3, 3), advantage=st.floats(-3, 3))
def test_the_term_is_never_below_the_unclipped_one(log_ratio: float, advantage: float) -> None:
    ratio = torch.tensor(log_ratio, dtype=torch.float64).exp()
    advantages = torch.tensor(advantage, dtype=torch.float64)
    assert clipped_policy_term(ratio, advantages, 0.2, 0.2) >= -ratio * advantages


def test_the_sequence_ratio_is_the_geometric_mean_over_the_response() -> None:
    # Rows: (4 * 1)^(1/2) = 2; (8 * 1 * 27)^(1/3) = 6; no token: 1. Padding holds anything.
    ratios = torch.tensor([[4.0, 1.0, math.nan], [8.0, 1.0, 27.0], [math.nan, 5.0, 0.0]])
    mask = response_mask(torch.tensor([2, 3, 0]), 3)
    found = sequence_ratio(ratios.log(), torch.zeros(3, 3), mask)
    torch.testing.assert_close(found, torch.tensor([[2.0, 2.0, 1.0], [6.0, 6.0, 6.0], [1.0, 1.0, 1.0]]))


def test_the_token_form_has_the_gradient_of_the_sequence_form() -> None:
    """GSPO against GSPO-token with one advantage a response: mean over tokens of s_t is s, in value and gradient."""
    generator = torch.Generator().manual_seed(3)
    policy = torch.randn(4, 5, dtype=torch.float64, generator=generator).requires_grad_()
    old = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    mask = response_mask(torch.tensor([5, 3, 1, 4]), 5)
    advantages = torch.tensor([1.0, -2.0, 0.5, -1.0], dtype=torch.float64)
    whole = masked_mean(policy - old, mask, dim=-1).exp()
    by_token = masked_mean(sequence_ratio(policy, old, mask), mask, dim=-1)
    torch.testing.assert_close(by_token, whole)
    gradients = [torch.autograd.grad((advantages * s).sum(), policy)[0] for s in (by_token, whole)]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][~mask].any()


def test_small_differences_do_not_add_up_over_a_sequence() -> None:
    """K16: 0.012 nats a token over 100 tokens make exp(1.2) = 3.3 as a product, and 1.0121 normalised by length."""
    ratio = sequence_ratio(torch.full((1, 100), 0.012), torch.zeros(1, 100), torch.ones(1, 100, dtype=torch.bool))
    torch.testing.assert_close(ratio, torch.full((1, 100), math.exp(0.012)))


@pytest.mark.parametrize(
    ("value", "loss", "gradient"),
    [
        (1.2, 0.5 * 2.8**2, -2.8),  # inside the bound of 0.5 around 1: (1.2 - 4)^2 / 2
        (3.0, 0.5 * 2.5**2, 0.0),  # clipped to 1.5, whose error 2.5 is above 1: no gradient
        (0.0, 0.5 * 4.0**2, -4.0),  # moved away: clipped to 0.5 with error 3.5, below 4
        (9.0, 0.5 * 5.0**2, 5.0),  # overshot: its own error 5 is above that of 1.5
    ],
)
def test_the_clipped_value_loss_is_the_larger_of_both(value: float, loss: float, gradient: float) -> None:
    values = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    term = clipped_value_term(values, torch.tensor([1.0]).double(), torch.tensor([4.0]).double(), 0.5)
    assert term.item() == pytest.approx(loss)
    assert torch.autograd.grad(term.sum(), values)[0].item() == pytest.approx(gradient)


def test_explained_variance_by_hand() -> None:
    mask = torch.tensor([[True, True, True, False]])
    returns = torch.tensor([[0.0, 1.0, 2.0, 99.0]])  # variance 2/3
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(torch.full((1, 4), 7.0), returns, mask) == pytest.approx(0.0)
    # Errors 0, 0, 1: variance 2/9, a third of 2/3.
    assert explained_variance(torch.tensor([[0.0, 1.0, 1.0, 0.0]]), returns, mask) == pytest.approx(2 / 3)
    # Errors 0, 2, 4: four times the variance.
    assert explained_variance(-returns, returns, mask) == pytest.approx(-3.0)


def test_explained_variance_of_constant_returns_is_not_a_number() -> None:
    ones = torch.ones(2, 2)
    assert math.isnan(explained_variance(ones, ones, ones.bool()))
    assert math.isnan(explained_variance(ones, ones, ~ones.bool()))
