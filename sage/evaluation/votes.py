"""Who votes for what: the candidates of a majority vote among the samples of a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sage.interfaces import Reward
from sage.types import Group, VerdictReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The votes of a problem's samples. Those without an answer that can be read have none."""

    right: int
    """For the right answer."""
    wrong: tuple[int, ...]
    """For each wrong answer, most votes first; not counted where nobody is right."""


def count_votes(groups: Sequence[Group], reward: Reward) -> list[Votes] | None:
    """The votes of each problem, equal answers together as the verifier sees it.

    Answers that the verifier calls right are one candidate, as they all equal the gold. Wrong ones are compared with each
    other, unless nobody is right: then the vote is lost whatever they are.

    Args:
        groups: graded.
        reward: what graded them.

    Returns:
        ``None`` where a right completion has no answer: such a reward judges something else, and there is nothing to vote on.
    """
    if any(v.correct and v.answer is None for group in groups for v in group.verdicts):
        return None
    return [_votes(group, reward) for group in groups]


def _votes(group: Group, reward: Reward) -> Votes:
    right = sum(verdict.correct for verdict in group.verdicts)
    wrong = [v.answer for v in group.verdicts if v.reason is VerdictReason.WRONG and v.answer is not None]
    if right == 0 or not wrong:
        return Votes(right=right, wrong=())
    return Votes(right=right, wrong=tuple(sorted(Counter(reward.group(wrong)).values(), reverse=True)))
