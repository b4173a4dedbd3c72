"""Sums, differences and products of two numbers in words: a task that small language models solve sometimes.

Nothing is downloaded: problems are made from a seed and are equal on every machine. The splits share no *fact*: an operator
with two numbers in either order, however it is asked for. So 3 * 4 and 4 * 3 stand in one split, and what a model gains on
the test split it has not been told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import combinations_with_replacement

from sage.types import Demonstration, Problem, Split

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_MOST_FACTS = 1_000_000
Fact = tuple[str, int, int]
"""Operator, smaller and larger number."""


@dataclass(frozen=True, kw_only=True)
class ArithmeticBenchmark:
    """Questions ``a operator b``, each in every phrasing and order."""

    name: str
    """Prefix of problem ids and of metric names."""
    seed: int
    """Chooses the splits and the order of the problems; not the seed of the run."""
    operators: Sequence[str]
    """Among +, - and *."""
    min_number: int
    max_number: int
    negative_results: bool
    """Whether the smaller number may stand before the minus."""
    phrasings: Sequence[str]
    """Prompts with ``{a}`` and ``{b}``, and ``{operator}`` where there are several."""
    test_facts: int
    validation_facts: int
    train_facts: int | None
    """``None`` takes all that are left."""
    max_prompt_tokens: int
    max_completion_tokens: int

    def __post_init__(self) -> None:
        if not self.operators or not {*self.operators} <= OPERATORS.keys():
            raise ValueError(f"benchmark.operators={list(self.operators)}: expected some of {', '.join(OPERATORS)}")
        if not 0 <= self.min_number <= self.max_number:
            raise ValueError(
                f"benchmark.min_number={self.min_number}, max_number={self.max_number}: expected 0 <= min_number <= "
                "max_number, e.g. 1 and 9"
            )
        needed = ["{a}", "{b}", *(["{operator}"] if len({*self.operators}) > 1 else [])]
        for phrasing in self.phrasings or [""]:
            if any(phrasing.count(place) != 1 for place in needed):
                raise ValueError(
                    f"benchmark.phrasings: {phrasing!r}; expected texts with {' and '.join(needed)} in them, once each"
                )
        self._check_sizes()

    def _check_sizes(self) -> None:
        available = len({*self.operators}) * math.comb(self.max_number - self.min_number + 2, 2)
        if available > _MOST_FACTS:
            raise ValueError(
                f"benchmark.max_number={self.max_number}: {available:,} facts; expected at most {_MOST_FACTS:,}"
            )
        sizes = self.test_facts, self.validation_facts, 1 if self.train_facts is None else self.train_facts
        if min(sizes) < 0 or sum(sizes) > available:
            raise ValueError(
                f"benchmark.test_facts={self.test_facts}, validation_facts={self.validation_facts}, "
                f"train_facts={self.train_facts}: expected numbers >= 0 that {available} facts are enough for; lower them "
                "or raise benchmark.max_number"
            )

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split in random order, so that any beginning of the list is a fair sample."""
        return self._problems[Split(split)]

    def demonstrations(self) -> Sequence[Demonstration]:
        """None: the models that this is for need no warming up."""
        return ()

    def fingerprint(self) -> str:
        """Empty, as there are no demonstrations."""
        return ""

    @cached_property
    def _problems(self) -> dict[Split, list[Problem]]:
        numbers = range(self.min_number, self.max_number + 1)
        operators = dict.fromkeys(self.operators)
        facts = [(operator, *pair) for operator in operators for pair in combinations_with_replacement(numbers, 2)]
        facts.sort(key=lambda fact: self._rank("{1} {0} {2}".format(*fact)))
        # The test split comes first, so that resizing another one leaves it as it is.
        held_out = self.test_facts + self.validation_facts
        last = len(facts) if self.train_facts is None else held_out + self.train_facts
        chosen = {
            Split.TEST: facts[: self.test_facts],
            Split.VALIDATION: facts[self.test_facts : held_out],
            Split.TRAIN: facts[held_out:last],
        }
        return {split: self._of_split(split, of_split) for split, of_split in chosen.items()}

    def _of_split(self, split: Split, facts: Sequence[Fact]) -> list[Problem]:
        problems = [problem for fact in facts for problem in self._of_fact(split, fact)]
        return sorted(problems, key=lambda problem: self._rank(problem.id))

    def _of_fact(self, split: Split, fact: Fact) -> Iterator[Problem]:
        operator, small, large = fact
        orders = [(large, small)]
        if small != large and (operator != "-" or self.negative_results):
            orders.append((small, large))
        for a, b in orders:
            for number, phrasing in enumerate(self.phrasings):
                prompt = phrasing.replace("{a}", str(a)).replace("{b}", str(b)).replace("{operator}", operator)
                yield Problem(
                    id=f"{self.name}/{split}/{a}{operator}{b}/{number}",
                    prompt=prompt,
                    answer=str(OPERATORS[operator](a, b)),
                    # generated: problems of other splits look like it by design.
                    columns={"a": a, "b": b, "operator": operator, "generated": True},
                )

    def _rank(self, name: str) -> str:
        return sha256(f"arithmetic/{self.seed}/{name}".encode()).hexdigest()
