"""Sums, differences and products: what is asked, and that the splits share no fact."""

from collections.abc import Callable
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.benchmarks.arithmetic import ArithmeticBenchmark
from sage.config import conf_dir
from sage.types import Problem, Split

Build = Callable[..., ArithmeticBenchmark]


def shipped() -> Any:
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return compose("config", ["benchmark=arithmetic"])


@pytest.fixture(scope="module")
def build() -> Build:
    section = shipped().benchmark
    return lambda **options: instantiate(section, _convert_="all", **options)


def fact(problem: Problem) -> tuple[str, int, int]:
    a, b = sorted((problem.columns["a"], problem.columns["b"]))
    return problem.columns["operator"], a, b


def test_the_shipped_benchmark_asks_every_product_of_one_digit_numbers_once_and_brings_its_reward(build: Build) -> None:
    found = {split: build().problems(split) for split in Split}
    problems = [problem for of_split in found.values() for problem in of_split]
    assert {(p.columns["a"], p.columns["b"]) for p in problems} == {(a, b) for a in range(1, 10) for b in range(1, 10)}
    assert len(problems) == 81 == len({problem.id for problem in problems})
    assert [len({*map(fact, found[split])}) for split in Split] == [25, 5, 15]
    example = next(problem for problem in problems if (problem.columns["a"], problem.columns["b"]) == (3, 4))
    assert (example.prompt, example.answer) == ("Calculate 3 * 4.", "12")
    assert shipped().reward.formats == ["number"]


@given(
    operators=st.lists(st.sampled_from("+-*"), min_size=1, max_size=3),
    least=st.integers(0, 20),
    width=st.integers(3, 12),
    seed=st.integers(0, 9),
    negative=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_splits_share_no_fact_and_every_answer_is_right(
    operators: list[str], least: int, width: int, seed: int, negative: bool
) -> None:
    made = ArithmeticBenchmark(
        name="a",
        seed=seed,
        operators=operators,
        min_number=least,
        max_number=least + width,
        negative_results=negative,
        phrasings=["{a} {operator} {b}", "What is {a} {operator} {b}?"],
        test_facts=3,
        validation_facts=2,
        train_facts=4,
        max_prompt_tokens=1,
        max_completion_tokens=1,
    )
    facts = [{*map(fact, made.problems(split))} for split in Split]
    assert [len(of_split) for of_split in facts] == [4, 2, 3]
    assert len(set.union(*facts)) == 9
    for problem in made.problems(Split.TRAIN):
        arithmetic = problem.prompt.removeprefix("What is ").rstrip("?")
        assert problem.answer == str(eval(arithmetic))  # digits and one operator
        assert negative or not problem.answer.startswith("-")


def test_the_test_split_stays_when_others_are_resized_and_moves_with_the_seed(build: Build) -> None:
    ids = [problem.id for problem in build().problems(Split.TEST)]
    resized = build(train_facts=3, validation_facts=9)
    assert [problem.id for problem in resized.problems(Split.TEST)] == ids
    assert [problem.id for problem in build(seed=1).problems(Split.TEST)] != ids


def test_there_are_no_demonstrations(build: Build) -> None:
    assert build().demonstrations() == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operators": ["/"]}, r"benchmark.operators=\['/'\]: expected some of \+, -, \*"),
        ({"operators": []}, r"benchmark.operators=\[\]: expected some of"),
        ({"min_number": 10}, "benchmark.min_number=10, max_number=9: expected 0 <= min_number <= max_number"),
        ({"phrasings": ["Calculate {a}."]}, r"'Calculate {a}\.'; expected texts with {a} and {b} in them"),
        ({"phrasings": []}, "expected texts with {a} and {b}"),
        ({"operators": ["*", "+"], "phrasings": ["{a} * {b}"]}, "and {operator} in them"),
        ({"test_facts": 41}, r"test_facts=41, validation_facts=5, .* that 45 facts are enough for"),
        ({"train_facts": -1}, "train_facts=-1: expected numbers >= 0"),
        ({"max_number": 9999}, "expected at most 1,000,000"),
    ],
)
def test_impossible_options_are_refused_by_name(build: Build, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InstantiationException, match=message):
        build(**options)
