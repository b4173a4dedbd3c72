"""What is trained and how: policy, guide, KL mode, algorithm and optimiser in one frozen bundle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sage.interfaces import Algorithm, Guide, KLMode, Policy
from sage.maths.anchor import bounded_q, log_q
from sage.training.beta import AdaptiveBeta
from sage.training.optimiser import LearningRate
from sage.training.response_anchor import ResponseAnchor
from sage.types import Batch, GuideInputs, ImportanceSampling, Stat, TokenStats


@dataclass(frozen=True, kw_only=True)
class ShapedAnchor:
    """The guide's factors on a batch, ready for a KL mode."""

    q: torch.Tensor
    """``[B, T]`` after clamp and mask, before strength."""
    log_q: torch.Tensor
    """``[B, T]`` strength * log q."""
    vocabulary_log_q: torch.Tensor | None
    """``[B, T, V]`` the same for every token, where the guide differs between them and the KL mode wants to know."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Everything an update needs besides the batch."""

    policy: Policy
    guide: Guide
    kl_mode: KLMode
    """As configured; :attr:`current_kl_mode` has the beta of the moment."""
    beta: AdaptiveBeta
    algorithm: Algorithm
    optimizer: torch.optim.Optimizer
    learning_rate: LearningRate
    num_steps: int
    """Optimiser steps of the whole run."""
    max_grad_norm: float
    temperature: float
    """Of the rollouts: every log-prob divides the logits by it (K14)."""
    micro_batch_size: int
    """Sequences a forward pass holds."""
    seed: int
    importance_sampling: ImportanceSampling
    """Correction for what the engine sampled from."""
    anchor: ResponseAnchor | None = None
    """The bank's responses, re-weighted by the guide, for a KL mode with a bank; ``None`` for every other."""

    def __post_init__(self) -> None:
        if (self.anchor is None) != (self.kl_mode.bank is None):
            raise ValueError(f"{type(self.kl_mode).__name__}: expected a response anchor with a bank, and only then")

    @property
    def needs(self) -> frozenset[Stat]:
        """The union of what guide, KL mode and algorithm read; nothing else is computed."""
        return self.guide.needs | self.kl_mode.needs | self.algorithm.needs

    @property
    def current_kl_mode(self) -> KLMode:
        """The KL mode with the coefficient that holds for this batch."""
        return replace(self.kl_mode, beta=self.beta.value)

    @property
    def updates_per_batch(self) -> int:
        """Optimiser steps that a batch of rollouts takes."""
        return self.algorithm.epochs * self.algorithm.minibatches

    def shaped_anchor(
        self, batch: Batch, policy: TokenStats, reference: TokenStats | None, optimizer_step: int
    ) -> ShapedAnchor:
        """q of every response token, detached: it is a constant within an update (method, section 1)."""
        guide = self.guide
        inputs = GuideInputs(
            policy=policy.detached(),
            reference=reference,
            response_ids=batch.response_ids,
            mask=batch.mask,
            rewards=batch.rewards,
            noise_keys=batch.noise_keys,
            step=optimizer_step,
            num_steps=self.num_steps,
        )
        with torch.no_grad():
            raw = guide.q(inputs)
            _check_q(guide, raw, batch.mask)
            q = bounded_q(raw, batch.mask, q_min=guide.q_min, q_max=guide.q_max)
            over_vocabulary = None
            if guide.over_vocabulary and policy.vocabulary_logprobs is not None:
                full = bounded_q(guide.q_vocabulary(inputs), batch.mask, q_min=guide.q_min, q_max=guide.q_max)
                over_vocabulary = log_q(full, guide.strength)
            return ShapedAnchor(q=q, log_q=log_q(q, guide.strength), vocabulary_log_q=over_vocabulary)


def _check_q(guide: Guide, q: torch.Tensor, mask: torch.Tensor) -> None:
    """Refuse what a guide may not give, before it turns into a loss that means something else.

    Raises:
        TypeError: q is no tensor.
        ValueError: q has another shape than the response tokens.
        FloatingPointError: q is not a number on a trained token.
    """
    name = type(guide).__name__
    if not isinstance(q, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's guide
        raise TypeError(f"{name}.q gave {type(q).__name__}: expected a tensor of shape [B, T]")
    if q.shape != mask.shape:
        raise ValueError(f"{name}.q has shape {tuple(q.shape)}: expected [B, T] = {tuple(mask.shape)}")
    if bool(q[mask].isnan().any()):
        raise FloatingPointError(
            f"{name}.q is not a number on {int(q[mask].isnan().sum())} of {int(mask.sum())} tokens"
        )
