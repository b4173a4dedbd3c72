"""A batch with advantages to new weights: the equations of an update, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

from sage.maths.bank import response_cross_entropy
from sage.maths.importance import truncated_importance_weights
from sage.maths.kl import k3
from sage.maths.streams import stream_key
from sage.training.learner import Learner
from sage.training.optimiser import optimizer_step
from sage.training.response_anchor import AnchorRows
from sage.types import AnchorTerms, Batch, BatchCounts, KLInputs, LossTerms, Stat

_Rows = TypeVar("_Rows", Batch, AnchorRows)


@dataclass(frozen=True, kw_only=True)
class UpdateResult:
    """What an update did."""

    terms: list[LossTerms]
    """One per micro-batch of each optimiser step."""
    grad_norms: list[float]
    """One per optimiser step, before clipping."""
    learning_rate: float
    """Of the last optimiser step."""
    anchor_terms: list[AnchorTerms]
    """One per micro-batch of responses drawn from a bank; empty without one."""


def update(learner: Learner, batch: Batch, step: int) -> UpdateResult:
    """Take ``epochs * minibatches`` optimiser steps on a batch.

    Args:
        learner: its policy's weights are changed.
        batch: with advantages.
        step: the batch's number, from 0.

    Raises:
        FloatingPointError: if loss or gradient is not finite; names the step and the problems.
    """
    terms: list[LossTerms] = []
    anchor_terms: list[AnchorTerms] = []
    norms: list[float] = []
    current = step * learner.updates_per_batch
    torch.manual_seed(
        stream_key(learner.seed, "update", step)
    )  # of an adapter's dropout, which has no stream of its own
    for minibatch, drawn in zip(_minibatches(learner, batch, step), _anchor_rows(learner, batch, step), strict=True):
        counts = BatchCounts(
            sequences=len(minibatch),
            tokens=int(minibatch.mask.sum()),
            max_completion_tokens=batch.max_completion_tokens,
        )
        try:
            terms += [accumulate(learner, part, counts, current) for part in _micro_batches(learner, minibatch)]
            if drawn is not None:
                anchor_terms += [accumulate_anchor(learner, part) for part in _micro_batches(learner, drawn)]
            norms.append(optimizer_step(learner.optimizer, learner.learning_rate.at(current), learner.max_grad_norm))
        except FloatingPointError as error:
            raise FloatingPointError(f"step {step}: {error}; problems {', '.join(batch.problem_ids)}") from error
        current += 1
    rate = learner.learning_rate.at(current - 1)
    return UpdateResult(terms=terms, grad_norms=norms, learning_rate=rate, anchor_terms=anchor_terms)


def accumulate(learner: Learner, batch: Batch, counts: BatchCounts, current: int) -> LossTerms:
    """Add the gradient of one micro-batch's share of the loss.

    The loss of a token is its clipped surrogate plus beta times its divergence from the anchor, weighted for what the engine
    sampled from, plus the critic's loss where there is one.

    Args:
        learner: gradients accumulate in its policy.
        batch: the micro-batch.
        counts: denominators of the whole mini-batch.
        current: optimiser step, from 0.
    """
    vocabulary = Stat.VOCABULARY in learner.needs
    policy = learner.policy.token_stats(
        batch, temperature=learner.temperature, vocabulary=vocabulary, values=Stat.VALUES in learner.needs
    )
    reference = batch.reference
    if vocabulary:  # [B, T, V] is held for one micro-batch only
        reference = learner.policy.reference_stats(batch, temperature=learner.temperature, vocabulary=True)
    old_logprobs = policy.logprobs.detach() if batch.old is None else batch.old.logprobs
    assert batch.advantages is not None
    gap = (old_logprobs - batch.sampler_logprobs).masked_fill(~batch.mask, 0)
    correction = learner.importance_sampling
    importance = truncated_importance_weights(
        gap, batch.mask, level=correction.level, low=correction.min, high=correction.max
    )

    anchor = learner.shaped_anchor(batch, policy, reference, current)
    surrogate = learner.algorithm.surrogate(policy.logprobs, old_logprobs, batch.advantages, batch.mask)
    token_loss, kl, reference_kl, kl_mode = surrogate.loss, None, None, learner.current_kl_mode
    if reference is not None:
        kl = kl_mode.token_loss(
            KLInputs(
                policy=policy,
                old_logprobs=old_logprobs,
                reference=reference,
                response_ids=batch.response_ids,
                mask=batch.mask,
                log_q=anchor.log_q,
                vocabulary_log_q=anchor.vocabulary_log_q,
            )
        )
        reference_kl = k3(reference.logprobs - policy.logprobs.detach())
    if kl is not None:
        token_loss = token_loss + kl_mode.beta * kl
    token_loss = (
        importance * token_loss
    )  # both are means over tokens that the policy, not the engine, should have drawn
    value_loss = None
    if policy.values is not None and batch.returns is not None and batch.old is not None:
        assert batch.old.values is not None
        value_loss = learner.algorithm.value_loss(policy.values, batch.old.values, batch.returns)
        token_loss = token_loss + value_loss
    loss = learner.algorithm.aggregate(token_loss, batch.mask, counts)
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()}")
    loss.backward()
    return LossTerms(
        mask=batch.mask,
        loss=loss.item(),
        surrogate=surrogate.loss.detach(),
        ratio=surrogate.ratio,
        clipped=surrogate.clipped,
        entropy=policy.entropy,
        sampler_gap=gap,
        importance=importance,
        q=anchor.q,
        kl=None if kl is None else kl.detach(),
        reference_kl=reference_kl,
        values=None if policy.values is None else policy.values.detach(),
        returns=batch.returns,
        value_loss=None if value_loss is None else value_loss.detach(),
    )


def accumulate_anchor(learner: Learner, drawn: AnchorRows) -> AnchorTerms:
    """Add the gradient of the forward KL to the bank's anchor, as far as these responses carry it.

    Their share of the loss is ``beta * sum_i weight_i * -(1/|y_i|) log pi(y_i)``; it needs no reference.
    """
    policy = learner.policy.token_stats(drawn.batch, temperature=learner.temperature)
    cross_entropy = response_cross_entropy(policy.logprobs, drawn.batch.mask)
    loss = learner.current_kl_mode.beta * (drawn.weights * cross_entropy).sum()
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss of the bank is {loss.item()}")
    loss.backward()
    return AnchorTerms(loss=loss.item(), cross_entropy=cross_entropy.detach())


def _micro_batches(learner: Learner, whole: _Rows) -> Iterator[_Rows]:
    """What a forward pass holds at once."""
    size = learner.micro_batch_size
    return (whole.rows(slice(start, start + size)) for start in range(0, len(whole), size))


def _minibatches(learner: Learner, batch: Batch, step: int) -> Iterator[Batch]:
    """The mini-batches of every epoch; each epoch cuts a fresh permutation of the sequences."""
    epochs, count = learner.algorithm.epochs, learner.algorithm.minibatches
    if len(batch) % count:
        raise ValueError(f"algorithm.minibatches={count} does not divide the batch of {len(batch)} sequences")
    if count == 1:
        yield from [batch] * epochs
        return
    for epoch in range(epochs):
        for rows in _shuffled(learner, "minibatch", step, epoch, batch).chunk(count):
            yield batch.rows(rows)


def _anchor_rows(learner: Learner, batch: Batch, step: int) -> Iterator[AnchorRows | None]:
    """The bank's responses for every optimiser step: drawn once for the batch, and dealt out to the mini-batches of an epoch.

    A share of 1 / count of the rows weighs count times as much, so that the mean over the ways to deal is the mean over the
    problems, whatever the number of mini-batches.
    """
    epochs, count = learner.algorithm.epochs, learner.algorithm.minibatches
    drawn = None
    if learner.anchor is not None:
        drawn = learner.anchor.draw(batch.problem_ids, step, learner.seed, batch.mask.device)
    if drawn is None or count == 1:
        yield from [drawn] * (epochs * count)
        return
    for epoch in range(epochs):
        for rows in _shuffled(learner, "anchor", step, epoch, drawn.batch).tensor_split(count):
            yield drawn.rows(rows).times(count)


def _shuffled(learner: Learner, stream: str, step: int, epoch: int, batch: Batch) -> torch.Tensor:
    """The rows of a batch in an order of their own for each epoch."""
    order = sorted(range(len(batch)), key=lambda row: stream_key(learner.seed, stream, step, epoch, row))
    return torch.tensor(order, device=batch.mask.device)
