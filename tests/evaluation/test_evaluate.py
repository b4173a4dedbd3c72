"""The whole pipeline on fakes."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sage.config import ConfigError
from sage.evaluation.curves import Curve, load_curve
from sage.evaluation.evaluate import EvaluationSettings, evaluate
from sage.evaluation.grade import grade, load_verdicts
from sage.evaluation.sample import load_samples
from sage.types import Problem, Sampling, Split

SETTINGS = EvaluationSettings(confidence=0.95, bootstrap_samples=100, stats_n=2, batch_size=16, micro_batch_size=8)


@pytest.fixture
def evaluation(
    policy: Any, engine: Any, reward: Any, problems: list[Problem], sampling: Sampling, progress: Any, tmp_path: Path
) -> Callable[..., Curve]:
    """``evaluate`` with settings that a test may override."""

    def run(**changes: Any) -> Curve:
        known = {
            "policy": policy,
            "engine": engine,
            "reward": reward,
            "problems": problems,
            "split": Split.TEST,
            "benchmark_name": "fake",
            "sampling": sampling,
            "n": 12,
            "seed": 0,
            "settings": SETTINGS,
            "origin": {"model": {"name": "fake"}},
            "folder": tmp_path / f"{uuid4()}",
            "progress": progress,
            "title": "test",
            "base": None,
            "reference_available": True,
        }
        return evaluate(**{**known, **changes})

    return run


def test_files_and_curve_agree(
    evaluation: Callable[..., Curve], problems: list[Problem], reward: Any, progress: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "test"
    curve = evaluation(folder=folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "curve.json",
        "problems.jsonl",
        "samples.jsonl",
        "settings.json",
        "verdicts.jsonl",
    ]
    assert load_curve(folder / "curve.json") == curve
    # Graded again from the samples alone, the verdicts are the same, and they carry the curve's counts.
    samples = load_samples(folder / "samples.jsonl", problems)
    again = grade(samples, reward, path=tmp_path / "again.jsonl", progress=progress, title="again")
    assert (tmp_path / "again.jsonl").read_text() == (folder / "verdicts.jsonl").read_text()
    assert again == load_verdicts(folder / "verdicts.jsonl", samples)
    assert [sum(v.correct for v in g.verdicts) for g in again] == [p.correct for p in curve.problems]
    assert 0 < curve.mean_at_n < 1


def test_the_judged_weights_are_those_of_the_policy(evaluation: Callable[..., Curve], engine: Any, policy: Any) -> None:
    evaluation()
    assert engine.loaded is policy


def test_an_evaluation_repeats_bit_for_bit(evaluation: Callable[..., Curve]) -> None:
    assert evaluation() == evaluation(title="again", settings=replace(SETTINGS, batch_size=5))


def test_base_and_trained_share_random_numbers(evaluation: Callable[..., Curve]) -> None:
    base = evaluation()
    same = evaluation(base=base)
    assert same.comparison is not None
    assert {e.value for e in same.comparison.difference.values()} == {0.0}
    assert same.comparison.problems.shrunk == same.comparison.problems.expanded == 0
    assert evaluation(seed=1).values() != base.values()


def test_greedy_evaluation_has_neither_entropy_nor_kl(evaluation: Callable[..., Curve], sampling: Sampling) -> None:
    """K45."""
    with pytest.warns(UserWarning, match="all samples of a problem are equal"):
        curve = evaluation(sampling=replace(sampling, temperature=0.0))
    assert (curve.entropy, curve.kl_to_reference) == (None, None)


def test_the_kl_needs_a_reference(evaluation: Callable[..., Curve]) -> None:
    assert evaluation(reference_available=False).kl_to_reference is None
    kl = evaluation(reference_available=True).kl_to_reference
    assert kl is not None
    assert kl > 0


def sourced(problems: list[Problem]) -> list[Problem]:
    """Two of one benchmark and three of another."""
    return [replace(p, columns={"source": "amc" if i < 2 else "aime"}) for i, p in enumerate(problems)]


def test_a_combined_benchmark_has_a_curve_for_each_of_its_own(
    evaluation: Callable[..., Curve], problems: list[Problem], tmp_path: Path
) -> None:
    base = evaluation(problems=sourced(problems), folder=tmp_path / "base")
    assert [(s.benchmark, s.num_problems) for s in base.sources] == [("amc", 2), ("aime", 3)]
    alone = [
        evaluation(problems=part, benchmark_name=name) for name, part in (("amc", problems[:2]), ("aime", problems[2:]))
    ]
    assert [replace(curve, settings={}) for curve in alone] == list(base.sources), (
        "complete, with entropy, KL and votes"
    )
    assert load_curve(tmp_path / "base" / "curve.json") == base
    compared = evaluation(problems=sourced(problems), base=base)
    assert [s.comparison and s.comparison.difference[1].value for s in compared.sources] == [0.0, 0.0]


def test_a_benchmark_of_its_own_has_no_sources(evaluation: Callable[..., Curve]) -> None:
    assert evaluation().sources == ()


def test_an_interrupted_evaluation_goes_on_to_the_same_files(
    evaluation: Callable[..., Curve], engine: Any, tmp_path: Path
) -> None:
    whole = evaluation(folder=tmp_path / "whole")
    engine.calls.clear()
    engine.dies_at = 2
    with pytest.raises(engine.killed):
        evaluation(folder=tmp_path / "cut")
    engine.dies_at = None
    assert evaluation(folder=tmp_path / "cut") == whole
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == files
    for name in files:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_larger_n_gives_the_curve_of_an_undisturbed_evaluation(
    evaluation: Callable[..., Curve], tmp_path: Path
) -> None:
    evaluation(folder=tmp_path / "test", n=4)
    assert evaluation(folder=tmp_path / "test", n=12) == evaluation(n=12)


def test_other_settings_are_refused_before_anything_is_drawn(
    evaluation: Callable[..., Curve], engine: Any, tmp_path: Path, sampling: Sampling
) -> None:
    base = evaluation(folder=tmp_path / "test")
    engine.calls.clear()
    with pytest.raises(ConfigError, match="seed: 0 there, 1 asked"):
        evaluation(folder=tmp_path / "test", seed=1)
    with pytest.raises(ConfigError, match="n=4 with a base of n=12"):
        evaluation(n=4, base=base)
    with pytest.raises(ConfigError, match="sampling="):
        evaluation(sampling=replace(sampling, top_p=0.5), base=base)
    assert engine.calls == []
    curve = evaluation(folder=tmp_path / "test", settings=replace(SETTINGS, confidence=0.5, batch_size=3))
    assert curve.confidence == 0.5, "an interval is computed anew, and a batch changes no sample"
    assert engine.calls == []


def test_the_engine_gives_its_memory_back_before_scoring(evaluation: Callable[..., Curve], engine: Any) -> None:
    evaluation()
    assert engine.asleep


def test_a_split_without_problems_is_refused(evaluation: Callable[..., Curve]) -> None:
    with pytest.raises(ValueError, match="fake has no problem in split test"):
        evaluation(problems=[])


def test_a_full_evaluation_costs_little_beside_sampling(evaluation: Callable[..., Curve], tmp_path: Path) -> None:
    """182 problems of 256 samples with 2,000 resamples take about a second on an idle core; ten are allowed."""
    problems = [Problem(id=f"fake/test/{i:04d}", prompt="x", answer="") for i in range(182)]
    settings = replace(SETTINGS, bootstrap_samples=2000, stats_n=1, batch_size=4096, micro_batch_size=128)
    start = time.perf_counter()
    curve = evaluation(problems=problems, n=256, settings=settings)
    assert time.perf_counter() - start < 10
    assert curve.num_problems == 182
