"""A weighted sum of rewards, each of them logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sage.interfaces import Reward
from sage.types import Completion, Problem, Verdict

ABSTENTIONS = ("drop", "skip")


@dataclass(frozen=True, kw_only=True)
class WeightedReward(Reward):
    """Pays the weighted sum of its parts; one of them, the judge, says whether an answer is right."""

    parts: Mapping[str, Reward]
    """Named rewards. Each is logged by its name, and its own parts as ``name/part``."""
    weights: Mapping[str, float]
    """One weight per part; a part of weight 0 is only logged."""
    judge: str
    """The part whose reason, answer and solution are the verdict's: what pass@k counts, whatever is paid."""
    abstaining: str
    """When a part of another weight than 0 abstains: ``drop`` the completion, or ``skip`` the part and scale the others
    up so that the weights keep their sum."""

    def __post_init__(self) -> None:
        if not self.parts or {*self.parts} != {*self.weights}:
            raise ValueError(
                f"reward.weights has {sorted(self.weights)}, reward.parts {sorted(self.parts)}: expected the same names, "
                "e.g. reward.weights.format=0.1"
            )
        if self.judge not in self.parts:
            raise ValueError(
                f"reward.judge={self.judge}: expected one of reward.parts: {', '.join(sorted(self.parts))}"
            )
        if self.abstaining not in ABSTENTIONS:
            raise ValueError(f"reward.abstaining={self.abstaining}: expected {' or '.join(ABSTENTIONS)}")

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        return self._sum({name: part.score(problem, completion) for name, part in self.parts.items()})

    def score_all(self, pairs: Sequence[tuple[Problem, Completion]]) -> list[Verdict]:
        """The verdicts on many, in order; every part judges them all at once, in its own fastest way."""
        columns = {name: part.score_all(pairs) for name, part in self.parts.items()}
        return [self._sum({name: column[row] for name, column in columns.items()}) for row in range(len(pairs))]

    def check(self, problems: Sequence[Problem]) -> list[str | None]:
        """What the judge says: the other parts may have nothing to do with the gold."""
        return self.parts[self.judge].check(problems)

    def group(self, answers: Sequence[str]) -> list[int]:
        """As the judge does, whose answers they are."""
        return self.parts[self.judge].group(answers)

    def close(self) -> None:
        """Release what the parts hold."""
        for part in self.parts.values():
            part.close()

    def _sum(self, verdicts: Mapping[str, Verdict]) -> Verdict:
        judge = verdicts[self.judge]
        logged: dict[str, float] = {}
        for name, verdict in verdicts.items():
            if verdict.reward is not None:
                logged[name] = verdict.reward
            logged |= {f"{name}/{part}": value for part, value in verdict.parts.items()}
        return Verdict(
            reward=self._total(verdicts),
            reason=judge.reason,
            answer=judge.answer,
            solution=judge.solution,
            parts=logged,
        )

    def _total(self, verdicts: Mapping[str, Verdict]) -> float | None:
        paid = {name: verdict.reward for name, verdict in verdicts.items() if self.weights[name] != 0}
        given = {name: reward for name, reward in paid.items() if reward is not None}
        if not given or (len(given) < len(paid) and self.abstaining == "drop"):
            return None if paid else 0.0
        total = sum(self.weights[name] * reward for name, reward in given.items())
        if len(given) == len(paid):
            return total
        share = sum(self.weights[name] for name in given)
        return total * sum(self.weights[name] for name in paid) / share if share else None
