"""The frozen carriers that one stage hands to the next, and their enums.

Axes, fixed once for the whole project:

- **P** problems of a step
- **G** completions per problem
- **B** = P * G sequences; rows of one group are adjacent: row ``p * G + g`` is completion g of problem p
- **T** response tokens, right-padded; position t is the t-th token that the policy sampled
- **V** vocabulary

Five log-probabilities, never mixed: ``sampler_`` (what the engine sampled from), ``old_`` (the policy before the update),
``policy_`` (the policy being updated), ``ref_`` (the policy when RL began) and ``anchor_logprobs`` (``ref + strength *
log q``). All of them divide the logits by the sampling temperature and are natural logarithms (nats).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor


class Split(StrEnum):
    """Which problems: RL trains on ``train``, watches ``validation`` and is judged on ``test``."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class StopReason(StrEnum):
    """Why a completion ended."""

    END = "end"
    """The policy sampled the end token; it is the last of ``token_ids`` and is trained."""
    LENGTH = "length"
    """The completion was cut at ``max_tokens``."""
    STOP = "stop"
    """One of the sampling's stop strings came; the token that completed it is the last of ``token_ids``."""


class VerdictReason(StrEnum):
    """Why a verdict is what it is."""

    CORRECT = "correct"
    WRONG = "wrong"
    """A well-formed answer that is not the right one."""
    NO_ANSWER = "no_answer"
    """Nothing that could be an answer was found."""
    UNPARSABLE = "unparsable"
    """Something was found where the answer belongs, but it cannot be read."""
    TIMEOUT = "timeout"
    ERROR = "error"
    """The verifier raised; the completion drops out of the update."""


class Stat(StrEnum):
    """What a guide or a KL mode needs beyond the policy's log-probs and entropy of the sampled tokens."""

    REFERENCE = "reference"
    """The reference model's log-probs and entropy; without it no reference model is loaded."""
    VOCABULARY = "vocabulary"
    """Log-probs of every token of the vocabulary, ``[B, T, V]``, of the policy (and of the reference where loaded)."""
    VALUES = "values"
    """A critic's value of the state before each token."""


class Refusal(ValueError):
    """What was asked for cannot be done; the message says why, and what to type instead. Shown without a traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One row of a benchmark."""

    id: str
    """Unique and stable, e.g. ``countdown/test/0007``: random streams and files are keyed by it."""
    prompt: str
    """The text to answer, before tokenizer and chat template."""
    answer: str
    """The gold answer as the benchmark states it."""
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further columns of the row, for rewards that look at more than the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A prompt with a completion to imitate (SFT)."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model's configuration says of it before its weights are loaded."""

    parameters: int
    """In all, tied ones once."""
    trainable: int
    """Those that RL trains: all, or the adapter's."""
    bytes_per_parameter: int
    """Of the weights as they are held."""
    max_length: int | None
    """Prompt and completion together, in tokens; ``None`` where the model states no limit."""
    hidden_size: int
    num_layers: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are drawn; kept apart for training and for evaluation, and saved with every result."""

    temperature: float
    """Divides the logits; 0 means greedy."""
    top_p: float
    """Keep the smallest set of tokens with at least this probability; 1 keeps all."""
    top_k: int
    """Keep the k most probable tokens; 0 keeps all."""
    min_p: float
    """Drop tokens less probable than this share of the most probable one; 0 keeps all."""
    max_tokens: int
    """Cut a completion after this many tokens, the end token included."""
    stop: tuple[str, ...]
    """Texts that end a completion where they occur; they are no part of its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceSampling:
    """How losses are weighted for what the engine sampled from and the trainer computes to be other distributions.

    Engines round otherwise, and truncated sampling (top-p, top-k, min-p) draws from less than the policy.
    """

    level: Literal["token", "sequence"] | None
    """Weigh a token by its own ratio, a sequence by the product of its tokens', or nothing at all."""
    min: float
    """Lower bound of a weight."""
    max: float
    """Upper bound: truncated importance sampling (Ionides 2008)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One prompt and the random streams of the completions wanted from it."""

    prompt_ids: tuple[int, ...]
    keys: tuple[int, ...]
    """One 64-bit stream key per completion (``sage.maths.streams.stream_key``). A completion depends on the weights, the
    prompt and its key alone, not on what else is in the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled response."""

    token_ids: tuple[int, ...]
    """The sampled tokens, the end token included where the policy sampled it."""
    sampler_logprobs: tuple[float, ...]
    """Log-prob of each token under the distribution that it was drawn from (temperature and truncation applied)."""
    text: str
    """The decoded tokens, without the end token and without a stop string and what follows it."""
    stop_reason: StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a reward says of one completion."""

    reward: float | None
    """A finite number; ``None`` (or NaN) abstains: the completion drops out of the update and its group's statistics."""
    reason: VerdictReason
    answer: str | None = None
    """The answer as it was read from the text."""
    solution: str | None = None
    """Canonical form of a correct solution, equal for two solutions that differ in writing only; counts distinct ones."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Named parts of the reward, logged one by one."""

    def __post_init__(self) -> None:
        # A reward is written by users: whole numbers, booleans and numpy's floats become plain floats here, once.
        if self.reward is not None:
            reward = float(self.reward)
            if math.isinf(reward):
                raise ValueError(f"a reward of {reward}: expected a finite number, or None to abstain")
            object.__setattr__(self, "reward", None if math.isnan(reward) else reward)

    @property
    def correct(self) -> bool:
        """Whether the answer is right: what pass@k counts, whatever the reward pays."""
        return self.reason is VerdictReason.CORRECT

    @property
    def credit(self) -> float:
        """The reward clipped to [0, 1], 0 where the verdict abstained: what training may take for right."""
        return 0.0 if self.reward is None else min(1.0, max(0.0, self.reward))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One problem with its G completions and, once graded, their verdicts."""

    problem: Problem
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def solutions(self) -> list[str | None]:
        """Of each graded completion with credit the verdict's solution, else its text; ``None`` for one without credit."""
        return [
            None if v.credit == 0 else c.text if v.solution is None else v.solution
            for c, v in zip(self.completions, self.verdicts, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStats:
    """What a model says of the response tokens. Floats are at least float32."""

    logprobs: Tensor
    """``[B, T]`` log-prob of each response token."""
    entropy: Tensor
    """``[B, T]`` entropy over the vocabulary of the distribution that the token was drawn from, in nats; no gradient."""
    vocabulary_logprobs: Tensor | None = None
    """``[B, T, V]`` log-probs of every token, where :attr:`Stat.VOCABULARY` is needed."""
    values: Tensor | None = None
    """``[B, T]`` the critic's value of the state before each token, where :attr:`Stat.VALUES` is needed."""

    def detached(self) -> TokenStats:
        """The same numbers without gradient."""
        full, values = self.vocabulary_logprobs, self.values
        return TokenStats(
            logprobs=self.logprobs.detach(),
            entropy=self.entropy.detach(),
            vocabulary_logprobs=None if full is None else full.detach(),
            values=None if values is None else values.detach(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """All sequences of a step. Stages return a new batch; none edits its input."""

    input_ids: Tensor
    """``[B, L]`` prompt then response, right-padded, so that causal attention never sees padding."""
    prompt_lengths: Tensor
    """``[B]`` number of prompt tokens; response token t stands at ``prompt_lengths + t``."""
    response_ids: Tensor
    """``[B, T]`` the sampled tokens, right-padded."""
    mask: Tensor
    """``[B, T]`` bool, true on tokens that are trained: made from lengths, not from ids, so the end token counts and
    padding never does. A row of an abstained verdict is all false."""
    sampler_logprobs: Tensor
    """``[B, T]`` from the rollout engine, 0 on padding."""
    rewards: Tensor
    """``[B]`` verdict rewards; NaN where the verdict abstained."""
    noise_keys: Tensor
    """``[B]`` int64 stream keys of the guide's noise, one per sequence, derived from (seed, step, row)."""
    group_size: int
    """G."""
    max_completion_tokens: int
    """The longest completion that sampling allows."""
    problem_ids: tuple[str, ...] = ()
    """P identifiers, for error messages."""
    old: TokenStats | None = None
    """Policy before the update; ``None`` while it equals the policy being updated (one update per batch)."""
    reference: TokenStats | None = None
    """The reference model; ``None`` where nothing needs it."""
    advantages: Tensor | None = None
    """``[B, T]``."""
    returns: Tensor | None = None
    """``[B, T]`` what the critic should have said, where the algorithm has one."""

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    def replace(self, **changes: Any) -> Batch:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def rows(self, index: slice | Tensor) -> Batch:
        """The sequences in ``index`` as a batch of their own (a micro-batch). Group structure is not kept."""

        def take(value: Any) -> Any:
            if isinstance(value, TokenStats):
                return TokenStats(**{f.name: take(getattr(value, f.name)) for f in fields(value)})
            return value[index] if hasattr(value, "shape") else value

        return Batch(**{f.name: take(getattr(self, f.name)) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Denominators of an optimiser step, counted over its whole (global) mini-batch before it is cut into micro-batches."""

    sequences: int
    """Rows, abstained ones included."""
    tokens: int
    """Trained tokens (true entries of the mask)."""
    max_completion_tokens: int
    """The longest completion that sampling allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankSettings:
    """A bank of reference responses, drawn and graded once before training."""

    samples: int
    """Per training problem."""
    draws: int
    """Responses drawn from it per problem and step."""
    seed: int
    """Of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideInputs:
    """What a guide may look at. Nothing in it carries a gradient."""

    policy: TokenStats
    reference: TokenStats | None
    """Present when the guide's ``needs`` hold :attr:`Stat.REFERENCE`."""
    response_ids: Tensor
    """``[B, T]``."""
    mask: Tensor
    """``[B, T]`` bool."""
    rewards: Tensor
    """``[B]`` verdict rewards (NaN: abstained)."""
    noise_keys: Tensor
    """``[B]`` int64; ``sage.maths.streams.normal(noise_keys, T, name)`` draws noise that is fixed for the batch."""
    step: int
    """Optimiser step, counted from 0 (a batch of rollouts takes ``epochs * minibatches`` of them)."""
    num_steps: int
    """Optimiser steps of the whole run: the length of a schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KLInputs:
    """What a KL mode may look at. Only ``policy`` carries a gradient."""

    policy: TokenStats
    old_logprobs: Tensor
    """``[B, T]``."""
    reference: TokenStats
    response_ids: Tensor
    """``[B, T]``."""
    mask: Tensor
    """``[B, T]`` bool."""
    log_q: Tensor
    """``[B, T]`` log q of the sampled tokens: clamped, masked and scaled by the guide's strength."""
    vocabulary_log_q: Tensor | None = None
    """``[B, T, V]`` log q of every token, from a guide that varies over the vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """The policy-gradient term of every token."""

    loss: Tensor
    """``[B, T]`` to be minimised."""
    ratio: Tensor
    """``[B, T]`` policy / old, detached."""
    clipped: Tensor
    """``[B, T]`` bool: the clip is active, so the token gives no policy gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """The pieces of one micro-batch's loss, detached, for the metrics."""

    mask: Tensor
    """``[B, T]`` bool."""
    loss: float
    """This micro-batch's share of the step's loss."""
    surrogate: Tensor
    """``[B, T]``."""
    ratio: Tensor
    """``[B, T]``."""
    clipped: Tensor
    """``[B, T]`` bool."""
    entropy: Tensor
    """``[B, T]`` nats."""
    sampler_gap: Tensor
    """``[B, T]`` log-prob of the trainer before the update minus that of the engine that sampled the token."""
    importance: Tensor
    """``[B, T]`` weight of each token that corrects for the gap; 1 without correction."""
    q: Tensor
    """``[B, T]`` the guide after clamp and mask, before strength."""
    kl: Tensor | None
    """``[B, T]`` the KL mode's own estimate to the anchor; ``None`` without one."""
    reference_kl: Tensor | None
    """``[B, T]`` k3 estimate of KL(policy || reference), whatever the mode; ``None`` without a reference."""
    values: Tensor | None
    """``[B, T]`` the critic's values; ``None`` without one."""
    returns: Tensor | None
    """``[B, T]`` what they are fitted to."""
    value_loss: Tensor | None
    """``[B, T]`` with its coefficient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorTerms:
    """The bank's part of the loss in one micro-batch, detached, for the metrics."""

    loss: float
    """This micro-batch's share of the step's loss."""
    cross_entropy: Tensor
    """``[N]`` nats per token of each response drawn from the anchor."""
