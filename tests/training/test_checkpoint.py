"""Checkpoints: whole or not there, verified when read, rotated."""

import json
import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage.training import checkpoint
from sage.training.checkpoint import (
    CheckpointError,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    rotate,
    save_checkpoint,
)


def tensors(step=0):
    return {
        "policy": {"w": torch.full((3, 2), float(step)), "tied": torch.arange(6.0).view(3, 2).t()},
        "optimizer": {"0.step": torch.tensor(float(step))},
    }


def save(folder, step):
    return save_checkpoint(folder, {"step": step, "beta": 0.1 + step, "config": {"a": None}}, tensors(step))


def test_what_is_read_is_what_was_saved_to_the_last_bit(tmp_path):
    path = save(tmp_path, 7)
    assert path.name == "step-000007"
    found = load_checkpoint(path)
    assert (found.step, found.state["beta"], found.state["config"]) == (7, 7.1, {"a": None})
    for file, values in tensors(7).items():
        assert found.tensors[file].keys() == values.keys()
        assert all(torch.equal(found.tensors[file][name], value) for name, value in values.items())
    assert [p.name for p in tmp_path.iterdir()] == ["step-000007"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["state.json", "policy.safetensors", "optimizer.safetensors"]),
    at=st.floats(0, 1),
    cut=st.booleans(),
)
def test_any_byte_that_changes_and_any_cut_is_found_and_named(tmp_path, name, at, cut):
    path = save(tmp_path, 3)
    content = bytearray((path / name).read_bytes())
    place = min(int(at * len(content)), len(content) - 2)  # the last byte of state.json is its line break
    if cut:
        content = content[:place]
    else:
        content[place] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"step-000003"):
        load_checkpoint(path)


def test_a_file_that_is_missing_is_named(tmp_path):
    (save(tmp_path, 3) / "policy.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"step-000003 is damaged: policy\.safetensors"):
        load_checkpoint(tmp_path / "step-000003")


def test_the_one_before_a_damaged_one_is_taken_and_said(tmp_path, caplog):
    save(tmp_path, 3)
    (save(tmp_path, 6) / "policy.safetensors").write_bytes(b"")
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 3
    assert "step-000006 is damaged" in caplog.text
    assert "the one before it is taken" in caplog.text
    (tmp_path / "step-000003" / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        newest_checkpoint(tmp_path)


def test_no_checkpoint_is_no_error(tmp_path):
    assert newest_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / ".step-000003.partial").mkdir()
    assert newest_checkpoint(tmp_path) is None


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (999_999, 1_000_000, 5):
        save(tmp_path, step)
    assert [int(path.name.removeprefix("step-")) for path in checkpoints(tmp_path)] == [5, 999_999, 1_000_000]


def test_the_newest_stay_and_the_best_one_and_what_a_killed_process_left_goes(tmp_path):
    for step in range(1, 6):
        save(tmp_path, step)
    (tmp_path / ".step-000006.partial").mkdir()
    rotate(tmp_path, 2, tmp_path / "step-000002")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000004", "step-000005"]
    rotate(tmp_path, 1, None)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000005"]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_half_written(tmp_path, monkeypatch):
    """A full disk: at the tensors, at the record, at the flush."""
    save(tmp_path, 3)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    for name in ("save_file", "_digest", "_flush"):
        with monkeypatch.context() as patched:
            patched.setattr(checkpoint, name, full)
            with pytest.raises(OSError, match="No space"):
                save(tmp_path, 4)
        assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]
        assert load_checkpoint(tmp_path / "step-000003").step == 3


def test_a_checkpoint_of_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    path = save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has format 2, this version reads 1"):
        load_checkpoint(path)


def test_no_pickle_is_ever_read(tmp_path):
    """A file of pickled tensors in place of a safetensors file, with its checksum forged, is refused."""
    path = save(tmp_path, 1)
    torch.save({"w": torch.zeros(1)}, path / "policy.safetensors")
    outer = json.loads((path / "state.json").read_text())
    state = json.loads(outer["state"])
    state["files"]["policy.safetensors"] = checkpoint._digest(path / "policy.safetensors")
    text = json.dumps(state)
    (path / "state.json").write_text(json.dumps({"sum": checkpoint._sum(text), "state": text}))
    with pytest.raises(CheckpointError, match=r"policy\.safetensors"):
        load_checkpoint(path)


def model_and_optimizer(size=3):
    weight = torch.nn.Parameter(torch.ones(size))
    other = torch.nn.Parameter(torch.ones(2))
    return (weight, other), torch.optim.AdamW([weight, other], lr=0.1)


def take_steps(parameters, optimizer, count):
    for _ in range(count):
        sum((p**2).sum() for p in parameters).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_an_optimiser_goes_on_as_if_nothing_had_been(tmp_path):
    undisturbed, one = model_and_optimizer()
    take_steps(undisturbed, one, 5)
    first, two = model_and_optimizer()
    take_steps(first, two, 2)
    saved = {name: value.clone() for name, value in optimizer_tensors(two).items()}
    again, three = model_and_optimizer()
    with torch.no_grad():
        for mine, theirs in zip(again, first, strict=True):
            mine.copy_(theirs)
    restore_optimizer(three, saved)
    take_steps(again, three, 3)
    assert all(torch.equal(a, b) for a, b in zip(again, undisturbed, strict=True))


def test_the_state_of_another_model_is_refused():
    parameters, optimizer = model_and_optimizer()
    take_steps(parameters, optimizer, 1)
    saved = optimizer_tensors(optimizer)
    with pytest.raises(CheckpointError, match="parameter 0 has shape"):
        restore_optimizer(model_and_optimizer(4)[1], saved)
    with pytest.raises(CheckpointError, match="more than the 2 parameters"):
        restore_optimizer(model_and_optimizer()[1], {"2.step": torch.zeros(())})


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    order = []
    rename, fsync = os.rename, os.fsync
    monkeypatch.setattr(os, "rename", lambda *paths: order.append("rename") or rename(*paths))
    monkeypatch.setattr(os, "fsync", lambda handle: order.append("fsync") or fsync(handle))
    save(tmp_path, 1)
    assert order == ["fsync"] * 4 + [
        "rename",
        "fsync",
    ]  # three files and their folder; then the folder that has the name


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "step-000001", tmp_path / ".step-000001.partial")
    assert load_checkpoint(save(tmp_path, 1)).step == 1
