"""The product end to end, as a process: what a run prints, leaves and repeats."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from sage.evaluation.curves import load_curve
from sage.loggers.jsonl import read_metrics
from sage.stopping import STATUS
from tests.wandb_reader import offline_runs

SMALL = ["experiment=smoke", "sft.steps=30", "train.steps=2", "eval.every=1", "eval.max_problems=6"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def sage_run(folder: Path, cache: Path, root: Path, *arguments: str, expect: int = 0):
    environment = {**os.environ, "PYTHONPATH": str(root), "SAGE_CACHE": str(cache), "COLUMNS": "100"}
    command = [sys.executable, "-m", "sage.run", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def run_folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("outputs/**/run.json"))


@pytest.fixture(scope="module")
def first(tmp_path_factory, cache, root):
    """One small run: its folder, and what it printed."""
    start = tmp_path_factory.mktemp("first")
    done = sage_run(start, cache, root, *SMALL)
    (folder,) = run_folders(start)
    return folder, done


def without_time(folder: Path) -> list[dict]:
    rows = read_metrics(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def folders(path):
    """What a cache holds, without its locks."""
    return {entry for entry in path.iterdir() if entry.is_dir()}


def test_a_run_leaves_everything_it_promises(first):
    folder, _ = first
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["train"]["sampling"]["max_tokens"] == 24, "references are resolved (K59)"
    assert yaml.safe_load((folder / "overrides.yaml").read_text()) == SMALL
    assert json.loads((folder / "environment.json").read_text())["packages"]["torch"]
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    assert (folder / "pass_at_k.png").read_bytes().startswith(b"\x89PNG")
    names = {path.name for path in (folder / "evaluation").iterdir()}
    assert names == {"base", "trained", "validation-000000", "validation-000001", "validation-000002"}
    for name in names:
        assert {p.name for p in (folder / "evaluation" / name).iterdir()} == {
            "problems.jsonl",
            "samples.jsonl",
            "settings.json",
            "verdicts.jsonl",
            "curve.json",
        }
    curves = json.loads((folder / "curve.json").read_text())
    assert set(curves) == {"base", "trained"}
    assert curves["trained"]["ks"] == [1, 2, 4, 8]
    trained = load_curve(folder / "evaluation" / "trained" / "curve.json")
    assert trained.comparison is not None
    assert trained.num_problems == 6


def test_the_base_is_its_own_reference(first):
    """K22: KL to the reference is 0 before the first update, after an SFT stage, and not after it."""
    folder, _ = first
    assert load_curve(folder / "evaluation" / "base" / "curve.json").kl_to_reference == pytest.approx(0, abs=1e-6)
    assert load_curve(folder / "evaluation" / "trained" / "curve.json").kl_to_reference > 1e-7
    rows = read_metrics(folder / "metrics.jsonl")
    assert rows[1]["kl/reference"] == 0


def test_metrics_stand_at_the_steps_done_with_the_evaluations_beside_them(first):
    """K61, K64: one line of training metrics a step, counted from 1; evaluations at 0, 1 and 2."""
    folder, _ = first
    rows = read_metrics(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert all("eval/countdown/pass@8" in row for row in rows)
    assert ["test/countdown/pass@8" in row for row in rows] == [True, False, True]
    assert [row.get("progress/samples") for row in rows] == [None, 32, 64]
    for row in rows[1:]:
        assert row["policy/grad_norm"] >= 0
        assert 0 <= row["reward/mean"] <= 1


def test_the_wandb_run_has_the_same_metrics(first):
    """Offline, without an account; the resolved configuration is flat (K59), the step is the x axis (K64)."""
    folder, _ = first
    (run,) = offline_runs(folder)
    assert run.exit_code == 0
    assert run.config["train.sampling.max_tokens"] == 24
    logged: dict[int, dict] = {}
    for line in run.history:
        logged.setdefault(line["step"], {}).update(line)
    for row in read_metrics(folder / "metrics.jsonl"):
        for name, value in row.items():
            assert logged[row["step"]][name] == value, name


def test_the_trained_model_loads_with_the_auto_classes(first):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = first
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    ids = tokenizer("3 7 1 12 20 :", return_tensors="pt")["input_ids"]
    text = tokenizer.decode(model.generate(ids, max_new_tokens=4, do_sample=False)[0])
    assert text.startswith("3 7 1 12 20 :")


def test_the_screen_shows_plan_result_files_and_next_commands(first):
    _, done = first
    assert done.stdout.startswith("sage ")
    for text in ("guide=branch", "strength 1", "k3 in the loss", "pass@1", "pass@8", "support", "pass_at_k.png"):
        assert text in done.stdout, text
    assert done.stdout.count("  sage-run ") == 3
    assert "\x1b" not in done.stdout, "no control characters when the output is no terminal"
    assert done.stderr == ""


def test_equal_seeds_give_equal_metrics_and_samples_to_the_last_bit_and_others_differ(first, tmp_path, cache, root):
    folder, _ = first
    sage_run(tmp_path, cache, root, *SMALL)
    sage_run(tmp_path, cache, root, *SMALL, "seed=1")
    again, other = run_folders(tmp_path)
    assert without_time(folder) == without_time(again)
    for name in ("base", "trained"):
        ours, theirs = (f / "evaluation" / name / "samples.jsonl" for f in (folder, again))
        assert ours.read_bytes() == theirs.read_bytes()
    assert (folder / "model" / "model.safetensors").read_bytes() == (again / "model" / "model.safetensors").read_bytes()
    assert without_time(folder) != without_time(other)


def test_the_sft_stage_runs_once_and_again_when_its_inputs_change(first, cache, root, tmp_path):
    _, done = first
    assert "sft: 30 steps" in done.stdout
    bases = folders(cache / "sft")
    short = [*SMALL, "train.steps=0", "eval.every=0", "logger=jsonl"]
    again = sage_run(tmp_path, cache, root, *short, "guide.strength=2").stdout
    assert "cached in" in again
    assert "sft: 30 steps" not in again
    assert folders(cache / "sft") == bases
    assert "sft: 30 steps" in sage_run(tmp_path, cache, root, *short, "sft.seed=1").stdout
    assert len(folders(cache / "sft")) == len(bases) + 1


def test_a_sweep_leaves_a_complete_folder_and_a_wandb_run_for_each_job(cache, root, tmp_path):
    """K60: one tracking run a job, with its own configuration."""
    arms = "guide=none,random,token,branch"
    sage_run(tmp_path, cache, root, "-m", arms, "seed=0,1", *SMALL, "train.steps=1")
    folders = run_folders(tmp_path)
    assert len(folders) == 8
    assert sum("guide=token" in folder.name for folder in folders) == 2
    runs = [offline_runs(folder) for folder in folders]
    assert [len(found) for found in runs] == [1] * 8
    assert len({(run.config["guide._target_"], run.config["seed"]) for (run,) in runs}) == 8
    assert len({run.group for (run,) in runs}) == 1
    for folder in folders:
        assert json.loads((folder / "run.json").read_text())["status"] == "finished"
        assert (folder / "pass_at_k.png").exists()


def test_every_guide_divergence_and_algorithm_of_the_main_job_trains(cache, root, tmp_path):
    base = [*SMALL, "train.steps=1", "eval.every=0", "eval.n=4", "logger=jsonl"]
    sage_run(tmp_path, cache, root, "-m", "guide=none,random,token,branch", "kl=reverse,reverse_exact,forward", *base)
    sage_run(tmp_path, cache, root, "-m", "guide=none", "kl=none", "algorithm=grpo,bnpo,dr_grpo,dapo", *base)
    lora = "model.lora={rank:4,alpha:8,dropout:0.0,targets:all-linear}"
    sage_run(tmp_path, cache, root, lora, *base)
    folders = run_folders(tmp_path)
    assert len(folders) == 12 + 4 + 1
    for folder in folders:
        (row,) = [row for row in read_metrics(folder / "metrics.jsonl") if row["step"] == 1]
        assert not [name for name, value in row.items() if isinstance(value, str)], "a metric is not finite"


def test_a_failing_job_does_not_stop_the_sweep_and_is_told_at_the_end(cache, root, tmp_path):
    base = [*SMALL, "train.steps=0", "eval.every=0", "logger=jsonl"]
    done = sage_run(tmp_path, cache, root, "-m", "guide=branch", "kl=none,reverse", *base, expect=1)
    assert "job 0" in done.stderr
    assert "guide=none" in done.stderr, "the reason and what to type"
    assert "Traceback" not in done.stderr
    (finished,) = run_folders(tmp_path)
    assert finished.name.startswith("1-")


def test_a_folder_that_holds_a_run_is_not_used_again(first, cache, root, tmp_path):
    """K55."""
    folder, _ = first
    before = (folder / "metrics.jsonl").read_bytes()
    done = sage_run(tmp_path, cache, root, *SMALL, f"hydra.run.dir={folder}", expect=1)
    assert "already holds a run" in done.stderr
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_refusal_leaves_the_users_own_folder_and_a_used_one_alone(first, cache, root, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.log").write_text("keep me")
    sage_run(tmp_path, cache, root, *SMALL, "train.steps=-1", "hydra.run.dir=mine", expect=1)
    assert (tmp_path / "mine" / "run.log").read_text() == "keep me"
    sage_run(tmp_path, cache, root, *SMALL, "train.steps=-1", "hydra.run.dir=.", expect=1)
    assert tmp_path.is_dir()
    folder, _ = first
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    sage_run(tmp_path, cache, root, *SMALL, "seed=5", f"hydra.run.dir={folder}", expect=1)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_folders_that_cannot_be_used_are_told_in_one_line_before_anything_is_trained(cache, root, tmp_path):
    (tmp_path / "file").write_text("")
    done = sage_run(tmp_path, cache, root, *SMALL, "hydra.run.dir=file/x", expect=1)
    assert "Traceback" not in done.stderr
    assert "file" in done.stderr
    done = sage_run(tmp_path, tmp_path / "file", root, *SMALL, expect=1)
    assert "Traceback" not in done.stderr
    assert "type paths.cache=" in done.stderr


def test_a_damaged_base_is_named_with_what_to_do(first, cache, root, tmp_path):
    sage_run(tmp_path, tmp_path / "cache", root, *SMALL, "train.steps=0", "eval.every=0", "logger=jsonl")
    (base,) = folders(tmp_path / "cache" / "sft")
    (base / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes()[:1000])
    done = sage_run(tmp_path, tmp_path / "cache", root, *SMALL, "seed=1", "logger=jsonl", expect=1)
    assert f"the policy cannot be built from the base in {base}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_is_asked_to_stop_is_saved_and_its_tracker_closed(cache, root, tmp_path):
    """SIGTERM is what clusters send first."""
    environment = {**os.environ, "PYTHONPATH": str(root), "SAGE_CACHE": str(cache)}
    command = [sys.executable, "-m", "sage.run", *SMALL, "train.steps=100000", "eval.every=0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not any(len(p.read_bytes().splitlines()) > 3 for p in tmp_path.glob("outputs/*/*/metrics.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.terminate()
        assert process.wait(timeout=60) == STATUS
    (folder,) = run_folders(tmp_path)
    assert json.loads((folder / "run.json").read_text())["status"] == "stopped"
    (run,) = offline_runs(folder)
    assert run.exit_code == 1


REWARD = """
from sage.interfaces import Reward
from sage.types import Verdict, VerdictReason

class Raises(Reward):
    def score(self, problem, completion):
        raise KeyError("no such column")
"""


def test_a_reward_that_always_raises_stops_the_run(cache, root, tmp_path):
    """K39: one bad text costs one completion; a reward that never works is no run."""
    (tmp_path / "mine" / "reward").mkdir(parents=True)
    (tmp_path / "mine" / "my_reward.py").write_text(REWARD)
    (tmp_path / "mine" / "reward" / "raises.yaml").write_text("_target_: my_reward.Raises\n")
    short = [*SMALL, "logger=jsonl", "eval.n=2"]
    done = sage_run(tmp_path, cache, root, "--config-dir", "mine", "reward=raises", *short, expect=1)
    assert "the reward failed on every completion" in done.stderr
    (folder,) = run_folders(tmp_path)
    assert "KeyError: 'no such column'" in (folder / "run.log").read_text()
