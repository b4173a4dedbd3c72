"""The carriers keep their promises whatever a user's plug-in puts in."""

import math

import numpy as np
import pytest

from sage.types import Verdict, VerdictReason


@pytest.mark.parametrize("reward", [1, True, np.float32(1.0), np.int64(1), 1.0])
def test_every_kind_of_number_becomes_a_float(reward):
    verdict = Verdict(reward=reward, reason=VerdictReason.CORRECT)
    assert type(verdict.reward) is float
    assert verdict.reward == 1.0


def test_a_missing_number_abstains():
    """K03: None and NaN alike."""
    assert Verdict(reward=None, reason=VerdictReason.ERROR).reward is None
    assert Verdict(reward=math.nan, reason=VerdictReason.ERROR).reward is None


@pytest.mark.parametrize("reward", [math.inf, -math.inf])
def test_an_infinite_reward_is_refused(reward):
    with pytest.raises(ValueError, match="expected a finite number, or None to abstain"):
        Verdict(reward=reward, reason=VerdictReason.WRONG)


def test_a_reward_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="could not convert"):
        Verdict(reward="high", reason=VerdictReason.WRONG)
