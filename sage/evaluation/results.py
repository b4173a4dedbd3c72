"""What an evaluation results in, and ``curve.json``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from sage.evaluation.files import write_json
from sage.maths.support import Support
from sage.types import Sampling, Split


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
    """Share of correct samples; equals pass@1, whose standard error is also its own."""
    maj_at_k: dict[int, Estimate] | None
    """k -> expected accuracy of a majority vote over k samples; ``None`` where the reward reads no answer off a text."""
    distinct_correct: float | None
    """Distinct correct solutions a problem."""
    truncated_share: float
    """Share of completions that were cut at ``max_tokens``."""
    off_format_share: float
    """Share of completions without an answer, or with one that cannot be read."""
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
    sources: tuple[Curve, ...] = ()
    """Of a combined benchmark: the curve of each benchmark in it, in order."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """What produced the samples (``settings.json``); that of a source stands in the curve that holds it."""

    @property
    def ks(self) -> list[int]:
        """The k of the curve, ascending."""
        return list(self.pass_at_k)

    @property
    def num_problems(self) -> int:
        """P: the denominator of every k."""
        return len(self.problems)

    @property
    def source_mean(self) -> dict[int, float] | None:
        """k -> mean over the sources of their pass@k, whatever their sizes; ``None`` without sources."""
        if not self.sources:
            return None
        return {k: fmean(source.pass_at_k[k].value for source in self.sources) for k in self.ks}

    def values(self) -> dict[int, float]:
        """k -> pass@k without uncertainty."""
        return {k: estimate.value for k, estimate in self.pass_at_k.items()}


def curve_row(curve: Curve) -> dict[str, Any]:
    """A curve as plain values, ready for JSON."""
    row = asdict(curve) | {"num_problems": curve.num_problems, "ks": curve.ks, "source_mean": curve.source_mean}
    row["sources"] = [curve_row(source) for source in curve.sources]
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
    return _load(json.loads(path.read_text(encoding="utf-8")))


def _load(row: dict[str, Any]) -> Curve:
    del row["num_problems"], row["ks"], row["source_mean"]
    row["split"] = Split(row["split"])
    row["sampling"] = Sampling(**row["sampling"] | {"stop": tuple(row["sampling"]["stop"])})
    row["pass_at_k"] = _load_estimates(row["pass_at_k"])
    row["maj_at_k"] = None if row["maj_at_k"] is None else _load_estimates(row["maj_at_k"])
    row["sources"] = tuple(map(_load, row["sources"]))
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
