"""The adaptive KL coefficient."""

import pytest

from sage.training.beta import AdaptiveBeta


def test_a_constant_beta_never_moves():
    beta = AdaptiveBeta(0.05, None)
    beta.observe(10.0)
    assert beta.value == 0.05


def test_beta_rises_above_the_target_falls_below_it_and_stays_on_it():
    """0.1 * (KL / target - 1), the error cut to 0.2: at most 2 % a batch."""
    for kl, factor in ((0.02, 1.0), (0.022, 1.01), (0.2, 1.02), (0.018, 0.99), (0.0, 0.98)):
        beta = AdaptiveBeta(0.1, 0.02)
        beta.observe(kl)
        assert beta.value == pytest.approx(0.1 * factor), kl
