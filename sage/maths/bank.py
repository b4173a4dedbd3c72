"""The anchor of whole responses: weights over samples of the reference, and the forward KL to it by samples.

The n samples of the reference on a prompt stand for the reference itself: each has probability 1/n. A guide q of whole
responses re-weights them, ``anchor(y_i) ~ (1/n) * q_i^strength``, exactly as a guide of tokens shapes ``pi_ref``.
"""

import torch
from torch import Tensor

from sage.maths.masking import masked_mean


def response_weights(q: Tensor, strength: float) -> Tensor:
    """``q_i^strength / sum_j q_j^strength``: the anchor's probability of each of the n samples.

    Args:
        q: ``[n]`` >= 0; a factor that all samples share cancels.
        strength: scales log q; 0 gives every sample the same weight, whatever q is.

    Returns:
        ``[n]`` summing to 1; all zero where every q is 0, as no sample is left to anchor to.

    >>> response_weights(torch.tensor([0.0, 2.0, 2.0]), 1.0).tolist()
    [0.0, 0.5, 0.5]
    """
    if strength == 0:
        return torch.full_like(q, 1 / len(q))
    if not bool((q > 0).any()):
        return torch.zeros_like(q)
    return (strength * q.log()).softmax(0)  # 0^strength as exp(-inf), and no overflow of a large strength


def hardness(pass_rate: float) -> float:
    """``2 * (1 - p)``: problems that the reference solves rarely weigh up to twice as much; 1 at p = 1/2."""
    return 2 * (1 - pass_rate)


def response_cross_entropy(policy_logprobs: Tensor, mask: Tensor) -> Tensor:
    """``-(1/|y|) * sum_t log pi(y_t)`` of each response, nats per token.

    Averaged over samples of the anchor its gradient is that of KL(anchor || policy) over whole responses, each divided
    by its length: the anchor's entropy does not depend on the policy.

    Args:
        policy_logprobs: ``[B, T]``.
        mask: ``[B, T]`` bool.

    Returns:
        ``[B]``.
    """
    return -masked_mean(policy_logprobs, mask, dim=-1)
