import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sage.loggers.wandb import WandbLogger
from sage.record import flatten

VALUES: dict[str, Any] = {
    "mode": "offline",
    "project": "sage",
    "entity": None,
    "group": None,
    "tags": ["paper"],
    "log_every": 1,
}


@pytest.fixture(autouse=True, scope="module")
def wandb_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """W&B's own caches stay out of the home folder, and nobody's account is used."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
            patch.setenv(variable, str(tmp_path_factory.mktemp("wandb")))
        patch.delenv("WANDB_API_KEY", raising=False)
        patch.delenv("WANDB_MODE", raising=False)
        yield


def make(**changes: Any) -> WandbLogger:
    return WandbLogger(**{**VALUES, **changes})


def test_an_offline_run_lies_in_the_run_folder_with_resolved_flat_config(make_info, offline_runs):
    """K59: the logged configuration is resolved, flat and plain."""
    from omegaconf import OmegaConf

    config = OmegaConf.create({"kl": "reverse", "kl_mode": {"name": "${kl}", "betas": [0.9, 0.99]}, "experiment": None})
    info = make_info(
        config=flatten(config),
        revision="0123abc-dirty",
        versions={"torch": "2.13.0", "vllm": None},
        tags=("tiny", "paper"),
        group="a sweep",
    )
    logger = make()
    run_id = logger.start(info)
    logger.close()

    (run,) = offline_runs(info.folder)
    assert run.run_id == run_id
    assert run.name == "a run"
    assert run.group == "a sweep"
    assert sorted(run.tags) == ["paper", "tiny"]
    assert run.config == {
        "kl": "reverse",
        "kl_mode.name": "reverse",
        "kl_mode.betas": [0.9, 0.99],
        "experiment": None,
        "git.revision": "0123abc-dirty",
        "versions.torch": "2.13.0",
    }


def test_a_late_evaluation_is_kept_and_the_step_is_the_x_axis_of_everything(make_info, offline_runs):
    """K61, K64: steps 1..7, then the evaluation of step 5, then 8..10; nothing is lost, tokens are a column beside."""
    info, logger = make_info(), make()
    logger.start(info)
    for step in range(1, 8):
        logger.log(step, {"train/reward": step / 10, "train/tokens": 100.0 * step})
    logger.log_curve(5, "eval/countdown", {1: 0.25, 4: 0.5})
    for step in range(8, 11):
        logger.log(step, {"train/reward": step / 10})
    logger.close()

    (run,) = offline_runs(info.folder)
    assert run.step_metrics["*"] == "step"
    rewards = {line["step"]: line["train/reward"] for line in run.history if "train/reward" in line}
    assert rewards == {step: step / 10 for step in range(1, 11)}
    (late,) = [line for line in run.history if "eval/countdown/pass@1" in line]
    assert late["step"] == 5
    assert late["eval/countdown/pass@1"] == 0.25
    assert late["eval/countdown/pass@4"] == 0.5
    assert late["eval/countdown/curve_table"]["_type"] == "table-file"
    assert late["eval/countdown/curve_table"]["nrows"] == 2


def test_three_runs_in_one_process_stay_three_even_when_one_is_left_open(make_info, offline_runs, tmp_path):
    """K60: one tracking run per job, each with its own configuration and exit code."""
    loggers = [make() for _ in range(3)]
    for seed, logger in enumerate(loggers):
        logger.start(make_info(f"job {seed}", config={"seed": seed}))
        logger.log(0, {"train/reward": float(seed)})
        if seed != 1:
            logger.close(failed=seed == 2)
    loggers[1].close()

    runs = {run.config["seed"]: run for run in offline_runs(tmp_path)}
    assert sorted(runs) == [0, 1, 2]
    assert len({run.run_id for run in runs.values()}) == 3
    assert [runs[seed].exit_code for seed in range(3)] == [0, 0, 1]
    assert [[line["train/reward"] for line in runs[seed].history] for seed in range(3)] == [[0.0], [1.0], [2.0]]


def test_a_resumed_run_goes_on_under_the_id_of_the_first(make_info, offline_runs):
    """K54: the id from a checkpoint is used again, and the next step is the saved one plus one."""
    first, second = make(), make()
    run_id = first.start(make_info())
    first.log(3, {"train/reward": 0.3})
    first.close(failed=True)
    assert second.start(make_info(run_id=run_id)) == run_id
    second.log(4, {"train/reward": 0.4})
    second.close()

    runs = offline_runs(make_info().folder)
    assert {run.run_id for run in runs} == {run_id}
    assert sorted(line["step"] for run in runs for line in run.history) == [3, 4]


def test_log_every_thins_training_metrics_but_never_evaluations(make_info, offline_runs):
    info, logger = make_info(), make(log_every=3)
    logger.start(info)
    for step in range(5):
        logger.log(step, {"train/reward": 0.5, "eval/countdown/pass@1": 0.1})
    logger.close()
    (run,) = offline_runs(info.folder)
    assert [line["step"] for line in run.history if "train/reward" in line] == [0, 3]
    assert [line["step"] for line in run.history if "eval/countdown/pass@1" in line] == [0, 1, 2, 3, 4]


def test_disabled_tracking_accepts_everything_and_writes_nothing(make_info):
    info, logger = make_info(), make(mode="disabled")
    logger.start(info)
    logger.log(0, {"train/reward": 0.5})
    logger.log_curve(0, "eval/countdown", {1: 0.5})
    logger.close()
    assert list(info.folder.iterdir()) == []


def test_online_without_an_account_says_what_to_type(make_info, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    with pytest.raises(RuntimeError, match=r"logger\.mode=offline"):
        make(mode="online").start(make_info())


@pytest.mark.parametrize(
    ("changes", "message"), [({"mode": "on"}, "offline, online"), ({"log_every": 0}, "log_every=0: expected")]
)
def test_values_that_cannot_work_are_refused_at_once(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_logging_before_start_is_an_error_and_closing_is_not():
    logger = make()
    logger.close()
    with pytest.raises(RuntimeError, match="call start"):
        logger.log(0, {"train/reward": 0.5})


def test_building_the_logger_does_not_import_wandb_and_an_offline_run_prints_nothing(tmp_path):
    script = f"""
import sys
from pathlib import Path
from sage.loggers.base import RunInfo
from sage.loggers.wandb import WandbLogger
logger = WandbLogger(**{VALUES!r})
assert "wandb" not in sys.modules and "torch" not in sys.modules
logger.start(RunInfo(folder=Path({str(tmp_path)!r}), name="a", config={{}}, revision=None, versions={{}}))
logger.log(0, {{"train/reward": 1.0}})
logger.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1
