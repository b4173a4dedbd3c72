"""The fixed sections of the configuration, with the ranges their values must keep.

No field has a default: ``conf/config.yaml`` holds every value once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sage.types import ImportanceSampling, Sampling

SamplingConfig = Sampling
"""A ``sampling`` section is a :class:`sage.types.Sampling`, the carrier that engines take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW and its learning-rate schedule."""

    learning_rate: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    warmup_steps: int
    """Linear from 0, in optimiser steps."""
    schedule: Literal["constant", "linear", "cosine", "hold_linear"]
    """After the warm-up: ``linear`` and ``cosine`` end at 0; ``hold_linear`` holds for half, then falls to 2 %."""
    max_grad_norm: float
    """The gradient is scaled down to this norm; ``.inf`` never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The RL stage."""

    steps: int
    """Batches of rollouts; 0 only evaluates the base."""
    problems_per_step: int
    """P."""
    completions_per_problem: int
    """G."""
    micro_batch_size: int
    """Sequences that a forward pass holds."""
    target_kl: float | None
    """Adapt the KL mode's beta to hold this KL to the reference, nats a token; ``None`` keeps beta."""
    importance_sampling: ImportanceSampling
    sampling: Sampling
    optimizer: OptimizerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """When and how pass@k is measured."""

    n: int
    """Samples a test problem; pass@k is defined for k <= n."""
    validation_n: int
    """Samples a validation problem."""
    every: int
    """Steps between validations; 0 never."""
    max_problems: int | None
    """Only the first so many problems of a split; ``None`` all."""
    confidence: float
    """Of the bootstrap intervals."""
    bootstrap_samples: int
    stats_n: int
    """Samples a problem from which entropy and KL to the reference are computed; all, where there are fewer."""
    batch_size: int
    """Completions drawn at once."""
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsConfig:
    """What happens on prompts that are too long, when the data is loaded."""

    max_tokens: int
    """Of the encoded prompt, chat template included."""
    too_long: Literal["error", "drop", "cut"]
    """``cut`` leaves out the beginning of the question, so that the template stays whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig:
    """The supervised stage that warms up a base model."""

    enabled: bool
    seed: int
    steps: int | None
    """Optimiser steps; ``None`` where ``epochs`` says how many."""
    epochs: int | None
    """Passes over the demonstrations; ``None`` where ``steps`` says how many."""
    batch_size: int
    """Demonstrations of an optimiser step."""
    micro_batch_tokens: int
    """Padded tokens that a forward pass holds; changes memory and speed, not the result."""
    lora: Mapping[str, Any] | None
    """Train an adapter of this shape, merged into the weights when the stage ends; ``None`` trains every weight."""
    optimizer: OptimizerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """What a run saves to go on from."""

    every: int
    """Batches of rollouts between checkpoints; 0 saves one at the end of training alone (and when asked to stop)."""
    keep_last: int
    """How many of the newest stay."""
    keep_best: str | None
    """A metric: the checkpoint with its largest value stays too."""
    allow_changes: tuple[str, ...]
    """Keys, or whole sections, that may differ from the interrupted run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsConfig:
    """Folders, absolute."""

    outputs: Path
    cache: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything but the plug-ins."""

    seed: int
    prompts: PromptsConfig
    train: TrainConfig
    eval: EvalConfig
    sft: SftConfig
    checkpoint: CheckpointConfig
    resume: str
    """``auto`` goes on with an unfinished run in the run's folder, ``never`` refuses it; a folder is that run."""
    paths: PathsConfig


@dataclass(frozen=True, slots=True)
class Rule:
    """A range: what is expected, in words that follow "expected", and whether a value of the right type keeps it."""

    expected: str
    holds: Callable[[Any], bool]


def _whole(least: int, note: str = "") -> Rule:
    return Rule(f"a whole number >= {least}{note}", lambda value: value >= least)


_SHARE = Rule("a number in (0, 1]", lambda value: 0 < value <= 1)
_NOT_NEGATIVE = Rule("a finite number >= 0", lambda value: 0 <= value < math.inf)
_POSITIVE = Rule("a finite number > 0", lambda value: 0 < value < math.inf)

_OPTIMIZER = {
    "learning_rate": _NOT_NEGATIVE,
    "betas": Rule("two numbers in [0, 1), e.g. [0.9, 0.99]", lambda value: all(0 <= beta < 1 for beta in value)),
    "eps": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
    "warmup_steps": _whole(0),
    "max_grad_norm": Rule("a number > 0 (.inf to never clip)", lambda value: value > 0),
}
_SAMPLING = {
    "top_p": _SHARE,
    "top_k": _whole(0, " (0 keeps every token)"),
    "min_p": Rule("a number in [0, 1)", lambda value: 0 <= value < 1),
    "max_tokens": _whole(1),
    "stop": Rule("a list of texts, none of them empty", all),
}


def _under(prefix: str, rules: dict[str, Rule]) -> dict[str, Rule]:
    return {f"{prefix}.{name}": rule for name, rule in rules.items()}


RULES: dict[str, Rule] = {
    "seed": _whole(0),
    "train.steps": _whole(0),
    "train.problems_per_step": _whole(1),
    "train.completions_per_problem": _whole(1),
    "train.micro_batch_size": _whole(1),
    "train.target_kl": _POSITIVE,
    "train.importance_sampling.min": Rule("a number in [0, 1]", lambda value: 0 <= value <= 1),
    "train.importance_sampling.max": Rule("a number >= 1 (.inf for no bound)", lambda value: value >= 1),
    "prompts.max_tokens": _whole(1),
    "train.sampling.temperature": Rule(
        "a finite number > 0 (greedy decoding cannot explore, and log-probs divide by it)",
        lambda value: 0 < value < math.inf,
    ),
    **_under("train.sampling", _SAMPLING),
    **_under("train.optimizer", _OPTIMIZER),
    "eval.n": _whole(1),
    "eval.validation_n": _whole(1),
    "eval.every": _whole(0, " (0 never)"),
    "eval.max_problems": Rule("a whole number >= 1, or null for all", lambda value: value is None or value >= 1),
    "eval.confidence": Rule("a number in (0, 1), e.g. 0.95", lambda value: 0 < value < 1),
    "eval.bootstrap_samples": _whole(1),
    "eval.stats_n": _whole(1),
    "eval.batch_size": _whole(1),
    "eval.sampling.temperature": Rule("a finite number >= 0 (0 is greedy)", lambda value: 0 <= value < math.inf),
    **_under("eval.sampling", _SAMPLING),
    "sft.seed": _whole(0),
    "sft.steps": _whole(1, ", or null where sft.epochs counts (sft.enabled=false skips the stage)"),
    "sft.epochs": _whole(1, ", or null where sft.steps counts"),
    "sft.micro_batch_tokens": _whole(1),
    "sft.batch_size": _whole(1),
    **_under("sft.optimizer", _OPTIMIZER),
    "checkpoint.every": _whole(0, " (0 saves at the end alone)"),
    "checkpoint.keep_last": _whole(1),
    "resume": Rule("auto, never, or the folder of a run", lambda value: value != ""),
    "paths.outputs": Rule("a folder", lambda value: str(value) != ""),
    "paths.cache": Rule("a folder", lambda value: str(value) != ""),
}
"""Ranges by dotted key. A key of the sections above that is missing here may take any value of its type."""
