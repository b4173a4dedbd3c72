import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sage import __version__, record
from sage.record import RunFolderTaken, claim_folder, flatten, git_state, plain, typed_for, write_run_record
from sage.stopping import Stopped

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
NAMES = st.text("abc_", min_size=1, max_size=4)
CONFIGS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *names, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Colour(StrEnum):
    RED = "red"


def test_config_objects_become_plain_types_that_json_and_yaml_can_write():
    """K59, K63: list wrappers, references, enums and paths leave no trace."""
    config = OmegaConf.create({"lora": {"targets": ["q_proj", "v_proj"], "alpha": "${rank}"}, "rank": 8})
    result = plain({"model": config, "colour": Colour.RED, "folder": Path("a/b"), "betas": (0.9, 0.99)})
    assert result == {
        "model": {"lora": {"targets": ["q_proj", "v_proj"], "alpha": 8}, "rank": 8},
        "colour": "red",
        "folder": "a/b",
        "betas": [0.9, 0.99],
    }
    assert type(result["model"]["lora"]["targets"]) is list
    assert type(result["colour"]) is str
    assert json.loads(json.dumps(result)) == result


def test_a_value_without_a_plain_form_is_named_by_its_key():
    with pytest.raises(TypeError, match=r"model\.dtype is a type"):
        plain({"model": {"dtype": float}})


def test_flatten_joins_keys_with_dots_and_keeps_lists_of_plain_values():
    config = {"guide": {"strength": 1.0, "betas": [1, 2]}, "seed": 0, "stages": [{"name": "a"}, [3]], "empty": {}}
    assert flatten(config) == {
        "guide.strength": 1.0,
        "guide.betas": [1, 2],
        "seed": 0,
        "stages.0.name": "a",
        "stages.1": [3],
        "empty": {},
    }


def test_flatten_refuses_two_values_under_one_key():
    with pytest.raises(ValueError, match=r"'a\.b' occurs twice"):
        flatten({"a.b": 1, "a": {"b": 2}})


def test_the_record_holds_the_resolved_config_the_overrides_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "do-not-write-me")
    config = OmegaConf.create({"kl": "reverse", "kl_mode": {"name": "${kl}", "beta": 1e-05, "text": "1e-5"}})
    write_run_record(tmp_path, config, ["kl=reverse", "guide=none"], ["sage-run", "kl=reverse"])

    resolved = {"kl": "reverse", "kl_mode": {"name": "reverse", "beta": 1e-05, "text": "1e-5"}}
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == resolved
    assert OmegaConf.to_container(OmegaConf.load(tmp_path / "config.yaml")) == resolved
    assert yaml.safe_load((tmp_path / "overrides.yaml").read_text()) == ["kl=reverse", "guide=none"]
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["sage"] == __version__
    assert environment["command"] == ["sage-run", "kl=reverse"]
    assert environment["packages"]["omegaconf"] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "environment.json", "overrides.yaml"]
    assert not any("do-not-write-me" in path.read_text() for path in tmp_path.iterdir())


@settings(max_examples=40, deadline=None)
@given(config=st.dictionaries(NAMES, CONFIGS, max_size=4))
def test_any_plain_config_reads_back_equal(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("run")
    write_run_record(folder, config, [], [])
    assert yaml.safe_load((folder / "config.yaml").read_text()) == config


def test_git_state_is_the_revision_and_whether_anything_differs_from_it(tmp_path, monkeypatch):
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    source.write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    assert git_state(source) is None  # not tracked: a copy that lies in somebody else's repository
    git(tmp_path, "add", ".")
    assert git_state(source) is None  # no commit yet
    git(tmp_path, "commit", "-qm", "first")
    revision = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(source) == {"revision": revision, "dirty": False}
    (source.parent / "guide.py").write_text("b = 1\n")
    assert git_state(source) == {"revision": revision, "dirty": True}

    # Inside a git hook these point at another repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert git_state(source) == {"revision": revision, "dirty": True}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(source) is None  # no git installed


def test_the_revision_says_when_the_code_differs_from_it(monkeypatch):
    monkeypatch.setattr(record, "git_state", lambda: {"revision": "0123abc", "dirty": True})
    assert record.revision() == "0123abc-dirty"
    monkeypatch.setattr(record, "git_state", lambda: {"revision": "0123abc", "dirty": False})
    assert record.revision() == "0123abc"
    monkeypatch.setattr(record, "git_state", lambda: None)
    assert record.revision() is None


def read_marker(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())


def test_a_claim_records_who_runs_and_how_it_ended(tmp_path):
    claim = claim_folder(tmp_path / "new" / "run")
    state = read_marker(tmp_path / "new" / "run")
    assert (state["status"], state["pid"]) == ("running", os.getpid())
    assert state["started"].endswith("+00:00")
    claim.finish()
    claim.finish(failed=True)  # the first end counts
    state = read_marker(tmp_path / "new" / "run")
    assert state["status"] == "finished"
    assert 0 <= state["seconds"] < 60
    assert [path.name for path in (tmp_path / "new" / "run").iterdir() if not path.name.startswith(".")] == ["run.json"]


def test_an_exception_ends_the_claim_as_failed_with_its_text(tmp_path):
    with pytest.raises(ValueError, match="loss is nan"), claim_folder(tmp_path):
        raise ValueError("loss is nan")
    assert read_marker(tmp_path)["status"] == "failed"
    assert read_marker(tmp_path)["error"] == "ValueError: loss is nan"


def test_a_folder_with_a_run_is_refused_with_its_state_and_what_to_type(tmp_path):
    claim_folder(tmp_path).finish()
    with pytest.raises(RunFolderTaken, match=r"finished, started .* by process \d+ .*hydra\.run\.dir="):
        claim_folder(tmp_path)
    (tmp_path / "run.json").write_text("")
    with pytest.raises(RunFolderTaken, match="cannot be read"):
        claim_folder(tmp_path)


def test_of_many_claims_at_once_exactly_one_succeeds(tmp_path):
    def attempt(_: int) -> bool:
        try:
            claim_folder(tmp_path / "run")
        except RunFolderTaken:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(32))) == 1


def test_recording_loads_neither_torch_nor_hydra():
    script = "import sys, sage.record; print({'torch', 'hydra', 'omegaconf', 'wandb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_a_run_that_died_may_be_taken_over_and_one_that_lives_or_has_finished_may_not(tmp_path):
    """The lock is the system's, so it knows what the record of a killed process cannot say."""
    dead = claim_folder(tmp_path)
    with pytest.raises(RunFolderTaken, match=r"already holds a run \(running"):
        claim_folder(tmp_path, resume=True)
    os.close(dead._lock)  # what the system does when a process ends
    with pytest.raises(RunFolderTaken):
        claim_folder(tmp_path)
    again = claim_folder(tmp_path, resume=True)
    assert again.again
    assert not dead.again
    assert read_marker(tmp_path)["attempt"] == 2
    again.finish()
    with pytest.raises(RunFolderTaken, match=r"already holds a run \(finished"):
        claim_folder(tmp_path, resume=True)


def test_a_run_that_was_stopped_says_so_and_may_go_on(tmp_path):
    with pytest.raises(Stopped), claim_folder(tmp_path):
        raise Stopped(4)
    state = read_marker(tmp_path)
    assert (state["status"], state["error"]) == ("stopped", "Stopped: stopped after step 4")
    assert claim_folder(tmp_path, resume=True).again


def test_what_was_typed_for_a_run_is_found_again(tmp_path):
    write_run_record(tmp_path, {}, ["guide=token", "seed=1"], [])
    assert typed_for(tmp_path) == ["guide=token", "seed=1"]
    with pytest.raises(ValueError, match="expected auto, never, or the folder of a run"):
        typed_for(tmp_path / "nowhere")
