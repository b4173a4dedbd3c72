"""The anchor over samples of the reference, and the forward KL to it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.bank import hardness, response_cross_entropy, response_weights

factors = st.lists(st.floats(0, 100), min_size=1, max_size=6).filter(lambda q: max(q) > 1e-3)


@settings(max_examples=30, deadline=None)
@given(factors, st.floats(0.1, 4))
def test_weights_are_the_normalised_power_of_q_and_ignore_a_common_factor(q, strength):
    q = torch.tensor(q, dtype=torch.float64)
    found = response_weights(q, strength)
    torch.testing.assert_close(found, q**strength / (q**strength).sum())
    torch.testing.assert_close(response_weights(7 * q, strength), found)


def test_strength_zero_weighs_every_sample_alike_even_those_with_q_zero():
    assert response_weights(torch.tensor([0.0, 5.0, 0.0, 1.0]), 0.0).tolist() == [0.25] * 4
    assert response_weights(torch.zeros(4), 0.0).tolist() == [0.25] * 4


def test_without_any_positive_q_nothing_has_weight():
    assert response_weights(torch.zeros(3), 1.0).tolist() == [0, 0, 0]


def test_a_large_strength_does_not_overflow():
    assert response_weights(torch.tensor([128.0, 64.0, 0.0]), 1000.0).tolist() == [1, 0, 0]


@pytest.mark.parametrize(("pass_rate", "weight"), [(0.0, 2.0), (0.25, 1.5), (0.5, 1.0), (1.0, 0.0)])
def test_hard_problems_weigh_up_to_twice(pass_rate, weight):
    assert hardness(pass_rate) == weight


def test_cross_entropy_is_the_mean_over_a_responses_own_tokens_whatever_the_padding_holds():
    logprobs = torch.tensor([[-1.0, -3.0, float("nan")], [-2.0, float("inf"), 7.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert response_cross_entropy(logprobs, mask).tolist() == [2.0, 2.0]


def test_its_gradient_over_one_token_responses_is_policy_minus_anchor():
    """d/d logit_v of -sum_i anchor_i log softmax(logits)_i = softmax_v - anchor_v: zero where the policy is the anchor."""
    anchor = response_weights(torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64), 1.0)
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    every = response_cross_entropy(logits.log_softmax(-1).unsqueeze(-1), torch.ones(3, 1, dtype=torch.bool))
    (gradient,) = torch.autograd.grad((anchor * every).sum(), logits)
    torch.testing.assert_close(gradient, logits.detach().softmax(-1) - anchor)
