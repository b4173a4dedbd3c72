"""The verdict guide: the anchor is the reference given that it is right (beyond the SAGE paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide, KLMode
from sage.types import Group, GuideInputs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class VerdictGuide(Guide):
    """``q(y) = r(y)`` of whole responses of the reference, so ``q * pi_ref`` is the reference given a right answer.

    r is the training reward clipped to [0, 1], 0 where the verdict abstained. The bounds q_min and q_max do not apply: q = 0
    is the point of this guide. With 0 < strength < 1 rewards between 0 and 1 rise; 0 and 1 stay.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strength < 0:
            raise ValueError(
                f"guide.strength={self.strength}: expected a number >= 0, as wrong responses have q = 0, which has no inverse"
            )

    @property
    def of_responses(self) -> bool:
        """q is about whole responses."""
        return True

    def refusal(self, kl_mode: KLMode) -> str | None:
        """Only a bank has whole responses of the reference with verdicts."""
        if kl_mode.bank is not None:
            return None
        return (
            f"{type(self).__name__} weighs whole graded responses of the reference, and only kl=forward_bank has them, so the "
            "guide cannot act: type kl=forward_bank, or guide=verified for the verdicts of the policy's own responses"
        )

    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]`` ones: tokens that the policy samples are left alone."""
        logprobs = inputs.policy.logprobs
        return logprobs.new_ones(logprobs.shape)

    def q_responses(self, group: Group) -> Sequence[float]:
        """The credit of each response."""
        return [verdict.credit for verdict in group.verdicts]
