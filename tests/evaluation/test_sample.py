"""Drawing: streams, batches, the samples file and its resumption."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage.config import ConfigError
from sage.evaluation.files import read_jsonl
from sage.evaluation.sample import draw, load_samples
from sage.types import Group, Problem, Sampling, Split

Drawing = Callable[..., list[Group]]


@pytest.fixture
def drawing(
    engine: Any, policy: Any, problems: list[Problem], sampling: Sampling, progress: Any, tmp_path: Path
) -> Any:
    """``draw`` with settings that a test may override."""

    def run(**changes: Any) -> list[Group]:
        chosen = changes.pop("problems", problems)
        known: dict[str, Any] = {
            "sampling": sampling,
            "n": 6,
            "seed": 0,
            "split": Split.TEST,
            "batch_size": 4,
            "keep_tokens": 4,
        }
        known |= {"path": tmp_path / f"{uuid4()}" / "samples.jsonl", "progress": progress, "title": "test"}
        known |= changes
        known["path"].parent.mkdir(exist_ok=True)
        return draw(policy, engine, chosen, **known)

    return run


def test_batches_are_full_and_change_no_completion(drawing: Drawing, engine: Any) -> None:
    """5 problems x 6 samples: 7 batches of 4 and one of 2."""
    small = drawing(batch_size=4)
    assert [sum(len(r.keys) for r in call) for call in engine.calls] == [4] * 7 + [2]
    assert drawing(batch_size=1000) == small
    assert drawing(batch_size=1) == small
    assert all(len(group.completions) == 6 for group in small)


def test_seeds_problems_and_samples_never_share_a_stream(drawing: Drawing, engine: Any) -> None:
    """K46: seeds 0 and 64, 128 samples drawn in chunks of 64."""
    for seed in (0, 64):
        drawing(seed=seed, n=128, batch_size=64)
    keys = [key for call in engine.calls for request in call for key in request.keys]
    assert len(keys) == 2 * 5 * 128
    assert len(set(keys)) == len(keys)


def test_a_sample_depends_on_its_problem_and_number_alone(drawing: Drawing, problems: list[Problem]) -> None:
    """K46: not on what else is drawn, on n, or on the name of the stage."""
    whole = drawing()
    part = drawing(problems=problems[3:], n=2, title="step 50")
    assert [group.completions for group in part] == [group.completions[:2] for group in whole[3:]]


def test_splits_have_streams_of_their_own(drawing: Drawing) -> None:
    assert drawing(split=Split.VALIDATION) != drawing(split=Split.TEST)


def test_greedy_samples_warn_that_they_are_equal(drawing: Drawing, sampling: Sampling) -> None:
    """K45."""
    with pytest.warns(UserWarning, match=r"temperature 0 with n=8: all samples of a problem are equal") as caught:
        drawing(sampling=replace(sampling, temperature=0.0), n=8)
    assert len(caught) == 1


@pytest.mark.parametrize(("temperature", "n"), [(0.0, 1), (0.7, 8)])
def test_one_greedy_sample_or_a_temperature_gives_no_warning(
    drawing: Drawing, sampling: Sampling, temperature: float, n: int
) -> None:
    """K45."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing(sampling=replace(sampling, temperature=temperature), n=n)


def test_the_file_has_a_row_per_sample_and_reads_back(
    drawing: Drawing, problems: list[Problem], tmp_path: Path
) -> None:
    groups = drawing(path=tmp_path / "samples.jsonl")
    rows = read_jsonl(tmp_path / "samples.jsonl")
    assert [(row["problem_id"], row["sample"]) for row in rows] == [(p.id, s) for p in problems for s in range(6)]
    assert set(rows[0]) == {"problem_id", "sample", "text", "num_tokens", "stop_reason", "token_ids"}
    assert [len(row.get("token_ids", ())) for row in rows[:6]] == [row["num_tokens"] for row in rows[:4]] + [0, 0]
    loaded = load_samples(tmp_path / "samples.jsonl", problems)
    for ours, read in zip(groups, loaded, strict=True):
        assert (read.problem, read.completions) == (ours.problem, ours.completions)


def test_samples_of_other_problems_are_refused_by_name(
    drawing: Drawing, problems: list[Problem], tmp_path: Path
) -> None:
    path = tmp_path / "samples.jsonl"
    drawing(path=path)
    with pytest.raises(ConfigError, match="fake/test/0004 is not among"):
        load_samples(path, problems[:4])
    extra = Problem(id="fake/test/9999", prompt="", answer="")
    with pytest.raises(ConfigError, match="no sample of problem fake/test/9999"):
        load_samples(path, [*problems, extra])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ConfigError, match="fake/test/0000 has 5 samples without number 0"):
        load_samples(path, problems)


@pytest.mark.parametrize("dies_at", [0, 1, 5, 7])
@pytest.mark.parametrize("torn", [b"", b'{"problem_id": "fake/te', b"\0\0\0"])
def test_an_interrupted_drawing_goes_on_to_the_same_file(
    drawing: Drawing, engine: Any, tmp_path: Path, dies_at: int, torn: bytes
) -> None:
    """Eight batches of four; what came before the interruption is not drawn again, an unfinished line is dropped."""
    path = tmp_path / "samples.jsonl"
    whole = drawing(path=path, batch_size=4)
    expected, calls = path.read_bytes(), engine.calls[:]
    path.unlink()
    engine.calls.clear()
    engine.dies_at = dies_at
    with pytest.raises(engine.killed):
        drawing(path=path, batch_size=4)
    assert not path.exists()
    with (tmp_path / "samples.unsorted.jsonl").open("ab") as file:
        file.write(torn)
    engine.dies_at = None
    assert drawing(path=path, batch_size=4) == whole
    assert engine.calls == calls, "every batch once, the same ones"
    assert path.read_bytes() == expected
    assert [p.name for p in tmp_path.iterdir()] == ["samples.jsonl"]


def test_a_larger_n_draws_only_what_is_missing(drawing: Drawing, engine: Any, tmp_path: Path) -> None:
    whole = drawing(path=tmp_path / "whole.jsonl", n=12)
    path = tmp_path / "samples.jsonl"
    drawing(path=path, n=5)
    engine.calls.clear()
    assert drawing(path=path, n=12) == whole
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sum(len(request.keys) for call in engine.calls for request in call) == 5 * 7
    engine.calls.clear()
    assert drawing(path=path, n=12) == whole
    assert engine.calls == []


def test_an_interrupted_raise_keeps_both_files(drawing: Drawing, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    small = drawing(path=path, n=2)
    engine.dies_at = len(engine.calls) + 3
    with pytest.raises(engine.killed):
        drawing(path=path, n=6)
    engine.dies_at = None
    assert drawing(path=path, n=2) == small, "the old result is still there"
    engine.calls.clear()
    drawing(path=path, n=6)
    assert sum(len(request.keys) for call in engine.calls for request in call) == 5 * 4 - 3 * 4


def test_fewer_samples_than_there_are_is_refused(drawing: Drawing, tmp_path: Path) -> None:
    drawing(path=tmp_path / "samples.jsonl", n=6)
    with pytest.raises(ConfigError, match=r"has 6 samples a problem: type eval\.n=6 or more"):
        drawing(path=tmp_path / "samples.jsonl", n=4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "line 2: not JSON"),
        (b'{"problem_id": "fake/test/0000", "sample": 1}', "a row is damaged"),
        (b'{"problem_id": "other", "sample": 1}', "line 2: problem other is not among"),
        (b"\xff\xfe", "cannot be used"),
    ],
)
def test_a_damaged_line_is_refused_with_what_to_do(
    drawing: Drawing, engine: Any, tmp_path: Path, line: bytes, message: str
) -> None:
    """A line in the middle cannot come from an interruption: something else wrote to the file."""
    engine.dies_at = 1
    with pytest.raises(engine.killed):
        drawing(path=tmp_path / "samples.jsonl")
    engine.dies_at = None
    file = tmp_path / "samples.unsorted.jsonl"
    rows = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([rows[0], line, *rows[2:], b""]))
    with pytest.raises(ConfigError, match=message) as caught:
        drawing(path=tmp_path / "samples.jsonl")
    assert "remove the file" in str(caught.value)
    assert str(file) in str(caught.value)
    file.unlink()
    drawing(path=tmp_path / "samples.jsonl")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=4))
def test_no_history_of_sizes_and_interruptions_shows(
    drawing: Drawing, engine: Any, history: list[tuple[int, int, int]]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "samples.jsonl"
        most = 0
        for n, batch_size, calls in history:
            most = max(most, n)
            engine.dies_at = len(engine.calls) + calls
            with suppress(engine.killed):
                drawing(path=path, n=most, batch_size=batch_size)
        engine.dies_at = None
        drawing(path=path, n=most, batch_size=3)
        drawing(path=Path(folder) / "whole.jsonl", n=most)
        assert path.read_bytes() == (Path(folder) / "whole.jsonl").read_bytes()


def test_weights_are_not_loaded_where_nothing_is_drawn(drawing: Drawing, engine: Any, tmp_path: Path) -> None:
    drawing(path=tmp_path / "samples.jsonl")
    engine.loaded = None
    drawing(path=tmp_path / "samples.jsonl")
    assert engine.loaded is None


def test_an_engine_that_gives_too_few_completions_is_named(drawing: Drawing, engine: Any) -> None:
    complete = engine.generate
    engine.generate = lambda requests, sampling: [row[1:] for row in complete(requests, sampling)]
    with pytest.raises(ValueError, match="problem fake/test/0000: the engine gave 3 of 4"):
        drawing()


def test_the_bar_ends_full(drawing: Drawing, progress: Any) -> None:
    drawing()
    total, bar = progress.stages["test: sample"]
    assert total == bar.done == 30
