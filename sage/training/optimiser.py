"""AdamW, and the learning rate as a pure function of the optimiser step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

SCHEDULES = ("constant", "linear", "cosine", "hold_linear")
_HOLD_LINEAR_FLOOR = 0.02


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """Linear warm-up, then ``schedule`` over the rest of ``num_steps``."""

    peak: float
    warmup_steps: int
    schedule: str
    """``constant``, ``linear`` or ``cosine`` (both to 0), or ``hold_linear``: constant to half, then linear to 2 %."""
    num_steps: int

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"optimizer.schedule={self.schedule!r}: expected one of {', '.join(SCHEDULES)}")

    def at(self, step: int) -> float:
        """The rate of optimiser step ``step``, counted from 0.

        >>> [LearningRate(peak=1.0, warmup_steps=2, schedule="linear", num_steps=4).at(s) for s in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.num_steps - self.warmup_steps)
        match self.schedule:
            case "linear":
                return self.peak * (1 - done)
            case "cosine":
                return self.peak * 0.5 * (1 + math.cos(math.pi * done))
            case "hold_linear":
                half = step / self.num_steps
                return self.peak * (1.0 if half < 0.5 else 1 - (1 - _HOLD_LINEAR_FLOOR) * (half - 0.5) / 0.5)
            case _:
                return self.peak


def adamw(
    parameters: Iterable[torch.Tensor], betas: Sequence[float], eps: float, weight_decay: float
) -> torch.optim.AdamW:
    """AdamW over ``parameters``; its rate is set by :func:`optimizer_step` at every step."""
    return torch.optim.AdamW(
        list(parameters), lr=0.0, betas=(betas[0], betas[1]), eps=eps, weight_decay=weight_decay, fused=True
    )


def optimizer_step(optimizer: torch.optim.Optimizer, rate: float, max_grad_norm: float) -> float:
    """Clip the gradient to ``max_grad_norm``, step with ``rate``, clear the gradient.

    Returns:
        The gradient's norm before clipping.

    Raises:
        FloatingPointError: if the norm is not finite; the weights are left as they were.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
    if not math.isfinite(norm):
        raise FloatingPointError(f"gradient norm is {norm}")
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
