"""Train on one benchmark, evaluate on others."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from sage.interfaces import Benchmark
from sage.maths.overlap import normalise
from sage.types import Demonstration, Problem, Split

log = logging.getLogger(__name__)
SOURCE = "source"
"""Column with the name of the benchmark that a problem comes from."""


@dataclass(frozen=True, kw_only=True)
class CombinedBenchmark:
    """Training and validation problems of one benchmark, test problems of several, demonstrations of one more.

    ``problem.columns["source"]`` names the benchmark that a problem comes from: results are to be shown for each of them,
    since a mean over all problems weighs a benchmark by its size.
    """

    name: str
    """Prefix of metric names; problem ids keep the prefix of their own benchmark."""
    train: Benchmark
    test: Mapping[str, Benchmark]
    """Name -> benchmark whose test problems count; each under its own name."""
    sft: Benchmark | None
    """The benchmark whose demonstrations are used, loaded when they are; ``None`` uses those of ``train``."""
    drop_overlap: bool
    """Leave out training problems that a test set asks too, the same up to layout. Near ones stay: see
    ``sage-data check``."""
    max_prompt_tokens: int
    max_completion_tokens: int

    def __post_init__(self) -> None:
        if not self.test:
            raise ValueError(f"benchmark.test={{}}: expected at least one benchmark to evaluate {self.name} on")
        for key, part in self.test.items():
            if part.name != key:
                raise ValueError(f"benchmark.test.{key}.name={part.name}: expected {key}, as its section is called")
        if self.train.name in self.test:
            raise ValueError(f"benchmark.test.{self.train.name}: trains already; expected another benchmark")

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split.

        Raises:
            ValueError: a part refuses its data.
        """
        return self._problems[Split(split)]

    def demonstrations(self) -> Sequence[Demonstration]:
        """Those of the benchmark for SFT."""
        part, section = self._shown
        with _option_names(section):
            return part.demonstrations()

    def fingerprint(self) -> str:
        """That of the benchmark for SFT."""
        part, section = self._shown
        with _option_names(section):
            return part.fingerprint()

    @property
    def _shown(self) -> tuple[Benchmark, str]:
        return (self.train, "train") if self.sft is None else (self.sft, "sft")

    @property
    def parts(self) -> Sequence[Benchmark]:
        """All benchmarks with problems, the training one first."""
        return (self.train, *self.test.values())

    @cached_property
    def _problems(self) -> dict[Split, list[Problem]]:
        tests = [p for name, part in self.test.items() for p in _labelled(part, Split.TEST, f"test.{name}")]
        asked = {question(problem) for problem in tests} if self.drop_overlap else set()
        found = {Split.TEST: tests}
        for split in (Split.VALIDATION, Split.TRAIN):
            problems = _labelled(self.train, split, "train")
            found[split] = [problem for problem in problems if question(problem) not in asked]
            if len(found[split]) < len(problems):
                left_out = len(problems) - len(found[split])
                log.warning("%s: %d %s problems left out, as a test set asks them too", self.name, left_out, split)
        return found


def question(problem: Problem) -> str:
    """What a problem asks, without layout; of a benchmark without templates the prompt is the question."""
    return normalise(problem.columns.get("question", problem.prompt))


def _labelled(part: Benchmark, split: Split, section: str) -> list[Problem]:
    with _option_names(section):
        problems = part.problems(split)
    return [replace(problem, columns={**problem.columns, SOURCE: part.name}) for problem in problems]


@contextmanager
def _option_names(section: str) -> Iterator[None]:
    """A part names its options in errors as if it stood alone: put in the section that it stands in."""
    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(r"\bbenchmark\.(?=\w)", f"benchmark.{section}.", str(error))) from error
