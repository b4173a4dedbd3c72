"""Empirical support of a trained model against its base: what training kept, lost and found."""

import math
from dataclasses import dataclass

from torch import Tensor


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Counts of problems (or of solutions) and the ratios made of them (arXiv 2507.14843).

    "In support" means seen correct at least once in n samples, so the counts grow with n: compare at equal n. Sampling
    alone moves items in and out; the counts of a base against the same base under another seed show how many.
    A ratio 0/0 is NaN.
    """

    preserved: int
    """P: in the support of both."""
    shrunk: int
    """S: of the base only."""
    expanded: int
    """E: of the trained model only."""
    unsolved: int
    """U: of neither."""

    @property
    def srr(self) -> float:
        """Support retention rate, P / (P + S)."""
        return _ratio(self.preserved, self.preserved + self.shrunk)

    @property
    def ndr(self) -> float:
        """Net discovery rate, E / (P + E)."""
        return _ratio(self.expanded, self.preserved + self.expanded)

    @property
    def sds(self) -> float:
        """Support dynamic score: the harmonic mean of SRR and NDR."""
        return _ratio(2 * self.srr * self.ndr, self.srr + self.ndr)

    @property
    def nscr(self) -> float:
        """Net support change rate, (E - S) / (P + E + S)."""
        return _ratio(self.expanded - self.shrunk, self.preserved + self.expanded + self.shrunk)


def support(base: Tensor, trained: Tensor) -> Support:
    """Counts from two boolean vectors.

    Args:
        base: ``[N]`` bool, whether the base has the item in its support.
        trained: ``[N]`` bool, the same of the trained model, in the same order.

    Raises:
        ValueError: when the shapes differ.

    >>> import torch
    >>> s = support(torch.tensor([True, True, True, False]), torch.tensor([True, True, False, True]))
    >>> s.preserved, s.shrunk, s.expanded, s.unsolved, round(s.srr, 3), s.nscr
    (2, 1, 1, 0, 0.667, 0.0)
    """
    if base.shape != trained.shape:
        raise ValueError(
            f"support of base {tuple(base.shape)} and trained {tuple(trained.shape)}: expected equal shapes"
        )
    base, trained = base.bool(), trained.bool()
    return Support(
        preserved=int((base & trained).sum()),
        shrunk=int((base & ~trained).sum()),
        expanded=int((~base & trained).sum()),
        unsolved=int((~base & ~trained).sum()),
    )
