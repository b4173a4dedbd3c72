"""What can be said of a benchmark's data without a model: lengths, golds, repeats, and training questions in test sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from sage.interfaces import Benchmark, Reward
from sage.maths import overlap as questions
from sage.types import Problem, Split

CountTokens = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A test problem that the training problems hold too."""

    train: str
    """Id."""
    test: str
    """Id."""
    same: bool
    """Whether the questions are the same up to layout, rather than near."""
    similarity: float
    """Characters alike, 0 to 1."""
    contained: float
    """Share of the test question's word sequences in the training question, 0 to 1."""
    same_answer: bool
    """Whether the golds are equal as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Test problems of one source that the training problems hold too."""

    source: str
    """Name of the benchmark that the test problems come from."""
    problems: int
    """Test problems in all."""
    shared: tuple[Shared, ...]
    """Each pair; a test problem may be in several."""

    @property
    def same(self) -> list[str]:
        """Ids of test problems with the very question in the training set."""
        return sorted({pair.test for pair in self.shared if pair.same})

    @property
    def near(self) -> list[str]:
        """Ids of those with nothing but near ones."""
        return sorted({pair.test for pair in self.shared} - {*self.same})

    def __str__(self) -> str:
        """E.g. ``24 of 40 test problems of amc23 are in the training set (7 the same, 17 near)``."""
        same, near = len(self.same), len(self.near)
        total = f"{same + near} of {self.problems} test problems of {self.source}"
        return f"{total} are in the training set ({same} the same, {near} near)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Of prompts, in one unit."""

    median: float
    most_95: float
    """95 of 100 are no longer."""
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """One split of one source."""

    split: str
    source: str
    problems: int
    characters: Lengths | None
    """``None`` where there is no problem."""
    tokens: Lengths | None
    """``None`` without a tokenizer."""
    too_long: int
    """Prompts above ``benchmark.max_prompt_tokens``; 0 without a tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport:
    """Everything that ``sage-data check`` found."""

    benchmark: str
    splits: tuple[SplitReport, ...]
    bad_golds: dict[str, str]
    """Problem id -> why its gold cannot be used."""
    left_out: tuple[tuple[str, str, str], ...]
    """Id, reason and detail of the rows that are no problems."""
    near_repeats: tuple[tuple[str, str], ...]
    """Ids of training problems that are nearly the same."""
    overlaps: tuple[Overlap, ...]
    """One a test source."""

    @property
    def findings(self) -> list[str]:
        """What is wrong, one sentence each. Plain repeats are not: they are left out, and near ones only weigh more."""
        return list(_findings(self))


def question_of(problem: Problem) -> str:
    """The question without the prompt's template, which would make all problems alike."""
    return problem.columns.get("question", problem.prompt)


def is_generated(problem: Problem) -> bool:
    """Whether a program made the question (column ``generated``): it looks like those of other splits by design."""
    return bool(problem.columns.get("generated"))


def source_of(problem: Problem, benchmark: str) -> str:
    """The name of the benchmark that a problem comes from."""
    return problem.columns.get("source", benchmark)


def overlap(train: Sequence[Problem], test: Sequence[Problem], name: str = "test") -> tuple[Overlap, ...]:
    """Test problems that the training problems ask too, one entry a source (of problems without one: ``name``).

    Generated problems are left out: their benchmark keeps its splits apart, and they are all near each other. A second or two
    for 14,000 training and 1,000 test problems; see :func:`sage.maths.overlap.overlap` for what counts.
    """
    train, test = ([p for p in problems if not is_generated(p)] for problems in (train, test))
    pairs: dict[str, list[Shared]] = {}
    totals = Counter(source_of(problem, name) for problem in test)
    for match in questions.overlap([question_of(p) for p in train], [question_of(p) for p in test]):
        first, second = train[match.first], test[match.second]
        pair = Shared(
            train=first.id,
            test=second.id,
            same=match.same,
            similarity=round(match.similarity, 3),
            contained=round(match.contained, 3),
            same_answer=questions.normalise(first.answer) == questions.normalise(second.answer),
        )
        pairs.setdefault(source_of(second, name), []).append(pair)
    return tuple(
        Overlap(source=source, problems=total, shared=tuple(pairs.get(source, ()))) for source, total in totals.items()
    )


def bad_golds(reward: Reward, problems: Sequence[Problem]) -> dict[str, str]:
    """Problem id -> why the reward cannot use its gold.

    Raises:
        ValueError: the reward is one of another benchmark.
    """
    faults = reward.check(problems)
    return {problem.id: fault for problem, fault in zip(problems, faults, strict=True) if fault is not None}


def check(
    benchmark: Benchmark,
    reward: Reward,
    *,
    against: Sequence[Benchmark] = (),
    count_tokens: CountTokens | None = None,
) -> DataReport:
    """Everything about a benchmark's data.

    Args:
        benchmark: its training problems are compared with its own test problems.
        reward: judges whether golds can be used.
        against: further benchmarks whose test problems the training problems are compared with.
        count_tokens: tokens of each text, where a tokenizer is at hand.

    Raises:
        ValueError: a benchmark refuses its data.
    """
    problems = {split: benchmark.problems(split) for split in Split}
    train = problems[Split.TRAIN]
    limit = getattr(benchmark, "max_prompt_tokens", None)
    splits = [
        _split_report(split, source, [p for p in found if source_of(p, benchmark.name) == source], count_tokens, limit)
        for split, found in problems.items()
        for source in dict.fromkeys(source_of(problem, benchmark.name) for problem in found)
    ]
    overlaps = [*overlap(train, problems[Split.TEST], benchmark.name)] if train else []
    for other in against:
        overlaps += overlap(train, other.problems(Split.TEST), other.name)
    written = [problem for problem in train if not is_generated(problem)]
    near = questions.near_repeats([question_of(problem) for problem in written])
    parts = getattr(benchmark, "parts", (benchmark,))
    return DataReport(
        benchmark=benchmark.name,
        splits=tuple(splits),
        bad_golds=bad_golds(reward, [problem for of_split in problems.values() for problem in of_split]),
        left_out=tuple((*row,) for part in parts for row in getattr(part, "dropped", ())),
        near_repeats=tuple((written[match.second].id, written[match.first].id) for match in near),
        overlaps=tuple(overlaps),
    )


def _split_report(
    split: Split, source: str, problems: Sequence[Problem], count_tokens: CountTokens | None, limit: Any
) -> SplitReport:
    prompts = [problem.prompt for problem in problems]
    tokens = None if count_tokens is None else count_tokens(prompts)
    return SplitReport(
        split=str(split),
        source=source,
        problems=len(problems),
        characters=_lengths([len(prompt) for prompt in prompts]),
        tokens=None if tokens is None else _lengths(tokens),
        too_long=sum(count > limit for count in tokens) if tokens is not None and limit is not None else 0,
    )


def _lengths(counts: Sequence[int]) -> Lengths | None:
    if not counts:
        return None
    cuts = quantiles(counts, n=20, method="inclusive") if len(counts) > 1 else [float(counts[0])] * 19
    return Lengths(median=cuts[9], most_95=cuts[18], longest=max(counts))


def _findings(report: DataReport) -> Iterator[str]:
    if not any(split.problems for split in report.splits):
        yield "there is no problem at all"
    if report.bad_golds:
        yield f"{len(report.bad_golds)} golds cannot be used by the reward"
    reasons = Counter(reason for _, reason, _ in report.left_out)
    if reasons["unusable"]:
        yield f"{reasons['unusable']} rows have no question or no gold, and were left out"
    if reasons["contradicting"]:
        yield f"{reasons['contradicting']} rows give one question different golds, and were left out"
    too_long = sum(split.too_long for split in report.splits)
    if too_long:
        yield f"{too_long} prompts are longer than benchmark.max_prompt_tokens"
    for found in report.overlaps:
        if found.shared:
            yield str(found)
