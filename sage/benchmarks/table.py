"""Questions with a gold answer from any dataset of the Hugging Face hub, or from a local JSON-lines or parquet file."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sage.benchmarks.fingerprint import of_texts
from sage.benchmarks.gold import AnswerForm, RowError, gold_of, head, is_number, text_of, value_at, worked_solution
from sage.benchmarks.rows import Row, keep, read_file, read_hub
from sage.benchmarks.splits import Dropped, Problems, drawn, without_repeats
from sage.types import Demonstration, Problem, Split

log = logging.getLogger(__name__)
QUESTION = "{question}"
_PRECEDENCE = (Split.TEST, Split.VALIDATION, Split.TRAIN)
"""A question of two splits stays in the first of these."""


@dataclass(frozen=True, kw_only=True)
class TableBenchmark:
    """A table of questions and golds. Golds are taken as text; whether they can be judged is the reward's to say."""

    name: str
    """Prefix of problem ids and of metric names."""
    hub: str | None
    """Id on the Hugging Face hub; ``None`` for local files alone."""
    hub_config: str | None
    """Configuration of the hub dataset, where it has several."""
    revision: str | None
    """Commit or tag on the hub; ``None`` takes the newest."""
    path: str | Mapping[str, str] | None
    """A local file in place of the hub, or one for each of ``train``, ``validation`` and ``test``. Relative to where the
    command was typed."""
    splits: Mapping[str, str | None]
    """Split of ours -> split on the hub; ``None`` where there is none."""
    question: str
    """Column, or a path into one: ``messages[0].content``."""
    answer: str
    answer_form: AnswerForm
    numeric_answers: bool
    """Keep only the rows whose gold is a whole or decimal number."""
    id: str | None
    """Column that names a row; ``None`` numbers the rows as they stand in the file."""
    solution: str | None
    """Column with a worked solution: the training split's become demonstrations for SFT."""
    columns: Sequence[str]
    """Further columns that rewards may look at, beside ``question`` (and ``solution``)."""
    template: str
    """The prompt, with ``{question}`` where the question goes; other braces mean themselves."""
    where: Mapping[str, Any]
    """Column -> value, or list of values, of the rows to keep; empty keeps all."""
    exclude: Sequence[str]
    """Ids of problems to leave out, as ``sage-data check`` prints them."""
    max_rows: int | None
    """Keep the first so many rows of each split, after ``where``."""
    validation_problems: int
    """Taken from the training split where there is no validation split."""
    test_problems: int
    """Taken from the training split where there is no test split."""
    split_seed: int
    """Chooses them, together with the text of the question; not the seed of the run."""
    unusable: Literal["drop", "refuse"]
    """What happens on rows without a question or a gold."""
    duplicates: Literal["drop", "refuse"]
    """What happens on questions that occur twice: the first stays, or none where their golds differ."""
    max_prompt_tokens: int
    max_completion_tokens: int

    def __post_init__(self) -> None:
        if self.template.count(QUESTION) != 1:
            raise ValueError(f"benchmark.template={self.template!r}: expected text with {QUESTION} in it, once")
        for option in ("validation_problems", "test_problems"):
            if getattr(self, option) < 0:
                raise ValueError(f"benchmark.{option}={getattr(self, option)}: expected a whole number >= 0")
        for option in ("max_prompt_tokens", "max_completion_tokens"):
            if getattr(self, option) < 1:
                raise ValueError(f"benchmark.{option}={getattr(self, option)}: expected a whole number >= 1")
        if self.max_rows is not None and self.max_rows < 1:
            raise ValueError(f"benchmark.max_rows={self.max_rows}: expected a whole number >= 1, or null for all")
        if taken := {"question", "solution", "source"} & {*self.columns}:
            raise ValueError(f"benchmark.columns: {', '.join(sorted(taken))} is a name of ours; expected other columns")
        for option, chosen in (("splits", self.splits), ("path", self.path)):
            unknown = [] if isinstance(chosen, str | None) else sorted(chosen.keys() - set(Split))
            if unknown:
                raise ValueError(f"benchmark.{option}.{unknown[0]}: no such split; expected {', '.join(Split)}")

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, in the order of the file; those taken from the training split in random order.

        Raises:
            ValueError: the data cannot be had, lacks a column, or has rows that the options refuse.
        """
        return self._loaded[0][Split(split)]

    def demonstrations(self) -> Sequence[Demonstration]:
        """Worked solutions of the training split; empty without ``benchmark.solution``."""
        if self.solution is None:
            return ()
        return tuple(
            Demonstration(
                prompt=problem.prompt,
                completion=worked_solution(problem.columns["solution"], problem.answer, self.answer_form),
            )
            for problem in self.problems(Split.TRAIN)
            if problem.columns["solution"]
        )

    def fingerprint(self) -> str:
        """A hash of the demonstrations, which are loaded for it: the same texts from another file have the same."""
        return of_texts(self.demonstrations())

    @property
    def dropped(self) -> Sequence[Dropped]:
        """Rows that were left out, other than by ``where``, ``exclude``, ``max_rows`` and ``numeric_answers``."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[Problems, list[Dropped]]:
        unusable: list[Dropped] = []
        # All at once: a bad file is refused before a run begins, not when its split is first needed.
        found, repeated = without_repeats({split: self._parsed(split, unusable) for split in _PRECEDENCE})
        if repeated and self.duplicates == "refuse":
            raise ValueError(
                f"{self.name}: {len(repeated)} rows repeat a question, e.g. {repeated[0].id} {repeated[0].detail}; type "
                "benchmark.duplicates=drop to leave them out"
            )
        found = self._without_excluded(found, {row.id for row in (*unusable, *repeated)})
        for split, count in ((Split.TEST, self.test_problems), (Split.VALIDATION, self.validation_problems)):
            available = len(found[Split.TRAIN])
            if self._has(split) or not self._has(Split.TRAIN):
                continue
            if count and count >= available:
                raise ValueError(
                    f"benchmark.{split}_problems={count}: expected fewer than the {available} problems to take them from"
                )
            found[split], found[Split.TRAIN] = drawn(found[Split.TRAIN], count, self.split_seed, split)
        _tell(self.name, found, [*unusable, *repeated])
        return found, [*unusable, *repeated]

    def _without_excluded(self, found: Problems, gone: Collection[str]) -> Problems:
        unknown = {*self.exclude} - {problem.id for problems in found.values() for problem in problems} - {*gone}
        if unknown:
            raise ValueError(
                f"benchmark.exclude: no problem {', '.join(sorted(unknown))} in {self.name}; ids look like "
                f"{self.name}/test/0, and sage-data check prints them"
            )
        return {split: [p for p in problems if p.id not in self.exclude] for split, problems in found.items()}

    def _has(self, split: Split) -> bool:
        if isinstance(self.path, Mapping):
            return split in self.path
        return self.splits.get(split) is not None

    def _rows(self, split: Split) -> list[Row]:
        """The rows of a split's own source; none where it has no source."""
        wanted = {"question": self.question, "answer": self.answer, "id": self.id, "solution": self.solution}
        columns = {option: self._column(path) for option, path in wanted.items() if path is not None}
        columns |= {f"where.{column}": column for column in self.where}
        columns |= {f"columns[{i}]": column for i, column in enumerate(self.columns)}
        if not self._has(split):
            return []
        if isinstance(self.path, Mapping):
            return read_file(_absolute(self.path[split]), columns)
        if self.path is not None:
            self._check_one_file()
            return read_file(_absolute(self.path), columns)
        if self.hub is None:
            raise ValueError(
                "benchmark.path and benchmark.hub are both null: type benchmark.path=FILE or benchmark.hub=ID"
            )
        return read_hub(self.hub, self.hub_config, self.revision, self.splits[split] or "", columns)

    def _check_one_file(self) -> None:
        splits = [str(split) for split in Split if self._has(split)]
        if len(splits) > 1:
            each = ",".join(f"{split}:FILE" for split in splits)
            raise ValueError(
                f"benchmark.path={self.path}: one file, but {self.name} has the splits {' and '.join(splits)}; type "
                f"'benchmark.path={{{each}}}' (a split may be left out), or benchmark.splits.test=null with "
                "benchmark.test_problems=N to take test problems from the file"
            )

    def _column(self, path: str) -> str:
        return path if path in (*self.columns, *self.where) else head(path)

    def _parsed(self, split: Split, dropped: list[Dropped]) -> list[Problem]:
        problems: list[Problem] = []
        other_golds = 0
        for number, row in keep(self._rows(split), self.where)[: self.max_rows]:
            key = number if self.id is None else value_at(row, self.id)
            name = f"{self.name}/{split}/{key}"
            try:
                problem = self._problem(name, row)
            except RowError as error:
                if self.unusable == "refuse":
                    raise ValueError(
                        f"problem {name} {error}; type benchmark.unusable=drop to leave such rows out"
                    ) from error
                dropped.append(Dropped(name, "unusable", str(error)))
                continue
            if self.numeric_answers and not is_number(problem.answer):
                other_golds += 1
                continue
            problems.append(problem)
        if other_golds:
            log.info("%s: %d %s rows left out, whose gold is no number", self.name, other_golds, split)
        names = [problem.id for problem in problems]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"benchmark.id={self.id}: {twice} occurs twice; type benchmark.id=null to number the rows")
        return problems

    def _problem(self, name: str, row: Row) -> Problem:
        question = text_of(value_at(row, self.question), "question", self.question)
        answer = gold_of(text_of(value_at(row, self.answer), "answer", self.answer), self.answer_form)
        columns = {"question": question} | {column: row[column] for column in self.columns}
        if self.solution is not None:
            columns["solution"] = value_at(row, self.solution) or ""
        return Problem(id=name, prompt=self.template.replace(QUESTION, question), answer=answer, columns=columns)


def _tell(name: str, found: Problems, dropped: Sequence[Dropped]) -> None:
    log.info("%s: %s problems", name, ", ".join(f"{len(found[split])} {split}" for split in Split))
    for reason in ("unusable", "repeated", "contradicting"):
        rows = [row for row in dropped if row.reason == reason]
        if rows:
            log.warning("%s: %d %s rows left out, e.g. %s %s", name, len(rows), reason, rows[0].id, rows[0].detail)


def _absolute(path: str) -> Path:
    # Hydra knows where the command was typed; a job's working directory may be its run folder.
    from hydra.utils import to_absolute_path

    return Path(to_absolute_path(str(Path(path).expanduser())))
