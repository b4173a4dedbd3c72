"""Critic-free policy optimisation with group-relative advantages: GRPO, BNPO, DAPO, Dr. GRPO, RLOO and GSPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sage.algorithms.clipped import Clipped, check_choice
from sage.maths.advantages import group_relative, leave_one_out
from sage.maths.masking import masked_sum
from sage.types import Batch, Group

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class GroupRelative(Clipped):
    """Every token of a response gets the response's return relative to those of the same prompt (method, section 4)."""

    baseline: str
    """``mean`` of the group's returns, or ``leave_one_out``: the mean of the others, which leaves the gradient unbiased."""
    scale_by_std: bool
    """Divide by the standard deviation of the group's verdict rewards; a KL in the reward is never divided."""
    dynamic_sampling: int
    """How often a step draws further problems in place of groups without spread (DAPO); 0 never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("baseline", self.baseline, ("mean", "leave_one_out"))
        if self.dynamic_sampling < 0:
            raise ValueError(
                f"algorithm.dynamic_sampling={self.dynamic_sampling}: expected a whole number >= 0, e.g. 3"
            )
        if self.scale_by_std and self.baseline == "leave_one_out":
            raise ValueError(
                "algorithm.scale_by_std=true with algorithm.baseline=leave_one_out: scaled by the standard deviation it "
                "is the mean baseline times G / (G - 1); type algorithm.baseline=mean, or algorithm.scale_by_std=false"
            )

    @property
    def max_refills(self) -> int:
        """Draws of further problems that a step may take."""
        return self.dynamic_sampling

    def keep(self, group: Group) -> bool:
        """Whether the group has spread; without dynamic sampling every group stays."""
        rewards = {verdict.reward for verdict in group.verdicts if verdict.reward is not None}
        return self.dynamic_sampling == 0 or len(rewards) > 1

    def advantages(self, batch: Batch, token_rewards: Tensor | None) -> Tensor:
        """``[B, T]``: the response's advantage on its trained tokens, 0 elsewhere."""
        rewards = self.shaped_rewards(batch)
        if self.baseline == "leave_one_out":
            returns = rewards if token_rewards is None else rewards + masked_sum(token_rewards, batch.mask, dim=-1)
            relative = leave_one_out(returns, batch.group_size)
        else:
            relative = group_relative(rewards, batch.group_size, scale_by_std=self.scale_by_std)
            if token_rewards is not None:
                # A KL in the reward is centred and not scaled: divided by the deviation of a group whose verdicts agree,
                # it would have unit size whatever beta is.
                divergence = masked_sum(token_rewards, batch.mask, dim=-1).masked_fill(rewards.isnan(), torch.nan)
                relative = relative + group_relative(divergence, batch.group_size, scale_by_std=False)
        return relative.unsqueeze(-1) * batch.mask
