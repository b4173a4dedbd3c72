"""A batch to the same batch with its frozen statistics (old, reference) and advantages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from sage.training.learner import Learner
from sage.types import Batch, KLInputs, Stat, TokenStats


@torch.no_grad()
def with_advantages(learner: Learner, batch: Batch, optimizer_step: int) -> Batch:
    """Score the batch under the reference and, where it will differ from the policy, the old policy; add advantages.

    The old log-probs are skipped when the batch gives one on-policy update and no KL sits in the reward: there they equal
    the policy's own to the last bit.
    """
    policy, kl_mode = learner.policy, learner.current_kl_mode
    reference = _in_micro_batches(learner, batch, policy.reference_stats) if Stat.REFERENCE in learner.needs else None
    old = None
    values = Stat.VALUES in learner.needs
    if learner.updates_per_batch > 1 or kl_mode.in_reward or values:
        old = _in_micro_batches(learner, batch, partial(policy.token_stats, values=values))
        batch = batch.replace(old=old)
    token_rewards = None
    if kl_mode.in_reward and old is not None and reference is not None:
        anchor = learner.shaped_anchor(batch, old, reference, optimizer_step)
        token_rewards = kl_mode.token_reward(
            KLInputs(
                policy=old,
                old_logprobs=old.logprobs,
                reference=reference,
                response_ids=batch.response_ids,
                mask=batch.mask,
                log_q=anchor.log_q,
            )
        )
    return batch.replace(
        reference=reference,
        advantages=learner.algorithm.advantages(batch, token_rewards),
        returns=learner.algorithm.returns(batch, token_rewards),
    )


def _in_micro_batches(learner: Learner, batch: Batch, score: Callable[..., TokenStats]) -> TokenStats:
    """Apply ``score`` to slices of the batch, so that no more than ``micro_batch_size`` sequences are held at once."""
    size = learner.micro_batch_size
    parts = [score(batch.rows(slice(i, i + size)), temperature=learner.temperature) for i in range(0, len(batch), size)]
    return TokenStats(
        logprobs=torch.cat([p.logprobs for p in parts]),
        entropy=torch.cat([p.entropy for p in parts]),
        values=None if parts[0].values is None else torch.cat([p.values for p in parts if p.values is not None]),
    )
