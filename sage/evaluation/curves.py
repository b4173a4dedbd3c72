"""Third stage of an evaluation: verdicts -> :class:`Curve`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sage.evaluation.results import Comparison, Curve, Estimate, ProblemResult, curve_row, load_curve, save_curve
from sage.evaluation.votes import Votes
from sage.maths.majority import majority_at_k
from sage.maths.pass_at_k import Means, mean_over_problems, pass_at_ks, powers_of_two
from sage.maths.streams import stream_key
from sage.types import Completion, Group, Sampling, Split, StopReason, Verdict, VerdictReason


def bootstrap_key(seed: int) -> int:
    """Key of the problem sets that bootstraps draw: one seed, one set, whatever is averaged."""
    return stream_key(seed, "bootstrap")


def estimates(ks: Sequence[int], means: Means) -> dict[int, Estimate]:
    """One :class:`Estimate` per k of ``[K]`` means."""
    columns = zip(*(t.tolist() for t in (means.value, means.low, means.high, means.standard_error)), strict=True)
    return {
        k: Estimate(value=value, low=low, high=high, standard_error=None if math.isnan(error) else error)
        for k, (value, low, high, error) in zip(ks, columns, strict=True)
    }


def make_curve(
    groups: Sequence[Group],
    *,
    benchmark: str,
    split: Split,
    seed: int,
    n: int,
    sampling: Sampling,
    confidence: float,
    bootstrap_samples: int,
    votes: Sequence[Votes] | None = None,
    entropy: float | None = None,
    kl_to_reference: float | None = None,
) -> Curve:
    """The curve of graded groups.

    Args:
        groups: all problems of the split with their verdicts.
        benchmark: name of the benchmark.
        split: which of its problems.
        seed: of the samples, and of the bootstrap.
        n: samples that every problem must have.
        sampling: how they were drawn.
        confidence: coverage of the intervals.
        bootstrap_samples: problem sets drawn for them.
        votes: of every problem, for maj@k.
        entropy: mean token entropy, if computed.
        kl_to_reference: mean KL of a completion, if computed.

    Raises:
        ValueError: without problems; naming a problem that occurs twice or has other than n graded samples: one problem
            set and one n hold for the whole curve.
    """
    _check(groups, n)
    problems = tuple(_problem_result(group) for group in groups)
    pairs = [pair for group in groups for pair in zip(group.completions, group.verdicts, strict=True)]
    ks = powers_of_two(n)
    correct = torch.tensor([problem.correct for problem in problems])

    def averaged(values: Tensor) -> dict[int, Estimate]:
        key = bootstrap_key(seed)
        return estimates(ks, mean_over_problems(values, confidence=confidence, resamples=bootstrap_samples, key=key))

    distinct = [None if p.solutions is None else float(len(p.solutions)) for p in problems]
    return Curve(
        benchmark=benchmark,
        split=split,
        seed=seed,
        n=n,
        sampling=sampling,
        confidence=confidence,
        bootstrap_samples=bootstrap_samples,
        pass_at_k=averaged(pass_at_ks(correct, n=n, ks=ks)),
        mean_at_n=int(correct.sum()) / len(pairs),
        maj_at_k=None if votes is None else averaged(_majorities(votes, n, ks)),
        distinct_correct=None if None in distinct else _mean([d for d in distinct if d is not None]),
        entropy=entropy,
        kl_to_reference=kl_to_reference,
        problems=problems,
        **_completion_means(pairs),
    )


def _check(groups: Sequence[Group], n: int) -> None:
    if not groups:
        raise ValueError("a pass@k curve needs at least one problem, got 0")
    for problem_id, count in Counter(group.problem.id for group in groups).items():
        if count > 1:
            raise ValueError(f"problem {problem_id} occurs {count} times: problem ids must be unique")
    for group in groups:
        drawn, graded = len(group.completions), len(group.verdicts)
        if not drawn == graded == n:
            raise ValueError(
                f"problem {group.problem.id} has {drawn} samples and {graded} verdicts, expected n={n} of each: "
                "a curve takes the same number of samples from every problem"
            )


def _majorities(votes: Sequence[Votes], n: int, ks: Sequence[int]) -> Tensor:
    """``[P, K]`` expected accuracy of each problem's vote."""
    rows = [[majority_at_k(vote.right, vote.wrong, n=n, k=k) for k in ks] for vote in votes]
    return torch.tensor(rows, dtype=torch.float64)


def _problem_result(group: Group) -> ProblemResult:
    found = [verdict.solution for verdict in group.verdicts if verdict.correct]
    solutions = None if None in found else tuple(sorted({s for s in found if s is not None}))
    return ProblemResult(id=group.problem.id, n=len(group.verdicts), correct=len(found), solutions=solutions)


def _completion_means(pairs: Sequence[tuple[Completion, Verdict]]) -> dict[str, Any]:
    reasons = Counter(verdict.reason for _, verdict in pairs)
    lengths = {True: [], False: []}
    parts: dict[str, list[float]] = {}
    for completion, verdict in pairs:
        lengths[verdict.correct].append(len(completion.token_ids))
        for name, value in verdict.parts.items():
            parts.setdefault(name, []).append(value)
    off_format = reasons[VerdictReason.NO_ANSWER] + reasons[VerdictReason.UNPARSABLE]
    return {
        "off_format_share": off_format / len(pairs),
        "truncated_share": sum(c.stop_reason is StopReason.LENGTH for c, _ in pairs) / len(pairs),
        "reason_shares": {reason.value: reasons[reason] / len(pairs) for reason in VerdictReason},
        "mean_reward": _mean([v.reward for _, v in pairs if v.reward is not None]),
        "reward_parts": {name: math.fsum(values) / len(values) for name, values in sorted(parts.items())},
        "mean_tokens": (sum(lengths[True]) + sum(lengths[False])) / len(pairs),
        "mean_tokens_correct": _mean(lengths[True]),
        "mean_tokens_incorrect": _mean(lengths[False]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


__all__ = [
    "Comparison",
    "Curve",
    "Estimate",
    "ProblemResult",
    "bootstrap_key",
    "curve_row",
    "estimates",
    "load_curve",
    "make_curve",
    "save_curve",
]
