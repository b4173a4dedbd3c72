"""Problems of several splits made disjoint, and problems drawn from one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from sage.maths.overlap import normalise
from sage.types import Problem, Split

Problems = dict[Split, list[Problem]]


class Dropped(NamedTuple):
    """A row that is no problem of the benchmark."""

    id: str
    reason: Literal["unusable", "repeated", "contradicting"]
    """No question or gold; the question of an earlier row; one question with several golds."""
    detail: str


def without_repeats(found: Mapping[Split, Sequence[Problem]]) -> tuple[Problems, list[Dropped]]:
    """One problem a question in all splits together, and what was left out.

    The first of equal questions stays, splits taken in the order of ``found``. Where a split contradicts itself, nothing
    says which gold is right: none stays.
    """
    groups: dict[str, list[tuple[Split, Problem]]] = defaultdict(list)
    for split, problems in found.items():
        for problem in problems:
            groups[normalise(problem.columns["question"])].append((split, problem))
    dropped = [row for group in groups.values() if len(group) > 1 for row in _dropped(group)]
    gone = {row.id for row in dropped}
    return {split: [p for p in problems if p.id not in gone] for split, problems in found.items()}, dropped


def _dropped(group: Sequence[tuple[Split, Problem]]) -> list[Dropped]:
    """What to leave out of problems with one question."""
    (split, first), *others = group
    golds = {normalise(problem.answer): problem.answer for own, problem in group if own is split}
    if len(golds) > 1:
        detail = f"has the question of {len(group) - 1} other rows, and golds differ: {', '.join(golds.values())}"
        return [Dropped(problem.id, "contradicting", detail) for _, problem in group]
    return [Dropped(other.id, "repeated", f"has the question of {first.id}") for _, other in others]


def drawn(problems: Sequence[Problem], count: int, seed: int, stream: str) -> tuple[list[Problem], list[Problem]]:
    """``count`` problems by the hash of their question, and the rest: the same ones whatever the order of the rows."""

    def key(problem: Problem) -> str:
        return sha256(f"{seed}/{stream}/{normalise(problem.columns['question'])}".encode()).hexdigest()

    taken = sorted(problems, key=key)[:count]
    ids = {problem.id for problem in taken}
    return taken, [problem for problem in problems if problem.id not in ids]
