"""Verdicts by reasoning-gym's own verifiers; skipped where it is not installed, but for what needs none."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from sage.config import conf_dir
from sage.rewards.reasoning_gym import ReasoningGymReward
from sage.types import Completion, Problem, Split, StopReason, VerdictReason

Make = Callable[..., ReasoningGymReward]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[ReasoningGymReward] = []

    def call(**options: Any) -> ReasoningGymReward:
        with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
            section = compose("config", ["benchmark=reasoning_gym"]).reward
        made.append(instantiate(section, _convert_="all", **({"workers": 1} | options)))
        return made[-1]

    yield call
    for reward in made:
        reward.close()


def problems(task: str) -> list[Problem]:
    pytest.importorskip("reasoning_gym")
    overrides = ["benchmark=reasoning_gym", f"benchmark.task={task}", "benchmark.train_problems=3"]
    overrides += ["benchmark.validation_problems=1", "benchmark.test_problems=1"]
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        made = instantiate(compose("config", overrides).benchmark, _convert_="all")
    return list(made.problems(Split.TRAIN))


def said(text: str, stop_reason: StopReason = StopReason.END) -> Completion:
    return Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=stop_reason)


def test_right_wrong_and_absent_answers_are_told_apart(make: Make) -> None:
    problem = problems("leg_counting")[0]
    texts = [
        f"<think>..</think><answer>{problem.answer}</answer>",
        "<answer>-1</answer>",
        f"It is {problem.answer}.",
        f"<answer>{problem.answer * 2000}</answer>",
    ]
    verdicts = make().score_all([(problem, said(text)) for text in texts])
    assert [(verdict.reward, verdict.reason) for verdict in verdicts] == [
        (1.0, VerdictReason.CORRECT),
        (0.0, VerdictReason.WRONG),
        (0.0, VerdictReason.NO_ANSWER),
        (0.0, VerdictReason.UNPARSABLE),
    ]


def test_part_of_the_score_is_paid_where_asked_and_is_never_correct(make: Make) -> None:
    problem = problems("countdown")[0]
    # The task gives 0.05 for an answer that is an expression of the given numbers and misses the target.
    text = f"<answer>{problem.columns['entry']['metadata']['numbers'][0]}</answer>"
    whole, part = (make(partial=partial).score(problem, said(text)) for partial in (False, True))
    assert (whole.reward, part.reward) == (0.0, whole.parts["score"])
    assert 0 < whole.parts["score"] < 1
    assert part.reason is VerdictReason.WRONG


def test_the_verifiers_accept_their_own_answers(make: Make) -> None:
    reward = make()
    for task in ("leg_counting", "countdown", "sudoku", "polynomial_equations", "word_ladder", "letter_counting"):
        assert reward.check(problems(task)) == [None] * 3, task


def test_hostile_answers_get_a_verdict(make: Make) -> None:
    problem = problems("countdown")[0]
    texts = ["9**9**9**9", "\x00" * 50, "(" * 900, "__import__('os')", "1/0", "{}", "\n".join(["1"] * 500)]
    verdicts = make(cpu_seconds=1).score_all([(problem, said(f"<answer>{text}</answer>")) for text in texts])
    assert [verdict.reward for verdict in verdicts] == [0.0] * len(texts)


def test_a_problem_of_another_benchmark_is_refused_with_what_is_missing(make: Make) -> None:
    problem = Problem(id="x/1", prompt="?", answer="1")
    with pytest.raises(ValueError, match="problem x/1: column 'task' is missing"):
        make().score(problem, said("<answer>1</answer>"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tag": "an swer"}, "reward.tag"),
        ({"workers": 0}, "reward.workers=0: expected a whole number >= 1"),
        ({"wall_seconds": 1.0}, "expected more than reward.cpu_seconds=3"),
    ],
)
def test_options_that_cannot_work_are_refused(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InstantiationException, match=message):
        make(**options)
