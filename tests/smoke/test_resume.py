"""A run that is killed or stopped at any moment goes on, and ends as if nothing had been."""

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sage.evaluation.files import read_jsonl
from sage.stopping import STATUS
from tests.smoke.test_eval_command import ended, started

RUN = [
    "experiment=smoke",
    "sft.steps=10",
    "train.steps=9",
    "train.problems_per_step=4",
    "checkpoint.every=2",
    "eval.every=4",
    "eval.n=4",
    "eval.validation_n=2",
    "eval.max_problems=4",
    "eval.bootstrap_samples=50",
    "logger=jsonl",
]
LORA = "model.lora={rank:4,alpha:8,dropout:0.1,targets:all-linear}"
KINDS = {
    "grpo and branch": ["experiment=testbed_branch"],
    "grpo and token, whose noise follows a schedule": ["guide=token"],
    "ppo with its critic": ["algorithm=ppo", "kl=reverse_exact", "guide=random", "train.target_kl=0.01"],
    "LoRA with dropout": [LORA],
    "dapo with dynamic sampling": ["algorithm=dapo"],
}


def folder_of(tmp_path, name):
    return tmp_path / name


def begin(tmp_path, root, name, *overrides):
    return started(tmp_path, root, *RUN, *overrides, f"hydra.run.dir={name}", module="sage.run")


def outcome(folder: Path):
    """Everything that must not depend on what happened on the way."""
    rows = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read_jsonl(folder / "metrics.jsonl")]
    weights = {path.name: load_file(path) for path in sorted((folder / "model").glob("*.safetensors"))}
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "evaluation").rglob("*"))
        if path.is_file()
    }
    return rows, weights, files


def assert_same(folder, undisturbed):
    (rows, weights, files), (rows_before, weights_before, files_before) = outcome(folder), outcome(undisturbed)
    assert rows == rows_before
    assert weights.keys() == weights_before.keys() != set()
    for name, tensors in weights.items():
        assert all(torch.equal(value, weights_before[name][key]) for key, value in tensors.items())
    assert files == files_before
    left = [p.name for p in folder.rglob("*") if p.name.endswith(".partial") or "unsorted" in p.name]
    assert left == []


def kill_after(process, seconds, number=signal.SIGKILL):
    """Send a signal when the time has come, unless the run was faster; its status."""
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        process.communicate()
    return process.returncode


def wait_for(path: Path, process):
    """Until a file is there."""
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_two_resumes_end_where_an_undisturbed_run_ends(tmp_path, root, kind):
    """K26, K53, K70: bit for bit: weights, metrics (all but time), samples, verdicts, curves. Killed twice without warning."""
    ended(begin(tmp_path, root, "whole", *KINDS[kind]))
    for checkpoint in (2, 6):
        process = begin(tmp_path, root, "torn", *KINDS[kind])
        wait_for(tmp_path / "torn" / "checkpoints" / f"step-{checkpoint:06d}", process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    out, _ = ended(begin(tmp_path, root, "torn", *KINDS[kind]))
    assert "resume" in out
    assert_same(tmp_path / "torn", tmp_path / "whole")


def chaos(tmp_path, root, kills, seed):
    generator = random.Random(seed)
    ended(begin(tmp_path, root, "whole"))
    start = time.monotonic()
    ended(begin(tmp_path, root, "timed"))
    length = time.monotonic() - start
    for _ in range(kills):
        kill_after(begin(tmp_path, root, "torn"), generator.uniform(0.2, 1.0) * length)
        if json.loads((tmp_path / "torn" / "run.json").read_text())["status"] == "finished":
            assert_same(tmp_path / "torn", tmp_path / "whole")
            shutil.rmtree(tmp_path / "torn")
    if not (tmp_path / "torn" / "model").exists():
        ended(begin(tmp_path, root, "torn"))
    assert_same(tmp_path / "torn", tmp_path / "whole")


def test_a_run_that_is_killed_at_random_moments_ends_as_an_undisturbed_one(tmp_path, root):
    chaos(tmp_path, root, kills=4, seed=0)


@pytest.mark.slow
def test_a_run_that_is_killed_at_twenty_random_moments_ends_as_an_undisturbed_one(tmp_path, root):
    chaos(tmp_path, root, kills=20, seed=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_the_step_and_ends_with_a_status_of_its_own(tmp_path, root, number):
    process = begin(tmp_path, root, "run", "train.steps=100000", "checkpoint.every=0", "eval.every=0")
    while "progress/samples" not in (path.read_text() if (path := tmp_path / "run" / "metrics.jsonl").exists() else ""):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    out, error = process.communicate()
    assert process.returncode == STATUS, out + error
    assert "the same command in the same folder goes on" in error
    assert "Traceback" not in error
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    last = read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1]["step"]
    assert saved.name == f"step-{last:06d}"


def test_a_signal_in_an_evaluation_saves_the_step_before_it_and_the_evaluation_is_done_again(tmp_path, root):
    """At a step whose checkpoint was not due, which would be lost otherwise."""
    long = ["checkpoint.every=0", "eval.every=3", "eval.validation_n=64", "eval.batch_size=8", "eval.max_problems=8"]
    ended(begin(tmp_path, root, "whole", *long))
    process = begin(tmp_path, root, "torn", *long)
    wait_for(tmp_path / "torn" / "evaluation" / "validation-000003" / "samples.unsorted.jsonl", process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == STATUS
    assert [path.name for path in (tmp_path / "torn" / "checkpoints").iterdir()] == ["step-000003"]
    ended(begin(tmp_path, root, "torn", *long))
    assert_same(tmp_path / "torn", tmp_path / "whole")


def test_going_on_is_refused_where_the_configuration_is_another_unless_it_is_allowed_by_name(tmp_path, root):
    process = begin(tmp_path, root, "run")
    wait_for(tmp_path / "run" / "checkpoints" / "step-000004", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _, error = ended(begin(tmp_path, root, "run", "seed=3", "train.steps=6"), expect=1)
    assert "train.steps: 9 there, 6 asked" in error
    assert "seed: 0 there, 3 asked" in error
    assert "checkpoint.allow_changes" in error
    assert "Traceback" not in error
    _, error = ended(begin(tmp_path, root, "run", "resume=never"), expect=1)
    assert "already holds a run" in error
    again = started(
        tmp_path, root, "resume=run", "train.steps=6", "checkpoint.allow_changes=[train.steps]", module="sage.run"
    )
    ended(again)
    assert max(row["step"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl")) == 6
    _, error = ended(started(tmp_path, root, "resume=nowhere", module="sage.run"), expect=1)
    assert "resume=nowhere: expected auto, never, or the folder of a run" in error


def test_the_checkpoint_before_a_damaged_one_is_taken(tmp_path, root):
    ended(begin(tmp_path, root, "whole"))
    process = begin(tmp_path, root, "torn")
    wait_for(tmp_path / "torn" / "checkpoints" / "step-000004", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    newest = max((tmp_path / "torn" / "checkpoints").glob("step-*"))
    (newest / "policy.safetensors").write_bytes((newest / "policy.safetensors").read_bytes()[:-10])
    out, error = ended(begin(tmp_path, root, "torn"))
    assert f"{newest.name} is damaged: policy.safetensors" in out + error
    assert_same(tmp_path / "torn", tmp_path / "whole")


def test_the_best_checkpoint_by_a_metric_stays(tmp_path, root):
    name = "eval/countdown/entropy"
    ended(begin(tmp_path, root, "run", f"checkpoint.keep_best={name}", "checkpoint.keep_last=1", "eval.every=2"))
    rows = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    values = {row["step"]: row[name] for row in rows if name in row and row["step"] > 0}
    best = max(values, key=lambda step: (values[step], step))
    kept = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert kept == {f"step-{best:06d}", "step-000009"}
