"""``sage-run``: one entry point for a run and, with ``-m``, for a sweep."""

from __future__ import annotations

import logging
import shutil
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

log = logging.getLogger(__name__)
_failed: list[str] = []
register_resolvers()


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _job(cfg: DictConfig) -> float | None:
    """Run one job. A refused or failing one leaves its reason on the screen, and a sweep goes on with the others."""
    try:
        return _run(cfg)
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
        elif single:
            _remove_unused(Path(settings.runtime.output_dir))
        print(f"sage: {name}{text}", file=sys.stderr)
        _failed.append(name)
        return None


def _remove_unused(folder: Path) -> None:
    """Hydra makes the folder before the job starts; one that holds no run of ours is in the way."""
    if not (folder / record.MARKER).exists() and {p.name for p in folder.iterdir()} <= {".hydra", "run.log"}:
        shutil.rmtree(folder)


def _run(cfg: DictConfig) -> float:
    """Check, build and run; returns the trained model's pass@1 on the test problems."""
    settings = HydraConfig.get()
    choices = {group: choice for group, choice in settings.runtime.choices.items() if choice and "/" not in group}
    console = make_console()
    shown = {g: choices[g] for g in ("guide", "kl_mode", "algorithm", "model", "benchmark") if g in choices}
    print_headline(console, __version__, shown | {"seed": str(cfg.seed)})
    use_plugin_folders()
    config = load(cfg)  # refuses what cannot work before torch is imported

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
        claim = record.claim_folder(folder)
    except record.RunFolderTaken as error:
        raise ConfigError([str(error)]) from error
    with claim:
        record.write_run_record(folder, plain, overrides, sys.argv)
        return pipeline.run(job).pass_at_k[1].value


def main() -> None:
    """The ``sage-run`` command."""
    with readable_errors():
        _job()
    if _failed:
        if len(_failed) > 1:
            print(f"sage: {len(_failed)} jobs failed", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
