"""Whole losses of the shaped anchor against stored reference values, through the plug-in classes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sage.algorithms.group_relative import GroupRelative
from sage.guides.branch import BranchGuide
from sage.guides.token import TokenGuide
from sage.interfaces import Guide
from sage.kl_modes.reverse import ReverseKL
from sage.maths.anchor import bounded_q, log_q
from sage.types import BatchCounts, GuideInputs, KLInputs, Surrogate, TokenStats

CASES = json.loads((Path(__file__).parents[1] / "cases" / "shaped_anchor_losses.json").read_text())["cases"]
EXACT = {"rtol": 0, "atol": 1e-6}


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def guide_of(options: dict[str, Any]) -> Guide:
    bounds = {"strength": 1.0, "q_min": options["q_min"], "q_max": options["q_max"]}
    if options["name"] == "branch":
        return BranchGuide(**bounds, ratio=options["ratio"], threshold=options["threshold"], source="new")
    alpha = options["alpha"]
    constant = {"alpha_max": alpha, "alpha_min": alpha, "sigma_max": 0.0, "sigma_min": 0.0, "cycles": 1, "decay": 1.0}
    return TokenGuide(**bounds, **constant, norm=options["norm"], source="new")


def evaluate(case: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor, Surrogate]:
    """Loss, its gradient, q and the KL of each token, and the surrogate."""
    policy = tensor(case["policy_logps"]).requires_grad_()
    old, ref, entropy = (tensor(case[name]) for name in ("old_logps", "ref_logps", "policy_entropy"))
    mask = tensor(case["mask"]).bool()
    rows = mask.shape[0]
    stats = TokenStats(logprobs=policy, entropy=entropy)
    reference = TokenStats(logprobs=ref, entropy=torch.zeros_like(ref))

    guide = guide_of(case["guide"])
    inputs = GuideInputs(
        policy=stats.detached(),
        reference=None,
        response_ids=torch.zeros_like(mask, dtype=torch.long),
        mask=mask,
        rewards=torch.zeros(rows),
        noise_keys=torch.arange(rows),
        step=0,
        num_steps=1,
    )
    q = bounded_q(guide.q(inputs), mask, q_min=guide.q_min, q_max=guide.q_max)
    # The stored losses leave the KL of stale samples unweighted.
    mode = ReverseKL(beta=case["beta"], estimator="k3", placement="loss", ratio_max=None)
    divergence = mode.token_loss(
        KLInputs(
            policy=stats,
            old_logprobs=old,
            reference=reference,
            response_ids=inputs.response_ids,
            mask=mask,
            log_q=log_q(q, guide.strength),
        )
    )
    assert divergence is not None

    algorithm = GroupRelative(
        epochs=1,
        minibatches=1,
        clip_low=case["epsilon_low"],
        clip_high=case["epsilon_high"],
        baseline="mean",
        scale_by_std=True,
        ratio="token",
        overlong_share=0.0,
        dynamic_sampling=0,
        aggregation=case["loss_type"],
    )
    surrogate = algorithm.surrogate(policy, old, tensor(case["advantages"]).unsqueeze(-1) * mask, mask)
    counts = BatchCounts(sequences=rows, tokens=int(mask.sum()), max_completion_tokens=case["max_completion_length"])
    loss = algorithm.aggregate(surrogate.loss + mode.beta * divergence, mask, counts)
    (gradient,) = torch.autograd.grad(loss, policy)
    return loss.detach(), gradient, q, divergence.detach()[mask], surrogate


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['loss_type']}-{case['guide']['name']}")
def test_loss_gradient_q_and_metrics_equal_the_stored_values(case: dict[str, Any]) -> None:
    loss, gradient, q, divergence, surrogate = evaluate(case)
    mask, expected = tensor(case["mask"]).bool(), case["expected"]
    torch.testing.assert_close(loss, tensor(expected["loss"]), **EXACT)
    torch.testing.assert_close(gradient, tensor(expected["grad_policy_logps"]), **EXACT)
    torch.testing.assert_close(q, tensor(expected["q"]), **EXACT)
    torch.testing.assert_close(divergence.mean(), tensor(expected["mean_kl"]), **EXACT)
    torch.testing.assert_close(surrogate.clipped[mask].double().mean(), tensor(expected["clip_region_mean"]), **EXACT)
