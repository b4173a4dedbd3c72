"""Grading: every sample, and a verdicts file that reads back."""

from pathlib import Path
from typing import Any

import pytest

from sage.evaluation.files import read_jsonl
from sage.evaluation.grade import grade, load_verdicts
from sage.interfaces import Reward
from sage.types import Group, Problem, VerdictReason


def test_every_sample_is_graded_and_written(
    drawn_groups: list[Group], reward: Any, progress: Any, tmp_path: Path
) -> None:
    """K77."""
    graded = grade(drawn_groups, reward, path=tmp_path / "v.jsonl", progress=progress, title="test")
    expected = [[reward.score(g.problem, c) for c in g.completions] for g in drawn_groups]
    assert [list(group.verdicts) for group in graded] == expected
    rows = read_jsonl(tmp_path / "v.jsonl")
    assert [row["correct"] for row in rows] == [verdict.correct for row in expected for verdict in row]
    assert set(rows[0]) == {"problem_id", "sample", "correct", "reward", "reason", "answer", "solution", "parts"}
    total, bar = progress.stages["test: grade"]
    assert total == bar.done == 30


def test_verdicts_read_back_equal(drawn_groups: list[Group], reward: Any, progress: Any, tmp_path: Path) -> None:
    graded = grade(drawn_groups, reward, path=tmp_path / "v.jsonl", progress=progress, title="test")
    assert load_verdicts(tmp_path / "v.jsonl", drawn_groups) == graded


def test_verdicts_of_other_samples_are_refused(
    drawn_groups: list[Group], reward: Any, progress: Any, tmp_path: Path
) -> None:
    grade(drawn_groups, reward, path=tmp_path / "v.jsonl", progress=progress, title="test")
    with pytest.raises(ValueError, match="30 rows for 24 samples"):
        load_verdicts(tmp_path / "v.jsonl", drawn_groups[:4])
    with pytest.raises(ValueError, match=r"'fake/test/0000', 0.*in place of.*'fake/test/0004', 0"):
        load_verdicts(tmp_path / "v.jsonl", drawn_groups[::-1])


def test_a_reward_that_raises_costs_one_sample_and_not_the_evaluation(
    drawn_groups: list[Group], reward: Any, progress: Any, tmp_path: Path
) -> None:
    class Fragile(Reward):
        def score(self, problem: Problem, completion: Any) -> Any:
            if problem is drawn_groups[1].problem:
                raise RuntimeError("cannot parse")
            return reward.score(problem, completion)

    graded = grade(drawn_groups, Fragile(), path=tmp_path / "v.jsonl", progress=progress, title="test")
    assert {verdict.reason for verdict in graded[1].verdicts} == {VerdictReason.ERROR}
    assert graded[0].verdicts == tuple(reward.score(drawn_groups[0].problem, c) for c in drawn_groups[0].completions)
