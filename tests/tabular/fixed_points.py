"""What each loss converges to, computed without any loss code.

Write V(s) for the mean of Q(s, .) under the policy, a(s, v) = q(s, v) * ref(v | s), and Q(s, v) for the expected reward
after token v **without any KL**. With advantages of whole responses, the expected gradient of the policy term with respect
to the logit of v at s is ``-P(s) * pi(v) * (Q(s, v) - V(s))``; P(s) multiplies the KL term at s as well and drops out.

- ``k2``, ``k1_ratio``, ``k3_ratio``, ``exact`` add ``beta * pi(v) * (log(pi(v) / a(v)) - KL)``, so that at the fixed point
  ``log(pi(v) / a(v)) - Q(v) / beta`` is the same for all v: ``pi(v)`` is proportional to ``a(v) * exp(Q(v) / beta)``.
- ``k3`` adds ``beta * (mass(a) * pi(v) - a(v))``, so that ``pi(v) = beta * a(v) / (level - Q(v))``, where
  ``level = beta * mass(a) + V`` is the one number above max Q for which the probabilities add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.tabular.world import World

Solve = Callable[[Tensor, Tensor, float], Tensor]


def sequence_optimum(w: World, beta: float) -> Tensor:
    """``[R]`` the maximiser of the objective, ``q * ref * exp(r / beta)`` over whole responses, normalised."""
    return (w.pick(w.reference + w.log_q).sum(-1) + w.rewards / beta).softmax(-1)


def exponential(log_anchor: Tensor, values: Tensor, beta: float) -> Tensor:
    """``a * exp(Q / beta)``, normalised."""
    return (log_anchor + values / beta).softmax(-1)


def hyperbolic(log_anchor: Tensor, values: Tensor, beta: float) -> Tensor:
    """``beta * a / (level - Q)`` with the level found by bisection: the sum falls from infinity at max Q."""
    weights = beta * log_anchor.exp()
    low, high = values.max(), values.max() + weights.sum()
    for _ in range(200):
        level = (low + high) / 2
        low, high = (level, high) if (weights / (level - values)).sum() > 1 else (low, level)
    found = weights / (high - values)
    return found / found.sum()


def token_fixed_point(w: World, beta: float, solve: Solve) -> Tensor:
    """``[R]`` the policy that solves every prefix with the values of the policy behind it, from the ends backwards."""
    vocabulary = w.reference.shape[1]
    responses = [tuple(row[kept].tolist()) for row, kept in zip(w.tokens, w.mask, strict=True)]
    reward = dict(zip(responses, w.rewards.tolist(), strict=True))
    state = {response[:t]: int(w.states[r, t]) for r, response in enumerate(responses) for t in range(len(response))}
    policy = torch.zeros_like(w.reference)

    def value(prefix: tuple[int, ...]) -> float:
        if prefix in reward:
            return reward[prefix]
        row = state[prefix]
        values = torch.tensor([value((*prefix, v)) for v in range(vocabulary)], dtype=torch.float64)
        policy[row] = solve(w.reference[row] + w.log_q[row], values, beta)
        return (policy[row] * values).sum().item()

    value(())
    return w.responses(policy.log())
