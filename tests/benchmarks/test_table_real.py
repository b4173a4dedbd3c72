"""Every benchmark that we ship, on its real rows."""

import re
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from sage.benchmarks.gold import last_box
from sage.benchmarks.table import TableBenchmark
from sage.config import conf_dir
from sage.types import Split
from tests.data import data_file


def build(name: str, path: Any, **options: Any) -> TableBenchmark:
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        section = compose("config", [f"benchmark={name}"]).benchmark
    return instantiate(section, _convert_="all", path=path, **options)


@pytest.mark.parametrize(
    ("name", "file", "count", "first"),
    [
        ("math500", "math500.jsonl", 500, r"\left( 3, \frac{\pi}{2} \right)"),
        ("aime24", "aime24.jsonl", 30, "204"),
        ("aime25", "aime25.jsonl", 30, "70"),
        ("amc23", "amc23.jsonl", 40, "27"),  # 27.0 in the file
        ("minerva", "minerva_math.jsonl", 272, "1.6"),
        ("olympiadbench", "olympiadbench.jsonl", 675, "2"),  # ["2"] in the file
    ],
)
def test_a_test_set_loads_whole(name: str, file: str, count: int, first: str) -> None:
    made = build(name, str(data_file(file)))
    assert [len(made.problems(split)) for split in Split] == [0, 0, count]
    assert made.problems(Split.TEST)[0].answer == first
    assert made.dropped == []
    assert all(problem.prompt.endswith("\\boxed{}.") for problem in made.problems(Split.TEST))


def test_gsm8k_takes_the_answer_behind_the_hashes() -> None:
    paths = {"train": str(data_file("gsm8k_train_2k.jsonl")), "test": str(data_file("gsm8k_test.jsonl"))}
    made = build("gsm8k", paths)
    assert [len(made.problems(split)) for split in Split] == [1800, 200, 1319]
    golds = [problem.answer for problem in made.problems(Split.TEST)]
    assert golds[:2] == ["18", "3"]
    assert all(gold.replace(",", "").lstrip("-").isdigit() for gold in golds)
    assert not any("<<" in demonstration.completion for demonstration in made.demonstrations())


def test_dapo_loses_its_repeats_and_contradictions() -> None:
    made = build("dapo_math", str(data_file("dapo_math_17k_en.jsonl")))
    reasons = [row.reason for row in made.dropped]
    sizes = [len(made.problems(split)) for split in Split]
    assert sum(sizes) + len(reasons) == 14116
    # At least the 17 contradicting groups of two or more rows that a stricter comparison finds.
    assert reasons.count("contradicting") >= 34
    assert reasons.count("repeated") >= 600
    assert sizes[1:] == [128, 256]
    assert all(problem.answer.lstrip("-").isdigit() for problem in made.problems(Split.TRAIN))


def test_the_box_of_a_math_solution_is_the_answer_of_those_who_took_it_out_before() -> None:
    made = build("math_train", str(data_file("math_train_2k.jsonl")), columns=["answer"])
    problems = [problem for split in Split for problem in made.problems(split)]
    assert [problem.id for problem in problems if problem.answer != problem.columns["answer"].strip("$")] == []
    assert len(problems) + len(made.dropped) == 2000


def test_solutions_of_math_are_worked_and_end_in_their_numeric_answer_in_a_box() -> None:
    made = build("math_train", str(data_file("math_train_2k.jsonl")), numeric_answers=True)
    problems, shown = made.problems(Split.TRAIN), made.demonstrations()
    assert [last_box(d.completion) for d in shown] == [problem.answer for problem in problems]
    assert [d.prompt for d in shown] == [problem.prompt for problem in problems]
    assert all(re.fullmatch(r"-?[\d,]*\.?\d+", problem.answer) for problem in problems)
    # Steps stand before the box in nearly all; seven in ten of the 2,000 have a number as answer.
    assert sum(len(d.completion) > 3 * len(d.prompt) // 10 for d in shown) > 0.9 * len(shown)
    assert 800 < len(shown) < 1400


def test_every_math500_answer_is_the_last_box_of_its_solution() -> None:
    made = build("math500", str(data_file("math500.jsonl")), solution="solution")
    assert all(last_box(problem.columns["solution"]) == problem.answer for problem in made.problems(Split.TEST))
