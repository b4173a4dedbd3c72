"""The random guide: noise on a few tokens (SAGE paper, arXiv 2605.18864)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide
from sage.maths.schedules import check_cosine_restarts, cosine_restarts
from sage.maths.streams import normal, uniform
from sage.types import GuideInputs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class RandomGuide(Guide):
    """With probability epsilon ``q = 1 + sigma * n`` with n standard normal, else 1.

    Epsilon and sigma follow a cosine schedule with restarts over the optimiser steps of the run. The noise is fixed for
    a batch: it depends on the row's noise key and the token's position alone.
    """

    epsilon_max: float
    """Share of noisy tokens at the first peak of the schedule."""
    epsilon_min: float
    """Share that every cycle falls to."""
    sigma_max: float
    """Standard deviation of the noise at the first peak."""
    sigma_min: float
    """Standard deviation that every cycle falls to."""
    cycles: int
    """Cycles of the schedule in a run."""
    decay: float
    """Factor of the peaks from one cycle to the next."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epsilon", "sigma"):
            upper, lower = getattr(self, f"{name}_max"), getattr(self, f"{name}_min")
            check_cosine_restarts(f"guide.{name}", upper=upper, lower=lower, cycles=self.cycles, decay=self.decay)
        if self.epsilon_max > 1:
            raise ValueError(f"guide.epsilon_max={self.epsilon_max}: a probability, expected at most 1, e.g. 0.1")

    def _scheduled(self, name: str, inputs: GuideInputs) -> float:
        upper, lower = getattr(self, f"{name}_max"), getattr(self, f"{name}_min")
        return cosine_restarts(
            inputs.step, inputs.num_steps, upper=upper, lower=lower, cycles=self.cycles, decay=self.decay
        )

    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]``."""
        logprobs = inputs.policy.logprobs
        length = logprobs.shape[1]
        epsilon = self._scheduled("epsilon", inputs)
        sigma = self._scheduled("sigma", inputs)
        noisy = uniform(inputs.noise_keys, length, "random/where") < epsilon
        noise = normal(inputs.noise_keys, length, "random/noise").to(logprobs.dtype)
        return 1.0 + sigma * noise * noisy
