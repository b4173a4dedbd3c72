"""The shaped anchor: ``log anchor = log pi_ref + strength * log q``.

The guide gives the raw factor q; clamp, mask, logarithm and strength are applied here and nowhere else. The anchor is
**not normalised**, neither over the vocabulary nor over responses: a normaliser that does not depend on the policy
changes no reverse-KL gradient, and estimators that do feel a constant q (k3, forward KL) are scaled by it.
"""

import torch
from torch import Tensor


def bounded_q(q: Tensor, mask: Tensor, *, q_min: float, q_max: float) -> Tensor:
    """The guide's factor clamped to [q_min, q_max], 1 on masked tokens, without gradient.

    Args:
        q: ``[B, T]`` or ``[B, T, V]``.
        mask: ``[B, T]`` bool.
        q_min: > 0.
        q_max: >= q_min.

    Returns:
        Of the shape of ``q``.

    >>> bounded_q(torch.tensor([[9.0, 9.0]]), torch.tensor([[True, False]]), q_min=0.5, q_max=1.5).tolist()
    [[1.5, 1.0]]
    """
    trained = mask if q.dim() == mask.dim() else mask.unsqueeze(-1)
    return q.detach().clamp(q_min, q_max).masked_fill(~trained, 1.0)


def log_q(q: Tensor, strength: float) -> Tensor:
    """``strength * log q`` of a bounded factor; exactly 0 at strength 0, whatever q is.

    >>> log_q(torch.tensor([0.6, 1.4]), 0.0).tolist()
    [0.0, 0.0]
    """
    # 0 * log q would be -0.0 where q < 1, and NaN for a q that is not a number.
    return torch.zeros_like(q) if strength == 0 else strength * q.log()


def anchor_logprobs(ref_logprobs: Tensor, scaled_log_q: Tensor) -> Tensor:
    """Unnormalised log-probs of the anchor; both arguments ``[B, T]`` or ``[B, T, V]``, neither with gradient."""
    return ref_logprobs.detach() + scaled_log_q.detach()


def vocabulary_anchor_logprobs(ref_logprobs: Tensor, scaled_log_q: Tensor, vocabulary_log_q: Tensor | None) -> Tensor:
    """Unnormalised anchor log-probs of every token.

    Args:
        ref_logprobs: ``[B, T, V]``.
        scaled_log_q: ``[B, T]`` of the sampled tokens, taken for every token where there is no ``vocabulary_log_q``.
        vocabulary_log_q: ``[B, T, V]`` from a guide that varies over the vocabulary.

    Returns:
        ``[B, T, V]``.
    """
    return anchor_logprobs(ref_logprobs, scaled_log_q.unsqueeze(-1) if vocabulary_log_q is None else vocabulary_log_q)
