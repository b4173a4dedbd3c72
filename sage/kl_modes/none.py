"""No KL: rewards alone move the policy, and no reference model is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from sage.interfaces import Guide, KLMode
from sage.types import Stat


@dataclass(frozen=True, kw_only=True)
class NoKL(KLMode):
    """Neither a token loss nor a token reward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta != 0:
            raise ValueError(
                f"kl_mode.beta={self.beta}: kl=none has no divergence to weigh; "
                "type kl=reverse (or kl=forward) to use beta, or leave it at 0"
            )

    @property
    def needs(self) -> frozenset[Stat]:
        """Nothing."""
        return frozenset()

    @property
    def gradient(self) -> str:
        """Which gradient the run follows."""
        return "No KL: the gradient of the policy objective alone; no anchor acts and no reference model is loaded."

    def refusal(self, guide: Guide) -> str | None:
        """A guide shapes the anchor of a divergence, and there is none."""
        if guide.identity:
            return None
        return (
            f"{type(guide).__name__} shapes the anchor of a KL term, and kl=none has no KL term, so the guide cannot "
            "act: type kl=reverse to use the guide, or guide=none to train without KL"
        )
