"""Surprisals to weights in [0, 1], normalised within each response.

Range, ranks or moments are taken over the unmasked tokens of the response; the values to normalise may be those tokens
or any others, e.g. every token of the vocabulary at each position. A value that occurs in the response gets the same
weight either way.
"""

import torch
from torch import Tensor

from sage.maths.masking import masked_mean, masked_quantile


def minmax(values: Tensor, response: Tensor, mask: Tensor) -> Tensor:
    """Place between the 5 % and the 95 % quantile of the response, clipped.

    Args:
        values: ``[B, N]`` surprisals to normalise.
        response: ``[B, T]`` surprisals of the response's tokens.
        mask: ``[B, T]`` bool.

    Returns:
        ``[B, N]`` in [0, 1]; 0 where the response has no range.

    >>> minmax(torch.tensor([[0.0, 1.0, 9.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([[True, True]])).tolist()
    [[0.0, 0.5, 1.0]]
    """
    low = masked_quantile(response, mask, 0.05).unsqueeze(-1)
    width = masked_quantile(response, mask, 0.95).unsqueeze(-1) - low
    return torch.where(width > 0, (values - low) / width, 0).clamp(0, 1)


def rank(values: Tensor, response: Tensor, mask: Tensor) -> Tensor:
    """Share of the response's other tokens that are less surprising, ``rank / (n - 1)``; ties take the lowest.

    Args and returns as :func:`minmax`; 0 for a response of one token.

    >>> rank(torch.tensor([[5.0, 1.0, 3.0]]), torch.tensor([[5.0, 1.0, 3.0]]), torch.ones(1, 3).bool()).tolist()
    [[1.0, 0.0, 0.5]]
    """
    ordered = response.masked_fill(~mask, torch.inf).sort(-1).values
    last = (mask.sum(-1, keepdim=True) - 1).clamp(min=0)
    below = torch.searchsorted(ordered, values.contiguous()).clamp(max=last)
    return below.to(values.dtype) / last.clamp(min=1)


def zscore(values: Tensor, response: Tensor, mask: Tensor) -> Tensor:
    """Sigmoid of the z-score with the response's population standard deviation.

    Args and returns as :func:`minmax`; 1/2 where all tokens of the response are equally surprising.

    >>> zscore(torch.tensor([[1.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([[True, True]])).tolist()
    [[0.5]]
    """
    mean = masked_mean(response, mask, dim=-1).unsqueeze(-1)
    std = masked_mean((response - mean).square(), mask, dim=-1).unsqueeze(-1).sqrt()
    # The mean of equal values may differ from them by rounding: their range tells, not the standard deviation.
    highest = response.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    lowest = response.masked_fill(~mask, torch.inf).amin(-1, keepdim=True)
    return torch.where(highest > lowest, (values - mean) / std, 0).sigmoid()


NORMALISERS = {"minmax": minmax, "rank": rank, "zscore": zscore}
