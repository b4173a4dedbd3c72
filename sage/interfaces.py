"""The seams: what a guide, KL mode, algorithm, engine, reward, benchmark, model and logger must offer.

A plug-in is one class in one file with one yaml of the same name. Its constructor takes keyword arguments only, states
every parameter without a default (the yaml gives the values) and does nothing but keep and check them: an option that
cannot work is refused before any model is loaded. Guides, KL modes and algorithms therefore are frozen dataclasses that
check their values in ``__post_init__`` and raise ``ValueError`` naming the option, the value and what is allowed.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sage.types import (
    BankSettings,
    Batch,
    BatchCounts,
    Completion,
    Demonstration,
    Group,
    GuideInputs,
    KLInputs,
    ModelFacts,
    Problem,
    SampleRequest,
    Sampling,
    Split,
    Stat,
    Surrogate,
    TokenStats,
    Verdict,
    VerdictReason,
)

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Guide(ABC):
    """The factor q > 0 that shapes the anchor: ``log anchor = log pi_ref + strength * log q`` (method, section 1).

    A subclass writes one formula. Clamp, mask, logarithm and strength are applied by ``sage.maths.anchor``.
    """

    strength: float
    """Scales log q; 0 gives the plain reference, 1 is the paper."""
    q_min: float
    """Lower clamp of q, > 0."""
    q_max: float
    """Upper clamp of q, >= q_min."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.strength):
            raise ValueError(f"guide.strength={self.strength}: expected a finite number, e.g. 1.0")
        if self.q_min <= 0 or self.q_max < self.q_min:
            raise ValueError(
                f"guide.q_min={self.q_min}, guide.q_max={self.q_max}: expected 0 < q_min <= q_max, e.g. 0.6 and 1.4"
            )

    @property
    def identity(self) -> bool:
        """Whether q is 1 everywhere."""
        return False

    @property
    def over_vocabulary(self) -> bool:
        """Whether :meth:`q_vocabulary` gives q for every token, so that q differs between the tokens of a position."""
        return False

    @property
    def needs(self) -> frozenset[Stat]:
        """Statistics that the guide reads beyond the policy's own log-probs and entropy."""
        return frozenset()

    @property
    def of_responses(self) -> bool:
        """Whether q is about whole graded responses of the reference (:meth:`q_responses`), which needs a mode with a bank."""
        return False

    def refusal(self, kl_mode: KLMode) -> str | None:
        """Why this guide cannot work with ``kl_mode``, and what to type instead; ``None`` if it can."""
        return None

    @abstractmethod
    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]`` the factor of each sampled token, before clamp and mask."""

    def q_vocabulary(self, inputs: GuideInputs) -> Tensor:
        """``[B, T, V]`` the factor of every token of the vocabulary; agrees with :meth:`q` on the sampled ones."""
        raise NotImplementedError(f"{type(self).__name__} gives no q over the vocabulary")

    def q_responses(self, group: Group) -> Sequence[float]:
        """q >= 0 of each response of a problem's bank, up to a common factor; only strength is applied to it."""
        if self.identity:
            return [1.0] * len(group.completions)
        raise NotImplementedError(f"{type(self).__name__} gives no q of whole responses")


@dataclass(frozen=True, kw_only=True)
class KLMode(ABC):
    """The divergence between policy and anchor, as a token loss or as a token reward (method, section 3)."""

    beta: float
    """Coefficient, >= 0."""

    def __post_init__(self) -> None:
        if not 0 <= self.beta < math.inf:
            raise ValueError(f"kl_mode.beta={self.beta}: expected a number >= 0, e.g. 0.05")

    @property
    def needs(self) -> frozenset[Stat]:
        """Statistics that the mode reads; without ``Stat.REFERENCE`` no reference model is loaded."""
        return frozenset({Stat.REFERENCE})

    @property
    @abstractmethod
    def gradient(self) -> str:
        """One sentence for the run's first lines: which gradient this mode really gives."""

    @property
    def in_reward(self) -> bool:
        """Whether the divergence is a token reward (:meth:`token_reward`) rather than a token loss (:meth:`token_loss`)."""
        return False

    @property
    def bank(self) -> BankSettings | None:
        """The bank of reference responses that the mode regularises on; ``None`` for a mode of the policy's own tokens."""
        return None

    def problem_weight(self, pass_rate: float) -> float:
        """Weight of a problem in the mean over the bank; ``pass_rate`` is the reference's on it."""
        return 1.0

    def refusal(self, guide: Guide) -> str | None:
        """Why this mode cannot work with ``guide``, and what to type instead; ``None`` if it can."""
        return None

    def token_reward(self, inputs: KLInputs) -> Tensor | None:
        """``[B, T]`` reward to add before advantages, beta applied; ``None`` unless :attr:`in_reward`."""
        return None

    def token_loss(self, inputs: KLInputs) -> Tensor | None:
        """``[B, T]`` divergence, with gradient, that the loop multiplies by beta; ``None`` when there is none in the loss."""
        return None


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """The policy objective: rewards to advantages, token losses, and their aggregation (method, section 4)."""

    epochs: int
    """Passes over a batch of rollouts, >= 1."""
    minibatches: int
    """Optimiser steps per pass, >= 1. One epoch of one mini-batch is on-policy: the old log-probs are the policy's own."""

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"algorithm.{name}={getattr(self, name)}: expected a whole number >= 1")

    min_completions: ClassVar[int] = 2
    """Completions a problem that the advantages need: a group of one has no spread."""

    @property
    def max_refills(self) -> int:
        """How often a step draws further problems in place of groups that :meth:`keep` refuses; 0 never."""
        return 0

    @property
    def separate_critic(self) -> bool:
        """Whether the critic, where there is one, has a trunk of its own."""
        return False

    @property
    def needs(self) -> frozenset[Stat]:
        """``Stat.VALUES`` for an algorithm with a critic."""
        return frozenset()

    def keep(self, group: Group) -> bool:
        """Whether a graded group is worth an update; a refused one is replaced while ``max_refills`` allows."""
        return True

    @abstractmethod
    def advantages(self, batch: Batch, token_rewards: Tensor | None) -> Tensor:
        """``[B, T]`` advantages from ``batch.rewards`` and, if any, token rewards ``[B, T]``. Finite; 0 on the padding."""

    def returns(self, batch: Batch, token_rewards: Tensor | None) -> Tensor | None:
        """``[B, T]`` the critic's targets; ``None`` without a critic. ``batch.old.values`` are its values before the update."""
        return None

    def value_loss(self, values: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
        """``[B, T]`` the critic's loss of each token with its coefficient, added to the token losses."""
        raise NotImplementedError(f"{type(self).__name__} has no critic")

    @abstractmethod
    def surrogate(self, policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Surrogate:
        """The clipped policy-gradient term of each token; all arguments ``[B, T]``."""

    @abstractmethod
    def aggregate(self, token_loss: Tensor, mask: Tensor, counts: BatchCounts) -> Tensor:
        """``[B, T]`` of a micro-batch -> its share of the step's loss: shares of all micro-batches add up to the loss."""


class Policy(Protocol):
    """A causal language model with its tokenizer, as the loop, the engines and the evaluation see it."""

    @property
    def tokenizer(self) -> Any:
        """The ``transformers`` tokenizer."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a completion."""
        ...

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        """Prompt text to token ids, chat template applied, exactly one begin token."""
        ...

    def encode_prompts(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """The same for many, where a tokenizer is faster at once."""
        ...

    def encode_completions(self, completions: Sequence[str]) -> list[tuple[int, ...]]:
        """Texts to imitate, each closed by the end token."""
        ...

    def token_stats(
        self, batch: Batch, *, temperature: float, vocabulary: bool = False, values: bool = False
    ) -> TokenStats:
        """Log-probs of the response tokens, with gradient (under ``torch.no_grad`` without).

        ``vocabulary`` adds those of every token, ``values`` what the critic says.
        """
        ...

    def reference_stats(self, batch: Batch, *, temperature: float, vocabulary: bool = False) -> TokenStats:
        """The same under the policy as RL began; never a gradient."""
        ...

    def add_critic(self, *, separate: bool, seed: int) -> None:
        """Give the policy a value head on its own trunk, or on a trunk ``separate`` from it."""
        ...

    def trainable_parameters(self) -> Iterator[Tensor]:
        """What the optimiser updates."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What training changes, by name, for a checkpoint."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a :meth:`state`; names and shapes must be those of what is trained."""
        ...

    @property
    def device(self) -> Any:
        """Where the weights are (``torch.device``)."""
        ...

    def autocast(self) -> AbstractContextManager[Any]:
        """What the model's forward passes run in: the dtype of its matrix products."""
        ...

    def release_reference(self) -> None:
        """Free the reference's weights until they are asked for again."""
        ...

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight under the name it has in a checkpoint, an adapter merged in on the fly; what an engine samples from."""
        ...

    def save(self, folder: Path, *, merged: bool = False) -> None:
        """Write model (or adapter, unless ``merged`` into the model) and tokenizer in the Hugging Face layout."""
        ...

    def save_config(self, folder: Path) -> None:
        """Write what an engine needs beside the weights: configuration and tokenizer."""
        ...


class PromptEncoder(Protocol):
    """A tokenizer with the model's way to put a question."""

    @property
    def tokenizer(self) -> Any:
        """The ``transformers`` tokenizer."""
        ...

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        """As the policy's own."""
        ...

    def encode_prompts(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """The same for many."""
        ...


class Model(Protocol):
    """A policy in the making: how to create it, and how RL takes it over."""

    @property
    def lora(self) -> Any:
        """Shape of the adapter that RL trains, or ``None`` for every weight."""
        ...

    @property
    def pretrained(self) -> bool:
        """Whether :meth:`create` loads weights that somebody trained, rather than making them up."""
        ...

    def facts(self) -> ModelFacts:
        """What the configuration says; no weight is loaded.

        Raises:
            ValueError: the model cannot be had; the message says what to type, accept or download.
        """
        ...

    def prompts(self) -> PromptEncoder:
        """How the policy will encode prompts; no weight is loaded. Raises as :meth:`facts`."""
        ...

    def create(self, lora: Mapping[str, Any] | None = None, seed: int = 0) -> Policy:
        """The policy before any training; every weight is trainable, or a fresh adapter drawn from ``seed`` where given."""
        ...

    def begin_rl(self, folder: Path | None, seed: int) -> Policy:
        """The policy as RL starts it, its reference fixed to that.

        Args:
            folder: with the weights to start from; ``None`` for those of :meth:`create`.
            seed: draws a fresh adapter.
        """
        ...

    def fingerprint(self) -> str:
        """Identifies what :meth:`create` gives: equal fingerprints, equal weights and tokens."""
        ...


class RolloutEngine(ABC):
    """Draws completions. An own engine writes :meth:`load_weights` and :meth:`generate`."""

    @abstractmethod
    def load_weights(self, policy: Policy) -> None:
        """Sample from these weights from now on; caches of older weights are dropped. Wakes an engine that sleeps."""

    @abstractmethod
    def generate(self, requests: Sequence[SampleRequest], sampling: Sampling) -> list[list[Completion]]:
        """One list per request, one completion per key of it, in order.

        Raises:
            RuntimeError: before :meth:`load_weights`, or asleep.
        """

    def sleep(self) -> None:
        """Give memory back to the trainer until the next :meth:`load_weights`, where the engine holds any."""
        return

    def metrics(self) -> dict[str, float]:
        """What the engine says of itself, named ``engine/...``: logged with every step."""
        return {}

    def memory(self, facts: ModelFacts) -> float:
        """Bytes that the engine will hold beside the trainer's, for an estimate; 0 for one that shares the weights."""
        return 0.0

    def close(self) -> None:
        """Let go of everything."""
        return


class Reward(ABC):
    """Judges completions. An own reward writes :meth:`score`."""

    @abstractmethod
    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion. Must return for any text, and must accept the benchmark's own gold."""

    def score_all(self, pairs: Sequence[tuple[Problem, Completion]]) -> list[Verdict]:
        """The verdicts on many, in order; one after the other unless a reward has a faster way.

        A completion on which :meth:`score` raises gets a verdict without a reward: it drops out of the update, its reason is
        counted in the metrics, and the log names problem, text and error. One bad text must not end a run of days.
        """
        return [self._guarded(problem, completion) for problem, completion in pairs]

    def check(self, problems: Sequence[Problem]) -> list[str | None]:
        """Why each problem's gold cannot be used, ``None`` for those that can.

        A reward that compares answers with golds writes this too: a gold that it cannot read, or that does not equal itself,
        would call every right answer wrong. Such problems are left out of a run.
        """
        return [None] * len(problems)

    def group(self, answers: Sequence[str]) -> list[int]:
        """Number the answers so that equal ones share a number: the candidates of a majority vote. Equal text, by default."""
        numbers: dict[str, int] = {}
        return [numbers.setdefault(answer, len(numbers)) for answer in answers]

    def close(self) -> None:
        """Let go of worker processes, where a reward has any."""
        return

    def _guarded(self, problem: Problem, completion: Completion) -> Verdict:
        try:
            verdict = self.score(problem, completion)
        except Exception:
            log.exception("reward failed on problem %s, completion %.500r", problem.id, completion.text)
            return Verdict(reward=None, reason=VerdictReason.ERROR)
        if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's reward
            raise TypeError(f"{type(self).__name__}.score gave {type(verdict).__name__}: expected a sage.types.Verdict")
        return verdict


class Benchmark(Protocol):
    """Problems, and the demonstrations to warm a base model up with."""

    @property
    def name(self) -> str:
        """Used in metric names and folders."""
        ...

    def problems(self, split: Split) -> Sequence[Problem]:
        """All problems of a split, in a fixed order; splits share no problem."""
        ...

    def demonstrations(self) -> Sequence[Demonstration]:
        """SFT data; empty where the benchmark has none."""
        ...

    def fingerprint(self) -> str:
        """Identifies the demonstrations: equal fingerprints, equal texts, whatever path they were read from."""
        ...


class MetricLogger(Protocol):
    """A sink of metrics. The optimiser step is the x axis of everything."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars named ``area/name``."""
        ...

    def log_curve(self, step: int, name: str, curve: Mapping[int, float]) -> None:
        """Write a pass@k curve, k -> value."""
        ...

    def close(self, *, failed: bool = False) -> None:
        """Flush and end the run."""
        ...


class ProgressBar(Protocol):
    """A running stage on the screen."""

    def update(self, advance: int = 1, **shown: float) -> None:
        """Advance, and show the named numbers beside the bar."""
        ...


class Progress(Protocol):
    """Where stages report to."""

    def stage(self, name: str, total: int, unit: str) -> AbstractContextManager[ProgressBar]:
        """A bar for a stage of ``total`` units."""
        ...


__all__ = [
    "Algorithm",
    "Benchmark",
    "Guide",
    "KLMode",
    "MetricLogger",
    "Model",
    "Policy",
    "Progress",
    "ProgressBar",
    "PromptEncoder",
    "Reward",
    "RolloutEngine",
]
