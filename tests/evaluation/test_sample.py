"""Drawing: streams, batches, the samples file."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sage.evaluation.files import read_jsonl
from sage.evaluation.sample import draw, load_samples
from sage.types import Group, Problem, Sampling, Split


@pytest.fixture
def drawing(
    engine: Any, policy: Any, problems: list[Problem], sampling: Sampling, progress: Any, tmp_path: Path
) -> Any:
    """``draw`` with settings that a test may override."""

    def run(**changes: Any) -> list[Group]:
        prompts = [(problem, policy.encode_prompt(problem.prompt)) for problem in changes.pop("problems", problems)]
        known = {"sampling": sampling, "n": 6, "seed": 0, "split": Split.TEST, "batch_size": 4, "title": "test"}
        return draw(engine, prompts, **{**known, "path": tmp_path / "samples.jsonl", "progress": progress, **changes})

    return run


def test_batches_are_full_and_change_no_completion(drawing: Callable[..., list[Group]], engine: Any) -> None:
    """5 problems x 6 samples: 7 batches of 4 and one of 2."""
    small = drawing(batch_size=4)
    assert [sum(len(r.keys) for r in call) for call in engine.calls] == [4] * 7 + [2]
    assert drawing(batch_size=1000) == small
    assert drawing(batch_size=1) == small
    assert all(len(group.completions) == 6 for group in small)


def test_seeds_problems_and_samples_never_share_a_stream(drawing: Callable[..., list[Group]], engine: Any) -> None:
    """K46: seeds 0 and 64, 128 samples drawn in chunks of 64."""
    for seed in (0, 64):
        drawing(seed=seed, n=128, batch_size=64)
    keys = [key for call in engine.calls for request in call for key in request.keys]
    assert len(keys) == 2 * 5 * 128
    assert len(set(keys)) == len(keys)


def test_a_sample_depends_on_its_problem_and_number_alone(
    drawing: Callable[..., list[Group]], problems: list[Problem]
) -> None:
    """K46: not on what else is drawn, on n, or on the name of the stage."""
    whole = drawing()
    part = drawing(problems=problems[3:], n=2, title="step 50")
    assert [group.completions for group in part] == [group.completions[:2] for group in whole[3:]]


def test_splits_have_streams_of_their_own(drawing: Callable[..., list[Group]]) -> None:
    assert drawing(split=Split.VALIDATION) != drawing(split=Split.TEST)


def test_greedy_samples_warn_that_they_are_equal(drawing: Callable[..., list[Group]], sampling: Sampling) -> None:
    """K45."""
    with pytest.warns(UserWarning, match=r"temperature 0 with n=8: all samples of a problem are equal") as caught:
        drawing(sampling=replace(sampling, temperature=0.0), n=8)
    assert len(caught) == 1


@pytest.mark.parametrize(("temperature", "n"), [(0.0, 1), (0.7, 8)])
def test_one_greedy_sample_or_a_temperature_gives_no_warning(
    drawing: Callable[..., list[Group]], sampling: Sampling, temperature: float, n: int
) -> None:
    """K45."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing(sampling=replace(sampling, temperature=temperature), n=n)


def test_the_file_has_a_row_per_sample_and_reads_back(
    drawing: Callable[..., list[Group]], problems: list[Problem], tmp_path: Path
) -> None:
    groups = drawing()
    rows = read_jsonl(tmp_path / "samples.jsonl")
    assert [(row["problem_id"], row["sample"]) for row in rows] == [(p.id, s) for p in problems for s in range(6)]
    assert set(rows[0]) == {"problem_id", "sample", "text", "num_tokens", "stop_reason"}
    loaded = load_samples(tmp_path / "samples.jsonl", problems)
    for ours, read in zip(groups, loaded, strict=True):
        assert read.problem == ours.problem
        assert [(c.text, len(c.token_ids), c.stop_reason) for c in read.completions] == [
            (c.text, len(c.token_ids), c.stop_reason) for c in ours.completions
        ]


def test_samples_of_other_problems_are_refused_by_name(
    drawing: Callable[..., list[Group]], problems: list[Problem], tmp_path: Path
) -> None:
    drawing()
    with pytest.raises(ValueError, match="fake/test/0004 is not among"):
        load_samples(tmp_path / "samples.jsonl", problems[:4])
    extra = Problem(id="fake/test/9999", prompt="", answer="")
    with pytest.raises(ValueError, match="no sample of problem fake/test/9999"):
        load_samples(tmp_path / "samples.jsonl", [*problems, extra])


def test_an_engine_that_gives_too_few_completions_is_named(drawing: Callable[..., list[Group]], engine: Any) -> None:
    complete = engine.generate
    engine.generate = lambda requests, sampling: [row[1:] for row in complete(requests, sampling)]
    with pytest.raises(ValueError, match="problem fake/test/0000: the engine gave 3 of 4"):
        drawing()


def test_the_bar_ends_full(drawing: Callable[..., list[Group]], progress: Any) -> None:
    drawing()
    total, bar = progress.stages["test: sample"]
    assert total == bar.done == 30
