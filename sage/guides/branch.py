"""The branch guide: positions where the policy is undecided are favoured (SAGE paper, arXiv 2605.18864)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide
from sage.types import GuideInputs, Stat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BranchGuide(Guide):
    """``q = 1 + ratio * max(0, H - threshold)`` with H the full-vocabulary entropy before the token in nats.

    The same for every token that could stand at the position, so it acts only where a KL mode feels such a factor.
    """

    ratio: float
    """Rise of q per nat, >= 0."""
    threshold: float
    """Entropy in nats from which on a position counts as a branch, >= 0."""
    source: str
    """Whose entropy: ``new`` is the policy, ``ref`` the reference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("ratio", "threshold"):
            if getattr(self, name) < 0:
                raise ValueError(f"guide.{name}={getattr(self, name)}: expected a number >= 0")
        if self.source not in ("new", "ref"):
            raise ValueError(f"guide.source={self.source}: expected new (the policy) or ref (the reference)")

    @property
    def needs(self) -> frozenset[Stat]:
        """The reference where it is the source."""
        return frozenset({Stat.REFERENCE}) if self.source == "ref" else frozenset()

    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]``."""
        stats = inputs.policy if self.source == "new" else inputs.reference
        if stats is None:
            raise ValueError("guide.source=ref needs the reference's token statistics, got none: type guide.source=new")
        return 1.0 + self.ratio * (stats.entropy - self.threshold).clamp(min=0)
