"""How much memory a run will take, before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from sage.job import Job
from sage.types import ModelFacts, Stat

_GIB = 2**30
_ADAPTER_BYTES = 4
"""PEFT keeps an adapter in float32 whatever the base is in."""


def memory_estimate(job: Job, facts: ModelFacts) -> dict[str, float]:
    """Bytes by use. Weights and optimiser are exact; activations and logits are orders of magnitude.

    Args:
        job: the run.
        facts: of its model.
    """
    config, parts = job.config, job.parts
    adapter = facts.trainable < facts.parameters
    weights = facts.parameters * facts.bytes_per_parameter
    trained = facts.trainable * (_ADAPTER_BYTES if adapter else facts.bytes_per_parameter)
    needs = parts.kl_mode.needs | parts.guide.needs
    prompt = config.prompts.max_tokens if job.longest_prompt is None else job.longest_prompt
    tokens = config.train.micro_batch_size * (prompt + config.train.sampling.max_tokens)
    # Of a layer some 16 tensors of the hidden size are kept for the backward pass, or its input alone.
    kept = 1 if getattr(parts.model, "gradient_checkpointing", False) else 16
    answered = config.train.micro_batch_size * config.train.sampling.max_tokens
    uses = {
        "weights": weights + (facts.trainable * _ADAPTER_BYTES if adapter else 0),
        "reference": 0 if adapter or Stat.REFERENCE not in needs else weights,
        "gradients": trained,
        "Adam": 2 * trained,
        "activations": tokens * facts.hidden_size * facts.num_layers * kept * facts.bytes_per_parameter,
        "logits": 3 * 4 * min(answered * facts.vocabulary, 2**26),
        "engine": parts.rollout.memory(facts),
    }
    return {name: float(size) for name, size in uses.items() if size}


def memory_sentence(uses: Mapping[str, float]) -> str:
    """E.g. ``about 3.2 GiB: weights 0.5, gradients 0.5, Adam 1.0, activations 1.2``."""
    shown = ", ".join(f"{name} {size / _GIB:.1f}" for name, size in uses.items() if size >= 0.05 * _GIB)
    total = sum(uses.values()) / _GIB
    return f"about {total:.1f} GiB" + (f": {shown}" if shown else "")
