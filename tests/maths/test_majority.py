"""Expected accuracy of a majority vote."""

import random
import time
from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.majority import majority_at_k


def enumerated(right: int, wrong: list[int], n: int, k: int) -> float:
    """The same by going through every subset."""
    votes = [0] * right + [i + 1 for i, count in enumerate(wrong) for _ in range(count)]
    votes += [None] * (n - len(votes))
    won = []
    for drawn in combinations(votes, k):
        counts = Counter(vote for vote in drawn if vote is not None)
        most = max(counts.values(), default=0)
        winners = [candidate for candidate, count in counts.items() if count == most]
        won.append(Fraction(0 in winners, max(1, len(winners))))
    return float(sum(won) / len(won))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3), st.data())
def test_it_is_the_mean_over_all_subsets(right: int, wrong: list[int], silent: int, data: st.DataObject) -> None:
    """K74: what walking all C(n, k) subsets gives, without walking them."""
    wrong = wrong[: max(0, 12 - right - silent) // 4]
    n = max(1, right + sum(wrong) + silent)
    k = data.draw(st.integers(1, n))
    assert majority_at_k(right, wrong, n=n, k=k) == pytest.approx(enumerated(right, wrong, n, k), abs=1e-12)


def test_three_equal_answers_beat_one() -> None:
    """K75: 1/2, 0.5, 0.50 and 3, grouped, are three votes to one; as strings all four would be tied."""
    assert majority_at_k(3, [1], n=4, k=4) == 1
    assert majority_at_k(1, [1, 1, 1], n=4, k=4) == 0.25
    assert majority_at_k(1, [3], n=4, k=4) == 0


def test_one_vote_is_pass_at_1_and_no_vote_is_wrong() -> None:
    assert majority_at_k(3, [2, 2], n=10, k=1) == pytest.approx(0.3)
    assert majority_at_k(1, [], n=4, k=2) == pytest.approx(0.5)  # the pairs with the only vote
    assert majority_at_k(0, [2], n=4, k=2) == 0
    assert majority_at_k(0, [], n=4, k=4) == 0


def test_a_majority_grows_to_one_and_a_minority_falls_to_zero() -> None:
    rising = [majority_at_k(40, [24], n=64, k=k) for k in (1, 3, 9, 27, 63)]
    assert rising == sorted(rising)
    assert rising[-1] == pytest.approx(1)
    falling = [majority_at_k(24, [40], n=64, k=k) for k in (1, 3, 9, 27, 63)]
    assert falling == sorted(falling, reverse=True)
    # Two candidates, k odd: no tie, so one of them wins.
    assert [a + b for a, b in zip(rising, falling, strict=True)] == pytest.approx([1] * 5, abs=1e-10)


@pytest.mark.parametrize(("k", "expected"), [(0, "k=0"), (5, "k=5")])
def test_more_votes_than_samples_are_refused(k: int, expected: str) -> None:
    """K43: no number where none is defined."""
    with pytest.raises(ValueError, match=expected):
        majority_at_k(1, [1], n=4, k=k)
    with pytest.raises(ValueError, match="at most n votes"):
        majority_at_k(3, [2], n=4, k=2)


def test_half_of_64_samples_takes_no_time() -> None:
    """K74: n = 64, k = 32 has 1.8e18 subsets."""
    start = time.perf_counter()
    assert 0 < majority_at_k(13, [12, 12, 9, 5, 3, 1, 1, 1, 1, 1], n=64, k=32) < 1
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(3, [1] * 1021), (341, [341, 341]), (200, [100] * 8), (512, [511]), (1, [])],
)
def test_1024_samples_are_safe(right: int, wrong: list[int]) -> None:
    """Against random draws: 4,000 of them leave a standard error of at most 0.008."""
    votes = [0] * right + [i + 1 for i, count in enumerate(wrong) for _ in range(count)]
    votes += [None] * (1024 - len(votes))
    draw = random.Random(0)
    won = 0.0
    for _ in range(4000):
        counts = Counter(vote for vote in draw.sample(votes, 500) if vote is not None)
        most = max(counts.values(), default=0)
        winners = [candidate for candidate, count in counts.items() if count == most]
        won += (0 in winners) / max(1, len(winners))
    assert majority_at_k(right, wrong, n=1024, k=500) == pytest.approx(won / 4000, abs=0.032)
