"""A table of questions and golds, on small made files."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from sage.benchmarks.gold import RowError, gold_of, last_box, text_of, value_at
from sage.benchmarks.table import TableBenchmark
from sage.config import conf_dir
from sage.types import Problem, Split

Build = Callable[..., TableBenchmark]
Row = dict[str, Any]


def rows(count: int) -> list[Row]:
    return [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """``write(rows, "a.jsonl")``: the file's path."""

    def call(table: list[Row], name: str = "rows.jsonl") -> str:
        path = tmp_path / name
        if path.suffix == ".parquet":
            from pyarrow import Table, parquet

            parquet.write_table(Table.from_pylist(table), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
        return str(path)

    return call


@pytest.fixture
def build() -> Build:
    """``build(path=..., answer=...)``: ``benchmark=table`` with these options and nothing taken from training."""
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        section = compose("config", ["benchmark=table"]).benchmark
    values = {"validation_problems": 0, "test_problems": 0, "template": "{question}"}
    return lambda **options: instantiate(section, _convert_="all", **(values | options))


def ids(problems: Any) -> list[str]:
    return [problem.id for problem in problems]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_a_local_file_becomes_problems_in_its_order(build: Build, write: Callable[..., str], name: str) -> None:
    problems = build(path=write(rows(3), name)).problems(Split.TRAIN)
    expected = Problem(id="table/train/1", prompt="What is 1 + 1?", answer="2", columns={"question": "What is 1 + 1?"})
    assert (len(problems), problems[1]) == (3, expected)


def test_the_template_leaves_braces_of_latex_alone(build: Build, write: Callable[..., str]) -> None:
    table = [{"question": r"\frac{1}{2}, {question}?", "answer": "1"}]
    made = build(path=write(table), template="Q: {question}\nPut it in \\boxed{}.")
    assert made.problems(Split.TRAIN)[0].prompt == "Q: \\frac{1}{2}, {question}?\nPut it in \\boxed{}."


def test_a_missing_column_is_an_error_that_lists_those_found(build: Build, write: Callable[..., str]) -> None:
    """K51: rows with other column names are refused when they are loaded, with the options to type."""
    table = [{"problem": "What?", "final_answer": ["1"]}]
    for name in ("rows.jsonl", "rows.parquet"):
        with pytest.raises(ValueError, match=r"it has problem, final_answer") as caught:
            build(path=write(table, name)).problems(Split.TRAIN)
        assert "benchmark.question=question, benchmark.answer=answer: no such column in" in str(caught.value)
    renamed = build(path=write(table), question="problem", answer="final_answer[0]")
    assert renamed.problems(Split.TRAIN)[0].answer == "1"


def test_a_list_where_text_is_expected_says_which_path_to_type(build: Build, write: Callable[..., str]) -> None:
    """K49: prompts that are lists of messages need a path to their text."""
    table = [{"question": [{"role": "user", "content": "What is 1 + 1?"}], "answer": ["2"]}]
    with pytest.raises(
        ValueError, match=r"benchmark\.question=question holds a list, .*benchmark\.question='question\[0\]'"
    ):
        build(path=write(table)).problems(Split.TRAIN)
    made = build(path=write(table), question="question[-1].content", answer="answer[0]")
    assert made.problems(Split.TRAIN)[0].prompt == "What is 1 + 1?"


def test_a_relative_path_is_relative_to_where_the_command_was_typed(
    build: Build, write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K58: with and without a change into the job's folder."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    write(rows(2), "d.jsonl")
    monkeypatch.chdir(tmp_path)
    assert len(build(path="./d.jsonl").problems(Split.TRAIN)) == 2
    job = tmp_path / "outputs"
    job.mkdir()
    monkeypatch.chdir(job)
    state = OmegaConf.create({"hydra": {"runtime": {"cwd": str(tmp_path)}}})
    monkeypatch.setattr(HydraConfig.instance(), "cfg", state)
    assert len(build(path="./d.jsonl").problems(Split.TRAIN)) == 2


def test_one_file_for_two_splits_says_what_to_type(build: Build, write: Callable[..., str]) -> None:
    path = write(rows(4))
    splits = {"train": "train", "validation": None, "test": "test"}
    with pytest.raises(ValueError, match=r"'benchmark.path=\{train:FILE,test:FILE\}'"):
        build(path=path, splits=splits).problems(Split.TEST)
    alone = build(path={"test": path}, splits=splits, validation_problems=2)
    assert [len(alone.problems(split)) for split in Split] == [0, 0, 4]


def test_neither_path_nor_hub_is_refused(build: Build) -> None:
    with pytest.raises(ValueError, match=r"type benchmark\.path=FILE or benchmark\.hub=ID"):
        build().problems(Split.TRAIN)


def test_offline_without_a_cache_names_the_local_file_as_the_way_out(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """K52: what cannot be reached is said before anything else is set up."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(ValueError, match=r"benchmark.hub=nobody/nothing: cannot load split 'train'") as caught:
        build(hub="nobody/nothing").problems(Split.TRAIN)
    assert "type benchmark.path=FILE" in str(caught.value)
    assert "columns question, answer" in str(caught.value)


def test_a_gated_dataset_says_what_to_accept(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """K52."""
    import datasets

    def refuse(*_: object, **__: object) -> None:
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'a/b' is a gated dataset on the Hub.")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(ValueError, match=r"accept its terms at https://huggingface.co/datasets/a/b and set HF_TOKEN"):
        build(hub="a/b").problems(Split.TRAIN)


def test_rows_of_the_hub_are_read_like_those_of_a_file(
    build: Build, write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    table, asked = [{**row, "unused": 1} for row in rows(3)], []

    def load(*where: object, **options: object) -> datasets.Dataset:
        asked.append((where, options))
        return datasets.Dataset.from_list(table)

    monkeypatch.setattr(datasets, "load_dataset", load)
    hub = build(hub="a/b", hub_config="main", revision="c0ffee")
    assert hub.problems(Split.TRAIN) == build(path=write(table)).problems(Split.TRAIN)
    assert asked == [(("a/b", "main"), {"split": "train", "revision": "c0ffee"})]
    with pytest.raises(
        ValueError, match=r"benchmark.answer=gold: no such column in split 'train' of a/b; it has question"
    ):
        build(hub="a/b", answer="gold").problems(Split.TRAIN)


@pytest.mark.parametrize("gold", ["", None, "   "])
def test_a_row_without_a_gold_is_refused_or_left_out_and_counted(
    build: Build, write: Callable[..., str], gold: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """K34: nothing may be compared with an empty gold."""
    path = write([*rows(2), {"question": "What?", "answer": gold}])
    with pytest.raises(ValueError, match=r"problem table/train/2 has an empty answer; type benchmark.unusable=drop"):
        build(path=path).problems(Split.TRAIN)
    made = build(path=path, unusable="drop")
    with caplog.at_level(logging.WARNING):
        assert ids(made.problems(Split.TRAIN)) == ["table/train/0", "table/train/1"]
    assert "1 unusable rows left out" in caplog.text
    assert [(row.id, row.reason) for row in made.dropped] == [("table/train/2", "unusable")]


def test_a_repeated_question_stays_once_and_a_contradicting_one_not_at_all(
    build: Build, write: Callable[..., str]
) -> None:
    table = [*rows(3), {"question": "what is $1+1$", "answer": "2"}, {"question": "What is 2+2?", "answer": "5"}]
    made = build(path=write(table))
    assert ids(made.problems(Split.TRAIN)) == ["table/train/0", "table/train/1"]
    assert [(row.id[-1], row.reason) for row in made.dropped] == [
        ("3", "repeated"),
        ("2", "contradicting"),
        ("4", "contradicting"),
    ]
    with pytest.raises(ValueError, match=r"3 rows repeat a question"):
        build(path=write(table), duplicates="refuse").problems(Split.TRAIN)


def test_a_question_of_the_test_split_leaves_the_training_split(build: Build, write: Callable[..., str]) -> None:
    splits = {"train": "train", "validation": None, "test": "test"}
    made = build(path={"train": write(rows(4), "a.jsonl"), "test": write(rows(2), "b.jsonl")}, splits=splits)
    assert ids(made.problems(Split.TEST)) == ["table/test/0", "table/test/1"]
    assert ids(made.problems(Split.TRAIN)) == ["table/train/2", "table/train/3"]


def test_validation_and_test_problems_do_not_depend_on_the_order_of_the_rows(
    build: Build, write: Callable[..., str]
) -> None:
    def questions(table: list[Row], **options: Any) -> list[set[str]]:
        made = build(path=write(table), **({"validation_problems": 5, "test_problems": 7} | options))
        return [{problem.prompt for problem in made.problems(split)} for split in Split]

    train, validation, test = questions(rows(30))
    assert (len(train), len(validation), len(test)) == (18, 5, 7)
    assert not train & validation
    assert not (train | validation) & test
    assert questions(rows(30)[::-1]) == [train, validation, test]
    assert questions(rows(30), split_seed=1) != [train, validation, test]
    # Resizing the validation split moves no test problem.
    assert questions(rows(30), validation_problems=9)[2] == test


def test_more_problems_than_there_are_cannot_be_taken(build: Build, write: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match=r"benchmark.test_problems=3: expected fewer than the 3 problems"):
        build(path=write(rows(3)), test_problems=3).problems(Split.TRAIN)


def test_rows_are_filtered_and_cut_and_keep_their_number(build: Build, write: Callable[..., str]) -> None:
    table = [{**row, "level": n % 3} for n, row in enumerate(rows(9))]
    made = build(path=write(table), where={"level": [1, 2]}, max_rows=3, exclude=["table/train/2"], columns=["level"])
    assert ids(made.problems(Split.TRAIN)) == ["table/train/1", "table/train/4"]
    assert made.problems(Split.TRAIN)[0].columns == {"question": "What is 1 + 1?", "level": 1}
    with pytest.raises(ValueError, match=r"benchmark.where.size=size: no such column"):
        build(path=write(table), where={"size": 1}).problems(Split.TRAIN)
    with pytest.raises(ValueError, match=r"benchmark.exclude: no problem table/train/77"):
        build(path=write(table), exclude=["table/train/77"]).problems(Split.TRAIN)


def test_an_id_that_occurs_twice_is_refused(build: Build, write: Callable[..., str]) -> None:
    table = [{**row, "name": "a"} for row in rows(2)]
    with pytest.raises(ValueError, match=r"benchmark.id=name: table/train/a occurs twice; type benchmark.id=null"):
        build(path=write(table), id="name").problems(Split.TRAIN)


def test_worked_solutions_of_the_training_split_are_demonstrations(build: Build, write: Callable[..., str]) -> None:
    table = [{"question": f"{n}?", "answer": f"It is <<{n}+1={n + 1}>>{n + 1}.\n#### {n + 1}"} for n in range(3)]
    made = build(path=write(table), solution="answer", answer_form="after_hashes", test_problems=1)
    problem, demonstration = made.problems(Split.TRAIN)[0], made.demonstrations()[0]
    assert len(made.demonstrations()) == 2
    assert demonstration.prompt == problem.prompt
    assert demonstration.completion == f"It is {problem.answer}.\nThe answer is $\\boxed{{{problem.answer}}}$."
    assert build(path=write(table)).demonstrations() == ()


def test_the_fingerprint_is_that_of_the_demonstrations_whatever_file_they_come_from(
    build: Build, write: Callable[..., str]
) -> None:
    table = [{"question": f"{n}?", "answer": f"It is {n}.\n#### {n}"} for n in range(3)]
    options = {"solution": "answer", "answer_form": "after_hashes"}
    first = build(path=write(table), **options).fingerprint()
    other_file = build(path=write(table, "other.parquet"), name="x", unusable="drop", **options)
    assert other_file.fingerprint() == first
    assert build(path=write(table[::-1]), **options).fingerprint() != first
    assert build(path=write(table), template="Q: {question}", **options).fingerprint() != first


def test_rows_whose_gold_is_no_number_can_be_left_out(
    build: Build, write: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    golds = ["3", "-2.5", r"\frac{1}{2}", "1,000", "x", "12%"]
    table = [{"question": f"{n}?", "answer": gold} for n, gold in enumerate(golds)]
    made = build(path=write(table), numeric_answers=True)
    with caplog.at_level(logging.INFO):
        assert [problem.answer for problem in made.problems(Split.TRAIN)] == ["3", "-2.5", "1,000"]
    assert "3 train rows left out, whose gold is no number" in caplog.text
    assert made.dropped == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1, 2]\n", "line 1 holds a list; expected one object a line"), ('{"a": 1}\n\n{"a"\n', "line 3 is not JSON")],
)
def test_a_broken_file_is_refused_with_its_line(build: Build, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        build(path=str(path)).problems(Split.TRAIN)


@pytest.mark.parametrize(
    ("name", "message"), [("no.jsonl", "no file"), ("rows.csv", "ends in '.csv'; expected one of")]
)
def test_a_file_that_is_not_there_or_of_another_kind_is_refused(
    build: Build, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "rows.csv").touch()
    with pytest.raises(ValueError, match=message):
        build(path=str(tmp_path / name)).problems(Split.TRAIN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "Answer!"}, r"expected text with \{question\} in it, once"),
        ({"test_problems": -1}, "benchmark.test_problems=-1: expected a whole number >= 0"),
        ({"max_rows": 0}, "benchmark.max_rows=0: expected a whole number >= 1, or null"),
        ({"max_completion_tokens": 0}, "benchmark.max_completion_tokens=0"),
        ({"splits": {"dev": "dev"}}, "benchmark.splits.dev: no such split; expected train, validation, test"),
        ({"path": {"tset": "a"}}, "benchmark.path.tset: no such split"),
        ({"columns": ["solution"]}, "benchmark.columns: solution is a name of ours"),
    ],
)
def test_options_that_cannot_work_are_refused_on_construction(
    build: Build, options: dict[str, Any], message: str
) -> None:
    from hydra.errors import InstantiationException

    with pytest.raises(InstantiationException, match=message):
        build(**options)


@pytest.mark.parametrize(
    ("text", "form", "gold"),
    [
        ("  7 ", "plain", "7"),
        ("$\\frac{1}{2}$", "plain", "\\frac{1}{2}"),
        ("$1$, $2$", "plain", "$1$, $2$"),
        ("025", "integer", "25"),
        ("000", "integer", "0"),
        ("27.0", "integer", "27"),
        ("-3", "integer", "-3"),
        ("so 1,000\n#### 1,000", "after_hashes", "1,000"),
        (r"\boxed{1} or \boxed{\frac{1}{2}}.", "last_box", r"\frac{1}{2}"),
    ],
)
def test_golds_are_taken_out_of_their_column(text: str, form: Any, gold: str) -> None:
    assert gold_of(text, form) == gold


@pytest.mark.parametrize(
    ("text", "form"),
    [("no hashes", "after_hashes"), ("####  ", "after_hashes"), ("no box", "last_box"), (r"\boxed{1", "last_box")],
)
def test_a_column_without_a_gold_is_told_apart(text: str, form: Any) -> None:
    """K34."""
    with pytest.raises(RowError):
        gold_of(text, form)


def test_an_answer_that_is_no_whole_number_is_told_apart() -> None:
    with pytest.raises(RowError, match=r"'1/2', which is no whole number"):
        gold_of("1/2", "integer")


def test_the_last_complete_box_counts_and_escaped_braces_do_not() -> None:
    assert last_box(r"\boxed{\{1, 2\}} and then \boxed{3") == r"\{1, 2\}"
    assert last_box(r"\fbox{7}") == "7"
    assert last_box(r"\boxed 9.") == "9"


def test_floats_that_are_whole_lose_their_point() -> None:
    assert (text_of(27.0, "answer", "a"), text_of(0.5, "answer", "a"), text_of(3, "answer", "a")) == ("27", "0.5", "3")


def test_a_path_goes_into_lists_and_mappings_and_a_plain_name_wins() -> None:
    row = {"a": [{"b": 1}], "a[0]": 2, "c": {"d": {"e": 3}}}
    assert [value_at(row, path) for path in ("a[-1].b", "a[0]", "c.d.e")] == [1, 2, 3]
    with pytest.raises(RowError, match=r"has nothing at a\[1\]"):
        value_at(row, "a[1]")
