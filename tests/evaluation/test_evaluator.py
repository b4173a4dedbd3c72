"""The evaluations of a run: what they log, and under which names."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sage.evaluator import Evaluator
from sage.types import Problem, Sampling
from tests.fakes import MemoryLogger

PLAIN: dict[str, Any] = {
    "prompts": {"max_tokens": 9},
    "benchmark": {"_target_": "b"},
    "reward": {"_target_": "r"},
    "rollout": {"_target_": "e"},
    "model": {"_target_": "m"},
    "train": {"steps": 3},
    "logger": {"_target_": "l"},
    "eval": {"n": 4},
}


@pytest.fixture
def job(
    policy: Any, engine: Any, reward: Any, problems: list[Problem], sampling: Sampling, progress: Any, tmp_path: Path
):
    """A job of two test sets, as far as an evaluator looks at it."""
    sourced = [replace(p, columns={"source": "amc" if i < 2 else "aime"}) for i, p in enumerate(problems)]
    policy.release_reference = lambda: None
    known = {"confidence": 0.9, "bootstrap_samples": 10, "stats_n": 2, "batch_size": 8}
    settings = SimpleNamespace(n=4, validation_n=2, every=1, sampling=sampling, **known)
    model = SimpleNamespace(fingerprint=lambda: "f")
    nothing = SimpleNamespace(needs=frozenset())
    benchmark = SimpleNamespace(name="both")
    return SimpleNamespace(
        config=SimpleNamespace(eval=settings, seed=0, train=SimpleNamespace(micro_batch_size=8)),
        parts=SimpleNamespace(
            model=model, rollout=engine, reward=reward, benchmark=benchmark, kl_mode=nothing, guide=nothing
        ),
        problems=lambda split: sourced,
        folder=tmp_path,
        progress=progress,
        plain=PLAIN,
    )


def test_every_benchmark_of_a_combined_one_is_logged(job: Any, policy: Any) -> None:
    logger = MemoryLogger()
    curve = Evaluator(job, policy, logger).test(7, "trained", None)
    logged: dict[str, float] = {}
    for step, row in logger.rows:
        assert step == 7
        logged |= row
    for each in (curve, *curve.sources):
        for k in (1, 2, 4):
            assert logged[f"test/{each.benchmark}/pass@{k}"] == each.values()[k]
            assert logged[f"test/{each.benchmark}/maj@{k}"] == each.maj_at_k[k].value
        assert logged[f"test/{each.benchmark}/off_format_share"] == each.off_format_share
        # K47: never without its standard error.
        assert logged[f"test/{each.benchmark}/pass@1_standard_error"] == each.pass_at_k[1].standard_error
    assert {each.benchmark for each in curve.sources} == {"amc", "aime"}
    assert logged["test/both/source_mean/pass@1"] == pytest.approx(sum(s.values()[1] for s in curve.sources) / 2)


def test_the_settings_tell_weights_of_other_training_apart(job: Any, policy: Any) -> None:
    def weights(step: int, **changes: Any) -> dict[str, Any]:
        job.plain = PLAIN | changes
        job.folder = job.folder / "x"
        return Evaluator(job, policy, MemoryLogger()).test(step, "trained", None).settings["model"]

    first = weights(7)
    assert first == weights(7, logger={"_target_": "other"}, eval={"n": 9})
    assert first != weights(8)
    assert first != weights(7, train={"steps": 4})


def test_an_interrupted_evaluation_of_a_run_goes_on(job: Any, policy: Any, engine: Any) -> None:
    engine.dies_at = 1
    with pytest.raises(engine.killed):
        Evaluator(job, policy, MemoryLogger()).validate(3)
    engine.dies_at = None
    Evaluator(job, policy, MemoryLogger()).validate(3)
    assert sum(len(request.keys) for call in engine.calls for request in call) == 5 * 2
