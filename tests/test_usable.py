"""Which problems a run may use: golds, prompt lengths, and questions of the test set in the training set."""

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.config import conf_dir
from sage.interfaces import Reward
from sage.types import Completion, Demonstration, Problem, Split, Verdict, VerdictReason
from sage.usable import Usable, usable_problems
from tests.data import data_file
from tests.fakes import tiny_model

TEMPLATE = "Solve: {} Box it."


class Words:
    """One token a word, and a begin token."""

    tokenizer = None

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        return (0, *map(len, prompt.split()))

    def encode_prompts(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        return [self.encode_prompt(prompt) for prompt in prompts]


class Listed:
    """A benchmark of given problems."""

    name = "listed"

    def __init__(self, *train: Problem, test: Sequence[Problem] = ()) -> None:
        self._problems = {Split.TRAIN: train, Split.VALIDATION: (), Split.TEST: tuple(test)}

    def problems(self, split: Split) -> Sequence[Problem]:
        return self._problems[split]

    def demonstrations(self) -> Sequence[Demonstration]:
        return ()

    def fingerprint(self) -> str:
        return ""


class Numbers(Reward):
    """Accepts golds of digits."""

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        right = completion.text == problem.answer and completion.text.isdigit()
        return Verdict(reward=float(right), reason=VerdictReason.CORRECT if right else VerdictReason.UNPARSABLE)

    def check(self, problems: Sequence[Problem]) -> list[str | None]:
        return [None if p.answer.isdigit() else "no digits" for p in problems]


def problem(name: str, question: str, answer: str = "1", **columns: Any) -> Problem:
    columns = {"question": question, **columns}
    return Problem(id=name, prompt=TEMPLATE.format(question), answer=answer, columns=columns)


def use(benchmark: Listed, max_tokens: int = 512, too_long: Any = "error") -> Usable:
    splits = [Split.TRAIN, Split.TEST]
    return usable_problems(benchmark, Numbers(), Words(), splits=splits, max_tokens=max_tokens, too_long=too_long)


def test_a_sound_benchmark_is_left_as_it_is_and_nothing_is_said() -> None:
    train, test = [problem("a", "one?"), problem("b", "two?")], [problem("c", "three?")]
    found = use(Listed(*train, test=test))
    assert (found.problems, found.notes) == ({Split.TRAIN: tuple(train), Split.TEST: tuple(test)}, ())


def test_problems_whose_gold_the_reward_cannot_use_are_left_out_and_named() -> None:
    """K34, K35, K48: not one of them may reach a run, where it would pay everything or nothing."""
    train = [problem("a", "one?", ""), problem("b", "two?"), problem("c", "three?", "see figure")]
    found = use(Listed(*train, test=[problem("d", "four?", "x"), problem("e", "five?", "y"), problem("f", "six?")]))
    assert [[p.id for p in problems] for problems in found.problems.values()] == [["b"], ["f"]]
    # At most three are named.
    fault = "no digits"
    assert found.notes == (
        f"4 problems of listed left out, as the reward cannot use the gold: a ({fault}), c ({fault}), d ({fault})",
    )


def test_golds_that_none_of_the_reward_can_use_end_the_run_before_it_begins() -> None:
    with pytest.raises(ValueError, match=r"the reward can use no gold of listed: a \(no digits\); choose another by"):
        use(Listed(problem("a", "one?", "x")))


LONG = [problem("short", "one?"), problem("long", " ".join(f"w{n}" for n in range(600)))]
"""Beside the question there are four tokens: the begin token, "Solve:", "Box" and "it."."""


def test_a_prompt_that_is_too_long_is_an_error_with_the_number_the_longest_and_what_to_type() -> None:
    """K30: a prompt of 604 tokens under a limit of 512; the chat template counts."""
    with pytest.raises(ValueError, match=r"1 of 3 prompts of listed are longer than prompts.max_tokens=512") as caught:
        use(Listed(*LONG, test=[problem("t", "two?")]))
    assert "the longest has 604 (long): type prompts.max_tokens=604, or prompts.too_long=drop" in str(caught.value)
    assert use(Listed(*LONG), max_tokens=604).notes == ()


def test_a_prompt_that_is_too_long_can_be_left_out_and_is_counted() -> None:
    """K30."""
    found = use(Listed(*LONG, test=[problem("short", "two?"), problem("long", "w " * 550)]), too_long="drop")
    assert [[p.id for p in problems] for problems in found.problems.values()] == [["short"], ["short"]]
    assert found.notes == (
        "2 problems of listed left out: prompts of more than 512 tokens, the longest has 604 (prompts.too_long=drop)",
    )


def test_a_prompt_that_is_too_long_can_lose_the_beginning_of_its_question_and_is_counted() -> None:
    """K30: the template stays whole, and as much of the question as fits."""
    found = use(Listed(*LONG), too_long="cut")
    short, long = found.problems[Split.TRAIN]
    assert short is LONG[0]
    assert long.prompt == TEMPLATE.format(" ".join(f"w{n}" for n in range(600 - 508, 600)))
    assert (long.id, long.answer, long.columns) == (LONG[1].id, LONG[1].answer, LONG[1].columns)
    assert found.notes == (
        "1 problem of listed cut at the beginning of the question: prompts of more than 512 tokens, the longest has 604 "
        "(prompts.too_long=cut)",
    )


def test_a_template_that_leaves_no_room_for_a_question_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"problem long: nothing of its question fits prompts.max_tokens=4 beside"):
        use(Listed(LONG[1]), max_tokens=4, too_long="cut")


class Pairs(Words):
    """One token for each two characters: a cut may fall inside a word, and moves where the pairs are."""

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        return tuple(
            len(word) for part in prompt.split(" ") for word in [part[i : i + 2] for i in range(0, len(part), 2)]
        )


@given(st.text("ab c", min_size=1, max_size=40).filter(str.strip), st.integers(9, 30))
@settings(max_examples=100, deadline=None)
def test_a_cut_prompt_fits_keeps_the_template_and_ends_like_its_question(question: str, limit: int) -> None:
    asked = problem("p", question.strip())
    made = usable_problems(
        Listed(asked), Numbers(), Pairs(), splits=[Split.TRAIN], max_tokens=limit, too_long="cut"
    ).problems[Split.TRAIN][0]
    assert len(Pairs().encode_prompt(made.prompt)) <= limit
    left = made.prompt.removeprefix("Solve: ").removesuffix(" Box it.")
    assert made.prompt == TEMPLATE.format(left)
    assert left.strip()
    assert question.strip().endswith(left)


def test_a_problem_without_a_question_column_is_cut_at_its_beginning() -> None:
    asked = Problem(id="p", prompt="one two three four", answer="1")
    assert use(Listed(asked), max_tokens=3, too_long="cut").problems[Split.TRAIN][0].prompt == "three four"


def test_a_run_says_which_test_sets_its_training_questions_are_in() -> None:
    test = [problem("a/1", "What is 1?", source="a"), problem("a/2", "What is 2?", source="a")]
    test.append(problem("b/1", "What is 3?", source="b"))
    found = use(Listed(problem("t", "what is $2$"), test=test))
    assert found.notes == ("1 of 2 test problems of a are in the training set (1 the same, 0 near)",)
    # Generated problems are near each other by design.
    generated = [problem(p.id, p.columns["question"], generated=True) for p in test]
    assert use(Listed(*generated, test=generated)).notes == ()


def build(*overrides: str) -> tuple[Any, Any]:
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        cfg = compose("config", list(overrides))
    return instantiate(cfg.benchmark, _convert_="all"), instantiate(cfg.reward, _convert_="all")


def test_the_embedded_benchmark_passes_whole_at_no_cost() -> None:
    benchmark, reward = build()
    expected = {split: tuple(benchmark.problems(split)) for split in Split}
    prompts = tiny_model().prompts()
    start = time.monotonic()
    found = usable_problems(benchmark, reward, prompts, splits=[*Split], max_tokens=6, too_long="error")
    assert time.monotonic() - start < 0.3
    assert (found.problems, found.notes) == (expected, ())


def test_a_reward_of_another_benchmark_is_refused_with_what_it_needs() -> None:
    _, reward = build()
    with pytest.raises(ValueError, match="reward=countdown needs the columns numbers and target"):
        usable_problems(
            Listed(problem("a", "one?")), reward, Words(), splits=[Split.TRAIN], max_tokens=9, too_long="error"
        )


def test_neither_a_model_nor_the_configuration_is_imported() -> None:
    code = "import sys, sage.usable; print([m for m in ('torch', 'transformers', 'hydra') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_papers_training_set_and_its_test_sets_pass_in_seconds_and_share_what_they_share() -> None:
    """K48: every gold can be used. A reader found 24 of AMC23's 40 problems; id 18 is there with a sentence appended."""
    names = {"aime24": "aime24", "aime25": "aime25", "amc23": "amc23", "math500": "math500", "minerva": "minerva_math"}
    tests = [f"benchmark.test.{name}.path={data_file(f'{file}.jsonl')}" for name, file in names.items()]
    train = f"benchmark.train.path={data_file('dapo_math_17k_en.jsonl')}"
    benchmark, reward = build("benchmark=paper_math", train, *tests)
    start = time.monotonic()
    found = usable_problems(benchmark, reward, Words(), splits=[*Split], max_tokens=2048, too_long="error")
    assert time.monotonic() - start < 30  # two or three on an idle machine
    reward.close()
    assert [len(problems) for problems in found.problems.values()] == [13321, 128, 872]
    amc, math500 = found.notes
    assert amc.startswith("25 of 40 test problems of amc23 are in the training set")
    assert "test problems of math500 are in the training set" in math500
