"""Train on one benchmark, evaluate on others."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from sage.benchmarks.combined import CombinedBenchmark
from sage.config import conf_dir
from sage.types import Split

TESTS = {"aime24": "problem", "aime25": "problem", "amc23": "question", "math500": "problem", "minerva": "question"}


@pytest.fixture
def overrides(tmp_path: Path) -> list[str]:
    """``benchmark=paper_math`` on small files: 200 training problems, one of them AMC23's, and 2 a test set."""

    def write(name: str, rows: list[dict[str, Any]]) -> str:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    train = [{"prompt": f"Count the {n} sheep.", "solution": str(n)} for n in range(200)]
    train.append({"prompt": "amc23 $0$", "solution": "0"})
    shown = [(f"{n}?", gold) for n, gold in enumerate(["3", "-1{,}000", r"\frac{1}{2}", "2.5", "1,250", "x"])]
    sft = [{"problem": q, "solution": rf"So \boxed{{{gold}}}.", "level": "", "type": ""} for q, gold in shown]
    found = ["benchmark=paper_math", f"benchmark.train.path={write('dapo', train)}"]
    found.append(f"benchmark.sft.path={write('sft', sft)}")
    for name, question in TESTS.items():
        extra = {"id": 0, "unique_id": "", "subject": "", "level": 1}
        rows = [{**extra, "id": n, "unique_id": f"u{n}", question: f"{name} {n}?", "answer": str(n)} for n in range(2)]
        found.append(f"benchmark.test.{name}.path={write(name, rows)}")
    return found


def build(overrides: list[str]) -> CombinedBenchmark:
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return instantiate(compose("config", overrides).benchmark, _convert_="all")


def test_the_papers_setting_trains_on_one_and_tests_on_five(overrides: list[str]) -> None:
    made = build(overrides)
    assert [len(made.problems(split)) for split in Split] == [73, 128, 10]
    assert [problem.columns["source"] for problem in made.problems(Split.TEST)] == [n for n in TESTS for _ in range(2)]
    assert {problem.columns["source"] for problem in made.problems(Split.TRAIN)} == {"dapo_math"}
    names = [problem.id for split in Split for problem in made.problems(split)]
    assert len(names) == len(set(names))


def test_the_math_reward_comes_with_it_and_another_can_be_chosen(overrides: list[str]) -> None:
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        chosen = [compose("config", [*overrides, *more]).reward._target_ for more in ([], ["reward=countdown"])]
    assert [target.rpartition(".")[2] for target in chosen] == ["MathReward", "CountdownReward"]


def test_training_problems_that_a_test_set_asks_can_be_left_out(overrides: list[str]) -> None:
    made = build([*overrides, "benchmark.drop_overlap=true"])
    assert sum(len(made.problems(split)) for split in (Split.TRAIN, Split.VALIDATION)) == 200


def test_worked_solutions_with_numeric_answers_of_a_third_benchmark_are_shown(overrides: list[str]) -> None:
    made = build(overrides)
    shown = made.demonstrations()
    assert [d.completion for d in shown] == [rf"So \boxed{{{gold}}}." for gold in ("3", "2.5", "1,250")]
    assert shown[0].prompt == "0?\n\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert len(build([*overrides, "benchmark.sft.numeric_answers=false"]).demonstrations()) == 6
    # DAPO-Math has no solutions.
    assert build([*overrides, "benchmark.sft=null"]).demonstrations() == ()


def test_the_demonstrations_are_read_only_when_they_are_asked_for(overrides: list[str]) -> None:
    made = build([*overrides, "benchmark.sft.path=/nowhere.jsonl"])
    assert len(made.problems(Split.TEST)) == 10
    for asked in (made.demonstrations, made.fingerprint):
        with pytest.raises(ValueError, match=r"^benchmark\.sft\.path: no file"):
            asked()


def test_the_fingerprint_is_that_of_the_texts_shown(overrides: list[str], tmp_path: Path) -> None:
    made = build(overrides)
    file = tmp_path / "sft.jsonl"
    copy = tmp_path / "copy.jsonl"
    copy.write_text(file.read_text())
    assert build([*overrides, f"benchmark.sft.path={copy}"]).fingerprint() == made.fingerprint()
    copy.write_text(file.read_text().replace("So", "so", 1))
    assert build([*overrides, f"benchmark.sft.path={copy}"]).fingerprint() != made.fingerprint()
    assert build([*overrides, "benchmark.sft=null"]).fingerprint() != made.fingerprint()


def test_an_option_of_a_part_is_named_as_it_is_typed(overrides: list[str]) -> None:
    with pytest.raises(ValueError, match=r"benchmark\.test\.amc23\.answer=gold: no such column in .*amc23.jsonl"):
        build([*overrides, "benchmark.test.amc23.answer=gold"]).problems(Split.TRAIN)
    with pytest.raises(ValueError, match=r"^benchmark\.train\.path: no file"):
        build([*overrides, "benchmark.train.path=/nowhere.jsonl"]).problems(Split.TRAIN)


def test_a_part_has_the_name_of_its_section(overrides: list[str]) -> None:
    with pytest.raises(InstantiationException, match=r"benchmark.test.amc23.name=amc: expected amc23"):
        build([*overrides, "benchmark.test.amc23.name=amc"])


def test_a_part_can_be_left_out_on_the_command_line(overrides: list[str]) -> None:
    made = build([*[o for o in overrides if "minerva" not in o], "~benchmark.test.minerva"])
    assert len(made.problems(Split.TEST)) == 8
