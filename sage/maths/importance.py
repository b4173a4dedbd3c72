"""Truncated importance weights between the policy of the trainer and the distribution that an engine sampled from."""

from typing import Literal

import torch
from torch import Tensor

_LARGEST = 80.0
"""exp of more overflows float32, and an infinite weight times a loss of 0 is no number."""


def truncated_importance_weights(
    log_ratio: Tensor, mask: Tensor, *, level: Literal["token", "sequence"] | None, low: float, high: float
) -> Tensor:
    """Weights that turn means over sampled tokens into means under the policy, cut to bounds.

    ``w_t = clip(pi_old(y_t) / mu(y_t))`` or, of a sequence, ``w = clip(prod_t pi_old(y_t) / mu(y_t))`` on each of its tokens
    (truncated importance sampling, Ionides 2008). Cutting trades variance for a bias towards the sampler.

    Args:
        log_ratio: ``[B, T]`` log-prob of the trainer's policy minus that of the sampler; no gradient.
        mask: ``[B, T]`` bool.
        level: ``token``, ``sequence``, or ``None`` for weights of 1.
        low: lower bound, 0 for none.
        high: upper bound, infinity for none.

    Returns:
        ``[B, T]``, 1 where the mask is false.

    >>> ratio = torch.tensor([[0.5, 0.5]]).log()
    >>> truncated_importance_weights(ratio, torch.ones(1, 2, dtype=torch.bool), level="sequence", low=0.0, high=2.0)
    tensor([[0.2500, 0.2500]])
    """
    if level is None:
        return torch.ones_like(log_ratio)
    total = log_ratio.masked_fill(~mask, 0)
    if level == "sequence":
        total = total.sum(-1, keepdim=True).expand_as(total)
    return total.clamp(max=_LARGEST).exp().clamp(low, high).masked_fill(~mask, 1)
