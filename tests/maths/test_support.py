"""Support counts and the ratios made of them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.support import Support, support


def test_counts_and_ratios_of_a_worked_example() -> None:
    #          P     P     P     S      E      E      U
    base = [True, True, True, True, False, False, False]
    trained = [True, True, True, False, True, True, False]
    counts = support(torch.tensor(base), torch.tensor(trained))
    assert counts == Support(preserved=3, shrunk=1, expanded=2, unsolved=1)
    assert counts.srr == 3 / 4  # P / (P + S)
    assert counts.ndr == 2 / 5  # E / (P + E)
    assert counts.sds == pytest.approx(12 / 23)  # 2 * 3/4 * 2/5 / (3/4 + 2/5) = (12/20) / (23/20)
    assert counts.nscr == 1 / 6  # (E - S) / (P + E + S)


def test_ratios_without_a_denominator_are_nan() -> None:
    nothing = Support(preserved=0, shrunk=0, expanded=0, unsolved=5)
    assert all(math.isnan(ratio) for ratio in (nothing.srr, nothing.ndr, nothing.sds, nothing.nscr))
    only_new = Support(preserved=0, shrunk=0, expanded=2, unsolved=0)
    assert math.isnan(only_new.srr)
    assert math.isnan(only_new.sds)
    assert (only_new.ndr, only_new.nscr) == (1, 1)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_counts_cover_all_items_and_swap_with_the_models(pairs: list[tuple[bool, bool]]) -> None:
    base, trained = (torch.tensor(column) for column in zip(*pairs, strict=True))
    counts, swapped = support(base, trained), support(trained, base)
    assert counts.preserved + counts.shrunk + counts.expanded + counts.unsolved == len(pairs)
    assert (counts.preserved, counts.shrunk, counts.expanded) == (swapped.preserved, swapped.expanded, swapped.shrunk)


def test_vectors_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        support(torch.ones(2), torch.ones(3))
