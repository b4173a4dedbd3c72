"""``sage-run``: one entry point for a run and, with ``-m``, for a sweep."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from sage import __version__, record
from sage.config import ConfigError, conf_dir, explain, load, readable_errors, register_resolvers, use_plugin_folders
from sage.loggers.console import make_console, print_headline
from sage.stopping import STATUS, Stopped, Stopper

log = logging.getLogger(__name__)
_failed: list[str] = []
_stopper = Stopper()
register_resolvers()


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _job(cfg: DictConfig) -> float | None:
    """Run one job. A refused or failing one leaves its reason on the screen, and a sweep goes on with the others."""
    try:
        return _run(cfg)
    except Stopped as stopped:
        print(f"sage: {stopped}; the same command in the same folder goes on", file=sys.stderr)
        sys.exit(STATUS)
    except Exception as error:
        settings = HydraConfig.get()
        single = settings.mode is RunMode.RUN
        name = "" if single else f"job {settings.job.num} ({' '.join(settings.overrides.task)}): "
        text = explain(error)
        if text is None:
            log.exception("the run failed")
            if single:
                raise
            text = f"{type(error).__name__}: {error}; traceback in {settings.runtime.output_dir}/run.log"
        elif not single:
            log.error("%s", text)
        else:
            chosen = any(o.startswith(("hydra.run.dir", "hydra.sweep")) for o in settings.overrides.hydra)
            _remove_unused(Path(settings.runtime.output_dir), chosen)
        print(f"sage: {name}{text}", file=sys.stderr)
        _failed.append(name)
        return None


def _remove_unused(folder: Path, chosen: bool) -> None:
    """Hydra makes the folder before the job starts. Ours is removed while it is empty; one the user ``chosen`` is not."""
    if chosen:
        return
    for path in (folder, folder.parent):
        if any(path.iterdir()):
            return
        path.rmdir()


def _run(cfg: DictConfig) -> float:
    """Check, build and run; returns the trained model's pass@1 on the test problems."""
    settings = HydraConfig.get()
    choices = {group: choice for group, choice in settings.runtime.choices.items() if choice and "/" not in group}
    console = make_console()
    shown = {g: choices[g] for g in ("guide", "kl_mode", "algorithm", "model", "benchmark") if g in choices}
    print_headline(console, __version__, shown | {"seed": str(cfg.seed)})
    use_plugin_folders()
    config = load(cfg)  # refuses what cannot work before torch is imported

    console.print("[dim]loading torch and transformers[/dim]")
    from sage import build, pipeline
    from sage.loggers.base import RunInfo

    parts = build.plugins(cfg)
    folder = Path(settings.runtime.output_dir)
    plain: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # pyright: ignore[reportAssignmentType]
    overrides = list(settings.overrides.task)
    info = RunInfo(
        folder=folder,
        name=" ".join(overrides) or folder.name,
        config=record.flatten(plain),
        revision=record.revision(),
        versions=record.package_versions(),
        group=Path(settings.sweep.dir).name if settings.mode is RunMode.MULTIRUN else None,
        overrides=tuple(overrides),
    )
    job = build.job(config, parts, choices=choices, folder=folder, info=info, plain=plain, console=console)
    try:
        claim = record.claim_folder(folder, resume=config.resume != "never")
    except record.RunFolderTaken as error:
        raise ConfigError([str(error)]) from error
    with claim, _stopper.listening():
        if not claim.again:
            record.write_run_record(folder, plain, overrides, sys.argv)
        return pipeline.run(job, _stopper, again=claim.again).pass_at_k[1].value


def _with_the_runs_own(argv: list[str]) -> list[str]:
    """``resume=FOLDER`` as what was typed for that run, in that folder; what is typed besides changes it."""
    folders = [a.removeprefix("resume=") for a in argv if a.startswith("resume=") and a not in _NO_FOLDER]
    if not folders:
        return argv
    run = Path(folders[-1])
    try:
        typed = record.typed_for(run)
    except ValueError as error:
        print(f"sage: {error}", file=sys.stderr)
        sys.exit(1)
    rest = [a for a in argv[1:] if not a.startswith("resume=")]
    return [argv[0], *typed, *rest, f"hydra.run.dir={run}"]


_NO_FOLDER = {"resume=auto", "resume=never"}


def main() -> None:
    """The ``sage-run`` command."""
    # What clusters and containers send first: end like an error, so that run.json and the tracker are closed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.argv = _with_the_runs_own(sys.argv)
        with readable_errors():
            _job()
    except KeyboardInterrupt:
        print("sage: interrupted; what was written so far stays in the run's folder", file=sys.stderr)
        sys.exit(130)
    if _failed:
        if len(_failed) > 1:
            print(f"sage: {len(_failed)} jobs failed", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
