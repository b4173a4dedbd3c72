"""Weights & Biases, offline unless asked otherwise: no account, no network, nothing printed.

``wandb`` is imported when the run starts, so that composing a configuration does not pay for it. An offline run lies in
``<run folder>/wandb/offline-run-*`` and is uploaded later with ``wandb sync``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sage.loggers.base import RunInfo, curve_scalars

MODES = ("offline", "online", "disabled")


class WandbLogger:
    """One W&B run per run, with the optimiser step as the x axis of everything.

    The step is a value of its own (``step``) that every chart is drawn against. W&B's internal counter counts calls, so
    an evaluation of step 5 that arrives after step 7 is kept.

    Args:
        mode: ``offline``, ``online`` or ``disabled``.
        project: W&B project.
        entity: W&B user or team; ``None`` for the account's default.
        group: groups runs in the W&B interface; ``None`` uses the sweep's name.
        tags: labels of the run.
        log_every: steps between logged training metrics; ``eval/`` and ``test/`` metrics and curves are always logged,
            and ``metrics.jsonl`` holds every step.

    Raises:
        ValueError: an unknown mode, or ``log_every`` below 1.
    """

    def __init__(
        self,
        *,
        mode: str,
        project: str,
        entity: str | None,
        group: str | None,
        tags: Sequence[str],
        log_every: int,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"logger.mode={mode}: expected one of {', '.join(MODES)}")
        if log_every < 1:
            raise ValueError(f"logger.log_every={log_every}: expected a whole number >= 1")
        self.mode = mode
        self.project = project
        self.entity = entity
        self.group = group
        self.tags = tuple(tags)
        self.log_every = log_every
        self._run: Any = None

    def start(self, info: RunInfo) -> str:
        """Begin the W&B run in ``info.folder``; returns the W&B run id.

        Raises:
            RuntimeError: W&B refuses (no account, no network, ...), with what to type instead.
        """
        import wandb

        if self._run is not None:
            raise RuntimeError("the W&B run is already started: close() it, or build a second WandbLogger")
        try:
            self._run = wandb.init(
                project=self.project,
                entity=self.entity,
                group=self.group or info.group,
                name=info.name,
                job_type=info.job_type,
                tags=list(dict.fromkeys((*self.tags, *info.tags))),
                dir=str(info.folder),
                config=_config(info),
                id=info.run_id,
                resume=None if info.run_id is None else "allow",
                # An earlier run that was left open in this process must neither be reused nor ended by ours.
                reinit="create_new",
                settings=wandb.Settings(**_settings(self.mode)),
            )
        except (wandb.Error, OSError) as error:
            raise RuntimeError(
                f"W&B could not start with logger.mode={self.mode}: {error}. Type `wandb login` first, or "
                "logger.mode=offline (no account, no network), or logger=jsonl (no W&B)"
            ) from error
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        return self._run.id

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log scalars of an optimiser step."""
        due = step % self.log_every == 0
        chosen = {name: float(value) for name, value in metrics.items() if due or name.startswith(("eval/", "test/"))}
        if chosen:
            self._started().log({"step": step, **chosen})

    def log_curve(self, step: int, name: str, curve: Mapping[int, float]) -> None:
        """Log scalars ``<name>/pass@<k>`` and, as ``<name>/curve``, a line chart k -> pass@k with its table."""
        import wandb

        run = self._started()
        table = wandb.Table(columns=["k", "pass@k"], data=[[k, float(value)] for k, value in sorted(curve.items())])
        chart = wandb.plot.line(table, x="k", y="pass@k", title=f"{name}: pass@k")
        run.log({"step": step, **curve_scalars(name, curve), f"{name}/curve": chart})

    def close(self, *, failed: bool = False) -> None:
        """End the W&B run, as crashed when ``failed``. Without a started run, does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=1 if failed else 0)

    def _started(self) -> Any:
        if self._run is None:
            raise RuntimeError("the W&B run is not started: call start(info) before log()")
        return self._run


def _config(info: RunInfo) -> dict[str, Any]:
    versions = {f"versions.{name}": version for name, version in info.versions.items() if version is not None}
    return {**info.config, "git.revision": info.revision, **versions}


def _settings(mode: str) -> dict[str, Any]:
    """What makes W&B quiet and quick. The run's record has the environment, git state and package versions already."""
    settings: dict[str, Any] = {
        "mode": mode,
        "console": "off",
        "symlink": False,
        "disable_git": True,
        "disable_code": True,
        "disable_job_creation": True,
        "x_save_requirements": False,
    }
    if mode == "online":
        # The link to the run is shown; its end-of-run recap is not: the result table says it better.
        return {**settings, "max_end_of_run_history_metrics": 0, "max_end_of_run_summary_metrics": 0}
    return {**settings, "silent": True, "x_disable_meta": True, "x_disable_machine_info": True, "x_disable_stats": True}
