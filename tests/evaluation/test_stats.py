"""Entropy and KL over sampled completions."""

from dataclasses import replace
from math import log
from typing import Any

import pytest
import torch

from sage.evaluation.stats import CompletionStats, completion_stats, exact_kl, pooled
from sage.types import Group, Verdict, VerdictReason


def run(policy: Any, groups: list[Group], progress: Any, **changes: Any) -> CompletionStats:
    known = {"temperature": 0.7, "stats_n": 4, "micro_batch_size": 100, "reference": True, "title": "test"}
    return pooled(completion_stats(policy, groups, progress=progress, **{**known, **changes}))


def test_exact_kl_of_two_coins() -> None:
    fair, biased, sure = (torch.tensor(p).log() for p in ([0.5, 0.5], [0.25, 0.75], [1.0, 0.0]))
    # 1/2 log(2) + 1/2 log(2/3)
    assert exact_kl(fair, biased).item() == pytest.approx(0.5 * log(2) + 0.5 * log(2 / 3))
    assert exact_kl(sure, fair).item() == pytest.approx(log(2))
    assert exact_kl(sure, sure).item() == 0


def test_entropy_is_per_token_and_kl_per_completion(policy: Any, drawn_groups: list[Group], progress: Any) -> None:
    entropies, kls = [], []
    ours, theirs = ((table / 0.7).softmax(-1) for table in (policy.table, policy.reference))
    for group in drawn_groups:
        for completion in group.completions[:4]:
            states = [group.prompt_ids[-1], *completion.token_ids[:-1]]
            entropies += [-(ours[s] * ours[s].log()).sum().item() for s in states]
            kls.append(sum((ours[s] * (ours[s] / theirs[s]).log()).sum().item() for s in states))
    stats = run(policy, drawn_groups, progress)
    assert stats.entropy == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)
    assert stats.kl_to_reference == pytest.approx(sum(kls) / len(kls), rel=1e-5)


@pytest.mark.parametrize("micro_batch_size", [1, 3, 4, 8, 9])
def test_the_micro_batch_changes_nothing(
    policy: Any, drawn_groups: list[Group], progress: Any, micro_batch_size: int
) -> None:
    whole = run(policy, drawn_groups, progress)
    policy.batches.clear()
    cut = run(policy, drawn_groups, progress, micro_batch_size=micro_batch_size)
    assert cut.entropy == pytest.approx(whole.entropy, rel=1e-5)
    assert cut.kl_to_reference == pytest.approx(whole.kl_to_reference, rel=1e-5)
    assert max(map(len, policy.batches)) <= micro_batch_size
    assert sum(map(len, policy.batches)) == 5 * 4


def test_abstained_completions_count(policy: Any, drawn_groups: list[Group], progress: Any) -> None:
    abstained = [replace(g, verdicts=(Verdict(reward=None, reason=VerdictReason.ERROR),) * 6) for g in drawn_groups]
    assert run(policy, abstained, progress) == run(policy, drawn_groups, progress)


def test_without_a_reference_there_is_no_kl(policy: Any, drawn_groups: list[Group], progress: Any) -> None:
    policy.reference_stats = None
    stats = run(policy, drawn_groups, progress, reference=False)
    assert stats.kl_to_reference is None
    assert stats.entropy > 0


def test_a_policy_equal_to_its_reference_has_kl_zero(policy: Any, drawn_groups: list[Group], progress: Any) -> None:
    policy.reference = policy.table
    assert run(policy, drawn_groups, progress).kl_to_reference == 0


def test_more_completions_than_there_are_means_all(policy: Any, drawn_groups: list[Group], progress: Any) -> None:
    assert run(policy, drawn_groups, progress, stats_n=99) == run(policy, drawn_groups, progress, stats_n=6)
    total, bar = progress.stages["test: entropy and KL"]
    assert total == bar.done == 30
