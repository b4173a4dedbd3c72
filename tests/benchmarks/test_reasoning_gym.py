"""Tasks of the package reasoning-gym; skipped where it is not installed, but for what is said without it."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from sage.benchmarks.reasoning_gym import ReasoningGymBenchmark
from sage.config import conf_dir
from sage.types import Split

Build = Callable[..., ReasoningGymBenchmark]


@pytest.fixture
def build() -> Build:
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        section = compose("config", ["benchmark=reasoning_gym"]).benchmark
    sizes = {"train_problems": 20, "validation_problems": 5, "test_problems": 8}
    return lambda **options: instantiate(section, _convert_="all", **(sizes | options))


def questions(made: ReasoningGymBenchmark) -> list[list[str]]:
    return [[problem.columns["question"] for problem in made.problems(split)] for split in Split]


def test_without_the_package_the_message_says_what_to_install(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError, match=r"pip install reasoning-gym"):
        build().problems(Split.TRAIN)


def test_the_splits_share_no_question_and_come_out_the_same_again(build: Build) -> None:
    pytest.importorskip("reasoning_gym")
    train, validation, test = questions(build())
    assert (len(train), len(validation), len(test)) == (20, 5, 8)
    assert len({*train, *validation, *test}) == 33
    assert questions(build()) == [train, validation, test]
    # Resizing the training split moves no test problem; another seed moves all.
    assert questions(build(train_problems=3))[2] == test
    assert not {*questions(build(seed=1))[2]} & {*test}


def test_a_problem_carries_what_the_tasks_own_verifier_needs(build: Build) -> None:
    pytest.importorskip("reasoning_gym")
    problem = build(options={"min_animals": 2, "max_animals": 2}).problems(Split.TEST)[0]
    assert problem.id == "reasoning_gym/leg_counting/test/0"
    assert problem.columns["entry"]["metadata"]["num_animals"] == 2
    assert problem.answer == problem.columns["entry"]["answer"]
    assert problem.prompt.endswith("between <answer> and </answer>.")


def test_unknown_tasks_and_options_are_refused_with_what_there_is(build: Build) -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ValueError, match=r"benchmark.task=leg_countin: .*; did you mean leg_counting\?"):
        build(task="leg_countin").problems(Split.TRAIN)
    with pytest.raises(ValueError, match=r"leg_counting does not take them: .*legs"):
        build(options={"legs": 3}).problems(Split.TRAIN)
    with pytest.raises(ValueError, match=r"leg_counting does not take them"):
        build(options={"min_animals": 9, "max_animals": 2}).problems(Split.TRAIN)


def test_a_task_with_too_few_questions_says_so(build: Build) -> None:
    pytest.importorskip("reasoning_gym")
    tiny = {"min_animals": 1, "max_animals": 1, "max_instances": 1}
    with pytest.raises(
        ValueError, match=r"benchmark.train_problems=500: leg_counting gave \d+ new questions in 10,000"
    ):
        build(train_problems=500, test_problems=2, validation_problems=2, options=tiny).problems(Split.TRAIN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 85}, "benchmark.seed=85: expected 0 to 84"),
        ({"train_problems": -1}, "benchmark.train_problems=-1: expected a whole number from 0 to 838860"),
        ({"template": "{}"}, r"expected text with \{question\} in it"),
        ({"options": {"seed": 1}}, "benchmark.options.seed: set here"),
    ],
)
def test_options_that_cannot_work_are_refused(build: Build, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InstantiationException, match=message):
        build(**options)
