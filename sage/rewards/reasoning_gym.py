"""Verdicts by reasoning-gym's own verifiers, which run in worker processes: some evaluate what the model wrote.

The file is both sides: the reward, and, started as ``python -m sage.rewards.reasoning_gym``, the worker.
"""

from __future__ import annotations

import base64
import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from sage.interfaces import Reward
from sage.rewards.answers import check_formats, read_answer
from sage.rewards.pool import Failure, Outcome, WorkerPool
from sage.rewards.serve import serve
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReasoningGymReward(Reward):
    """Pays what the task's verifier says of the answer; correct is a full score."""

    tag: str
    """The answer stands between ``<tag>`` and ``</tag>``; the last such pair after the reasoning counts."""
    thinking_opened: bool
    """The chat template ends the prompt with ``<think>``, so that without ``</think>`` there is no answer."""
    partial: bool
    """Pay the score of an answer that is partly right; else only a full score pays."""
    max_answer_chars: int
    """A longer answer is unparsable."""
    workers: int
    """Processes that judge; started on the first answer."""
    cpu_seconds: int
    """Processor time one answer may take, in whole seconds."""
    wall_seconds: float
    """Time after which a silent worker counts as hung."""
    memory_mb: int
    """Address space of a worker, MiB."""

    def __post_init__(self) -> None:
        check_formats([f"<{self.tag}>"], "reward.tag")
        for name, least in (("max_answer_chars", 1), ("workers", 1), ("cpu_seconds", 1), ("memory_mb", 512)):
            if getattr(self, name) < least:
                raise ValueError(f"reward.{name}={getattr(self, name)}: expected a whole number >= {least}")
        if not self.wall_seconds > self.cpu_seconds:
            raise ValueError(
                f"reward.wall_seconds={self.wall_seconds}: expected more than reward.cpu_seconds={self.cpu_seconds}, e.g. 60"
            )

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion; for many, :meth:`score_all` is far faster."""
        return self.score_all([(problem, completion)])[0]

    def score_all(self, pairs: Sequence[tuple[Problem, Completion]]) -> list[Verdict]:
        """The verdicts on many, in order.

        Raises:
            ValueError: a problem is not one of ``benchmark=reasoning_gym``.
        """
        answers = [self._read(completion) for _, completion in pairs]
        asked = [(problem, answer) for (problem, _), answer in zip(pairs, answers, strict=True) if self._fits(answer)]
        outcomes = iter(self._judged(asked))
        return [
            self._verdict(problem, answer, next(outcomes)) if self._fits(answer) else _unread(answer)
            for (problem, _), answer in zip(pairs, answers, strict=True)
        ]

    def check(self, problems: Sequence[Problem]) -> list[str | None]:
        """Why each problem's own answer gets no full score, ``None`` where it does.

        Raises:
            ValueError: as :meth:`score_all`.
        """
        faults: list[str | None] = []
        for outcome in self._judged([(problem, problem.answer) for problem in problems]):
            fault = outcome.failure or (None if float(outcome.text) >= 1 else f"scores {outcome.text}")
            faults.append(None if fault is None else str(fault))
        return faults

    def close(self) -> None:
        """End the worker processes; they also end with the interpreter."""
        self._pool.close()

    @cached_property
    def _pool(self) -> WorkerPool:
        return WorkerPool(
            module="sage.rewards.reasoning_gym",
            workers=self.workers,
            cpu_seconds=self.cpu_seconds,
            wall_seconds=self.wall_seconds,
            memory_mb=self.memory_mb,
        )

    def _read(self, completion: Completion) -> str | None:
        cut = completion.stop_reason is StopReason.LENGTH
        formats = [f"<{self.tag}>"]
        return read_answer(completion.text, formats, thinking_opened=self.thinking_opened, truncated=cut).answer

    def _fits(self, answer: str | None) -> bool:
        return answer is not None and len(answer) <= self.max_answer_chars

    def _judged(self, asked: Sequence[tuple[Problem, str | None]]) -> list[Outcome]:
        return self._pool.run([(_packed(problem), answer or "") for problem, answer in asked])

    def _verdict(self, problem: Problem, answer: str | None, outcome: Outcome) -> Verdict:
        if outcome.failure is Failure.RAISED:
            # Verifiers of the package raise on answers that they did not foresee: wrong, and never the run's end.
            log.debug("%s: the verifier raised %s on %.300r", problem.id, outcome.text, answer)
            return Verdict(reward=0.0, reason=VerdictReason.UNPARSABLE, answer=answer, parts={"score": 0.0})
        if outcome.failure is not None:
            return Verdict(reward=0.0, reason=VerdictReason.TIMEOUT, answer=answer, parts={"score": 0.0})
        score = float(outcome.text)
        correct = score >= 1
        return Verdict(
            reward=score if self.partial else float(correct),
            reason=VerdictReason.CORRECT if correct else VerdictReason.WRONG,
            answer=answer,
            parts={"score": score},
        )


def _unread(answer: str | None) -> Verdict:
    reason = VerdictReason.NO_ANSWER if answer is None else VerdictReason.UNPARSABLE
    return Verdict(reward=0.0, reason=reason, answer=None if answer is None else answer[:200], parts={"score": 0.0})


def _packed(problem: Problem) -> str:
    """What the verifier needs, as text; entries hold tuples, sets and keys that are no text, which JSON would change."""
    try:
        task, options, entry = (problem.columns[name] for name in ("task", "options", "entry"))
    except KeyError as error:
        raise ValueError(
            f"problem {problem.id}: column {error} is missing, found {sorted(problem.columns)}; reward=reasoning_gym needs "
            "the columns task, options and entry of benchmark=reasoning_gym"
        ) from None
    return base64.b64encode(pickle.dumps((task, tuple(sorted(options.items())), dict(entry)))).decode()


def _score(job: Sequence[str]) -> str:
    packed, answer = job
    task, options, entry = pickle.loads(base64.b64decode(packed))
    return repr(float(_verifier(task, pickle.dumps(options))(answer, entry)))


@cache
def _verifier(task: str, options: bytes) -> Callable[[str, Mapping[str, Any]], float]:
    return (
        import_module("reasoning_gym").create_dataset(task, seed=0, size=1, **dict(pickle.loads(options))).score_answer
    )


if __name__ == "__main__":
    serve(_score)
