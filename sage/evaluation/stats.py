"""Token entropy, and the divergence from the reference, at the states that sampled completions visit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sage.interfaces import Policy, Progress
from sage.training.packing import pack
from sage.types import Batch, Group

_VOCABULARY_AT_ONCE = 1 << 27
"""Log-probs of a pass over the whole vocabulary: half a gigabyte, of the policy and of the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionStats:
    """Sums over sampled completions; those of several problems add up."""

    completions: int
    tokens: int
    entropy_sum: float
    """Over tokens, nats."""
    kl_sum: float | None
    """Over tokens, nats; ``None`` without a reference."""

    @property
    def entropy(self) -> float:
        """Entropy of a token's distribution in nats, mean over tokens."""
        return self.entropy_sum / self.tokens

    @property
    def kl_to_reference(self) -> float | None:
        """KL(policy || reference) of a completion in nats, mean over completions; ``None`` without a reference."""
        return None if self.kl_sum is None else self.kl_sum / self.completions


def pooled(stats: Sequence[CompletionStats]) -> CompletionStats:
    """The sums of several problems together."""
    kls = [s.kl_sum for s in stats if s.kl_sum is not None]
    return CompletionStats(
        completions=sum(s.completions for s in stats),
        tokens=sum(s.tokens for s in stats),
        entropy_sum=math.fsum(s.entropy_sum for s in stats),
        kl_sum=math.fsum(kls) if kls else None,
    )


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
) -> list[CompletionStats]:
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

    Returns:
        One a problem, in order.
    """
    if stats_n < 1 or micro_batch_size < 1:
        raise ValueError(f"stats_n={stats_n}, micro_batch_size={micro_batch_size}: expected whole numbers >= 1")
    # Verdicts are dropped, so that packing does not mask the completions that the reward abstained from.
    groups = [replace(group, completions=group.completions[:stats_n], verdicts=()) for group in groups]
    per_group = len(groups[0].completions)
    step = max(1, micro_batch_size // per_group)
    rows: list[tuple[int, float, float]] = []
    """Tokens, entropy and KL of each completion."""
    with progress.stage(f"{title}: entropy and KL", per_group * len(groups), "completions") as bar:
        # Packed piece by piece: a piece is padded to its own longest completion only.
        for start in range(0, len(groups), step):
            packed = pack(groups[start : start + step], device=policy.device)
            at_once = micro_batch_size
            if reference:
                row_size = packed.response_ids.shape[1] * len(policy.tokenizer)
                at_once = min(at_once, max(1, _VOCABULARY_AT_ONCE // row_size))
            for row in range(0, len(packed), at_once):
                batch = packed.rows(slice(row, row + at_once))
                rows += _row_sums(policy, batch, temperature, reference)
                bar.update(len(batch))
    return [
        CompletionStats(
            completions=per_group,
            tokens=sum(tokens for tokens, _, _ in rows[start : start + per_group]),
            entropy_sum=math.fsum(entropy for _, entropy, _ in rows[start : start + per_group]),
            kl_sum=math.fsum(kl for _, _, kl in rows[start : start + per_group]) if reference else None,
        )
        for start in range(0, len(rows), per_group)
    ]


def _row_sums(policy: Policy, batch: Batch, temperature: float, reference: bool) -> list[tuple[int, float, float]]:
    ours = policy.token_stats(batch, temperature=temperature, vocabulary=reference)
    kl = torch.zeros_like(ours.entropy)
    if reference:
        theirs = policy.reference_stats(batch, temperature=temperature, vocabulary=True)
        kl = exact_kl(_full(ours.vocabulary_logprobs), _full(theirs.vocabulary_logprobs))
    sums = [torch.where(batch.mask, values, 0.0).double().sum(-1).tolist() for values in (ours.entropy, kl)]
    return list(zip(batch.mask.sum(-1).tolist(), *sums, strict=True))


def exact_kl(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """``sum_v p(v) (log p(v) - log p_ref(v))`` of log-probs ``[..., V]``, in nats; a token of probability 0 adds 0."""
    probs = logprobs.exp()
    return torch.where(probs > 0, probs * (logprobs - reference_logprobs), 0.0).sum(-1)


def _full(vocabulary_logprobs: Tensor | None) -> Tensor:
    if vocabulary_logprobs is None:
        raise RuntimeError("the policy gave no vocabulary_logprobs although vocabulary=True was asked of it")
    return vocabulary_logprobs
