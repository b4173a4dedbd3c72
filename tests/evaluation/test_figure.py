"""The figure: its file, its limits, its labels."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import image

from sage.evaluation.curves import Curve
from sage.evaluation.figure import plot_pass_at_k, spread, value_limits
from sage.types import Group

Groups = Callable[..., list[Group]]
CurveOf = Callable[..., Curve]


@pytest.mark.parametrize("n", [1, 2, 6])
def test_the_figure_is_a_png_of_1200_by_800(groups_of: Groups, curve_of: CurveOf, tmp_path: Path, n: int) -> None:
    base = curve_of(groups_of({"a": "R" + "W" * (n - 1), "b": "W" * n}))
    trained = curve_of(groups_of({"a": "R" * n, "b": "W" * n}))
    path = tmp_path / "new" / "pass_at_k.png"
    plot_pass_at_k({"base": base, "trained": trained}, path, "fake test")
    pixels = image.imread(path)
    assert pixels.shape[:2] == (800, 1200)
    assert pixels[..., :3].std() > 0.05  # not blank


def test_limits_are_tenths_around_the_intervals(groups_of: Groups, curve_of: CurveOf) -> None:
    low, high = value_limits([curve_of(groups_of({"a": "RRWW", "b": "RWRW"}))])  # from 1/2 to 1, no spread
    assert low == pytest.approx(0.4)
    assert high == pytest.approx(1.009)  # 1 and a marker's width of 0.015 * 0.6
    low, high = value_limits([curve_of(groups_of({"a": "WW", "b": "WW"}))])
    assert low < 0 < high == pytest.approx(0.1015)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_labels_keep_their_distance_and_order(heights: list[float]) -> None:
    placed = spread(heights, gap=0.06, low=0.0, high=1.0)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    gaps = [placed[b] - placed[a] for a, b in pairwise(order)]
    assert all(gap >= 0.06 - 1e-9 for gap in gaps)
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)


def test_labels_move_as_little_as_it_takes() -> None:
    assert spread([0.9, 0.2, 0.5], gap=0.1, low=0, high=1) == pytest.approx([0.9, 0.2, 0.5])
    # two at 0.5 part evenly
    assert spread([0.5, 0.5], gap=0.1, low=0, high=1) == pytest.approx([0.45, 0.55])
    # four labels in a space of 0.3 stand 0.1 apart although 0.2 was asked
    assert spread([0.1] * 4, gap=0.2, low=0, high=0.3) == pytest.approx([0, 0.1, 0.2, 0.3])


def test_no_curve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one curve"):
        plot_pass_at_k({}, tmp_path / "x.png", "nothing")
