"""Second stage of an evaluation: completions -> verdicts -> ``verdicts.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sage.evaluation.files import read_jsonl, write_jsonl
from sage.interfaces import Progress, Reward
from sage.training.collect import grade as attach_verdicts
from sage.types import Group, Verdict, VerdictReason

_AT_ONCE = 2048
"""Completions that a reward is asked for together."""


def grade(groups: Sequence[Group], reward: Reward, *, path: Path, progress: Progress, title: str) -> list[Group]:
    """Judge every completion and write the verdicts.

    Args:
        groups: problems with completions.
        reward: the judge.
        path: ``verdicts.jsonl``, one row a completion, in the order of the samples.
        progress: where to report.
        title: what is evaluated, for the progress bar.

    Returns:
        The groups with verdicts.
    """
    graded: list[Group] = []
    with progress.stage(f"{title}: grade", sum(len(g.completions) for g in groups), "completions") as bar:
        for some in _at_once(groups):
            graded.extend(attach_verdicts(some, reward))
            bar.update(sum(len(group.completions) for group in some))
    write_jsonl(path, _rows(graded))
    return graded


def _at_once(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Enough for the workers of a reward to share, few enough for a bar to move."""
    some: list[Group] = []
    for group in groups:
        some.append(group)
        if sum(len(g.completions) for g in some) >= _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    for group in groups:
        for sample, verdict in enumerate(group.verdicts):
            yield {
                "problem_id": group.problem.id,
                "sample": sample,
                "correct": verdict.correct,
                "reward": verdict.reward,
                "reason": verdict.reason.value,
                "answer": verdict.answer,
                "solution": verdict.solution,
                "parts": dict(verdict.parts),
            }


def load_verdicts(path: Path, groups: Sequence[Group]) -> list[Group]:
    """Attach the verdicts of a ``verdicts.jsonl`` to the groups that it was made from.

    Raises:
        ValueError: naming the first problem and sample where file and groups differ.
    """
    rows = read_jsonl(path)
    places = [(group.problem.id, sample) for group in groups for sample in range(len(group.completions))]
    found = [(row["problem_id"], row["sample"]) for row in rows]
    if found != places:
        at = next((i for i, pair in enumerate(zip(found, places, strict=False)) if pair[0] != pair[1]), None)
        what = f"{len(found)} rows for {len(places)} samples" if at is None else f"{found[at]} in place of {places[at]}"
        raise ValueError(f"{path} does not belong to these samples: {what}")
    verdicts = iter(rows)
    return [replace(g, verdicts=tuple(_verdict(next(verdicts)) for _ in g.completions)) for g in groups]


def _verdict(row: dict[str, Any]) -> Verdict:
    return Verdict(
        reward=row["reward"],
        reason=VerdictReason(row["reason"]),
        answer=row["answer"],
        solution=row["solution"],
        parts=row["parts"],
    )
