"""The token guide: surprising tokens of a response are favoured (SAGE paper, arXiv 2605.18864)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide
from sage.maths.schedules import check_cosine_restarts, cosine_restarts
from sage.maths.streams import normal
from sage.maths.surprisal import NORMALISERS
from sage.types import GuideInputs, Stat, TokenStats

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TokenGuide(Guide):
    """``q = 1 + alpha * w + sigma * w * n`` with w in [0, 1] the token's normalised surprisal and n standard normal.

    Alpha and sigma follow a cosine schedule with restarts over the optimiser steps of the run. Over the vocabulary, the
    surprisal of every token is placed in the range (ranks, moments) of the sampled response; n belongs to the position.
    """

    alpha_max: float
    """Pull towards surprising tokens at the first peak of the schedule."""
    alpha_min: float
    """Pull that every cycle falls to."""
    sigma_max: float
    """Noise at the first peak."""
    sigma_min: float
    """Noise that every cycle falls to."""
    cycles: int
    """Cycles of the schedule in a run."""
    decay: float
    """Factor of the peaks from one cycle to the next."""
    norm: str
    """How surprisal becomes w within a response: ``minmax``, ``rank`` or ``zscore`` (``sage.maths.surprisal``)."""
    source: str
    """Whose surprisal: ``new`` is the policy, ``ref`` the reference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "sigma"):
            upper, lower = getattr(self, f"{name}_max"), getattr(self, f"{name}_min")
            check_cosine_restarts(f"guide.{name}", upper=upper, lower=lower, cycles=self.cycles, decay=self.decay)
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
        weight = NORMALISERS[self.norm](surprisal, surprisal, inputs.mask)
        return 1.0 + weight * self._pull(inputs)

    def q_vocabulary(self, inputs: GuideInputs) -> Tensor:
        """``[B, T, V]``.

        Raises:
            ValueError: if the source comes without log-probs of the vocabulary.
        """
        stats = self._stats(inputs)
        if stats.vocabulary_logprobs is None:
            raise ValueError("guide=token over the vocabulary needs token statistics with Stat.VOCABULARY, got none")
        every = -stats.vocabulary_logprobs
        weight = NORMALISERS[self.norm](every.flatten(1), -stats.logprobs, inputs.mask).view_as(every)
        return 1.0 + weight * self._pull(inputs).unsqueeze(-1)

    def _scheduled(self, name: str, inputs: GuideInputs) -> float:
        upper, lower = getattr(self, f"{name}_max"), getattr(self, f"{name}_min")
        return cosine_restarts(
            inputs.step, inputs.num_steps, upper=upper, lower=lower, cycles=self.cycles, decay=self.decay
        )

    def _pull(self, inputs: GuideInputs) -> Tensor:
        """``alpha + sigma * n`` of each position, ``[B, T]``."""
        alpha = self._scheduled("alpha", inputs)
        sigma = self._scheduled("sigma", inputs)
        noise = normal(inputs.noise_keys, inputs.mask.shape[1], "token/noise")
        return (alpha + sigma * noise).to(inputs.policy.logprobs.dtype)

    def _stats(self, inputs: GuideInputs) -> TokenStats:
        stats = inputs.policy if self.source == "new" else inputs.reference
        if stats is None:
            raise ValueError("guide.source=ref needs the reference's token statistics, got none: type guide.source=new")
        return stats
