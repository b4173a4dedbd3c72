"""The pass@k estimator, its ks, and bootstrap intervals over problems."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.pass_at_k import bootstrap_means, mean_over_problems, pass_at_k, pass_at_ks, powers_of_two


def one(n: int, c: int, k: int) -> float:
    return pass_at_k(torch.tensor([c]), n=n, k=k).item()


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 4, 1.0),  # all four are drawn, the right one among them
        (8, 2, 4, 1 - 15 / 70),  # C(6, 4) / C(8, 4)
        (64, 1, 32, 0.5),  # the right one is in the drawn half
        (4, 0, 4, 0.0),
        (4, 3, 2, 1.0),  # two draws cannot both be the one wrong sample
    ],
)
def test_pass_at_k_draws_without_replacement(n: int, c: int, k: int, expected: float) -> None:
    """K44, K73: drawing with replacement would give 0.684, 0.684 and 0.396 for the first three."""
    assert one(n, c, k) == pytest.approx(expected, abs=1e-14)


@given(n=st.integers(1, 7), data=st.data())
@settings(max_examples=40, deadline=None)
def test_pass_at_k_equals_counting_all_subsets(n: int, data: st.DataObject) -> None:
    """K44."""
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert one(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@pytest.mark.parametrize(("c", "k"), [(1, 1), (1, 8192), (2, 5000), (37, 64), (9_000, 1), (9_999, 2), (10_000, 10_000)])
def test_pass_at_k_is_exact_to_rounding_for_ten_thousand_samples(c: int, k: int) -> None:
    """K44: against integers of thousands of digits."""
    n = 10_000
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert one(n, c, k) == pytest.approx(float(exact), rel=1e-11)


@given(n=st.integers(1, 300), data=st.data())
@settings(max_examples=40, deadline=None)
def test_pass_at_k_starts_at_the_mean_never_falls_and_ends_at_any(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    curve = pass_at_ks(torch.tensor([c]), n=n, ks=list(range(1, n + 1)))[0]
    assert curve[0].item() == pytest.approx(c / n, abs=1e-12)
    assert bool((curve.diff() >= -1e-12).all())  # up to rounding
    assert curve[-1].item() == pytest.approx(float(c > 0), abs=1e-12)


@pytest.mark.parametrize(("n", "k"), [(99, 100), (4, 0)])
def test_a_k_that_n_samples_cannot_support_is_refused_by_name(n: int, k: int) -> None:
    """K43: 99 wrong samples say nothing of pass@100, and are not 1."""
    with pytest.raises(ValueError, match=rf"k={k} and n={n}"):
        one(n, 0, k)


@pytest.mark.parametrize("c", [-1, 5])
def test_a_count_outside_the_samples_is_refused(c: int) -> None:
    with pytest.raises(ValueError, match=rf"{c}.*n=4"):
        one(4, c, 2)


def test_ks_are_powers_of_two_and_n() -> None:
    assert powers_of_two(1) == [1]
    assert powers_of_two(256) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert powers_of_two(24) == [1, 2, 4, 8, 16, 24]
    with pytest.raises(ValueError, match="n=0"):
        powers_of_two(0)


def test_pass_at_1_is_the_mean_over_problems_with_its_standard_error() -> None:
    """K76, K47: hits 1/4, 4/4 and 0/4."""
    values = pass_at_ks(torch.tensor([1, 4, 0]), n=4, ks=[1])
    means = mean_over_problems(values, confidence=0.95, resamples=50, key=0)
    # (1/4 + 4/4 + 0/4) / 3 = 5/12
    assert means.value.tolist() == pytest.approx([5 / 12])
    # squared deviations from 5/12, in 144ths: (3-5)^2 + (12-5)^2 + (0-5)^2 = 78; / 2 = 39; sqrt(39)/12 / sqrt(3)
    assert means.standard_error.tolist() == pytest.approx([13**0.5 / 12])


def test_a_single_problem_has_no_standard_error() -> None:
    means = mean_over_problems(torch.tensor([[0.25]]), confidence=0.95, resamples=10, key=0)
    assert means.standard_error.isnan().all()
    assert (means.low.item(), means.high.item()) == (0.25, 0.25)


def test_bootstrap_draws_problems_uniformly_and_every_column_alike() -> None:
    values = torch.eye(4, dtype=torch.float64)  # column i of a mean is how often problem i was drawn, in quarters
    drawn = bootstrap_means(values, resamples=4000, key=7) * 4
    assert torch.equal(drawn, drawn.round())
    assert torch.equal(drawn.sum(1), torch.full((4000,), 4.0, dtype=torch.float64))
    # Binomial(4, 1/4): mean 1 and variance 3/4; four standard errors of 4000 draws are 0.055.
    assert drawn.mean(0).tolist() == pytest.approx([1.0] * 4, abs=0.055)
    assert drawn.var(0).tolist() == pytest.approx([0.75] * 4, abs=0.1)


def test_bootstrap_repeats_under_one_key_and_differs_under_another() -> None:
    values = torch.rand(20, 2, generator=torch.Generator().manual_seed(0))
    first = bootstrap_means(values, resamples=30, key=1)
    assert torch.equal(first, bootstrap_means(values, resamples=30, key=1))
    assert not torch.equal(first, bootstrap_means(values, resamples=30, key=2))


def test_differences_under_one_key_are_paired() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 20, 3, generator=generator, dtype=torch.float64)
    paired = bootstrap_means(a, resamples=30, key=5) - bootstrap_means(b, resamples=30, key=5)
    torch.testing.assert_close(bootstrap_means(a - b, resamples=30, key=5), paired)


def test_the_interval_agrees_with_the_normal_approximation() -> None:
    # 400 problems, half right: standard error sqrt(.25 * 400 / 399) / 20 = 0.02503, 95 % within 1.96 of them.
    values = (torch.arange(400) % 2)[:, None].double()
    means = mean_over_problems(values, confidence=0.95, resamples=4000, key=3)
    assert means.standard_error.item() == pytest.approx(0.02503, abs=1e-5)
    assert means.low.item() == pytest.approx(0.5 - 1.96 * 0.02503, abs=0.004)
    assert means.high.item() == pytest.approx(0.5 + 1.96 * 0.02503, abs=0.004)


def test_impossible_interval_settings_are_refused() -> None:
    values = torch.zeros(2, 1)
    with pytest.raises(ValueError, match="confidence=95"):
        mean_over_problems(values, confidence=95, resamples=10, key=0)
    with pytest.raises(ValueError, match="resamples=0"):
        mean_over_problems(values, confidence=0.9, resamples=0, key=0)
    with pytest.raises(ValueError, match="at least one problem"):
        mean_over_problems(values[:0], confidence=0.9, resamples=10, key=0)
