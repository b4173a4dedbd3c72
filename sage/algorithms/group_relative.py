"""Critic-free policy optimisation with group-relative advantages: GRPO, BNPO, DAPO's loss, Dr. GRPO, RLOO and GSPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Algorithm
from sage.maths import aggregate
from sage.maths.advantages import group_relative, leave_one_out
from sage.maths.masking import masked_sum
from sage.maths.surrogate import clip_active, clipped_policy_term, importance_ratio, sequence_ratio
from sage.types import Batch, BatchCounts, Surrogate

if TYPE_CHECKING:
    from torch import Tensor

_CHOICES = {
    "baseline": ("mean", "leave_one_out"),
    "ratio": ("token", "sequence"),
    "aggregation": ("grpo", "bnpo", "dapo", "dr_grpo", "sum"),
}


@dataclass(frozen=True, kw_only=True)
class GroupRelative(Algorithm):
    """Every token of a response gets the response's return relative to those of the same prompt (method, section 4)."""

    clip_low: float
    """How far policy / old may fall below 1 before the clip acts, in [0, 1]."""
    clip_high: float
    """How far policy / old may rise above 1 before the clip acts, >= 0."""
    baseline: str
    """``mean`` of the group's returns, or ``leave_one_out``: the mean of the others, which leaves the gradient unbiased."""
    scale_by_std: bool
    """Divide by the standard deviation of the group's returns."""
    ratio: str
    """policy / old of each ``token``, or of the whole ``sequence`` (geometric mean over its tokens, GSPO)."""
    aggregation: str
    """``grpo``, ``bnpo``, ``dapo``, ``dr_grpo`` or ``sum`` (``sage.maths.aggregate``)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.clip_low <= 1:
            raise ValueError(f"algorithm.clip_low={self.clip_low}: expected a number in [0, 1], e.g. 0.2")
        if self.clip_high < 0:
            raise ValueError(f"algorithm.clip_high={self.clip_high}: expected a number >= 0, e.g. 0.2")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"algorithm.{name}={getattr(self, name)}: expected one of {', '.join(allowed)}")
        if self.scale_by_std and self.baseline == "leave_one_out":
            raise ValueError(
                "algorithm.scale_by_std=true with algorithm.baseline=leave_one_out: scaled by the standard deviation it "
                "is the mean baseline times G / (G - 1); type algorithm.baseline=mean, or algorithm.scale_by_std=false"
            )

    def advantages(self, batch: Batch, token_rewards: Tensor | None) -> Tensor:
        """``[B, T]``: the response's advantage on its trained tokens, 0 elsewhere."""
        returns = batch.rewards
        if token_rewards is not None:
            returns = returns + masked_sum(token_rewards, batch.mask, dim=-1)
        if self.baseline == "leave_one_out":
            relative = leave_one_out(returns, batch.group_size)
        else:
            relative = group_relative(returns, batch.group_size, scale_by_std=self.scale_by_std)
        return relative.unsqueeze(-1) * batch.mask

    def surrogate(self, policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Surrogate:
        """The clipped term of PPO on each token; the padding gets a loss of 0 and a ratio of 1."""
        of = importance_ratio if self.ratio == "token" else sequence_ratio
        ratio = of(policy_logprobs, old_logprobs, mask)
        loss = clipped_policy_term(ratio, advantages, self.clip_low, self.clip_high)
        clipped = clip_active(ratio.detach(), advantages, self.clip_low, self.clip_high)
        return Surrogate(loss=loss.masked_fill(~mask, 0), ratio=ratio.detach(), clipped=clipped)

    def aggregate(self, token_loss: Tensor, mask: Tensor, counts: BatchCounts) -> Tensor:
        """The micro-batch's share of the loss; only ``bnpo`` depends on how the mini-batch is cut."""
        match self.aggregation:
            case "grpo":
                return aggregate.grpo(token_loss, mask, counts.sequences)
            case "bnpo":
                return aggregate.bnpo(token_loss, mask, counts.sequences)
            case "dapo":
                return aggregate.dapo(token_loss, mask, counts.tokens)
            case "dr_grpo":
                return aggregate.dr_grpo(token_loss, mask, counts.sequences, counts.max_completion_tokens)
            case _:
                return aggregate.token_sum(token_loss, mask, counts.sequences)
