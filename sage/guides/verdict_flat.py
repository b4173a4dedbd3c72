"""The flat verdict guide: the anchor is uniform over the distinct right answers found (beyond the SAGE paper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sage.guides.verdict import VerdictGuide
from sage.types import Group


@dataclass(frozen=True, kw_only=True)
class VerdictFlatGuide(VerdictGuide):
    """``q(y) = r(y) / pi_ref(solution of y)``, so ``q * pi_ref`` gives each distinct right solution the same mass.

    pi_ref of a solution is its share of the bank's samples; the writings of one solution keep their proportions. Strength 1 is
    flat; between 0 and 1 it lies between counts and flat, above 1 rare solutions weigh most.
    """

    def q_responses(self, group: Group) -> Sequence[float]:
        """Credit by the share of the response's solution among all samples; 0 for a wrong response."""
        solutions = group.solutions
        counts = Counter(solutions)
        return [
            verdict.credit * len(solutions) / counts[solution]
            for verdict, solution in zip(group.verdicts, solutions, strict=True)
        ]
