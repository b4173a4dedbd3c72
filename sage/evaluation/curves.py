"""Third stage of an evaluation: verdicts -> :class:`Curve` -> ``curve.json``."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from sage.evaluation.files import write_json
from sage.maths.pass_at_k import Means, mean_over_problems, pass_at_ks, powers_of_two
from sage.maths.streams import stream_key
from sage.maths.support import Support
from sage.types import Completion, Group, Sampling, Split, StopReason, Verdict, VerdictReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over problems."""

    value: float
    low: float
    """Lower end of the bootstrap interval over problems."""
    high: float
    """Upper end."""
    standard_error: float | None
    """``None`` for a single problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """What became of one problem."""

    id: str
    n: int
    """Samples."""
    correct: int
    """Correct ones among them."""
    solutions: tuple[str, ...] | None
    """Distinct correct solutions, sorted; ``None`` where the reward gave a correct one no canonical form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A trained model against its base on the same problems."""

    difference: dict[int, Estimate]
    """k -> pass@k of the trained model minus the base's, paired by problem."""
    problems: Support
    """Support, counted in problems."""
    solutions: Support | None
    """Support, counted in (problem, solution) pairs that either side found, so none is unsolved; ``None`` where
    solutions have no canonical form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The result of one evaluation. ``None`` stands for a number that is undefined or was not computed."""

    benchmark: str
    split: Split
    seed: int
    n: int
    """Samples of every problem."""
    sampling: Sampling
    confidence: float
    """Coverage of the intervals."""
    bootstrap_samples: int
    pass_at_k: dict[int, Estimate]
    """k -> unbiased pass@k, for k = 1, 2, 4, ..., n; all k over the same problems."""
    mean_at_n: float
    """Share of correct samples; equals pass@1."""
    distinct_correct: float | None
    """Distinct correct solutions a problem."""
    truncated_share: float
    """Share of completions that were cut at ``max_tokens``."""
    reason_shares: dict[str, float]
    """Share of completions with each :class:`~sage.types.VerdictReason`."""
    mean_reward: float | None
    """Over the verdicts that did not abstain."""
    reward_parts: dict[str, float]
    """Means of the named parts, over the verdicts that have them."""
    mean_tokens: float
    """Tokens a completion, end token included."""
    mean_tokens_correct: float | None
    mean_tokens_incorrect: float | None
    entropy: float | None
    """Mean token entropy in nats; ``None`` under greedy decoding."""
    kl_to_reference: float | None
    """Mean KL(policy || reference) of a completion in nats; ``None`` without a reference and under greedy decoding."""
    problems: tuple[ProblemResult, ...]
    comparison: Comparison | None = None
    """Against the base, where there is one."""

    @property
    def ks(self) -> list[int]:
        """The k of the curve, ascending."""
        return list(self.pass_at_k)

    @property
    def num_problems(self) -> int:
        """P: the denominator of every k."""
        return len(self.problems)

    def values(self) -> dict[int, float]:
        """k -> pass@k without uncertainty."""
        return {k: estimate.value for k, estimate in self.pass_at_k.items()}


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
    means = mean_over_problems(
        pass_at_ks(correct, n=n, ks=ks), confidence=confidence, resamples=bootstrap_samples, key=bootstrap_key(seed)
    )
    distinct = [None if p.solutions is None else float(len(p.solutions)) for p in problems]
    return Curve(
        benchmark=benchmark,
        split=split,
        seed=seed,
        n=n,
        sampling=sampling,
        confidence=confidence,
        bootstrap_samples=bootstrap_samples,
        pass_at_k=estimates(ks, means),
        mean_at_n=int(correct.sum()) / len(pairs),
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
    return {
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


def curve_row(curve: Curve) -> dict[str, Any]:
    """A curve as plain values, ready for JSON."""
    row = asdict(curve) | {"num_problems": curve.num_problems, "ks": curve.ks}
    if curve.comparison is not None:
        row["comparison"] |= {
            name: None if counts is None else _support_row(counts)
            for name, counts in (("problems", curve.comparison.problems), ("solutions", curve.comparison.solutions))
        }
    return row


def save_curve(path: Path, curve: Curve) -> None:
    """Write a curve as JSON."""
    write_json(path, curve_row(curve))


def _support_row(counts: Support) -> dict[str, int | float | None]:
    ratios = {name: getattr(counts, name) for name in ("srr", "ndr", "sds", "nscr")}
    return asdict(counts) | {name: None if math.isnan(ratio) else ratio for name, ratio in ratios.items()}


def load_curve(path: Path) -> Curve:
    """Read a curve back, equal to the one that was saved."""
    row = json.loads(path.read_text(encoding="utf-8"))
    del row["num_problems"], row["ks"]
    row["split"] = Split(row["split"])
    row["sampling"] = Sampling(**row["sampling"])
    row["pass_at_k"] = _load_estimates(row["pass_at_k"])
    row["problems"] = tuple(
        ProblemResult(**p | {"solutions": None if p["solutions"] is None else tuple(p["solutions"])})
        for p in row["problems"]
    )
    if row["comparison"] is not None:
        row["comparison"] = Comparison(
            difference=_load_estimates(row["comparison"]["difference"]),
            problems=_load_support(row["comparison"]["problems"]),
            solutions=None if row["comparison"]["solutions"] is None else _load_support(row["comparison"]["solutions"]),
        )
    return Curve(**row)


def _load_estimates(row: dict[str, dict[str, Any]]) -> dict[int, Estimate]:
    return {int(k): Estimate(**estimate) for k, estimate in row.items()}


def _load_support(row: dict[str, Any]) -> Support:
    return Support(**{name: row[name] for name in ("preserved", "shrunk", "expanded", "unsolved")})
