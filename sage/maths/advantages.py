"""Rewards to advantages."""

import torch
from torch import Tensor

from sage.maths.masking import masked_mean, masked_sum


def group_relative(rewards: Tensor, group_size: int, *, scale_by_std: bool, eps: float = 1e-4) -> Tensor:
    """Rewards relative to those of the same prompt (GRPO, Shao et al. 2024, arXiv 2402.03300, section 4.1.2).

    ``A = (r - mean) / (std + eps)`` with the sample standard deviation, or ``A = r - mean`` (Dr. GRPO, Liu et al. 2025,
    arXiv 2503.20783) without ``scale_by_std``.

    Args:
        rewards: ``[B]``, rows of one group adjacent; NaN marks a reward that is missing.
        group_size: G, a divisor of B.
        scale_by_std: divide by the standard deviation.
        eps: keeps the division finite.

    Returns:
        ``[B]``, always finite: a missing reward drops out of its group's statistics and gets 0; a group of equal
        rewards, or with one reward only, gets exactly 0.

    Raises:
        ValueError: if the rows do not divide into groups.

    >>> group_relative(torch.tensor([1.0, 0.0, 2.0, 2.0]), 2, scale_by_std=False).tolist()
    [0.5, -0.5, 0.0, 0.0]
    """
    centred, count = _centred(rewards, group_size)
    if scale_by_std:
        std = (centred.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
        centred = centred / (std + eps)
    return centred.reshape(-1)


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """Rewards minus the mean of the **others** of the same prompt (RLOO, Ahmadian et al. 2024, arXiv 2402.14740).

    ``A_i = r_i - mean_{j != i} r_j``, which is ``n / (n - 1) * (r_i - mean)`` for the n rewards of a group. The baseline
    does not depend on response i, so that ``A_i * grad log pi(y_i)`` is an unbiased policy gradient.

    Args and returns as :func:`group_relative`; a missing reward drops out, a group of equal rewards gets exactly 0.

    >>> leave_one_out(torch.tensor([3.0, 1.0, 2.0, 1.0, 1.0, 1.0]), 3).tolist()
    [1.5, -1.5, 0.0, 0.0, 0.0, 0.0]
    """
    centred, count = _centred(rewards, group_size)
    return (centred * count / (count - 1).clamp(min=1)).reshape(-1)


def _centred(rewards: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Distance from the group's mean ``[P, G]``, 0 where the reward is missing, and rewards present ``[P, 1]``."""
    if group_size < 1 or rewards.shape[0] % group_size:
        raise ValueError(
            f"{rewards.shape[0]} rewards do not divide into groups of {group_size}: "
            "expected problems * completions_per_problem rows"
        )
    grouped = rewards.reshape(-1, group_size)
    present = ~grouped.isnan()
    count = present.sum(-1, keepdim=True)
    kept = grouped.masked_fill(~present, 0)
    centred = (kept - kept.sum(-1, keepdim=True) / count.clamp(min=1)).masked_fill(~present, 0)
    # Equal rewards must give exact zeros: their mean may differ from them by rounding.
    highest = grouped.masked_fill(~present, -torch.inf).amax(-1, keepdim=True)
    lowest = grouped.masked_fill(~present, torch.inf).amin(-1, keepdim=True)
    return centred.masked_fill(highest <= lowest, 0), count


def gae(token_rewards: Tensor, values: Tensor, mask: Tensor, *, discount: float, trace: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, equation 16).

    With ``delta_t = r_t + discount * V_{t+1} - V_t``::

        A_t = delta_t + discount * trace * A_{t+1}

    The last token of a response ends the episode, whether it is the end token or the cut at the longest length: nothing
    is worth anything after it.

    Args:
        token_rewards: ``[B, T]``.
        values: ``[B, T]`` value of the state **before** each token.
        mask: ``[B, T]`` bool, the first tokens of each row.
        discount: gamma, in [0, 1].
        trace: lambda, in [0, 1]; 1 gives the return minus the value, 0 the one-step error.

    Returns:
        Advantages and returns ``advantages + values``, ``[B, T]`` each, 0 on padding; without gradient.

    >>> one = torch.ones(1, 2, dtype=torch.bool)
    >>> gae(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), one, discount=1.0, trace=1.0)[0].tolist()
    [[0.5, 0.75]]
    """
    rewards = token_rewards.detach().masked_fill(~mask, 0)
    held = values.detach().masked_fill(~mask, 0)
    later = torch.cat([held[:, 1:], torch.zeros_like(held[:, :1])], dim=-1)
    errors = rewards + discount * later - held
    running, reversed_advantages = torch.zeros_like(held[:, 0]), list[Tensor]()
    for t in reversed(range(held.shape[1])):
        running = errors[:, t] + discount * trace * running
        reversed_advantages.append(running)
    advantages = torch.stack(reversed_advantages[::-1], dim=-1)
    return advantages, advantages + held


def whiten(values: Tensor, mask: Tensor, *, eps: float = 1e-8) -> Tensor:
    """``(A - mean) / (std + eps)`` over all trained tokens, with the sample standard deviation.

    Args:
        values: ``[B, T]``, the whole batch: whitening a part of it would depend on the cut.
        mask: ``[B, T]`` bool.
        eps: keeps the division finite.

    Returns:
        ``[B, T]``, 0 on padding; exactly 0 everywhere where all values are equal, or with one token only.

    >>> whiten(torch.tensor([[1.0, 2.0, 3.0, 9.0]]), torch.tensor([[True, True, True, False]])).round().tolist()
    [[-1.0, 0.0, 1.0, 0.0]]
    """
    trained = values[mask]
    if trained.numel() == 0 or bool((trained == trained[0]).all()):
        return torch.zeros_like(values)
    centred = (values - masked_mean(values, mask)).masked_fill(~mask, 0)
    std = (masked_sum(centred.square(), mask) / (trained.numel() - 1)).sqrt()
    return centred / (std + eps)
