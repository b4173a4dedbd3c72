"""Checkpoints: everything that a run needs to go on, each in a folder that is whole or not there.

A run's randomness is keyed by (seed, step, ...), and its problems are a function of (seed, step): neither has a state to save.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

log = logging.getLogger(__name__)

FORMAT = 1
_STATE = "state.json"
_NAME = re.compile(r"step-(\d{6,})")

Tensors = Mapping[str, Mapping[str, Tensor]]
"""File name without ending -> tensors by name."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: which one, and why."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint as it was read, checksums verified."""

    path: Path
    state: dict[str, Any]
    """Plain values: ``step`` and whatever else was saved."""
    tensors: dict[str, dict[str, Tensor]]

    @property
    def step(self) -> int:
        """Batches of rollouts that were done."""
        return self.state["step"]


def save_checkpoint(folder: Path, state: Mapping[str, Any], tensors: Tensors) -> Path:
    """Write a checkpoint of ``state["step"]``: aside, to the disk, and then under its name.

    Args:
        folder: of the run's checkpoints.
        state: plain values, ``step`` among them.
        tensors: what is saved in safetensors files.

    Raises:
        OSError: the disk is full or cannot be written; checkpoints that were there are untouched.
    """
    path = folder / f"step-{state['step']:06d}"
    aside = folder / f".{path.name}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        for name, values in tensors.items():
            # Tied or sliced tensors share memory, which safetensors refuses.
            save_file(
                {key: value.detach().contiguous().cpu() for key, value in values.items()}, aside / f"{name}.safetensors"
            )
        sums = {file.name: _digest(file) for file in sorted(aside.iterdir())}
        text = json.dumps({"format": FORMAT, "files": sums, **state}, indent=1, sort_keys=True)
        (aside / _STATE).write_text(json.dumps({"sum": _sum(text), "state": text}) + "\n", encoding="utf-8")
        for file in (*aside.iterdir(), aside):
            _flush(file)
        shutil.rmtree(path, ignore_errors=True)
        os.rename(aside, path)
        _flush(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify every byte of it.

    Raises:
        CheckpointError: it is not one, or it is damaged.
    """
    try:
        outer = json.loads((path / _STATE).read_text(encoding="utf-8"))
        text = outer["state"]
        if _sum(text) != outer["sum"]:
            raise CheckpointError(f"checkpoint {path} is damaged: {_STATE} does not match its checksum")
        state = json.loads(text)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error.strerror} ({_STATE})") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"checkpoint {path} is damaged: {_STATE} is no record of ours") from error
    if state["format"] != FORMAT:
        raise CheckpointError(f"checkpoint {path} has format {state['format']}, this version reads {FORMAT}")
    tensors: dict[str, dict[str, Tensor]] = {}
    for name, expected in state["files"].items():
        file = path / name
        try:
            if _digest(file) != expected:
                raise CheckpointError(f"checkpoint {path} is damaged: {name} does not match its checksum")
            tensors[file.stem] = load_file(file)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"checkpoint {path} is damaged: {name}: {error}") from error
    return Checkpoint(path=path, state=state, tensors=tensors)


def newest_checkpoint(folder: Path, tell: Callable[[str], None] = log.warning) -> Checkpoint | None:
    """The newest checkpoint of a run that is whole; ``None`` where there is none at all.

    Args:
        folder: of the run's checkpoints.
        tell: is told the name and the fault of each damaged one, in whose place the one before it is taken.

    Raises:
        CheckpointError: there are checkpoints, and all of them are damaged.
    """
    faults: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            found = load_checkpoint(path)
        except CheckpointError as error:
            tell(f"{error}; the one before it is taken")
            faults.append(str(error))
            continue
        return found
    if faults:
        raise CheckpointError(f"no checkpoint in {folder} can be used: {'; '.join(faults)}")
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; whether they are whole is not looked at."""
    found = [(int(match[1]), path) for path in _entries(folder) if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def rotate(folder: Path, keep_last: int, best: Path | None) -> None:
    """Remove all but the newest ``keep_last`` checkpoints and the ``best`` one, and what a killed process left half written."""
    keep = {*checkpoints(folder)[-keep_last:], best}
    for path in checkpoints(folder):
        if path not in keep:
            shutil.rmtree(path)
    for path in _entries(folder):
        if path.name.endswith(".partial"):
            shutil.rmtree(path)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors: ``<number of the parameter>.<name>``."""
    return {
        f"{index}.{name}": value
        for index, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state[parameter].items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put saved state back.

    Raises:
        CheckpointError: it belongs to other parameters.
    """
    parameters = list(_parameters(optimizer))
    optimizer.state.clear()
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        if int(index) >= len(parameters):
            raise CheckpointError(
                f"the optimiser's state is of more than the {len(parameters)} parameters that are trained"
            )
        parameter = parameters[int(index)]
        if name != "step" and value.shape != parameter.shape:
            raise CheckpointError(f"the optimiser's state of parameter {index} has shape {tuple(value.shape)}")
        # The number of steps stays on the CPU, as AdamW keeps it there.
        optimizer.state[parameter][name] = value if name == "step" else value.to(parameter.device)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _sum(text: str) -> str:
    return hashlib.blake2b(text.encode()).hexdigest()


def _flush(path: Path) -> None:
    """To the disk, not to its cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
