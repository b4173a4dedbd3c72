"""Names and reductions of what a training step logs. `docs/metrics.md` explains each name.

Everything but ``time/*`` is a pure function of configuration and seed on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

from sage.maths.surrogate import explained_variance
from sage.training.collect import Collected
from sage.training.update import UpdateResult
from sage.types import StopReason, VerdictReason


def rollout_metrics(collected: Collected) -> dict[str, float]:
    """What the rollouts of a step were worth: rewards, verdicts and lengths. Shares and means are over completions."""
    groups = collected.groups
    graded = [(c, v) for g in groups for c, v in zip(g.completions, g.verdicts, strict=True)]
    rewards = [v.reward for _, v in graded if v.reward is not None]
    spreads = [len({v.reward for v in g.verdicts if v.reward is not None}) > 1 for g in groups]
    metrics = {
        "reward/mean": _mean(rewards),
        "reward/std": torch.tensor(rewards).std().item() if len(rewards) > 1 else math.nan,
        "rollout/refills": collected.refills,
        "rollout/discarded_groups": len(collected.discarded),
        "reward/zero_spread_share": 1 - fmean(spreads),
        "reward/abstained_share": 1 - len(rewards) / len(graded),
        "completion/correct_share": fmean(v.correct for _, v in graded),
        "completion/error_share": fmean(v.reason is VerdictReason.ERROR for _, v in graded),
        "completion/truncated_share": fmean(c.stop_reason is StopReason.LENGTH for c, _ in graded),
        "completion/tokens_mean": fmean(len(c.token_ids) for c, _ in graded),
        "completion/tokens_correct_mean": _mean([len(c.token_ids) for c, v in graded if v.correct]),
        "completion/tokens_wrong_mean": _mean([len(c.token_ids) for c, v in graded if not v.correct]),
    }
    for part in sorted({name for _, v in graded for name in v.parts}):
        metrics[f"reward/parts/{part}"] = _mean([v.parts[part] for _, v in graded if part in v.parts])
    gaps = [v.parts["proxy"] - v.parts["gold"] for _, v in graded if {"proxy", "gold"} <= v.parts.keys()]
    metrics["reward/gap"] = _mean(gaps)
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def update_metrics(result: UpdateResult) -> dict[str, float]:
    """What the update did. Means are over the trained tokens of all its micro-batches, shares likewise."""
    terms = result.terms

    def tokens(name: str) -> Tensor:
        return torch.cat([getattr(t, name)[t.mask] for t in terms]).float()

    updates = len(result.grad_norms)
    metrics = {
        "policy/loss": (sum(t.loss for t in terms) + sum(t.loss for t in result.anchor_terms)) / updates,
        "policy/grad_norm": fmean(result.grad_norms),
        "policy/learning_rate": result.learning_rate,
    }
    if result.anchor_terms:
        drawn = torch.cat([t.cross_entropy for t in result.anchor_terms])
        metrics |= {
            "kl/anchor": drawn.mean().item(),
            "bank/loss": sum(t.loss for t in result.anchor_terms) / updates,
            "bank/draws": len(drawn),
        }
    if not any(bool(t.mask.any()) for t in terms):
        return metrics  # nothing was trained on: means over no token have no value
    ratio, q, gap, importance = tokens("ratio"), tokens("q"), tokens("sampler_gap"), tokens("importance")
    metrics |= {
        "engine/logprob_gap_mean": gap.abs().mean().item(),
        "engine/logprob_gap_max": gap.abs().max().item(),
        "engine/kl": (gap.exp() - gap - 1).mean().item(),
        "engine/weight_mean": importance.mean().item(),
        "engine/weight_min": importance.min().item(),
        "engine/weight_max": importance.max().item(),
        "policy/entropy": tokens("entropy").mean().item(),
        "policy/clip_share": tokens("clipped").mean().item(),
        "policy/ratio_min": ratio.min().item(),
        "policy/ratio_max": ratio.max().item(),
        "guide/q_mean": q.mean().item(),
        "guide/q_min": q.min().item(),
        "guide/q_max": q.max().item(),
        "guide/q_changed_share": (q != 1).float().mean().item(),
    }
    if terms[0].kl is not None:
        metrics["kl/anchor"] = tokens("kl").mean().item()
    if terms[0].reference_kl is not None:
        metrics["kl/reference"] = tokens("reference_kl").mean().item()
    if terms[0].values is not None:
        values, returns = tokens("values"), tokens("returns")
        metrics |= {"value/mean": values.mean().item(), "value/loss": tokens("value_loss").mean().item()}
        explained = explained_variance(values, returns, torch.ones_like(values, dtype=torch.bool))
        if not math.isnan(explained):
            metrics["value/explained_variance"] = explained
    return metrics


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan
