"""Verdicts on the form of a completion alone, to be one part of a weighted reward."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sage.interfaces import Reward
from sage.rewards.answers import check_formats, read_answer
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason

_MARK = re.compile(r"</?(?:think|thinking)>", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FormatReward(Reward):
    """Pays 1 for a finished completion in the wanted form, else 0. ``correct`` means well formed: it says nothing of the answer.

    The form: one stretch of reasoning (where it is required) and behind it an answer in one of the formats, near the end.
    """

    formats: Sequence[str]
    """Where the answer may stand; see :func:`sage.rewards.answers.read_answer`."""
    thinking_opened: bool
    """The chat template ends the prompt with ``<think>``, so that the completion starts inside the reasoning."""
    require_thinking: bool
    """Ask for ``<think>..</think>`` exactly once, with nothing before it and something in it."""
    max_trailing_chars: int
    """Characters, white space aside, that may follow the answer."""

    def __post_init__(self) -> None:
        check_formats(self.formats, "reward.formats")
        if self.max_trailing_chars < 0:
            raise ValueError(
                f"reward.max_trailing_chars={self.max_trailing_chars}: expected a whole number >= 0, e.g. 20"
            )

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion. One that was cut by length is not well formed."""
        text = completion.text
        cut = completion.stop_reason is StopReason.LENGTH
        read = read_answer(text, self.formats, thinking_opened=self.thinking_opened, truncated=cut)
        if read.answer is None:
            return Verdict(reward=0.0, reason=VerdictReason.NO_ANSWER)
        trailing = len("".join(text[read.end :].split()))
        formed = (
            not cut and trailing <= self.max_trailing_chars and (not self.require_thinking or self._thinks_once(text))
        )
        reason = VerdictReason.CORRECT if formed else VerdictReason.WRONG
        return Verdict(reward=float(formed), reason=reason, answer=read.answer)

    def _thinks_once(self, text: str) -> bool:
        text = f"<think>{text}" if self.thinking_opened else text
        marks = [mark[0].lower() for mark in _MARK.finditer(text)]
        if len(marks) != 2 or marks[1] != marks[0].replace("<", "</"):
            return False
        before, thought, _ = _MARK.split(text)
        return not before.strip() and bool(thought.strip())
