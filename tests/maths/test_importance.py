"""Truncated importance weights."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.importance import truncated_importance_weights

ALL = torch.ones(1, 3, dtype=torch.bool)


def weights(log_ratio, mask=ALL, level="token", low=0.0, high=2.0):
    return truncated_importance_weights(torch.tensor(log_ratio), mask, level=level, low=low, high=high)


def test_small_gaps_that_add_up_are_cut_at_the_bound_and_one_wild_token_too():
    """K16: 0.012 over 100 tokens is a ratio of e^1.2 = 3.32 for the sequence, and 1.012 for each token."""
    mask = torch.ones(1, 100, dtype=torch.bool)
    drift = torch.full((1, 100), 0.012)
    by_token = truncated_importance_weights(drift, mask, level="token", low=0.0, high=2.0)
    by_sequence = truncated_importance_weights(drift, mask, level="sequence", low=0.0, high=2.0)
    torch.testing.assert_close(by_token, torch.full((1, 100), math.exp(0.012)))
    assert by_sequence.unique().tolist() == [2.0]
    assert weights([[0.0, 5.0, 0.0]]).tolist() == [[1.0, 2.0, 1.0]]
    assert weights([[0.0, 5000.0, -5000.0]], high=math.inf).isfinite().all()


def test_masked_tokens_weigh_one_and_count_for_nothing():
    mask = torch.tensor([[True, True, False]])
    found = weights([[math.log(0.5), math.log(0.8), 9.0]], mask, "sequence")
    torch.testing.assert_close(found, torch.tensor([[0.4, 0.4, 1.0]]))


def test_no_level_is_no_correction():
    assert weights([[3.0, -3.0, 0.0]], level=None).tolist() == [[1.0, 1.0, 1.0]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=5), st.lists(st.floats(-3, 3), min_size=2, max_size=5))
def test_weights_turn_a_mean_under_the_sampler_into_one_under_the_policy(policy, sampler):
    """Exact expectation over a small vocabulary: sum_v mu(v) w(v) f(v) = sum_v pi(v) f(v)."""
    size = min(len(policy), len(sampler))
    pi = torch.tensor(policy[:size], dtype=torch.float64).log_softmax(0)
    mu = torch.tensor(sampler[:size], dtype=torch.float64).log_softmax(0)
    f = torch.arange(size, dtype=torch.float64) + 1
    mask = torch.ones(size, 1, dtype=torch.bool)
    w = truncated_importance_weights((pi - mu)[:, None], mask, level="token", low=0.0, high=math.inf)[:, 0]
    torch.testing.assert_close((mu.exp() * w * f).sum(), (pi.exp() * f).sum())
