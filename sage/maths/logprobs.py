"""Logits to log-probs of chosen tokens and to entropies, at the sampling temperature.

Response token t is predicted by the logits of the position before it. Policy, old and reference log-probs all come from
here, so that all of them divide by the temperature that the tokens were sampled with.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class TokenStatistics(NamedTuple):
    """What the logits say of the chosen tokens; ``...`` stands for the leading axes of the ids."""

    logprobs: Tensor
    """``[...]`` log-prob of each chosen token, nats."""
    entropy: Tensor
    """``[...]`` entropy over the vocabulary, nats; no gradient."""
    vocabulary_logprobs: Tensor | None
    """``[..., V]`` where asked for."""


def predicting_positions(prompt_lengths: Tensor, width: int) -> Tensor:
    """Where the logits of each response token stand in the sequence: the position before the token.

    Args:
        prompt_lengths: ``[B]``, at least 1.
        width: T.

    Returns:
        ``[B, T]`` int64: ``prompt_lengths - 1 + t``.

    >>> predicting_positions(torch.tensor([3]), 2).tolist()   # tokens at 3 and 4
    [[2, 3]]
    """
    return prompt_lengths[:, None] - 1 + torch.arange(width, device=prompt_lengths.device)


def tempered_logprobs(logits: Tensor, temperature: float) -> Tensor:
    """``log softmax(logits / temperature)`` over the last axis, in float32 at least.

    Half-precision logits are lifted first: a log-softmax in bfloat16 loses tenths of a nat in the tail.

    Args:
        logits: ``[..., V]``.
        temperature: > 0.

    Raises:
        ValueError: if the temperature is not positive.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature}: log-probs need a sampling temperature > 0, e.g. 1.0")
    lifted = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(lifted / temperature, dim=-1)


def entropy(logprobs: Tensor) -> Tensor:
    """Entropy in nats over the last axis of log-probs ``[..., V]``; tokens of probability 0 add nothing."""
    probabilities = logprobs.exp()
    # 0 * -inf would be NaN; the limit of p log p is 0.
    return -(probabilities * logprobs.masked_fill(probabilities == 0, 0)).sum(-1)


def token_statistics(logits: Tensor, ids: Tensor, temperature: float, *, vocabulary: bool = False) -> TokenStatistics:
    """Log-probs of the chosen tokens with gradient, entropies without.

    Args:
        logits: ``[..., V]`` of the positions that predict the tokens.
        ids: ``[...]`` the tokens.
        temperature: > 0, the one that the tokens were sampled with.
        vocabulary: also keep the log-probs of every token.

    Returns:
        Tensors in float32 (float64 for float64 logits).

    >>> stats = token_statistics(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), 0.6)
    >>> f"{stats.logprobs.item():.4f}"
    '-0.2026'
    """
    full = tempered_logprobs(logits, temperature)
    return TokenStatistics(
        logprobs=full.gather(-1, ids.unsqueeze(-1)).squeeze(-1),
        entropy=entropy(full.detach()),
        vocabulary_logprobs=full if vocabulary else None,
    )
