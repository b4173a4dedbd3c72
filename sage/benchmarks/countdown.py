"""The embedded benchmark: reach a target with all the given numbers, shown as a chain of lines ``a op b = r ;``.

Nothing is downloaded: problems and demonstrations are generated from a seed and are equal on every machine. A problem
is a multiset of numbers, shuffled in the prompt, and a target. It is *additive* when + and - alone reach the target,
otherwise *other*. Demonstrations come from multisets that no split uses, and mostly from the additive family, so that
the base model covers the other one thinly: RL then has something to find and something to lose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations_with_replacement
from random import Random
from typing import TypeVar

from sage.benchmarks.countdown_solver import Solver
from sage.types import Demonstration, Problem, Split

T = TypeVar("T")
_NOT_SHOWN = ("name", "max_prompt_tokens", "max_completion_tokens")
"""Parameters that no demonstration depends on."""
Numbers = tuple[int, ...]
Solutions = dict[int, list[str]]
"""Target -> chains that end in it."""

LARGEST_TOKEN = 99
"""The tokenizer of the tiny model has one token per number up to here."""
TOKENS_PER_LINE = 6
"""``a op b = r ;``"""


class Family(StrEnum):
    """What a target needs."""

    ADDITIVE = "additive"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class CountdownBenchmark:
    """Countdown with disjoint multisets for test, validation, RL and SFT."""

    name: str
    """Prefix of problem ids and of metric names."""
    seed: int
    """Chooses splits, targets and demonstrations; not the seed of the run."""
    count: int
    """Numbers per problem."""
    min_number: int
    max_number: int
    min_target: int
    max_result: int
    """Bound of every result in golds and demonstrations; targets therefore obey it too."""
    test_problems: int
    validation_problems: int
    train_problems: int
    additive_problems: float
    """Share of additive problems in each split, and in each beginning of one."""
    demonstrations_per_multiset: int
    """Draws, with replacement, from each multiset left to SFT."""
    additive_demonstrations: float
    """Share of additive ones among them."""
    max_prompt_tokens: int
    max_completion_tokens: int
    """At least the gold's tokens and the end token."""

    def __post_init__(self) -> None:
        self._check_ranges()
        sizes = self.test_problems, self.validation_problems, self.train_problems
        available = math.comb(self.max_number - self.min_number + self.count, self.count)
        if min(sizes) < 0 or sum(sizes) >= available:
            raise ValueError(
                f"benchmark.test_problems, validation_problems, train_problems = {sizes}: expected numbers >= 0 that "
                f"leave some of the {available} multisets to SFT; lower them or widen benchmark.max_number"
            )
        for option, needed in (
            ("max_prompt_tokens", self.count + 2),
            ("max_completion_tokens", TOKENS_PER_LINE * (self.count - 1) + 1),
        ):
            if getattr(self, option) < needed:
                raise ValueError(
                    f"benchmark.{option}={getattr(self, option)}: expected at least {needed}, which "
                    f"benchmark.count={self.count} takes"
                )

    def _check_ranges(self) -> None:
        if not 2 <= self.count <= 5:
            raise ValueError(f"benchmark.count={self.count}: expected 2 to 5, e.g. 4; more take too long to enumerate")
        if not 1 <= self.min_number <= self.max_number <= self.max_result <= LARGEST_TOKEN:
            raise ValueError(
                f"benchmark.min_number={self.min_number}, max_number={self.max_number}, max_result={self.max_result}: "
                f"expected 1 <= min_number <= max_number <= max_result <= {LARGEST_TOKEN}, e.g. 1, 13 and 60"
            )
        if not 1 <= self.min_target <= self.max_result:
            raise ValueError(f"benchmark.min_target={self.min_target}: expected 1 to max_result={self.max_result}")
        if self.demonstrations_per_multiset < 0:
            raise ValueError(
                f"benchmark.demonstrations_per_multiset={self.demonstrations_per_multiset}: expected a number >= 0"
            )
        for option in ("additive_problems", "additive_demonstrations"):
            if not 0 <= getattr(self, option) <= 1:
                raise ValueError(f"benchmark.{option}={getattr(self, option)}: expected a share from 0 to 1")

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split; families alternate, so that any beginning of the list is a fair sample."""
        return self._problems[Split(split)]

    def demonstrations(self) -> Sequence[Demonstration]:
        """The SFT data, shuffled; made at the first call, at about 250,000 a second."""
        return self._demonstrations

    def fingerprint(self) -> str:
        """The parameters that choose the demonstrations: making them takes a second, which no run with a cached base pays."""
        return repr({name: value for name, value in asdict(self).items() if name not in _NOT_SHOWN})

    @cached_property
    def _multisets(self) -> list[Numbers]:
        numbers = range(self.min_number, self.max_number + 1)
        return _shuffled(self._random("multisets"), list(combinations_with_replacement(numbers, self.count)))

    @cached_property
    def _split_multisets(self) -> dict[Split, list[Numbers]]:
        """Disjoint by construction. The test split comes first, so that resizing another one leaves it as it is."""
        # (1, 1, 1, 1) reaches no target worth asking for.
        usable = [multiset for multiset in self._multisets if all(self._solutions(multiset).values())]
        sizes = {
            Split.TEST: self.test_problems,
            Split.VALIDATION: self.validation_problems,
            Split.TRAIN: self.train_problems,
        }
        if sum(sizes.values()) > len(usable):
            raise ValueError(
                f"benchmark.test_problems + validation_problems + train_problems = {sum(sizes.values())}: only "
                f"{len(usable)} multisets reach targets of both families; lower them or raise benchmark.max_result"
            )
        chosen: dict[Split, list[Numbers]] = {}
        taken = 0
        for split, size in sizes.items():
            chosen[split] = usable[taken : taken + size]
            taken += size
        return chosen

    @cached_property
    def _sft_multisets(self) -> list[Numbers]:
        """Every multiset that no split uses."""
        held_out = {multiset for of_split in self._split_multisets.values() for multiset in of_split}
        return [multiset for multiset in self._multisets if multiset not in held_out]

    @cached_property
    def _problems(self) -> dict[Split, tuple[Problem, ...]]:
        return {split: tuple(self._split_problems(split)) for split in Split}

    def _split_problems(self, split: Split) -> list[Problem]:
        random = self._random(split)
        problems: list[Problem] = []
        for i, multiset in enumerate(self._split_multisets[split]):
            # Whole numbers of i * share: spreads the additive ones evenly.
            additive = math.floor((i + 1) * self.additive_problems) > math.floor(i * self.additive_problems)
            family = Family.ADDITIVE if additive else Family.OTHER
            numbers, target, answer = _draw(random, multiset, self._solutions(multiset)[family])
            problems.append(
                Problem(
                    id=f"{self.name}/{split}/{i:04d}",
                    prompt=_prompt(numbers, target),
                    answer=answer,
                    columns={"numbers": numbers, "target": target, "family": str(family)},
                )
            )
        return problems

    @cached_property
    def _demonstrations(self) -> tuple[Demonstration, ...]:
        random = self._random("demonstrations")
        additive = round(self.demonstrations_per_multiset * self.additive_demonstrations)
        draws = {Family.ADDITIVE: additive, Family.OTHER: self.demonstrations_per_multiset - additive}
        demonstrations: list[Demonstration] = []
        for multiset in self._sft_multisets:
            for family, solutions in self._solutions(multiset).items():
                for _ in range(draws[family] if solutions else 0):
                    numbers, target, answer = _draw(random, multiset, solutions)
                    demonstrations.append(Demonstration(prompt=_prompt(numbers, target), completion=answer))
        return tuple(_shuffled(random, demonstrations))

    def _solutions(self, multiset: Numbers) -> dict[Family, Solutions]:
        """The targets of each family; an additive target keeps its additive chains only."""
        chains = [chain for chain in self._solver.chains(multiset) if chain.target >= self.min_target]
        solutions: dict[Family, Solutions] = {Family.ADDITIVE: {}, Family.OTHER: {}}
        for chain in chains:
            if chain.additive:
                solutions[Family.ADDITIVE].setdefault(chain.target, []).append(chain.text)
        for chain in chains:
            if chain.target not in solutions[Family.ADDITIVE]:
                solutions[Family.OTHER].setdefault(chain.target, []).append(chain.text)
        return solutions

    @cached_property
    def _solver(self) -> Solver:
        return Solver(self.max_result)

    def _random(self, stream: str) -> Random:
        return Random(f"countdown/{self.seed}/{stream}")


def _draw(random: Random, multiset: Numbers, solutions: Solutions) -> tuple[Numbers, int, str]:
    """Shuffled numbers, a target and a chain: every target is equally likely, and so is every chain of it."""
    target = _pick(random, list(solutions))
    return tuple(_shuffled(random, multiset)), target, _pick(random, solutions[target])


def _prompt(numbers: Numbers, target: int) -> str:
    return " ".join(map(str, (*numbers, target, ":")))


# Python promises the same Random.random() for a seed in every version, but not the same choice() or shuffle().


def _pick(random: Random, items: Sequence[T]) -> T:
    return items[int(random.random() * len(items))]


def _shuffled(random: Random, items: Sequence[T]) -> list[T]:
    return sorted(items, key=lambda _: random.random())
