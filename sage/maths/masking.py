"""Masks of right-padded responses and reductions under them.

Padding may hold anything, NaN and infinity included: values outside the mask are replaced, never multiplied by zero.
"""

import torch
from torch import Tensor


def response_mask(lengths: Tensor, width: int) -> Tensor:
    """The tokens of each response: its first ``lengths`` positions.

    Made from lengths and not from token ids, so that the sampled end token counts even where padding has the same id.

    Args:
        lengths: ``[B]`` number of sampled tokens, the end token included.
        width: T.

    Returns:
        ``[B, T]`` bool.

    >>> response_mask(torch.tensor([3, 0]), 4).int().tolist()
    [[1, 1, 1, 0], [0, 0, 0, 0]]
    """
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum over the true entries of ``mask``: over everything, or over ``dim``. An empty sum is 0 with gradient 0."""
    kept = values.masked_fill(~mask, 0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean over the true entries of ``mask``: over everything, or over ``dim``. Without any, 0 with gradient 0.

    >>> masked_mean(torch.tensor([[1.0, 3.0, float("nan")]]), torch.tensor([[True, True, False]])).item()
    2.0
    """
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def masked_quantile(values: Tensor, mask: Tensor, fraction: float) -> Tensor:
    """Quantile of each row over its true entries, interpolated linearly (as ``numpy.quantile`` does).

    Args:
        values: ``[B, T]``.
        mask: ``[B, T]`` bool.
        fraction: in [0, 1].

    Returns:
        ``[B]``; 0 for a row without entries.

    >>> row = torch.tensor([[0.0, 10.0, 20.0, 99.0]])
    >>> masked_quantile(row, response_mask(torch.tensor([3]), 4), 0.25).item()
    5.0
    """
    ordered = values.masked_fill(~mask, torch.inf).sort(-1).values
    count = mask.sum(-1, keepdim=True)
    place = fraction * (count - 1).clamp(min=0).to(values.dtype)
    low = ordered.gather(-1, place.floor().long())
    high = ordered.gather(-1, place.ceil().long())
    inside = low + (high - low) * (place - place.floor())
    return torch.where(count > 0, inside, 0).squeeze(-1)
