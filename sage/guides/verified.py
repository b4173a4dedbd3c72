"""The verified guide: surprising tokens are favoured in correct responses only (beyond the SAGE paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide
from sage.maths.surprisal import NORMALISERS
from sage.types import GuideInputs, Stat, TokenStats

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class VerifiedGuide(Guide):
    """``q = 1 + alpha * r * w``, w in [0, 1] the token's surprisal normalised within its response, r the verdict's reward.

    The anchor lets go of the policy where a rare response was right, and holds it as before where it was wrong. The
    reward is clipped to [0, 1], so a penalty never tightens the anchor; an abstained verdict counts as 0.

    Over the vocabulary the verdict is taken as one on the position: all that is known there is that a response through it
    was right, so each token gets the q that it would have had as the sampled one.
    """

    alpha: float
    """Rise of q from the least to the most surprising token of a response with reward 1, >= 0."""
    norm: str
    """How surprisal becomes w within a response: ``minmax``, ``rank`` or ``zscore`` (``sage.maths.surprisal``)."""
    source: str
    """Whose surprisal: ``new`` is the policy, ``ref`` the reference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha < 0:
            raise ValueError(f"guide.alpha={self.alpha}: expected a number >= 0, e.g. 0.3")
        if self.norm not in NORMALISERS:
            raise ValueError(f"guide.norm={self.norm}: expected one of {', '.join(NORMALISERS)}")
        if self.source not in ("new", "ref"):
            raise ValueError(f"guide.source={self.source}: expected new (the policy) or ref (the reference)")

    @property
    def needs(self) -> frozenset[Stat]:
        """The reference where it is the source."""
        return frozenset({Stat.REFERENCE}) if self.source == "ref" else frozenset()

    @property
    def over_vocabulary(self) -> bool:
        """Every token has a surprisal."""
        return True

    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]``."""
        surprisal = -self._stats(inputs).logprobs
        return 1.0 + self._pull(inputs) * NORMALISERS[self.norm](surprisal, surprisal, inputs.mask)

    def q_vocabulary(self, inputs: GuideInputs) -> Tensor:
        """``[B, T, V]``.

        Raises:
            ValueError: if the source comes without log-probs of the vocabulary.
        """
        stats = self._stats(inputs)
        if stats.vocabulary_logprobs is None:
            raise ValueError("guide=verified over the vocabulary needs token statistics with Stat.VOCABULARY, got none")
        every = -stats.vocabulary_logprobs
        weight = NORMALISERS[self.norm](every.flatten(1), -stats.logprobs, inputs.mask).view_as(every)
        return 1.0 + self._pull(inputs).unsqueeze(-1) * weight

    def _pull(self, inputs: GuideInputs) -> Tensor:
        """``alpha * r`` of each response, ``[B, 1]``."""
        rewards = inputs.rewards.nan_to_num(nan=0.0).clamp(0, 1).unsqueeze(-1)
        return self.alpha * rewards.to(inputs.policy.logprobs.dtype)

    def _stats(self, inputs: GuideInputs) -> TokenStats:
        stats = inputs.policy if self.source == "new" else inputs.reference
        if stats is None:
            raise ValueError("guide.source=ref needs the reference's token statistics, got none: type guide.source=new")
        return stats
