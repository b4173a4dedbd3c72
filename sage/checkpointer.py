"""The checkpoints of a run: when they are saved, which ones stay, and how a run goes on from one."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sage.config import ConfigError
from sage.config.values import show
from sage.evaluation.files import read_jsonl
from sage.evaluator import Evaluator
from sage.job import Job
from sage.record import flatten, package_versions, plain
from sage.stopping import Stopped, Stopper
from sage.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    checkpoints,
    newest_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    rotate,
    save_checkpoint,
)
from sage.training.learner import Learner
from sage.training.loop import Position

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
_WATCHING = ("logger", "paths", "checkpoint", "resume")
"""Sections that change nothing that is trained or measured."""


class Checkpointer:
    """Saves what a run needs to go on, evaluates what is due, and stops when it was asked to."""

    def __init__(self, job: Job, learner: Learner, evaluator: Evaluator, stopper: Stopper, run_id: str | None) -> None:
        self._job = job
        self._learner = learner
        self._evaluator = evaluator
        self._stopper = stopper
        self._run_id = run_id

    def after_step(self, position: Position) -> None:
        """Save first, so that an evaluation that is interrupted costs no step; then evaluate and rotate.

        Raises:
            Stopped: the run was asked to stop.
            ConfigError: the disk is full; the checkpoints before are whole.
        """
        settings, stop = self._job.config.checkpoint, self._stopper.requested is not None
        last = position.step == self._job.config.train.steps
        due = last or (settings.every > 0 and position.step % settings.every == 0)
        logged = (self._job.folder / METRICS).stat().st_size  # without the evaluation, which a resumed run does again
        if due or stop:
            self._save(position, logged)
        if stop:
            raise Stopped(position.step)
        try:
            with self._stopper.interruptible():
                self._evaluator.after_step(position.step)
        except SystemExit:
            self._save(position, logged)
            raise Stopped(position.step) from None
        if due:
            rotate(_folder(self._job.folder), settings.keep_last, self._best())

    def _save(self, position: Position, logged: int) -> None:
        """Write the checkpoint of a step, unless it is there; ``logged`` is how long the metrics were, in bytes."""
        learner, folder = self._learner, _folder(self._job.folder)
        if (folder / f"step-{position.step:06d}").exists():
            return
        state = {
            "step": position.step,
            "samples": position.samples,
            "tokens": position.tokens,
            "beta": learner.beta.value,
            "run_id": self._run_id,
            "metrics_bytes": logged,
            "config": plain(self._job.plain),
            "packages": package_versions(),
        }
        try:
            save_checkpoint(
                folder,
                state,
                {"policy": learner.policy.state(), "optimizer": optimizer_tensors(learner.optimizer)},
            )
        except OSError as error:
            kept = checkpoints(folder)
            last = f"the last whole one is {kept[-1]}" if kept else "there is none before it"
            raise ConfigError(
                [f"the checkpoint of step {position.step} cannot be written to {folder} ({error.strerror}); {last}"]
            ) from error

    def _best(self) -> Path | None:
        """The checkpoint with the largest value of ``checkpoint.keep_best``; the newest of equal ones."""
        name = self._job.config.checkpoint.keep_best
        if name is None:
            return None
        values = {row["step"]: row[name] for row in read_jsonl(self._job.folder / METRICS) if name in row}
        if not values:
            log.warning("checkpoint.keep_best=%s: no such metric has been logged yet", name)
        found = {
            path: values.get(int(path.name.removeprefix("step-"))) for path in checkpoints(_folder(self._job.folder))
        }
        return max((p for p, v in found.items() if v is not None), key=lambda p: (found[p], p.name), default=None)


def _folder(run: Path) -> Path:
    return run / "checkpoints"


def interrupted(job: Job) -> Checkpoint | None:
    """The checkpoint to go on from, and the run's folder as it was then; ``None`` where nothing was saved yet.

    What was written after the checkpoint is removed: its steps are done again.

    Raises:
        ConfigError: every checkpoint is damaged, or the configuration is not that of the interrupted run.
    """

    def tell(fault: str) -> None:
        log.warning("%s", fault)
        job.console.print(f"[yellow]![/yellow] {fault}", soft_wrap=True)

    try:
        found = newest_checkpoint(_folder(job.folder), tell)
    except CheckpointError as error:
        raise ConfigError([f"{error}; remove {_folder(job.folder)} to begin again"]) from error
    metrics = job.folder / METRICS
    if found is None:
        metrics.unlink(missing_ok=True)
        return None
    changed = changes(found.state["config"], plain(job.plain), job.config.checkpoint.allow_changes)
    if changed:
        raise ConfigError(
            [
                f"{job.folder} holds a run of another configuration, which this one would go on with: {'; '.join(changed)}. "
                "Type the run's own options, or checkpoint.allow_changes=[KEY,...] for what may differ, or another "
                "hydra.run.dir"
            ]
        )
    size = metrics.stat().st_size if metrics.exists() else 0
    if size < found.state["metrics_bytes"]:
        raise ConfigError([f"{metrics} is shorter than it was at the checkpoint of step {found.step}: it was changed"])
    with metrics.open("r+b") as file:
        file.truncate(found.state["metrics_bytes"])
    same = not changes(found.state["config"], plain(job.plain), ())
    for folder in (job.folder / "evaluation").glob("validation-*"):
        step = int(folder.name.removeprefix("validation-"))
        if step > found.step or (step == found.step and not same):
            shutil.rmtree(folder)
    shutil.rmtree(job.folder / "evaluation" / "trained", ignore_errors=True)
    return found


def restore(learner: Learner, checkpoint: Checkpoint) -> Position:
    """Put policy, optimiser and beta back as they were.

    Raises:
        ConfigError: they are of another model.
    """
    state = checkpoint.state
    try:
        learner.policy.load_state(checkpoint.tensors["policy"])
        restore_optimizer(learner.optimizer, checkpoint.tensors["optimizer"])
    except ValueError as error:
        raise ConfigError([f"checkpoint {checkpoint.path}: {error}"]) from error
    learner.beta.value = state["beta"]
    return Position(step=state["step"], samples=state["samples"], tokens=state["tokens"])


def changes(there: Mapping[str, Any], asked: Mapping[str, Any], allowed: Sequence[str]) -> list[str]:
    """``key: value there, value asked`` of what differs between two configurations and may not.

    Args:
        there: of the interrupted run.
        asked: of this one.
        allowed: keys, or sections, that may differ.

    >>> changes({"seed": 0, "train": {"steps": 5}}, {"seed": 1, "train": {"steps": 9}}, ["train.steps"])
    ['seed: 0 there, 1 asked']
    """
    free = (*_WATCHING, *allowed)
    theirs, ours = flatten(there), flatten(asked)
    nothing = object()
    return [
        f"{key}: {show(theirs[key]) if key in theirs else 'nothing'} there, {show(ours[key]) if key in ours else 'nothing'} asked"
        for key in dict.fromkeys([*theirs, *ours])
        if theirs.get(key, nothing) != ours.get(key, nothing)
        and not any(key == name or key.startswith(f"{name}.") for name in free)
    ]
