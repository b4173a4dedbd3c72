"""What ``sage-eval`` makes of what was typed."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from sage.config import ConfigError, conf_dir
from sage.evaluation.command import read_command
from sage.record import plain, write_run_record


def recorded(folder: Path, *overrides: str, **changes: object) -> Path:
    """A run's folder as far as its configuration goes."""
    (setup,) = read_command(overrides, None).setups
    cfg = OmegaConf.create(setup.plain)
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value, force_add=True)
    (folder / "model").mkdir(parents=True)
    write_run_record(folder, plain(OmegaConf.to_container(cfg)), [*overrides, "hydra.run.dir=x"], ["sage-run"])
    return folder


def test_several_benchmarks_are_several_configurations() -> None:
    asked = read_command(
        ["benchmark=gsm8k,math500", "model=tiny", "eval.n=3", "folder=x", "model.max_length=9000"], None
    )
    assert [setup.cfg.benchmark.name for setup in asked.setups] == ["gsm8k", "math500"]
    assert {setup.choices["reward"] for setup in asked.setups} == {"math"}
    assert {setup.config.eval.n for setup in asked.setups} == {3}
    assert (asked.folder, asked.run, asked.bases) == (Path("x"), None, [])


def test_a_run_is_the_base_that_overrides_change(tmp_path: Path) -> None:
    run = recorded(tmp_path / "r", "eval.n=7", "benchmark.seed=3", "model.hidden_size=128", "seed=5")
    (same,) = read_command([f"run={run}"], None).setups
    assert same.plain == yaml.safe_load((run / "config.yaml").read_text())
    (changed,) = read_command([f"run={run}", "eval.n=9", "eval.sampling.temperature=0.5"], None).setups
    assert (changed.config.eval.n, changed.config.eval.sampling.temperature, changed.config.seed) == (9, 0.5, 5)
    assert (changed.cfg.benchmark.seed, changed.cfg.model.hidden_size) == (3, 128)


def test_another_benchmark_takes_the_place_of_the_runs_with_its_reward(tmp_path: Path) -> None:
    run = recorded(tmp_path / "r", "benchmark.seed=3", "reward=countdown_proxy", "model.max_length=2000")
    (setup,) = read_command([f"run={run}", "benchmark=gsm8k"], None).setups
    assert (setup.cfg.benchmark.name, setup.choices["reward"]) == ("gsm8k", "math")
    assert setup.cfg.model.max_length == 2000
    assert setup.config.eval.sampling.max_tokens == setup.cfg.benchmark.max_completion_tokens


def test_the_runs_values_hold_where_the_projects_have_changed_since(tmp_path: Path) -> None:
    run = recorded(tmp_path / "r", "eval.n=7", eval__stats_n=3, eval__confidence=0.5, train__steps=1)
    (setup,) = read_command([f"run={run}", "eval.confidence=0.8"], None).setups
    assert (setup.config.eval.n, setup.config.eval.stats_n, setup.config.eval.confidence) == (7, 3, 0.8)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["run={run}", "model=tiny"], "has a model of its own"),
        (["run={run}/nowhere"], "expected the folder of a run"),
        (["run={unfinished}"], "it has no model/"),
        (["base={run}"], "expected the folder of a finished evaluation"),
        (["benchmark=gsm8k,gsm8k"], "each once"),
        (["eval.n=0"], r"eval\.n=0: expected a whole number >= 1"),
        (["eval.n=8", "rollout.max_rows=many"], r"rollout\.max_rows=many: expected a whole number"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, typed: list[str], message: str) -> None:
    run, unfinished = recorded(tmp_path / "r"), recorded(tmp_path / "u")
    (unfinished / "model").rmdir()
    with pytest.raises(ConfigError, match=message):
        read_command([text.format(run=run, unfinished=unfinished) for text in typed], None)


def test_reading_the_command_loads_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "vllm", "peft", "matplotlib"]
    code = (
        "import sys, sage.evaluate; from sage.evaluation.command import read_command; read_command(['eval.n=2'], None); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=conf_dir().parent
    )
    assert done.stdout.strip() == "[]", done.stderr
