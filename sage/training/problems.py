"""Which problems a step trains on: a pure function of (seed, step), so that a resumed run has nothing to restore."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sage.maths.streams import stream_key
from sage.types import Problem


def problems_of_step(problems: Sequence[Problem], step: int, count: int, seed: int) -> list[Problem]:
    """``count`` distinct problems: every epoch is a fresh permutation, cut into whole batches.

    Args:
        problems: the training split.
        step: from 0.
        count: P, problems a step.
        seed: the run's seed.

    Raises:
        ValueError: if the split holds fewer than ``count`` problems.
    """
    if not 1 <= count <= len(problems):
        raise ValueError(
            f"train.problems_per_step={count}: expected 1 to {len(problems)}, the number of training problems of the benchmark"
        )
    epoch, position = divmod(step, len(problems) // count)
    order = sorted(range(len(problems)), key=lambda i: stream_key(seed, "problems", epoch, problems[i].id))
    return [problems[i] for i in order[position * count : (position + 1) * count]]


def refill_problems(
    problems: Sequence[Problem], used: Collection[str], step: int, attempt: int, count: int, seed: int
) -> list[Problem]:
    """Up to ``count`` further problems for a step, none of those in ``used``; again a pure function of its arguments."""
    fresh = [problem for problem in problems if problem.id not in used]
    return sorted(fresh, key=lambda problem: stream_key(seed, "refill", step, attempt, problem.id))[:count]
