"""No guide: the anchor is the reference, and the KL that of ordinary RLVR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide
from sage.types import GuideInputs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class NoGuide(Guide):
    """q = 1 everywhere. Strength and bounds do nothing; accepting them lets a sweep set them for every guide."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.q_min <= 1 <= self.q_max:
            raise ValueError(
                f"guide.q_min={self.q_min}, guide.q_max={self.q_max}: guide=none is q = 1, "
                "which needs q_min <= 1 <= q_max, e.g. 0.6 and 1.4"
            )

    @property
    def identity(self) -> bool:
        """q is 1 everywhere."""
        return True

    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]`` ones."""
        logprobs = inputs.policy.logprobs
        return logprobs.new_ones(logprobs.shape)
