"""Verdicts by comparing strings, for tasks whose answers are written in one way only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sage.interfaces import Reward
from sage.rewards.answers import check_formats, read_answer
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason


@dataclass(frozen=True, kw_only=True)
class ExactReward(Reward):
    """Pays 1 for the gold answer character by character, white space aside, else 0."""

    formats: Sequence[str]
    """Where the answer may stand; see :func:`sage.rewards.answers.read_answer`."""
    thinking_opened: bool
    """The chat template ends the prompt with ``<think>``, so that without ``</think>`` there is no answer."""
    ignore_case: bool
    """Take capital and small letters for the same."""

    def __post_init__(self) -> None:
        check_formats(self.formats, "reward.formats")

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion; a problem with an empty gold answer abstains."""
        gold = self._canonical(problem.answer)
        cut = completion.stop_reason is StopReason.LENGTH
        read = read_answer(completion.text, self.formats, thinking_opened=self.thinking_opened, truncated=cut)
        if not gold:
            return Verdict(reward=None, reason=VerdictReason.ERROR, answer=read.answer)
        if read.answer is None:
            return Verdict(reward=0.0, reason=VerdictReason.NO_ANSWER)
        right = self._canonical(read.answer) == gold
        reason = VerdictReason.CORRECT if right else VerdictReason.WRONG
        return Verdict(reward=float(right), reason=reason, answer=read.answer)

    def check(self, problems: Sequence[Problem]) -> list[str | None]:
        """Every gold but an empty one can be used."""
        return [None if self._canonical(problem.answer) else "it is empty" for problem in problems]

    def group(self, answers: Sequence[str]) -> list[int]:
        """Number the answers as :meth:`score` compares them."""
        return super().group([self._canonical(answer) for answer in answers])

    def _canonical(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text
