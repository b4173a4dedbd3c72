"""All solutions of a Countdown problem that a demonstration may show, written as chains ``a op b = r ;``.

A demonstration keeps the larger operand first, positive whole results up to a bound and exact division. Multiplying or
dividing by 1 is allowed: it uses a number up without effect, which some targets need. Two chains that differ in the
order of independent lines only are two texts of one expression tree.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

Step = tuple[str, int, bool]
"""One line, its result, and whether its operator is + or -."""


class Chain(NamedTuple):
    """One way to reduce a multiset of numbers to a single one."""

    text: str
    """The lines, tokens separated by single blanks."""
    target: int
    """Result of the last line."""
    additive: bool
    """Whether + and - are its only operators."""


class Solver:
    """Enumerates chains whose results stay within 1..max_result."""

    def __init__(self, max_result: int) -> None:
        self.max_result = max_result
        # Few distinct remainders occur once a line is done, so they are kept; whole problems are not, to bound memory.
        self._remainders: dict[tuple[int, ...], list[Chain]] = {}
        self._steps: dict[tuple[int, int], list[Step]] = {}

    def chains(self, numbers: tuple[int, ...]) -> list[Chain]:
        """Every chain of a multiset of at least two numbers, each text once, in an order that depends on it alone.

        >>> [chain.text for chain in Solver(60).chains((2, 5))]
        ['5 + 2 = 7 ;', '5 - 2 = 3 ;', '5 * 2 = 10 ;']
        """
        ordered = tuple(sorted(numbers))
        found: list[Chain] = []
        for small, large in sorted(set(combinations(ordered, 2))):
            for line, result, additive in self._lines(large, small):
                rest = _replace(ordered, small, large, result)
                if len(rest) == 1:
                    found.append(Chain(line, result, additive))
                    continue
                found.extend(
                    Chain(f"{line} {tail.text}", tail.target, additive and tail.additive)
                    for tail in self._remainder(rest)
                )
        return found

    def _remainder(self, numbers: tuple[int, ...]) -> list[Chain]:
        if numbers not in self._remainders:
            self._remainders[numbers] = self.chains(numbers)
        return self._remainders[numbers]

    def _lines(self, large: int, small: int) -> list[Step]:
        """The lines that ``large`` and ``small`` allow; ``large >= small >= 1``."""
        if (large, small) not in self._steps:
            results = [("+", large + small), ("-", large - small), ("*", large * small)]
            if large % small == 0:
                results.append(("/", large // small))
            self._steps[large, small] = [
                (f"{large} {operator} {small} = {result} ;", result, operator in "+-")
                for operator, result in results
                if 1 <= result <= self.max_result
            ]
        return self._steps[large, small]


def _replace(numbers: tuple[int, ...], first: int, second: int, result: int) -> tuple[int, ...]:
    """The sorted multiset after a line has used two numbers and left its result."""
    rest = list(numbers)
    rest.remove(first)
    rest.remove(second)
    rest.append(result)
    return tuple(sorted(rest))
