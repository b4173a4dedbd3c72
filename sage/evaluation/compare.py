"""A trained model's curve against its base's: paired differences and support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from sage.config import ConfigError
from sage.evaluation.curves import Comparison, Curve, ProblemResult, bootstrap_key, estimates
from sage.maths.pass_at_k import mean_over_problems, pass_at_ks
from sage.maths.support import Support, support
from sage.types import Sampling, Split


def with_comparison(trained: Curve, base: Curve) -> Curve:
    """The curve, and those of its sources, with what sets them apart from the base's. Raises as :func:`compare`."""
    sources = zip(trained.sources, base.sources, strict=True)
    return replace(
        trained,
        comparison=compare(trained, base),
        sources=tuple(replace(ours, comparison=compare(ours, theirs)) for ours, theirs in sources),
    )


def compare(trained: Curve, base: Curve) -> Comparison:
    """Paired differences per k (bootstrap over the common problems, with the trained curve's settings) and support.

    The base against itself under another seed is the control: support moves by sampling alone.

    Raises:
        ConfigError: the curves differ in benchmark, problems, n or sampling; support and large k depend on n.
    """
    refuse_other_base(
        base,
        benchmark=trained.benchmark,
        split=trained.split,
        n=trained.n,
        ids=[problem.id for problem in trained.problems],
        sampling=trained.sampling,
        settings=trained.settings,
    )
    correct = torch.tensor([[p.correct for p in curve.problems] for curve in (trained, base)])
    after, before = (pass_at_ks(counts, n=trained.n, ks=trained.ks) for counts in correct)
    means = mean_over_problems(
        after - before,
        confidence=trained.confidence,
        resamples=trained.bootstrap_samples,
        key=bootstrap_key(trained.seed),
    )
    return Comparison(
        difference=estimates(trained.ks, means),
        problems=support(correct[1] > 0, correct[0] > 0),
        solutions=_solution_support(trained, base),
    )


def refuse_other_base(
    base: Curve,
    *,
    benchmark: str,
    split: Split,
    n: int,
    ids: Sequence[str],
    sampling: Sampling,
    settings: Mapping[str, Any],
) -> None:
    """Refuse a base that an evaluation with these settings cannot be compared with.

    Raises:
        ConfigError: naming what differs.
    """
    asked = {"benchmark": benchmark, "split": split, "n": n, "num_problems": len(ids), "sampling": sampling}
    found = [
        f"{name}={value} with a base of {name}={getattr(base, name)}"
        for name, value in asked.items()
        if value != getattr(base, name)
    ]
    others = [(ours, theirs.id) for ours, theirs in zip(ids, base.problems, strict=False) if ours != theirs.id]
    if others and not found:
        found = [f"other problems, {others[0][0]} here, {others[0][1]} in the base"]
    # A question or a gold may have changed under the same id; curves made by hand have no settings.
    both = [s["problems"]["hash"] for s in (settings, base.settings) if "problems" in s]
    if not found and len({*both}) > 1:
        found = ["problems whose text, gold or columns differ from the base's"]
    if found:
        raise ConfigError([f"cannot compare a curve of {'; '.join(found)}: make them equal"])


def _solution_support(trained: Curve, base: Curve) -> Support | None:
    before, after = _solutions(base.problems), _solutions(trained.problems)
    if before is None or after is None:
        return None
    found = sorted(before | after)
    return support(torch.tensor([s in before for s in found]), torch.tensor([s in after for s in found]))


def _solutions(problems: tuple[ProblemResult, ...]) -> set[tuple[str, str]] | None:
    pairs: set[tuple[str, str]] = set()
    for problem in problems:
        if problem.solutions is None:
            return None
        pairs |= {(problem.id, solution) for solution in problem.solutions}
    return pairs
