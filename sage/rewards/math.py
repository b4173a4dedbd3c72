"""Verdicts on mathematical answers: numbers and words at once, everything else by math-verify in worker processes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sage.interfaces import Reward
from sage.rewards.answers import (
    Judgement,
    check_formats,
    compare_plainly,
    gold_fault,
    plain_leaf,
    read_answer,
    self_check,
)
from sage.rewards.answers.normal import key
from sage.rewards.pool import Failure, Outcome, WorkerPool
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason

log = logging.getLogger(__name__)

_WORKER = "sage.rewards.answers.worker"
_REASONS = {
    Judgement.RIGHT: VerdictReason.CORRECT,
    Judgement.WRONG: VerdictReason.WRONG,
    Judgement.UNREADABLE: VerdictReason.UNPARSABLE,
    Judgement.BAD_GOLD: VerdictReason.ERROR,
}


@dataclass(frozen=True, kw_only=True)
class MathReward(Reward):
    """Pays 1 for an answer that equals the gold answer, else 0.

    An answer that runs into a limit gets 0 with the reason ``timeout``, one that cannot be read 0 with ``unparsable``. A
    gold answer that cannot be used makes the verdict abstain: it must never pay (see :meth:`check`).
    """

    formats: Sequence[str]
    """Where the answer may stand; see :func:`sage.rewards.answers.read_answer`."""
    thinking_opened: bool
    """The chat template ends the prompt with ``<think>``, so that without ``</think>`` there is no answer."""
    max_answer_chars: int
    """A longer answer is unparsable."""
    workers: int
    """Processes that judge what needs mathematics; started on the first such answer."""
    cpu_seconds: int
    """Processor time one answer may take, in whole seconds."""
    wall_seconds: float
    """Time after which a silent worker counts as hung. Generous: it runs on while the machine is busy elsewhere."""
    memory_mb: int
    """Address space of a worker, MiB."""

    def __post_init__(self) -> None:
        check_formats(self.formats, "reward.formats")
        for name, least in (("max_answer_chars", 1), ("workers", 1), ("cpu_seconds", 1), ("memory_mb", 512)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"reward.{name}={value}: expected a whole number >= {least}")
        if not self.wall_seconds > self.cpu_seconds:
            raise ValueError(
                f"reward.wall_seconds={self.wall_seconds}: expected more than reward.cpu_seconds={self.cpu_seconds}, e.g. 60"
            )

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion; for many, :meth:`score_all` is far faster."""
        return self.score_all([(problem, completion)])[0]

    def score_all(self, pairs: Sequence[tuple[Problem, Completion]]) -> list[Verdict]:
        """The verdicts on many, in order. Equal answers to one gold are judged once."""
        read = [self._read(completion) for _, completion in pairs]
        judged = self.judge_all(
            [(problem.answer, answer) for (problem, _), answer in zip(pairs, read, strict=True) if answer]
        )
        rest = iter(judged)
        verdicts = [
            self._verdict(problem, answer, next(rest)) if answer else self._without_answer(problem)
            for (problem, _), answer in zip(pairs, read, strict=True)
        ]
        limits = Counter(reason for reason in judged if isinstance(reason, Failure))
        if limits:
            log.warning("%d of %d answers ran into a limit: %s", limits.total(), len(pairs), dict(limits))
        return verdicts

    def judge_all(self, pairs: Sequence[tuple[str, str]]) -> list[Judgement | Failure]:
        """Judge pairs of a gold answer and an answer, both bare, without a box or tag around them."""
        found: dict[tuple[str, str], Judgement | Failure] = {}
        hard: list[tuple[str, str]] = []
        for pair in dict.fromkeys(pairs):
            judgement = self._plainly(*pair)
            if judgement is None:
                hard.append(pair)
            else:
                found[pair] = judgement
        outcomes = self._pool.run([("judge", *pair) for pair in hard])
        for pair, outcome in zip(hard, outcomes, strict=True):
            found[pair] = _judgement(pair, outcome)
        return [found[pair] for pair in pairs]

    def check(self, problems: Sequence[Problem]) -> list[str | None]:
        """Why each gold answer cannot be used, ``None`` for those that can: those that equal themselves when read."""
        faults: dict[str, str | None] = {problem.answer: gold_fault(problem.answer) for problem in problems}
        # Reading alone clears plain numbers, so that a benchmark of those starts no worker.
        rest = [answer for answer, fault in faults.items() if fault is None and not self_check(answer, plain_leaf)]
        for answer, outcome in zip(rest, self._pool.run([("check", answer) for answer in rest]), strict=True):
            limit = f"it cannot be judged within the limits: {outcome.failure}" if outcome.failure else None
            faults[answer] = limit or outcome.text or None
        return [faults[problem.answer] for problem in problems]

    def group(self, answers: Sequence[str]) -> list[int]:
        """Number the answers so that equal ones, by this verifier, share a number: candidates of a majority vote."""
        numbers: dict[str, int] = {}
        left = list(dict.fromkeys(answers))
        while left:
            first, *others = left
            number = len({*numbers.values()})
            numbers[first] = number
            judged = self.judge_all([(first, other) for other in others])
            numbers |= {
                o: number for o, j in zip(others, judged, strict=True) if j is Judgement.RIGHT or key(o) == key(first)
            }
            left = [other for other in others if other not in numbers]
        return [numbers[answer] for answer in answers]

    def close(self) -> None:
        """End the worker processes; they also end with the interpreter."""
        self._pool.close()

    @cached_property
    def _pool(self) -> WorkerPool:
        return WorkerPool(
            module=_WORKER,
            workers=self.workers,
            cpu_seconds=self.cpu_seconds,
            wall_seconds=self.wall_seconds,
            memory_mb=self.memory_mb,
        )

    def _plainly(self, gold: str, answer: str) -> Judgement | Failure | None:
        try:
            return compare_plainly(gold, answer, self.max_answer_chars)
        except Exception:
            log.exception("judging answer %.300r to gold %.300r failed", answer, gold)
            return Failure.RAISED

    def _read(self, completion: Completion) -> str | None:
        cut = completion.stop_reason is StopReason.LENGTH
        return read_answer(completion.text, self.formats, thinking_opened=self.thinking_opened, truncated=cut).answer

    def _without_answer(self, problem: Problem) -> Verdict:
        if gold_fault(problem.answer) is not None:
            return self._verdict(problem, None, Judgement.BAD_GOLD)
        return Verdict(reward=0.0, reason=VerdictReason.NO_ANSWER)

    def _verdict(self, problem: Problem, answer: str | None, judged: Judgement | Failure) -> Verdict:
        if judged is Failure.RAISED:
            return Verdict(reward=None, reason=VerdictReason.ERROR, answer=answer)
        reason = VerdictReason.TIMEOUT if isinstance(judged, Failure) else _REASONS[judged]
        if judged is Judgement.BAD_GOLD:
            log.warning("problem %s abstains: its gold answer %.200r cannot be used", problem.id, problem.answer)
            return Verdict(reward=None, reason=reason, answer=answer)
        return Verdict(reward=float(reason is VerdictReason.CORRECT), reason=reason, answer=answer)


def _judgement(pair: tuple[str, str], outcome: Outcome) -> Judgement | Failure:
    if outcome.failure is Failure.RAISED:
        log.error("judging answer %.300r to gold %.300r raised %s", pair[1], pair[0], outcome.text)
    return outcome.failure or Judgement(outcome.text)
