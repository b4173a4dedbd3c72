"""A proxy that looks lenient and can be hacked: the gold anywhere in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sage.interfaces import Reward
from sage.types import Completion, Problem, Verdict, VerdictReason


@dataclass(frozen=True, kw_only=True)
class MentionReward(Reward):
    """Pays 1 for a text in which the gold answer stands as a word or number of its own, else 0.

    It accepts every way to put an answer, and every list of guesses: meant as the proxy beside a gold reward.
    """

    ignore_case: bool
    """Take capital and small letters for the same."""

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion; a problem with an empty gold answer abstains."""
        gold = problem.answer.strip()
        if not gold:
            return Verdict(reward=None, reason=VerdictReason.ERROR)
        # 7 is no mention of 17, 7.5 or -7; the full stop of a sentence may follow it.
        pattern = rf"(?<![\w.-]){re.escape(gold)}(?!\w|[.,]\d)"
        found = re.search(pattern, completion.text, re.IGNORECASE if self.ignore_case else re.NOFLAG)
        if found is None:
            return Verdict(reward=0.0, reason=VerdictReason.NO_ANSWER)
        return Verdict(reward=1.0, reason=VerdictReason.CORRECT, answer=found[0])
