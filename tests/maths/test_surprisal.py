from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.maths.masking import response_mask
from sage.maths.surprisal import NORMALISERS, minmax, rank, zscore

ROW = torch.tensor([[4.0, 0.0, 1.0, 3.0, 99.0]])
MASK = response_mask(torch.tensor([4]), 5)


def weights(function_name: str, row: Tensor = ROW, mask: Tensor = MASK) -> list[float]:
    return NORMALISERS[function_name](row, row, mask)[mask].tolist()


def test_minmax_clips_to_the_outer_five_percent() -> None:
    # Sorted 0, 1, 3, 4: the 5 % quantile stands at 0.05 * 3 = 0.15, value 0.15; the 95 % one at 2.85, value 3.85.
    # (1 - 0.15) / 3.7 = 0.22973 and (3 - 0.15) / 3.7 = 0.77027.
    assert weights("minmax") == pytest.approx([1.0, 0.0, 0.22973, 0.77027], abs=1e-5)


def test_rank_counts_the_less_surprising_tokens() -> None:
    assert weights("rank") == pytest.approx([1.0, 0.0, 1 / 3, 2 / 3])


def test_equal_surprisals_share_a_rank() -> None:
    row = torch.tensor([[2.0, 0.0, 0.0]])
    assert weights("rank", row, torch.ones(1, 3, dtype=torch.bool)) == [1.0, 0.0, 0.0]


def test_zscore_uses_the_population_standard_deviation() -> None:
    # Mean 2, squares 4 + 4 + 1 + 1 = 10, over 4 is 2.5; z of the first is 2 / sqrt(2.5) = 1.26491, sigmoid 0.77988.
    assert weights("zscore")[0] == pytest.approx(0.77988, abs=1e-5)


@pytest.mark.parametrize(("name", "weight"), [("minmax", 0.0), ("rank", 0.0), ("zscore", 0.5)])
@pytest.mark.parametrize("length", [1, 3])
def test_a_response_without_spread_has_a_defined_weight(name: str, weight: float, length: int) -> None:
    row = torch.full((1, 4), 0.1)  # three times 0.1 has a mean that is not 0.1
    assert weights(name, row, response_mask(torch.tensor([length]), 4)) == [weight] * length


@settings(max_examples=40, deadline=None)
@given(
    row=st.lists(st.floats(0, 20, width=32), min_size=1, max_size=6),
    padding=st.floats(allow_nan=False, width=32),
    name=st.sampled_from(sorted(NORMALISERS)),
)
def test_weights_lie_in_the_unit_interval_and_ignore_padding(row: list[float], padding: float, name: str) -> None:
    values = torch.tensor([[*row, padding]])
    mask = response_mask(torch.tensor([len(row)]), len(row) + 1)
    padded = weights(name, values, mask)
    assert all(0 <= w <= 1 for w in padded)
    bare = torch.tensor([row])
    assert padded == pytest.approx(weights(name, bare, torch.ones_like(bare, dtype=torch.bool)), abs=1e-6)


@pytest.mark.parametrize("function", [minmax, rank, zscore])
def test_values_outside_the_response_are_placed_in_its_own_scale(
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> None:
    outside = torch.tensor([[-1.0, 0.0, 2.0, 4.0, 100.0]])
    placed = function(outside, ROW, MASK)[0]
    assert (placed.diff() >= 0).all()
    assert placed[0] >= 0
    assert placed[-1] <= 1
    torch.testing.assert_close(placed[[1, 3]], function(ROW, ROW, MASK)[0, [1, 0]])
