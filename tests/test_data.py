"""``sage-data check``: what it finds, what it prints, how it ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sage.datacheck import bad_golds, check, overlap
from sage.interfaces import Reward
from sage.types import Problem, Split, Verdict, VerdictReason
from tests.data import data_file

Run = Callable[..., subprocess.CompletedProcess[str]]

IN_DAPO = {3, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15, 16, 19, 22, 25, 26, 28, 30, 32, 41, 44, 46, 47, 48}
"""Ids of the AMC 2023 problems that a reader found in DAPO-Math."""
IN_DAPO_500 = {f"intermediate_algebra/{n}" for n in (90, 991, 1411, 1849, 2146, 345, 582, 964, 1063)} | {
    "algebra/1282",
    "geometry/229",
    "geometry/561",
    "counting_and_probability/1003",
    "counting_and_probability/430",
}
"""Those of MATH-500."""


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Run:
    """Run the command with these arguments in an empty folder."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"}
        command = [sys.executable, "-m", "sage.data", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    return call


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


class Listed:
    """A benchmark of given problems."""

    name = "listed"
    max_prompt_tokens = 3

    def __init__(self, train: list[Problem], test: list[Problem]) -> None:
        self._problems = {Split.TRAIN: train, Split.VALIDATION: [], Split.TEST: test}

    def problems(self, split: Split) -> list[Problem]:
        return self._problems[split]

    def demonstrations(self) -> list[Any]:
        return []

    def fingerprint(self) -> str:
        return ""


class Says(Reward):
    """Accepts the answers that are whole numbers."""

    def score(self, problem: Problem, completion: Any) -> Verdict:
        right = completion.text.isdigit() and completion.text == problem.answer
        return Verdict(reward=float(right), reason=VerdictReason.CORRECT if right else VerdictReason.UNPARSABLE)


def problem(name: str, question: str, answer: str = "1", **columns: Any) -> Problem:
    return Problem(id=name, prompt=f"Q: {question} Box it.", answer=answer, columns={"question": question, **columns})


def test_the_template_does_not_make_two_questions_alike() -> None:
    template = "Think step by step and put nothing but the final answer in a box, please, as usual. "
    first = Problem(id="a", prompt=template + "One?", answer="1", columns={"question": "One?"})
    second = Problem(id="b", prompt=template + "Two?", answer="1", columns={"question": "Two?"})
    (found,) = overlap([first], [second])
    assert found.shared == ()


def test_overlap_is_told_for_each_source() -> None:
    test = [problem("a/1", "What is 1?", source="a"), problem("a/2", "What is 2?", source="a")]
    test.append(problem("b/1", "What is 3?", "7", source="b"))
    first, second = overlap([problem("t/1", "what is $2$"), problem("t/2", "What is 3")], test)
    assert str(first) == "1 of 2 test problems of a are in the training set (1 the same, 0 near)"
    assert [(pair.train, pair.test, pair.same_answer) for pair in first.shared] == [("t/1", "a/2", True)]
    assert [(pair.train, pair.test, pair.same_answer) for pair in second.shared] == [("t/2", "b/1", False)]


def test_generated_problems_are_near_each_other_by_design_and_not_compared() -> None:
    words = "How many legs are there in all if you have {} horses and a cat?"
    made = [problem(str(n), words.format(n), generated=True) for n in range(4)]
    written = [problem(str(n), words.format(n)) for n in range(4)]
    assert overlap(made[:2], made[2:]) == ()
    assert [len(found.near) for found in overlap(written[:2], written[2:])] == [2]
    assert check(Listed(made, []), Says()).near_repeats == ()
    assert len(check(Listed(written, []), Says()).near_repeats) == 6


def test_golds_are_judged_by_whatever_the_reward_offers() -> None:
    """K34, K48: golds that cannot be compared with themselves are named before any model is loaded."""
    problems = [problem("1", "a", "7"), problem("2", "b", "see figure")]
    assert bad_golds(Says(), problems) == {}  # it looks at no gold as far as anybody knows

    class Checks(Says):
        def check(self, problems: Sequence[Problem]) -> list[str | None]:
            return [None if p.answer == "see figure" else f"no {p.answer}" for p in problems]

    assert bad_golds(Checks(), problems) == {"1": "no 7"}


def test_a_prompt_above_the_limit_is_counted() -> None:
    """K30."""
    made = Listed([problem("1", "one"), problem("2", "one two three")], [])
    report = check(made, Says(), count_tokens=lambda texts: [len(text.split()) for text in texts])
    # "Q:", "Box" and "it." are three words beside the question's.
    assert [(split.tokens.longest, split.too_long) for split in report.splits if split.tokens] == [(6, 2)]
    assert report.findings == ["2 prompts are longer than benchmark.max_prompt_tokens"]


def test_nothing_at_all_is_a_finding() -> None:
    assert check(Listed([], []), Says()).findings == ["there is no problem at all"]


def test_a_sound_benchmark_ends_with_0(run: Run) -> None:
    result = run("check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "nothing wrong" in result.stdout
    assert "countdown" in result.stdout


def test_what_is_wrong_is_counted_written_as_json_and_ends_with_1(run: Run, tmp_path: Path) -> None:
    """K34, K35, K48: a gold that cannot be judged is found, bare LaTeX is not one."""
    train = [{"question": f"How many is {n}?", "answer": str(n)} for n in range(4)]
    train += [{"question": "How many is 1", "answer": "1"}, {"question": "how many is 2", "answer": "3"}]
    train += [{"question": f"Simplify {n}", "answer": gold} for n, gold in enumerate(["\\sqrt{17}", "1-\\sqrt{2}"])]
    train += [{"question": "Guess", "answer": "\\frac{1}{"}, {"question": "Empty", "answer": ""}]
    path = write(tmp_path / "rows.jsonl", train)
    other = write(tmp_path / "amc.jsonl", [{"id": 3, "question": "How many is $3$", "answer": 3.0}])
    result = run(
        "check",
        *("benchmark=table", f"benchmark.path={path}", "benchmark.unusable=drop"),
        *("benchmark.validation_problems=0", "benchmark.test_problems=0"),
        *("--against", f"amc23={other}", "--json", "report.json"),
    )
    assert result.returncode == 1, result.stdout + result.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["findings"] == [
        "1 golds cannot be used by the reward",
        "1 rows have no question or no gold, and were left out",
        "2 rows give one question different golds, and were left out",
        "1 of 1 test problems of amc23 are in the training set (1 the same, 0 near)",
    ]
    assert [*report["bad_golds"]] == ["table/train/8"]
    assert report["overlaps"][0]["same"] == ["amc23/test/3"]
    assert [row[:2] for row in report["left_out"]] == [
        ["table/train/9", "unusable"],
        ["table/train/4", "repeated"],
        ["table/train/2", "contradicting"],
        ["table/train/5", "contradicting"],
    ]
    for finding in report["findings"]:
        assert finding in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["benchmark=amc32"], "id you mean benchmark=amc23?"),
        (["benchmark=table", "benchmark.path=no.jsonl"], "benchmark.path: no file "),
        (["benchmark=table", "benchmark.fpath=no.jsonl"], "did you mean benchmark.path?"),
        (["--config-dir", "nowhere"], "--config-dir=nowhere: no such folder"),
        (["benchmark=table", "benchmark.template=x"], "expected text with {question} in it"),
    ],
)
def test_what_cannot_be_checked_ends_with_2_and_a_short_message(run: Run, arguments: list[str], message: str) -> None:
    result = run("check", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_whole_of_dapo_shares_what_a_reader_found_with_amc23_and_math500(run: Run, tmp_path: Path) -> None:
    """24 of the 40 AMC 2023 problems, and at least 14 of MATH-500, in less than a minute."""
    files = {name: data_file(f"{name}.jsonl") for name in ("dapo_math_17k_en", "amc23", "math500")}
    start = time.monotonic()
    result = run(
        "check",
        *("benchmark=dapo_math", f"benchmark.path={files['dapo_math_17k_en']}", "benchmark.test_problems=0"),
        *("benchmark.validation_problems=0", "--json", "report.json"),
        *(f"--against={name}={files[name]}" for name in ("amc23", "math500")),
    )
    seconds = time.monotonic() - start
    assert result.returncode == 1, result.stdout + result.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    amc, math500 = report["overlaps"]
    assert {int(name.rpartition("/")[2]) for name in (*amc["same"], *amc["near"])} >= IN_DAPO
    assert len(amc["same"]) >= 7
    found = {
        name.removeprefix("math500/test/test/").removesuffix(".json") for name in (*math500["same"], *math500["near"])
    }
    assert found >= IN_DAPO_500
    # Sister problems with other numbers are near too; the data's own description counts 25 with them.
    assert len(found) <= 40
    assert report["bad_golds"] == {}
    assert seconds < 60


@pytest.mark.parametrize(("name", "near"), [("math500", 15), ("olympiadbench", 3)])
def test_sister_problems_of_the_math_training_sample_are_near_and_not_the_same(name: str, near: int) -> None:
    def problems(file: str, column: str) -> list[Problem]:
        rows = [json.loads(line) for line in data_file(file).read_text(encoding="utf-8").splitlines()]
        return [problem(f"{file}/{n}", row[column]) for n, row in enumerate(rows)]

    column = {"math500": "problem", "olympiadbench": "question"}[name]
    (found,) = overlap(problems("math_train_2k.jsonl", "problem"), problems(f"{name}.jsonl", column))
    assert len(found.same) == {"math500": 0, "olympiadbench": 1}[name]
    assert abs(len(found.near) - near) <= 2
