"""Which problems of a benchmark a run may use, decided once, when the data is loaded, and said in sentences."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sage.datacheck import bad_golds, overlap
from sage.interfaces import Benchmark, PromptEncoder, Reward
from sage.types import Problem, Split

TooLong = Literal["error", "drop", "cut"]
_EXAMPLES = 3
_WORD = re.compile(r"(?<=\s)\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """The problems of a run."""

    problems: Mapping[Split, tuple[Problem, ...]]
    """Of each split that was asked for, in the benchmark's order."""
    notes: tuple[str, ...]
    """What is not as the benchmark has it, one sentence each, for the first screen and the log."""
    longest: int
    """Tokens of the longest prompt that is left."""


def usable_problems(
    benchmark: Benchmark,
    reward: Reward,
    prompts: PromptEncoder,
    *,
    splits: Sequence[Split],
    max_tokens: int,
    too_long: TooLong,
) -> Usable:
    """The problems whose gold the reward can use and whose prompt fits.

    Args:
        benchmark: has the problems.
        reward: says which golds it cannot use; their problems are left out.
        prompts: the model's tokenizer and chat template.
        splits: those that the run needs.
        max_tokens: of an encoded prompt, chat template included.
        too_long: on a longer one: refuse to run (``error``), leave the problem out (``drop``), or leave out the beginning of
            its question (``cut``).

    Raises:
        ValueError: the benchmark refuses its data, the reward is one of another benchmark, no gold can be used, or a prompt is
            too long and may not be (or cannot be) made shorter.
    """
    found = {split: tuple(benchmark.problems(split)) for split in splits}
    notes = list(_shared_questions(found, benchmark.name))
    faults = bad_golds(reward, [problem for problems in found.values() for problem in problems])
    if faults:
        named = ", ".join(f"{name} ({fault})" for name, fault in list(faults.items())[:_EXAMPLES])
        found = {split: tuple(p for p in problems if p.id not in faults) for split, problems in found.items()}
        if not any(found.values()):
            raise ValueError(
                f"the reward can use no gold of {benchmark.name}: {named}; choose another by reward=NAME, or "
                "let the check() of your own return None for each"
            )
        notes.append(f"{_count(len(faults), benchmark)} left out, as the reward cannot use the gold: {named}")
    lengths = _lengths(found, prompts)
    long = {key: length for key, length in lengths.items() if length > max_tokens}
    if long:
        found = _shortened(found, long, prompts, benchmark.name, max_tokens, too_long)
        done = "left out" if too_long == "drop" else "cut at the beginning of the question"
        notes.append(
            f"{_count(len(long), benchmark)} {done}: prompts of more than {max_tokens} tokens, the longest has "
            f"{max(long.values())} (prompts.too_long={too_long})"
        )
    longest = max((min(length, max_tokens) for length in lengths.values()), default=0)
    return Usable(problems=found, notes=tuple(notes), longest=longest)


def _count(number: int, benchmark: Benchmark) -> str:
    return f"{number} problem{'' if number == 1 else 's'} of {benchmark.name}"


def _shared_questions(found: Mapping[Split, Sequence[Problem]], name: str) -> Iterator[str]:
    """One sentence a test set that shares questions with the training set."""
    train, test = ([p for p in found.get(split, ()) if "question" in p.columns] for split in (Split.TRAIN, Split.TEST))
    if train and test:
        yield from (str(shared) for shared in overlap(train, test, name) if shared.shared)


def _lengths(found: Mapping[Split, Sequence[Problem]], prompts: PromptEncoder) -> dict[tuple[Split, str], int]:
    """Split and problem id -> tokens of the encoded prompt."""
    asked = [(split, problem) for split, problems in found.items() for problem in problems]
    encoded = prompts.encode_prompts([problem.prompt for _, problem in asked])
    return {(split, problem.id): len(ids) for (split, problem), ids in zip(asked, encoded, strict=True)}


def _shortened(
    found: Mapping[Split, Sequence[Problem]],
    long: Mapping[tuple[Split, str], int],
    prompts: PromptEncoder,
    name: str,
    max_tokens: int,
    too_long: TooLong,
) -> dict[Split, tuple[Problem, ...]]:
    """All problems, the long ones left out or cut."""
    if too_long == "error":
        (_, longest), most = max(long.items(), key=lambda item: item[1])
        total = sum(map(len, found.values()))
        raise ValueError(
            f"{len(long)} of {total} prompts of {name} are longer than prompts.max_tokens={max_tokens}, chat template "
            f"included; the longest has {most} ({longest}): type prompts.max_tokens={most}, or prompts.too_long=drop to "
            "leave them out, or prompts.too_long=cut to leave out the beginning of their questions"
        )
    if too_long == "drop":
        return {split: tuple(p for p in problems if (split, p.id) not in long) for split, problems in found.items()}
    return {
        split: tuple(_cut(p, prompts, max_tokens) if (split, p.id) in long else p for p in problems)
        for split, problems in found.items()
    }


def _cut(problem: Problem, prompts: PromptEncoder, max_tokens: int) -> Problem:
    """The problem with as much of the end of its question as fits, from the beginning of a word."""
    question = str(problem.columns.get("question", "")).strip()
    before, found, after = problem.prompt.partition(question) if question else ("", "", "")
    if not found:  # it has no template that is known
        before, question, after = "", problem.prompt, ""

    def fits(start: int) -> bool:
        return len(prompts.encode_prompt(before + question[start:] + after)) <= max_tokens

    start = bisect_left(range(len(question)), True, key=fits)
    word = _WORD.search(question, start)
    start = start if word is None else word.start()
    # Tokens do not fall one by one with the characters, so that what is left may be a token longer than it was.
    while start < len(question) and not fits(start):
        start += 1
    if not question[start:].strip():
        raise ValueError(
            f"problem {problem.id}: nothing of its question fits prompts.max_tokens={max_tokens} beside the template of "
            f"{len(prompts.encode_prompt(before + after))} tokens: type a larger prompts.max_tokens"
        )
    return replace(problem, prompt=before + question[start:] + after)
