"""From verdicts to the numbers of a curve, and to its file and back."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sage.evaluation.compare import compare
from sage.evaluation.curves import Curve, load_curve, save_curve
from sage.evaluation.votes import Votes
from sage.types import Group, Sampling, StopReason

Groups = Callable[..., list[Group]]
CurveOf = Callable[..., Curve]


def test_pass_at_1_is_the_mean_over_problems(groups_of: Groups, curve_of: CurveOf) -> None:
    """K76: 1/4, 4/4, 0/4."""
    curve = curve_of(groups_of({"a": "RWWW", "b": "RRRR", "c": "WWWW"}))
    assert curve.values()[1] == pytest.approx(5 / 12)
    assert curve.mean_at_n == pytest.approx(5 / 12)
    # pass@2 of a: 1 - C(3,2)/C(4,2) = 1/2; pass@4: 1
    assert curve.values() == pytest.approx({1: 5 / 12, 2: 1.5 / 3, 4: 2 / 3})


def test_all_samples_count(groups_of: Groups, curve_of: CurveOf) -> None:
    """K77: the first of four is wrong, the others are right."""
    assert curve_of(groups_of({"a": "WRRR"})).values()[1] == pytest.approx(0.75)


def test_the_file_gives_pass_at_1_with_standard_error_and_sampling(
    groups_of: Groups, curve_of: CurveOf, tmp_path: Path, sampling: Sampling
) -> None:
    """K47, K45: 30 problems of 16 samples, problem i with i % 4 right ones."""
    curve = curve_of(groups_of({f"p{i:02d}": "R" * (i % 4) + "W" * (16 - i % 4) for i in range(30)}))
    save_curve(tmp_path / "curve.json", curve)
    row = json.loads((tmp_path / "curve.json").read_text())
    shares = [(i % 4) / 16 for i in range(30)]
    mean = sum(shares) / 30
    error = (sum((s - mean) ** 2 for s in shares) / 29 / 30) ** 0.5
    assert row["pass_at_k"]["1"]["value"] == pytest.approx(mean)
    assert row["pass_at_k"]["1"]["standard_error"] == pytest.approx(error)
    assert row["pass_at_k"]["1"]["low"] < mean < row["pass_at_k"]["1"]["high"]
    assert (row["n"], row["num_problems"], row["ks"]) == (16, 30, [1, 2, 4, 8, 16])
    assert row["sampling"]["temperature"] == sampling.temperature


def test_a_problem_without_all_samples_is_an_error_that_names_it(groups_of: Groups, curve_of: CurveOf) -> None:
    """K72: 8 wrong samples of a, 2 right ones of b."""
    groups = groups_of({"a": "WWWWWWWW", "b": "RR"})
    with pytest.raises(ValueError, match="problem b has 2 samples and 2 verdicts, expected n=8"):
        curve_of(groups, n=8)
    with pytest.raises(ValueError, match="problem a has 8 samples"):
        curve_of(groups, n=2)
    with pytest.raises(ValueError, match="problem a has 8 samples and 0 verdicts"):
        curve_of([replace(groups[0], verdicts=())], n=8)


def test_no_problem_and_a_repeated_problem_are_refused(groups_of: Groups, curve_of: CurveOf) -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        curve_of([])
    with pytest.raises(ValueError, match="problem a occurs 2 times"):
        curve_of(groups_of({"a": "RW"}) * 2)


def test_shares_rewards_and_lengths(groups_of: Groups, curve_of: CurveOf) -> None:
    groups = groups_of({"a": "RW", "b": "-?"}, tokens=2) + groups_of({"c": "RW"}, tokens=5)
    long = replace(groups[2].completions[0], stop_reason=StopReason.LENGTH)
    groups[2] = replace(groups[2], completions=(groups[2].completions[0], long))
    verdicts = [replace(groups[0].verdicts[i], parts={"format": i + 0.5}) for i in range(2)]
    groups[0] = replace(groups[0], verdicts=tuple(verdicts))
    curve = curve_of(groups)
    assert curve.truncated_share == pytest.approx(1 / 6)
    assert curve.reason_shares["correct"] == pytest.approx(2 / 6)
    assert curve.reason_shares["no_answer"] == pytest.approx(1 / 6)
    assert curve.reason_shares["unparsable"] == 0
    assert curve.off_format_share == pytest.approx(1 / 6)
    assert sum(curve.reason_shares.values()) == pytest.approx(1)
    assert curve.mean_reward == pytest.approx(2 / 5)  # the abstained one has none
    assert curve.values()[1] == pytest.approx(2 / 6)  # but it is a sample that is not right
    assert curve.reward_parts == {"format": 1.0}  # (0.5 + 1.5) / 2
    assert curve.mean_tokens == pytest.approx((4 * 2 + 2 * 5) / 6)
    assert curve.mean_tokens_correct == pytest.approx((2 + 5) / 2)
    assert curve.mean_tokens_incorrect == pytest.approx((2 + 2 + 2 + 5) / 4)


def test_distinct_solutions_count_writing_once(groups_of: Groups, curve_of: CurveOf) -> None:
    groups = groups_of({"a": "RRRW", "b": "WWWW"}, {"a": "xyxz"})
    curve = curve_of(groups)
    assert curve.problems[0].solutions == ("x", "y")
    assert curve.distinct_correct == 1.0  # (2 + 0) / 2
    bare = tuple(replace(verdict, solution=None) for verdict in groups[0].verdicts)
    curve = curve_of([replace(groups[0], verdicts=bare), groups[1]])
    assert curve.problems[0].solutions is None
    assert curve.distinct_correct is None


def test_a_curve_reads_back_equal(groups_of: Groups, curve_of: CurveOf, tmp_path: Path) -> None:
    base = curve_of(groups_of({"a": "RRWW", "b": "WWWW"}), entropy=0.25)
    trained = curve_of(groups_of({"a": "WWWW", "b": "WWWW"}), kl_to_reference=1.5)
    for i, curve in enumerate((base, trained, replace(trained, comparison=compare(trained, base)))):
        save_curve(tmp_path / f"{i}.json", curve)
        assert load_curve(tmp_path / f"{i}.json") == curve
    row = json.loads((tmp_path / "2.json").read_text())
    assert row["comparison"]["problems"]["shrunk"] == 1
    assert row["comparison"]["problems"]["ndr"] is None  # E / (P + E) = 0 / 0
    assert row["comparison"]["problems"]["nscr"] == -1


def test_sources_votes_and_settings_read_back_equal(groups_of: Groups, curve_of: CurveOf, tmp_path: Path) -> None:
    groups = groups_of({"a": "RRWW", "b": "RWWW", "c": "WWWW"})
    votes = [Votes(right=2, wrong=(1, 1)), Votes(right=1, wrong=(3,)), Votes(right=0, wrong=())]
    parts = (
        curve_of(groups[:1], benchmark="x", votes=votes[:1]),
        curve_of(groups[1:], benchmark="y", votes=votes[1:]),
    )
    whole = replace(curve_of(groups, votes=votes), sources=parts, settings={"seed": 0, "model": {"name": "m"}})
    save_curve(tmp_path / "curve.json", whole)
    assert load_curve(tmp_path / "curve.json") == whole
    row = json.loads((tmp_path / "curve.json").read_text())
    assert [source["benchmark"] for source in row["sources"]] == ["x", "y"]
    # The mean over benchmarks, (1/2 + 1/8) / 2, is not the mean over problems, (1/2 + 1/4 + 0) / 3.
    assert row["source_mean"]["1"] == pytest.approx(5 / 16)
    assert row["pass_at_k"]["1"]["value"] == pytest.approx(1 / 4)
    assert row["maj_at_k"]["4"]["value"] == pytest.approx(1 / 3)
    assert whole.sources[0].source_mean is None


def test_no_k_beyond_n(groups_of: Groups, curve_of: CurveOf) -> None:
    """K43, K73: pass@4 of one right sample in four is 1; there is no pass@8 of four samples."""
    curve = curve_of(groups_of({"a": "RWWW"}))
    assert curve.ks == [1, 2, 4]
    assert curve.values()[4] == 1.0


@pytest.mark.parametrize(("right", "n", "k", "expected"), [(1, 4, 4, 1.0), (2, 8, 4, 0.7857142857), (1, 64, 32, 0.5)])
def test_pass_at_k_is_drawn_without_replacement(
    groups_of: Groups, curve_of: CurveOf, right: int, n: int, k: int, expected: float
) -> None:
    """K44: drawing with replacement gives 0.684, 0.684 and 0.396."""
    assert curve_of(groups_of({"a": "R" * right + "W" * (n - right)})).values()[k] == pytest.approx(expected)


def test_a_single_problem_has_no_standard_error(groups_of: Groups, curve_of: CurveOf, tmp_path: Path) -> None:
    curve = curve_of(groups_of({"a": "RW"}))
    assert curve.pass_at_k[1].standard_error is None
    save_curve(tmp_path / "curve.json", curve)
    assert load_curve(tmp_path / "curve.json") == curve
