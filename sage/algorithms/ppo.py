"""PPO with a critic (Schulman et al. 2017, arXiv 1707.06347), as in RLHF: token rewards, GAE, clipped value loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from sage.algorithms.clipped import Clipped, check_choice
from sage.maths.advantages import gae, whiten
from sage.maths.surrogate import clipped_value_term
from sage.types import Batch, Stat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PPO(Clipped):
    """The verdict's reward stands on the last token, a KL in the reward on every token; a critic gives the baseline."""

    critic: str
    """``trunk``: a value head on the policy's own trunk; ``separate``: a model of its own, started from the reference."""
    discount: float
    """gamma, in [0, 1]."""
    trace: float
    """lambda of GAE, in [0, 1]."""
    whiten: bool
    """Shift and scale the advantages of the whole batch to mean 0 and standard deviation 1."""
    value_clip: float
    """How far a value may move from the one before the update within one batch, > 0; ``inf`` for no clip."""
    value_coefficient: float
    """Weight of the critic's loss, >= 0."""

    min_completions: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("critic", self.critic, ("trunk", "separate"))
        for name in ("discount", "trace"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"algorithm.{name}={getattr(self, name)}: expected a number in [0, 1]")
        if self.value_clip <= 0:
            raise ValueError(f"algorithm.value_clip={self.value_clip}: expected a number > 0, e.g. 0.2, or .inf")
        if self.value_coefficient < 0:
            raise ValueError(f"algorithm.value_coefficient={self.value_coefficient}: expected a number >= 0, e.g. 0.1")

    @property
    def needs(self) -> frozenset[Stat]:
        """The critic's values."""
        return frozenset({Stat.VALUES})

    @property
    def separate_critic(self) -> bool:
        """Whether the critic has a trunk of its own."""
        return self.critic == "separate"

    def advantages(self, batch: Batch, token_rewards: Tensor | None) -> Tensor:
        """``[B, T]`` GAE, whitened over the batch where asked for; 0 on padding and on abstained rows."""
        advantages, _ = self._gae(batch, token_rewards)
        return whiten(advantages, batch.mask) if self.whiten else advantages

    def returns(self, batch: Batch, token_rewards: Tensor | None) -> Tensor:
        """``[B, T]`` GAE plus the values before the update."""
        return self._gae(batch, token_rewards)[1]

    def value_loss(self, values: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
        """``[B, T]`` the larger of the squared errors with and without the clip, halved, times the coefficient."""
        return self.value_coefficient * clipped_value_term(values, old_values, returns, self.value_clip)

    def _gae(self, batch: Batch, token_rewards: Tensor | None) -> tuple[Tensor, Tensor]:
        if batch.old is None or batch.old.values is None:
            raise ValueError("PPO needs the critic's values before the update: score the old policy with Stat.VALUES")
        rewards = torch.zeros_like(batch.old.values) if token_rewards is None else token_rewards.clone()
        trained = batch.mask.any(-1)  # a row of an abstained verdict has no reward to place
        last = batch.mask.sum(-1)[trained] - 1
        rewards[trained, last] += self.shaped_rewards(batch)[trained].to(rewards)
        return gae(rewards, batch.old.values, batch.mask, discount=self.discount, trace=self.trace)
