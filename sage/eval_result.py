"""A curve in numbers and words, for the screen of ``sage-eval``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from sage.evaluation.curves import Curve, Estimate
from sage.loggers.eval_screens import EvalResult, EvalRow, Interval, SourceRow
from sage.loggers.formats import number


def evaluation_result(curve: Curve, label: str, folder: Path) -> EvalResult:
    """What to print.

    Args:
        curve: the result.
        label: of the model.
        folder: where its files are.
    """
    return EvalResult(
        title=f"{label} on {curve.benchmark}, {curve.num_problems:,} problems × {curve.n:,} samples",
        confidence=curve.confidence,
        rows=[_row(curve, k) for k in curve.ks],
        measures=dict(_measures(curve)),
        source_columns=_columns(curve),
        sources=list(_sources(curve)),
        folder=folder,
    )


def _row(curve: Curve, k: int) -> EvalRow:
    difference = None
    if curve.comparison is not None:
        estimate = curve.comparison.difference[k]
        difference = (estimate.value, estimate.standard_error or 0.0)
    votes = None if curve.maj_at_k is None else _interval(curve.maj_at_k[k])
    return EvalRow(k=k, pass_at_k=_interval(curve.pass_at_k[k]), maj_at_k=votes, difference=difference)


def _interval(estimate: Estimate) -> Interval:
    return estimate.value, estimate.low, estimate.high


def _measures(curve: Curve) -> Iterator[tuple[str, str]]:
    error = curve.pass_at_k[1].standard_error
    spread = "one problem has no standard error" if error is None else f"± {error:.4f} (standard error over problems)"
    yield f"mean@{curve.n}", f"{curve.mean_at_n:.4f} {spread}"
    yield "truncated", f"{curve.truncated_share:.1%}"
    yield "off format", f"{curve.off_format_share:.1%} without an answer that can be read"
    failed = curve.reason_shares.get("error", 0) + curve.reason_shares.get("timeout", 0)
    if failed:
        yield "not judged", f"{failed:.1%} ran into an error or a limit of the reward, and count as wrong"
    further = {
        "tokens/completion": curve.mean_tokens,
        "distinct solutions/problem": curve.distinct_correct,
        "token entropy (nats)": curve.entropy,
        "KL to reference (nats)": curve.kl_to_reference,
    }
    for name, value in further.items():
        if value is not None:
            yield name, number(value)
    if curve.comparison is not None:
        counts = curve.comparison.problems
        named = ("preserved", "expanded", "shrunk", "unsolved")
        yield "support (problems)", " · ".join(f"{getattr(counts, name):,} {name}" for name in named)


def _columns(curve: Curve) -> list[str]:
    last = [] if curve.n == 1 else [f"pass@{curve.n}", *([f"maj@{curve.n}"] if curve.maj_at_k is not None else [])]
    return ["pass@1", *last]


def _sources(curve: Curve) -> Iterator[SourceRow]:
    rows = [
        SourceRow(name=s.benchmark, problems=s.num_problems, values=[_value(s, c) for c in _columns(curve)])
        for s in curve.sources
    ]
    yield from rows
    if rows:
        columns = zip(*(row.values for row in rows), strict=True)
        means = [None if None in column else fmean(v for v in column if v is not None) for column in columns]
        yield SourceRow(name="mean of them", problems=None, values=means)


def _value(curve: Curve, column: str) -> float | None:
    kind, _, k = column.partition("@")
    found = curve.pass_at_k if kind == "pass" else curve.maj_at_k
    return None if found is None else found[int(k)].value
