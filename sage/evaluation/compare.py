"""A trained model's curve against its base's: paired differences and support."""

from __future__ import annotations

import warnings

import torch

from sage.evaluation.curves import Comparison, Curve, ProblemResult, bootstrap_key, estimates
from sage.maths.pass_at_k import mean_over_problems, pass_at_ks
from sage.maths.support import Support, support


def compare(trained: Curve, base: Curve) -> Comparison:
    """Paired differences per k (bootstrap over the common problems, with the trained curve's settings) and support.

    The base against itself under another seed is the control: support moves by sampling alone.

    Raises:
        ValueError: when the two curves differ in benchmark, split, problems or n; support and large k depend on n.
    """
    _check(trained, base)
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


def _check(trained: Curve, base: Curve) -> None:
    for name in ("benchmark", "split", "n", "num_problems"):
        ours, theirs = getattr(trained, name), getattr(base, name)
        if ours != theirs:
            raise ValueError(f"cannot compare a curve of {name}={ours} with a base of {name}={theirs}: make them equal")
    for ours, theirs in zip(trained.problems, base.problems, strict=True):
        if ours.id != theirs.id:
            raise ValueError(f"cannot compare curves over other problems: {ours.id} here, {theirs.id} in the base")
    if trained.sampling != base.sampling:
        warnings.warn(f"sampling differs: {trained.sampling}, and {base.sampling} in the base", stacklevel=3)


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
