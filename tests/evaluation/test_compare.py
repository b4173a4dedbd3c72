"""A trained curve against its base."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sage.config import ConfigError
from sage.evaluation.compare import compare, with_comparison
from sage.evaluation.curves import Curve
from sage.maths.support import Support
from sage.types import Group, Sampling

Groups = Callable[..., list[Group]]
CurveOf = Callable[..., Curve]


def test_differences_are_paired_by_problem(groups_of: Groups, curve_of: CurveOf) -> None:
    base = curve_of(groups_of({"a": "RWWW", "b": "WWWW", "c": "RRWW"}))
    trained = curve_of(groups_of({"a": "RRWW", "b": "RWWW", "c": "RRRW"}))
    first = compare(trained, base).difference[1]
    # Every problem gains 1/4: problems differ, but the gain has no spread, in no resample either.
    assert (first.value, first.low, first.high) == pytest.approx((0.25, 0.25, 0.25))
    assert first.standard_error == pytest.approx(0, abs=1e-12)
    assert base.pass_at_k[1].standard_error == pytest.approx(0.5 / 2 / 3**0.5)  # 0, 1/4, 1/2: deviation 1/4


def test_differences_are_those_of_the_curves(groups_of: Groups, curve_of: CurveOf) -> None:
    base = curve_of(groups_of({"a": "RWWW", "b": "RRRR", "c": "WWWW"}))
    trained = curve_of(groups_of({"a": "RRRW", "b": "RRWW", "c": "WWWR"}))
    difference = compare(trained, base).difference
    expected = {k: trained.values()[k] - base.values()[k] for k in (1, 2, 4)}
    assert {k: estimate.value for k, estimate in difference.items()} == pytest.approx(expected)
    assert difference[4].low < difference[4].value < difference[4].high


def test_support_counts_problems_and_solutions(groups_of: Groups, curve_of: CurveOf) -> None:
    base = curve_of(groups_of({"a": "RR", "b": "RW", "c": "WW", "d": "WW"}, {"a": "xy", "b": "zz"}))
    trained = curve_of(groups_of({"a": "RR", "b": "WW", "c": "RR", "d": "WW"}, {"a": "xv", "c": "xu"}))
    comparison = compare(trained, base)
    assert comparison.problems == Support(preserved=1, shrunk=1, expanded=1, unsolved=1)
    # kept: (a, x); lost: (a, y), (b, z); found: (a, v), (c, x), (c, u). The x of c is not the x of a.
    assert comparison.solutions == Support(preserved=1, shrunk=2, expanded=3, unsolved=0)


def test_solutions_without_a_canonical_form_are_not_compared(groups_of: Groups, curve_of: CurveOf) -> None:
    curve = curve_of(groups_of({"a": "RW", "b": "WW"}))
    bare = replace(curve, problems=tuple(replace(p, solutions=None) for p in curve.problems))
    assert compare(curve, bare).solutions is None
    assert compare(bare, curve).solutions is None


def test_curves_of_other_problems_or_sizes_are_refused(groups_of: Groups, curve_of: CurveOf) -> None:
    curve = curve_of(groups_of({"a": "RW", "b": "WW"}))
    with pytest.raises(ConfigError, match="n=2 with a base of n=4"):
        compare(curve, curve_of(groups_of({"a": "RWWW", "b": "WWWW"})))
    with pytest.raises(ConfigError, match="b here, c in the base"):
        compare(curve, curve_of(groups_of({"a": "RW", "c": "WW"})))
    with pytest.raises(ConfigError, match="num_problems=2 with a base of num_problems=1"):
        compare(curve, curve_of(groups_of({"a": "RW"})))
    with pytest.raises(ConfigError, match="benchmark=fake"):
        compare(curve, replace(curve, benchmark="other"))


def test_other_sampling_is_refused(groups_of: Groups, curve_of: CurveOf, sampling: Sampling) -> None:
    """K45: temperatures that differ are not passed over."""
    curve = curve_of(groups_of({"a": "RW"}))
    hot = replace(curve, sampling=replace(sampling, temperature=1.3))
    with pytest.raises(ConfigError, match=r"temperature=0\.7.*temperature=1\.3.*make them equal"):
        compare(curve, hot)


def test_other_texts_under_the_same_ids_are_refused(groups_of: Groups, curve_of: CurveOf) -> None:
    curve = curve_of(groups_of({"a": "RW"}))
    first, second = (replace(curve, settings={"problems": {"hash": text}}) for text in ("x", "y"))
    assert compare(first, first).difference[1].value == 0
    assert compare(first, curve).difference[1].value == 0
    with pytest.raises(ConfigError, match="text, gold or columns"):
        compare(first, second)


def test_sources_are_compared_one_by_one(groups_of: Groups, curve_of: CurveOf) -> None:
    def whole(first: str, second: str) -> Curve:
        parts = tuple(curve_of(groups_of({name: row}), benchmark=name) for name, row in (("a", first), ("b", second)))
        return replace(curve_of(groups_of({"a": first, "b": second})), sources=parts)

    compared = with_comparison(whole("RR", "RW"), whole("WW", "RR"))
    assert compared.comparison is not None
    assert compared.comparison.difference[1].value == 0.25
    assert [s.comparison and s.comparison.difference[1].value for s in compared.sources] == [1.0, -0.5]
