"""Logits to a token: temperature, truncation and inverse-CDF sampling."""

import torch
from torch import Tensor


def sampling_logprobs(logits: Tensor, temperature: float, top_p: float, top_k: int, min_p: float) -> Tensor:
    """Log-probs of the distribution that tokens are drawn from: temperature, then top-k, min-p and top-p.

    Args:
        logits: ``[B, V]``.
        temperature: > 0, divides the logits.
        top_p: keep the smallest set of tokens with at least this mass; 1 keeps all.
        top_k: keep the k most probable tokens (and ties of the last); 0 keeps all.
        min_p: drop tokens less probable than this share of the most probable one; 0 keeps all.

    Returns:
        ``[B, V]`` float32; minus infinity on tokens that are cut off. The most probable token is never cut off.
    """
    logprobs = (logits.float() / temperature).log_softmax(-1)
    dropped = torch.zeros_like(logprobs, dtype=torch.bool)
    if 0 < top_k < logits.shape[-1]:
        dropped |= logprobs < logprobs.topk(top_k, dim=-1).values[:, -1:]
    if min_p > 0:
        # min-p (Nguyen et al. 2024, arXiv 2407.01082): relative to the most probable token.
        dropped |= logprobs.exp() < min_p * logprobs.max(-1, keepdim=True).values.exp()
    if top_p < 1:
        # Nucleus (Holtzman et al. 2020): a token stays while the mass before it is below top_p.
        kept, order = logprobs.masked_fill(dropped, -torch.inf).log_softmax(-1).sort(-1, descending=True)
        before = kept.exp().cumsum(-1) - kept.exp()
        dropped |= torch.zeros_like(dropped).scatter(-1, order, before >= top_p)
    if not bool(dropped.any()):
        return logprobs
    return logprobs.masked_fill(dropped, -torch.inf).log_softmax(-1)


def draw(
    logits: Tensor, uniform: Tensor, *, temperature: float, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: ``[B, V]``.
        uniform: ``[B]`` in [0, 1), one draw per row; ignored at temperature 0.
        temperature: divides the logits; 0 takes the most probable token.
        top_p: see :func:`sampling_logprobs`, as are the next two.
        top_k: 0 keeps all.
        min_p: 0 keeps all.

    Returns:
        tokens ``[B]`` int64 and their log-probs ``[B]`` under the distribution that they were drawn from (0 when greedy).

    >>> draw(torch.tensor([[0.0, 0.0]]), torch.tensor([0.7]), temperature=1.0)[0].tolist()
    [1]
    """
    if temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, torch.zeros(tokens.shape, device=logits.device)
    logprobs = sampling_logprobs(logits, temperature, top_p, top_k, min_p)
    cumulative = logprobs.double().exp().cumsum(-1)
    # The total is 1 up to rounding; scaling the draw by it keeps the last token from being out of reach or overshot.
    tokens = torch.searchsorted(cumulative, (uniform.double() * cumulative[:, -1])[:, None], right=True).squeeze(-1)
    tokens = tokens.clamp(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)
