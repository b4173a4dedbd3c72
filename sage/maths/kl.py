"""Divergences between policy and anchor, of sampled tokens and over the vocabulary.

Estimators (Schulman 2020, "Approximating KL divergence") are functions of ``d = log anchor - log policy`` of the
sampled token. What each one's gradient is, on-policy, stands in its docstring: it is not always that of the divergence
it estimates.
"""

import math

import torch
from torch import Tensor


def k1(d: Tensor) -> Tensor:
    """``-d``: unbiased for KL(policy || anchor). As a loss its expected gradient is 0: it belongs into the reward."""
    return -d


def k2(d: Tensor) -> Tensor:
    """``d^2 / 2``: biased as an estimate, but its expected gradient is that of KL(policy || anchor)."""
    return 0.5 * d.square()


def k3(d: Tensor) -> Tensor:
    """``exp(d) - d - 1``: never negative. Its expected gradient is that of KL(anchor || policy), the **forward** one.

    Its mean is KL(policy || anchor) plus the mass of the anchor minus 1, which is 0 for a normalised anchor.

    >>> k3(torch.tensor([0.0, 1.0])).tolist() == [0.0, torch.tensor(1.0).expm1().item() - 1.0]
    True
    """
    # expm1 keeps the value accurate near 0, where it is d^2 / 2 and exp(d) - 1 would cancel.
    return torch.expm1(d) - d


def bounded_ratio(policy_logprobs: Tensor, old_logprobs: Tensor, ratio_max: float) -> Tensor:
    """``min(policy / old, ratio_max)`` without gradient: weights samples of the old policy; exactly 1 on-policy."""
    return (policy_logprobs - old_logprobs).detach().exp().clamp(max=ratio_max)


def score_ratio(policy_logprobs: Tensor, old_logprobs: Tensor, ratio_max: float) -> Tensor:
    """:func:`bounded_ratio` with the gradient ``bounded ratio * grad log policy``.

    Where the bound is not reached this is the importance ratio itself with its own gradient; where it is, the token is
    weighted by the bound instead of losing its gradient. Times an estimate of the divergence it gives the reverse-KL
    gradient.

    >>> score_ratio(torch.tensor([-1.0]), torch.tensor([-1.0]), 10.0).item()
    1.0
    """
    weight = bounded_ratio(policy_logprobs, old_logprobs, ratio_max)
    return weight * (policy_logprobs - policy_logprobs.detach()).exp()


def exact_reverse(policy: Tensor, anchor: Tensor) -> Tensor:
    """``sum_v pi(v) (log pi(v) - log anchor(v))``: KL(policy || anchor) at each position, with its exact gradient.

    Args:
        policy: ``[..., V]`` log-probs, normalised.
        anchor: ``[..., V]`` log-probs; a factor that is constant over V shifts the value and leaves the gradient alone.

    Returns:
        ``[...]`` nats.
    """
    return (policy.exp() * (policy - anchor)).sum(-1)


def exact_forward(policy: Tensor, anchor: Tensor) -> Tensor:
    """``sum_v a(v) log(a(v) / pi(v)) - a(v) + pi(v)``: the forward KL, generalised to an anchor of any mass.

    Never negative, 0 where the two agree, and KL(anchor || policy) for a normalised anchor. For logits z of the policy
    the gradient is ``mass(a) * pi - a``: a factor that is constant over V scales the pull.

    Args:
        policy: ``[..., V]`` log-probs, normalised.
        anchor: ``[..., V]`` log-probs, any mass.

    Returns:
        ``[...]`` nats.

    >>> p = torch.tensor([0.5, 0.5]).log()
    >>> exact_forward(p, p).item()
    0.0
    """
    weight = anchor.exp()
    return (weight * (anchor - policy) - weight + policy.exp()).sum(-1)


def sampled_forward(policy_logprobs: Tensor, old_logprobs: Tensor, anchor: Tensor, weight_max: float) -> Tensor:
    """:func:`exact_forward` estimated on tokens of the old policy, ``w (log w - log rho) - w + rho``.

    ``w = anchor / old`` is the importance weight, without gradient, and ``rho = policy / old``, with its own. Never
    negative. Over tokens drawn from ``old`` the mean is the generalised forward KL and the mean of the gradient
    ``(rho - w) grad log policy`` is its gradient ``-sum_v a(v) grad log pi(v)``: rho adds nothing to the mean, as
    ``sum_v pi(v) grad log pi(v) = 0``, and takes the variance away where policy and anchor agree. On-policy this is
    ``(1 - a / pi) grad log pi``, the gradient of :func:`k3` token by token.

    **Bias of the bound**: w and rho are cut at ``weight_max``. While rho stays below it, value and gradient are unbiased
    for the anchor ``min(a, weight_max * old)``: mass that the anchor has where the old policy has next to none is felt
    up to the bound only.

    Args:
        policy_logprobs: ``[...]`` of the sampled tokens, with gradient.
        old_logprobs: ``[...]`` of the policy that sampled them.
        anchor: ``[...]`` log-probs of the sampled tokens under the anchor, of any mass.
        weight_max: >= 1; ``inf`` for no bound.

    >>> half = torch.tensor(0.5).log()
    >>> sampled_forward(half, half, half, 10.0).item()
    0.0
    """
    most = math.log(weight_max)
    log_w = (anchor - old_logprobs).detach().clamp(max=most)
    log_rho = (policy_logprobs - old_logprobs).detach().clamp(max=most)
    log_rho = log_rho + (policy_logprobs - policy_logprobs.detach())
    return log_w.exp() * (log_w - log_rho - 1.0) + log_rho.exp()
