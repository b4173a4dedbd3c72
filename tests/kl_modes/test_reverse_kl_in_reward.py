"""Placement ``reward``: the objective itself, on all responses of two tokens out of three."""

from collections.abc import Callable
from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.kl_modes.reverse import ReverseKL
from sage.maths.kl import exact_reverse
from sage.types import KLInputs, TokenStats

Enumerated = Callable[..., KLInputs]


def in_the_reward(beta: float) -> ReverseKL:
    return ReverseKL(beta=beta, estimator="k1", placement="reward", ratio_max=10.0)


def test_the_token_reward_is_minus_beta_times_the_old_log_ratio_to_the_anchor(enumerated: Enumerated) -> None:
    policy, reference = torch.tensor([0.2, 0.3, 0.5]).log(), torch.tensor([0.5, 0.25, 0.25]).log()
    old, q = torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([1.0, 0.5, 1.25])
    mode = in_the_reward(0.1)
    # Old equals the reference, so only beta * log q is left: 0.1 * (0, -log 2, log 1.25).
    found = mode.token_reward(enumerated(policy, reference, old=old, q=q))
    torch.testing.assert_close(found, 0.1 * torch.tensor([[0.0], [-0.693147], [0.223144]]))


def enumerate_two_tokens(seed: int) -> dict[str, Tensor]:
    """All 9 responses of two tokens out of three: rewards, log q and the reference's log-probs of each token."""
    generator = torch.Generator().manual_seed(seed)

    def table(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    first, second = table(3).log_softmax(-1), table(3, 3).log_softmax(-1)
    reference = torch.stack([torch.stack([first[a], second[a, b]]) for a, b in product(range(3), repeat=2)])
    return {"reference": reference, "rewards": table(9), "log_q": 0.3 * table(9, 2)}


def tabular(responses: Tensor) -> Tensor:
    """Probabilities of the 9 responses as log-probs of their tokens, ``[9, 2]``."""
    joint = responses.view(3, 3)
    first = joint.sum(-1)
    return torch.stack([first.log().repeat_interleave(3), (joint / first.unsqueeze(-1)).log().flatten()], dim=-1)


def sequence_return(beta: float, old: Tensor, problem: dict[str, Tensor]) -> Tensor:
    """Reward plus the token rewards of ``reverse_exact``, ``[9]``."""
    stats = [
        TokenStats(logprobs=logprobs, entropy=torch.zeros_like(logprobs)) for logprobs in (old, problem["reference"])
    ]
    token_reward = in_the_reward(beta).token_reward(
        KLInputs(
            policy=stats[0],
            old_logprobs=old,
            reference=stats[1],
            response_ids=torch.zeros(9, 2, dtype=torch.long),
            mask=torch.ones(9, 2, dtype=torch.bool),
            log_q=problem["log_q"],
        )
    )
    assert token_reward is not None
    return problem["rewards"] + token_reward.sum(-1)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), beta=st.floats(0.05, 2.0))
def test_in_the_reward_the_maximiser_is_q_times_reference_times_exp_reward_over_beta(seed: int, beta: float) -> None:
    """At pi* = q pi_ref exp(r / beta) / Z every response has the same return beta log Z, so no advantage is left."""
    problem = enumerate_two_tokens(seed)
    weights = (problem["reference"] + problem["log_q"]).sum(-1) + problem["rewards"] / beta
    returns = sequence_return(beta, tabular(weights.softmax(-1)), problem)
    torch.testing.assert_close(returns, (beta * weights.logsumexp(-1)).expand(9))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), beta=st.floats(0.05, 2.0))
def test_in_the_reward_the_mean_return_is_the_objective_up_to_a_constant(seed: int, beta: float) -> None:
    """J = E[r] - beta KL(pi || q pi_ref / Z) = E[return] - beta log Z."""
    problem = enumerate_two_tokens(seed)
    policy = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1)).softmax(-1)
    unnormalised = (problem["reference"] + problem["log_q"]).sum(-1)
    objective = (policy * problem["rewards"]).sum() - beta * exact_reverse(policy.log(), unnormalised.log_softmax(-1))
    mean_return = (policy * sequence_return(beta, tabular(policy), problem)).sum()
    torch.testing.assert_close(mean_return - beta * unnormalised.logsumexp(-1), objective)
