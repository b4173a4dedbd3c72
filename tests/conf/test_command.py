"""The command line, on the smallest job: help, sweeps, refusals, a user's own folder. Each test is one process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

GUIDE = """
from dataclasses import dataclass
from sage.interfaces import Guide

@dataclass(frozen=True, kw_only=True)
class MyGuide(Guide):
    power: float

    def q(self, inputs):
        return inputs.policy.entropy ** self.power
"""
YAML = "_target_: my_guide.MyGuide\nstrength: 1.0\nq_min: 0.6\nq_max: 1.4\npower: 2.0\n"


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Run:
    """Run the minimal job with these arguments in an empty folder."""
    return _runner(root, tmp_path, str(root / "tests" / "conf" / "minimal_job.py"))


@pytest.fixture
def sage_run(root: Path, tmp_path: Path) -> Run:
    """Run the real command with these arguments in an empty folder."""
    return _runner(root, tmp_path, "-m", "sage.run")


def _runner(root: Path, tmp_path: Path, *program: str) -> Run:
    def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(root), **variables}
        environment.pop("HYDRA_FULL_ERROR", None)
        command = [sys.executable, *program, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    return call


def lines(result: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_run_leaves_its_folder_and_log_and_prints_nothing_of_its_own(run: Run, tmp_path: Path) -> None:
    (line,) = lines(run())
    (log,) = tmp_path.glob("outputs/*/*/run.log")
    assert log.read_text().endswith("INFO minimal_job: checked\n")
    assert line["outputs"] == str(tmp_path / "outputs")


def test_checking_a_configuration_loads_nothing_heavy(run: Run) -> None:
    (line,) = lines(run())
    assert line["heavy"] == []


@pytest.mark.parametrize("group", ["kl", "kl_mode"])
def test_both_names_of_the_divergence_sweep(run: Run, group: str) -> None:
    result = lines(run("-m", f"{group}=reverse,forward", "seed=0,1"))
    names = [str(line["kl_mode"]).rpartition(".")[2] for line in result]
    assert names == ["ReverseKL", "ReverseKL", "ForwardKL", "ForwardKL"]


def test_help_shows_groups_with_options_and_examples(sage_run: Run) -> None:
    result = sage_run("--help")
    assert result.returncode == 0, result.stderr
    rows = result.stdout.splitlines()
    assert any(row.startswith("guide: branch, none, ") for row in rows)
    assert any(row.startswith("experiment: smoke, ") for row in rows)
    assert len([row for row in rows if row.startswith("  sage-run")]) == 7
    assert len(rows) <= 40
    lists = ("benchmark: ", "guide: ", "reward: ", "experiment/paper: ")  # as long as they are
    assert max(len(row) for row in rows if not row.startswith(lists)) <= 120


def test_cfg_job_prints_the_configuration(sage_run: Run) -> None:
    result = sage_run("--cfg", "job", "guide=token")
    assert "_target_: sage.guides.token.TokenGuide" in result.stdout


def test_options_are_completed_on_tab(run: Run) -> None:
    result = run("-sc", "query=bash", COMP_LINE="minimal_job.py guide=b", COMP_POINT="22", _TEST_PYTHON="1")
    assert result.stdout.split() == ["guide=branch"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kl=revrse"], "sage: kl=revrse: no such option; did you mean kl=reverse?"),
        (["guide.ratoi=1"], "sage: guide.ratoi: no such option; did you mean guide.ratio?"),
        (["+guide.ratoi=1"], "did you mean guide.ratio?"),
        (["train.steps=[1"], "sage: no viable alternative at input '[1'"),
        (["-m", "train.steps=-1"], "train.steps=-1: expected a whole number >= 0"),
        (["guide=branch", "kl=none"], "guide=none"),
        (["guide=branch", "kl=reverse_token"], "kl=reverse_exact"),
        # K02: a group of one has no spread
        (["train.completions_per_problem=1"], "expected a whole number >= 2 (8 is usual)"),
        (["train.target_kl=0.01", "guide=none", "kl=none"], "train.target_kl=0.01: expected null"),
        (["guide.q_min=2"], "expected 0 < q_min <= q_max"),
        # K04: with the valid sizes
        (["algorithm.minibatches=3"], "expected a divisor of train.problems_per_step"),
    ],
)
def test_a_refusal_is_short_and_leaves_nothing(
    sage_run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = sage_run(*arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert "append to your config" not in result.stderr
    assert "Error executing job" not in result.stderr
    assert "search path" not in result.stderr
    assert not list(tmp_path.glob("outputs/2*/*")), "a refused run leaves no folder"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's folder: one Python file, one yaml."""
    folder = tmp_path / "mine"
    (folder / "guide").mkdir(parents=True)
    (folder / "my_guide.py").write_text(GUIDE)
    (folder / "guide" / "mine.yaml").write_text(YAML)
    return folder


@pytest.mark.usefixtures("mine")
def test_an_own_guide_in_a_folder_outside_the_repository_runs(run: Run) -> None:
    checked, built = lines(run("--config-dir", "mine", "guide=mine", "guide.power=3"))
    assert checked["guide"] == "my_guide.MyGuide"
    assert built == {"built": "MyGuide"}


@pytest.mark.usefixtures("mine")
def test_an_own_guide_gets_the_same_checks(run: Run) -> None:
    result = run("--config-dir=mine", "guide=mine", "+guide.powr=3", "guide.power=high")
    assert "guide.powr=3: no such option of my_guide.MyGuide; did you mean guide.power?" in result.stderr
    assert "guide.power=high: expected a number" in result.stderr
