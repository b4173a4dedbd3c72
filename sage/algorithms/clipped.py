"""What all algorithms share: the clipped surrogate of PPO, and how token losses become one loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Algorithm
from sage.maths import aggregate
from sage.maths.reward_shaping import overlong_penalty
from sage.maths.surrogate import clip_active, clipped_policy_term, importance_ratio, sequence_ratio
from sage.types import Batch, BatchCounts, Surrogate

if TYPE_CHECKING:
    from torch import Tensor

_RATIOS = ("token", "sequence")
_AGGREGATIONS = ("grpo", "bnpo", "dapo", "dr_grpo", "sum")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse an option of the algorithm that is not among ``allowed``."""
    if value not in allowed:
        raise ValueError(f"algorithm.{name}={value}: expected one of {', '.join(allowed)}")


@dataclass(frozen=True, kw_only=True)
class Clipped(Algorithm):
    """``-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)`` of each token (PPO, Schulman et al. 2017, arXiv 1707.06347)."""

    clip_low: float
    """How far policy / old may fall below 1 before the clip acts, in [0, 1]."""
    clip_high: float
    """How far policy / old may rise above 1 before the clip acts, >= 0."""
    ratio: str
    """``token``, or ``sequence``: the length-normalised ratio of the whole response (GSPO)."""
    aggregation: str
    """``grpo``, ``bnpo``, ``dapo``, ``dr_grpo`` or ``sum`` (``sage.maths.aggregate``)."""
    overlong_share: float
    """Soft overlong punishment (DAPO): the last share of ``max_tokens`` over which the reward falls by 1; 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.clip_low <= 1:
            raise ValueError(f"algorithm.clip_low={self.clip_low}: expected a number in [0, 1], e.g. 0.2")
        if self.clip_high < 0:
            raise ValueError(f"algorithm.clip_high={self.clip_high}: expected a number >= 0, e.g. 0.2")
        if not 0 <= self.overlong_share <= 1:
            raise ValueError(f"algorithm.overlong_share={self.overlong_share}: expected a number in [0, 1], e.g. 0.2")
        check_choice("ratio", self.ratio, _RATIOS)
        check_choice("aggregation", self.aggregation, _AGGREGATIONS)

    def shaped_rewards(self, batch: Batch) -> Tensor:
        """``[B]`` verdict rewards, less what too long a response costs; NaN where the verdict abstained."""
        if self.overlong_share == 0:
            return batch.rewards
        buffer = max(1, round(self.overlong_share * batch.max_completion_tokens))
        return batch.rewards + overlong_penalty(batch.mask.sum(-1), batch.max_completion_tokens, buffer).to(
            batch.rewards
        )

    def surrogate(self, policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Surrogate:
        """The clipped term of each token; the padding gets a loss of 0 and a ratio of 1."""
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
