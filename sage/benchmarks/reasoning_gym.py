"""Any task of the package reasoning-gym by its name. Problems are generated from a seed; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any

from sage.types import Demonstration, Problem, Split

QUESTION = "{question}"
GENERATED = {"generated": True}
"""Marks a problem that a program made: those of other splits look like it by design."""
_STREAMS = {Split.TEST: 0, Split.VALIDATION: 1, Split.TRAIN: 2}
"""The test split is drawn first, so that resizing another one leaves it as it is."""
_STREAM_LENGTH = 2**24
"""The package draws problem i of a seed from seed + i: the seeds of two streams lie further apart than their length, or one
split would be a shifted copy of another. Seeds must stay below 2**32."""
_SEEDS = 2**32 // _STREAM_LENGTH // len(_STREAMS)
_MOST_DRAWS = 20
"""Draws a wanted problem, before a task counts as too small."""


@dataclass(frozen=True, kw_only=True)
class ReasoningGymBenchmark:
    """Problems of one task. The splits share no seed and no question."""

    name: str
    """Prefix of problem ids and of metric names."""
    task: str
    """The package's name of it, e.g. ``leg_counting``."""
    options: Mapping[str, Any]
    """Options of the task, e.g. ``{max_animals: 5}``; others keep the package's defaults."""
    seed: int
    """Chooses the problems; not the seed of the run."""
    train_problems: int
    validation_problems: int
    test_problems: int
    template: str
    """The prompt, with ``{question}`` where the question goes; other braces mean themselves."""
    max_prompt_tokens: int
    max_completion_tokens: int

    def __post_init__(self) -> None:
        if self.template.count(QUESTION) != 1:
            raise ValueError(f"benchmark.template={self.template!r}: expected text with {QUESTION} in it, once")
        if not 0 <= self.seed < _SEEDS:
            raise ValueError(f"benchmark.seed={self.seed}: expected 0 to {_SEEDS - 1}")
        for option in ("train_problems", "validation_problems", "test_problems"):
            if not 0 <= getattr(self, option) * _MOST_DRAWS < _STREAM_LENGTH:
                most = _STREAM_LENGTH // _MOST_DRAWS
                raise ValueError(
                    f"benchmark.{option}={getattr(self, option)}: expected a whole number from 0 to {most}"
                )
        if taken := {"seed", "size"} & self.options.keys():
            raise ValueError(
                f"benchmark.options.{min(taken)}: set here; type benchmark.seed or benchmark.train_problems"
            )

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split.

        Raises:
            ValueError: the package is missing, has no such task or option, or the task has too few distinct questions.
        """
        return self._problems[Split(split)]

    def demonstrations(self) -> Sequence[Demonstration]:
        """None: the package gives answers without the way to them."""
        return ()

    def fingerprint(self) -> str:
        """Empty, as there are no demonstrations."""
        return ""

    @cached_property
    def _problems(self) -> dict[Split, list[Problem]]:
        seen: set[str] = set()
        sizes = {
            Split.TEST: self.test_problems,
            Split.VALIDATION: self.validation_problems,
            Split.TRAIN: self.train_problems,
        }
        return {split: self._drawn(split, size, seen) for split, size in sizes.items()}

    def _drawn(self, split: Split, size: int, seen: set[str]) -> list[Problem]:
        """``size`` problems whose question is not in ``seen``, which grows."""
        problems: list[Problem] = []
        draws = size * _MOST_DRAWS
        seed = (3 * self.seed + _STREAMS[split]) * _STREAM_LENGTH
        dataset = create(self.task, self.options, seed, max(draws, 1))
        for index in range(draws):
            if len(problems) == size:
                break
            entry = dataset[index]
            if entry["question"] in seen:
                continue
            seen.add(entry["question"])
            problems.append(self._problem(f"{self.name}/{self.task}/{split}/{index}", entry))
        if len(problems) < size:
            raise ValueError(
                f"benchmark.{split}_problems={size}: {self.task} gave {len(problems)} new questions in {draws:,} draws; "
                "lower it, or widen the task by benchmark.options"
            )
        return problems

    def _problem(self, name: str, entry: Mapping[str, Any]) -> Problem:
        return Problem(
            id=name,
            prompt=self.template.replace(QUESTION, entry["question"].strip()),
            answer="" if entry["answer"] is None else str(entry["answer"]),
            columns={"question": entry["question"], "task": self.task, "options": self.options, "entry": entry}
            | GENERATED,
        )


def create(task: str, options: Mapping[str, Any], seed: int, size: int) -> Any:
    """The package's dataset, which makes its rows when they are asked for.

    Raises:
        ValueError: as :meth:`ReasoningGymBenchmark.problems`.
    """
    try:
        factory = import_module("reasoning_gym").factory
    except ImportError as error:
        raise ValueError(f"benchmark=reasoning_gym needs a package ({error}): pip install reasoning-gym") from error
    if task not in factory.DATASETS:
        near = get_close_matches(task, factory.DATASETS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(factory.DATASETS))}"
        raise ValueError(f"benchmark.task={task}: no such task of reasoning-gym; {hint}")
    try:
        # The package checks ranges by assertions.
        return factory.create_dataset(task, seed=seed, size=size, **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise ValueError(f"benchmark.options={dict(options)}: {task} does not take them: {error}") from error
