"""Small fakes: a tabular policy, an engine that turns keys into texts, a reward that reads their last digit."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sage.evaluation.curves import Curve, make_curve
from sage.interfaces import Reward
from sage.maths.streams import stream_key
from sage.types import (
    Batch,
    Completion,
    Group,
    Problem,
    SampleRequest,
    Sampling,
    Split,
    StopReason,
    TokenStats,
    Verdict,
    VerdictReason,
)

VOCABULARY = 4
END = 0


class FakePolicy:
    """A first-order Markov chain over four tokens, with its reference."""

    tokenizer = range(VOCABULARY)

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table, self.reference = torch.randn(2, VOCABULARY, VOCABULARY, generator=generator)
        self.batches: list[Batch] = []
        self.device = torch.device("cpu")

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        return (1, 1 + len(prompt) % 3)

    def token_stats(self, batch: Batch, *, temperature: float, vocabulary: bool = False) -> TokenStats:
        self.batches.append(batch)
        return _stats(self.table, batch, temperature, vocabulary)

    def reference_stats(self, batch: Batch, *, temperature: float, vocabulary: bool = False) -> TokenStats:
        return _stats(self.reference, batch, temperature, vocabulary)

    def trainable_parameters(self) -> Iterator[Tensor]:
        return iter([self.table])

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def _stats(table: Tensor, batch: Batch, temperature: float, vocabulary: bool) -> TokenStats:
    places = batch.prompt_lengths[:, None] - 1 + torch.arange(batch.response_ids.shape[1])
    states = batch.input_ids.gather(1, places.clamp(max=batch.input_ids.shape[1] - 1))
    logprobs = (table[states] / temperature).log_softmax(-1)
    return TokenStats(
        logprobs=logprobs.gather(-1, batch.response_ids[..., None])[..., 0],
        entropy=-(logprobs.exp() * logprobs).sum(-1),
        vocabulary_logprobs=logprobs if vocabulary else None,
    )


class Killed(BaseException):
    """Ends the process as far as a test can tell: nothing catches it."""


class FakeEngine:
    """One to three tokens and a text, all read off the key."""

    killed = Killed

    def __init__(self) -> None:
        self.loaded: Any = None
        self.calls: list[list[SampleRequest]] = []
        self.dies_at: int | None = None
        """The call that does not come back."""

    def load_weights(self, policy: Any) -> None:
        self.loaded = policy

    def sleep(self) -> None:
        self.asleep = True

    def generate(self, requests: Sequence[SampleRequest], sampling: Sampling) -> list[list[Completion]]:
        if self.dies_at == len(self.calls):
            raise Killed
        self.calls.append(list(requests))
        return [[_completion(key, sampling) for key in request.keys] for request in requests]


def _completion(key: int, sampling: Sampling) -> Completion:
    length = 1 + key % sampling.max_tokens
    cut = length == sampling.max_tokens and key % 2 == 0
    ids = tuple(1 + (key >> 8 * i) % (VOCABULARY - 1) for i in range(length - 1))
    return Completion(
        token_ids=(*ids, 1 if cut else END),
        sampler_logprobs=(-1.0,) * length,
        text=f"line\n{key % 10}",
        stop_reason=StopReason.LENGTH if cut else StopReason.END,
    )


class FakeReward(Reward):
    """Right when the text ends in 0 to 3; 9 has no answer and 8 abstains."""

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        digit = int(completion.text[-1])
        if digit < 4:
            return Verdict(reward=1.0, reason=VerdictReason.CORRECT, answer=str(digit), solution=f"s{digit % 2}")
        if digit == 9:
            return Verdict(reward=0.0, reason=VerdictReason.NO_ANSWER)
        return Verdict(reward=None if digit == 8 else 0.0, reason=VerdictReason.WRONG, parts={"format": digit / 10})


class FakeBar:
    """Adds up."""

    def __init__(self) -> None:
        self.done = 0

    def update(self, advance: int = 1, **shown: float) -> None:
        self.done += advance


class FakeProgress:
    """Remembers each stage's (total, bar)."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int, FakeBar]] = {}

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[FakeBar]:
        bar = FakeBar()
        self.stages[name] = (total, bar)
        yield bar


def make_problems(count: int) -> list[Problem]:
    return [Problem(id=f"fake/test/{i:04d}", prompt="x" * i, answer=str(i)) for i in range(count)]


def make_groups(marks: dict[str, str], solutions: dict[str, str] | None = None, tokens: int = 2) -> list[Group]:
    """Graded groups of marks: R right, W wrong, - no answer, ? abstained; ``solutions`` name the right ones' forms."""
    reasons = {
        "R": VerdictReason.CORRECT,
        "W": VerdictReason.WRONG,
        "-": VerdictReason.NO_ANSWER,
        "?": VerdictReason.ERROR,
    }
    groups: list[Group] = []
    for problem_id, row in marks.items():
        names = (solutions or {}).get(problem_id, "a" * len(row))
        verdicts = [
            Verdict(
                reward=None if mark == "?" else float(mark == "R"),
                reason=reasons[mark],
                solution=name if mark == "R" else None,
            )
            for mark, name in zip(row, names, strict=True)
        ]
        completion = Completion(
            token_ids=(1,) * tokens, sampler_logprobs=(0.0,) * tokens, text="", stop_reason=StopReason.END
        )
        groups.append(
            Group(
                problem=Problem(id=problem_id, prompt="", answer=""),
                prompt_ids=(1,),
                completions=(completion,) * len(row),
                verdicts=tuple(verdicts),
            )
        )
    return groups


@pytest.fixture
def policy() -> FakePolicy:
    return FakePolicy()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def reward() -> FakeReward:
    return FakeReward()


@pytest.fixture
def progress() -> FakeProgress:
    return FakeProgress()


@pytest.fixture
def problems() -> list[Problem]:
    return make_problems(5)


@pytest.fixture
def sampling() -> Sampling:
    return Sampling(temperature=0.7, top_p=1.0, top_k=0, min_p=0.0, max_tokens=3, stop=())


@pytest.fixture
def groups_of() -> Callable[..., list[Group]]:
    return make_groups


@pytest.fixture
def curve_of(sampling: Sampling) -> Callable[..., Curve]:
    """Curve of graded groups, with settings that a test may override."""

    def build(groups: list[Group], **changes: Any) -> Curve:
        n = len(groups[0].completions) if groups else 1
        known: dict[str, Any] = {"benchmark": "fake", "split": Split.TEST, "seed": 0, "n": n, "sampling": sampling}
        return make_curve(groups, **{**known, "confidence": 0.95, "bootstrap_samples": 200, **changes})

    return build


@pytest.fixture
def drawn_groups(engine: FakeEngine, policy: FakePolicy, problems: list[Problem], sampling: Sampling) -> list[Group]:
    """Six completions of each problem, not graded."""
    groups: list[Group] = []
    for problem in problems:
        keys = tuple(stream_key("drawn", problem.id, i) for i in range(6))
        prompt_ids = policy.encode_prompt(problem.prompt)
        (completions,) = FakeEngine().generate([SampleRequest(prompt_ids=prompt_ids, keys=keys)], sampling)
        groups.append(Group(problem=problem, prompt_ids=prompt_ids, completions=tuple(completions)))
    return groups
