"""Token entropy, and the divergence from the reference, at the states that sampled completions visit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sage.interfaces import Policy, Progress
from sage.training.packing import pack
from sage.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionStats:
    """Means over sampled completions."""

    entropy: float
    """Entropy of a token's distribution in nats, mean over tokens."""
    kl_to_reference: float | None
    """KL(policy || reference) of a completion in nats, mean over completions; ``None`` without a reference."""


@torch.no_grad()
def completion_stats(
    policy: Policy,
    groups: Sequence[Group],
    *,
    temperature: float,
    stats_n: int,
    micro_batch_size: int,
    reference: bool,
    progress: Progress,
    title: str,
) -> CompletionStats:
    """Entropy and KL over the first completions of each problem, whatever their verdicts.

    The KL is Rao-Blackwellised: of every visited state the exact sum over the vocabulary is taken in place of the
    log-ratio of the one sampled token. For completions drawn from the policy it has the same mean, and it varies less.

    Args:
        policy: what drew the completions.
        groups: problems with equally many completions.
        temperature: of the sampling, > 0; distributions are those before truncation by top_p, top_k and min_p.
        stats_n: completions a problem that are looked at (all, where there are fewer).
        micro_batch_size: sequences a forward pass holds.
        reference: whether the policy has a reference to compare with.
        progress: where to report.
        title: what is evaluated, for the progress bar.
    """
    if stats_n < 1 or micro_batch_size < 1:
        raise ValueError(f"stats_n={stats_n}, micro_batch_size={micro_batch_size}: expected whole numbers >= 1")
    # Verdicts are dropped, so that packing does not mask the completions that the reward abstained from.
    groups = [replace(group, completions=group.completions[:stats_n], verdicts=()) for group in groups]
    device = next(iter(policy.trainable_parameters())).device
    per_group = len(groups[0].completions)
    step = max(1, micro_batch_size // per_group)
    sequences = per_group * len(groups)
    entropy_sum, tokens, kl_sum = 0.0, 0, 0.0
    with progress.stage(f"{title}: entropy and KL", sequences, "completions") as bar:
        # Packed piece by piece: a piece is padded to its own longest completion only.
        for start in range(0, len(groups), step):
            packed = pack(groups[start : start + step], device=device)
            for row in range(0, len(packed), micro_batch_size):
                batch = packed.rows(slice(row, row + micro_batch_size))
                ours = policy.token_stats(batch, temperature=temperature, vocabulary=reference)
                entropy_sum += float(ours.entropy.double()[batch.mask].sum())
                tokens += int(batch.mask.sum())
                if reference:
                    theirs = policy.reference_stats(batch, temperature=temperature, vocabulary=True)
                    kl = exact_kl(_full(ours.vocabulary_logprobs), _full(theirs.vocabulary_logprobs))
                    kl_sum += float(kl.double()[batch.mask].sum())
                bar.update(len(batch))
    return CompletionStats(entropy=entropy_sum / tokens, kl_to_reference=kl_sum / sequences if reference else None)


def exact_kl(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """``sum_v p(v) (log p(v) - log p_ref(v))`` of log-probs ``[..., V]``, in nats; a token of probability 0 adds 0."""
    probs = logprobs.exp()
    return torch.where(probs > 0, probs * (logprobs - reference_logprobs), 0.0).sum(-1)


def _full(vocabulary_logprobs: Tensor | None) -> Tensor:
    if vocabulary_logprobs is None:
        raise RuntimeError("the policy gave no vocabulary_logprobs although vocabulary=True was asked of it")
    return vocabulary_logprobs
