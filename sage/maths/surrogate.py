"""The clipped surrogate of PPO (Schulman et al. 2017, arXiv 1707.06347, equation 7), its ratios and its value loss."""

import math

import torch
from torch import Tensor

from sage.maths.masking import masked_mean


def importance_ratio(policy_logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """``policy / old`` of each token, ``[B, T]`` with gradient; 1 on masked tokens, whatever they hold."""
    return (policy_logprobs - old_logprobs).masked_fill(~mask, 0).exp()


def sequence_ratio(policy_logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """The ratio of whole responses, normalised by length (GSPO, Zheng et al. 2025, arXiv 2507.18071, equations 7, 14).

    ``s = exp(mean over tokens of log(policy / old))``, the same number for every token of a response. Token t's gradient
    is ``s * grad log policy(y_t)``: the mean over the tokens of a response then has the gradient of s itself, and tokens
    may have advantages of their own.

    Args:
        policy_logprobs: ``[B, T]``.
        old_logprobs: ``[B, T]``.
        mask: ``[B, T]`` bool.

    Returns:
        ``[B, T]`` with gradient; 1 on masked tokens.

    >>> ratios = torch.tensor([[4.0, 1.0, 9.0]])
    >>> sequence_ratio(ratios.log(), torch.zeros(1, 3), torch.tensor([[True, True, False]])).tolist()
    [[2.0, 2.0, 1.0]]
    """
    log_ratio = (policy_logprobs - old_logprobs).masked_fill(~mask, 0)
    level = masked_mean(log_ratio.detach(), mask, dim=-1).unsqueeze(-1)
    return (level + log_ratio - log_ratio.detach()).masked_fill(~mask, 0).exp()


def clipped_policy_term(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """``-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)``, to be minimised.

    Args:
        ratio: ``[B, T]``.
        advantages: ``[B, T]``.
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1.

    Returns:
        ``[B, T]``.

    >>> clipped_policy_term(torch.tensor([1.5, 1.5]), torch.tensor([1.0, -1.0]), 0.2, 0.25).tolist()
    [-1.25, 1.5]
    """
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def clip_active(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Where the clip takes the gradient away: the ratio has left the region in the direction that its advantage wants.

    >>> clip_active(torch.tensor([1.5, 1.5, 0.5]), torch.tensor([1.0, -1.0, -1.0]), 0.2, 0.25).tolist()
    [True, False, True]
    """
    too_low = (ratio < 1.0 - clip_low) & (advantages < 0)
    too_high = (ratio > 1.0 + clip_high) & (advantages > 0)
    return too_low | too_high


def clipped_value_term(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """``max((V - R)^2, (V_clipped - R)^2) / 2`` with V clipped to within ``clip`` of the values before the update.

    Args:
        values: ``[B, T]`` with gradient.
        old_values: ``[B, T]``.
        returns: ``[B, T]`` the targets R.
        clip: how far a value may move before a step that improves it stops counting; ``inf`` for no bound.

    Returns:
        ``[B, T]`` to be minimised.

    >>> clipped_value_term(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([4.0]), 0.5).tolist()
    [3.125]
    """
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns).square(), (clipped - returns).square())


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float:
    """``1 - Var(R - V) / Var(R)`` over the trained tokens: 1 is a perfect critic, 0 one that knows the mean at best.

    Args:
        values: ``[B, T]``.
        returns: ``[B, T]``.
        mask: ``[B, T]`` bool.

    Returns:
        NaN where the returns do not vary.

    >>> explained_variance(torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 4.0]]), torch.ones(1, 2, dtype=torch.bool))
    0.75
    """
    target, error = returns[mask].double(), (returns - values)[mask].double()
    if target.numel() == 0 or bool((target == target[0]).all()):
        return math.nan
    return 1.0 - (error.var(correction=0) / target.var(correction=0)).item()
