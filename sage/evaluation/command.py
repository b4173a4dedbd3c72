"""The command line of an evaluation -> checked configurations, one a benchmark; nothing heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from sage.config import ConfigError, RunConfig, composed, load, register_resolvers
from sage.config.errors import leaf_keys

_OWN = ("run", "base", "folder")
_OF_A_RUN = ("seed", "prompts", "eval", "model", "benchmark", "reward", "rollout")
_GROUPS = ("model", "benchmark", "reward", "rollout")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One benchmark's configuration, checked."""

    cfg: DictConfig
    config: RunConfig
    choices: Mapping[str, str]
    """Group -> chosen option."""

    @property
    def plain(self) -> dict[str, Any]:
        """The resolved configuration as plain values."""
        return cast(dict[str, Any], OmegaConf.to_container(self.cfg, resolve=True))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was typed."""

    setups: Sequence[Setup]
    """One a benchmark."""
    run: Path | None
    """Folder of the run whose model is judged."""
    bases: Sequence[Path]
    """Folders of evaluations to compare with."""
    folder: Path | None
    """Where the files go."""


def read_command(typed: Sequence[str], config_dir: Path | None) -> Asked:
    """Compose and check what was typed.

    Args:
        typed: overrides as for ``sage-run``, with ``benchmark=A,B`` for several, and ``run=``, ``base=`` and ``folder=``.
        config_dir: folder with own plug-ins.

    Raises:
        ConfigError: naming everything that cannot work; composing raises Hydra's own errors beside it.
    """
    register_resolvers()
    own, overrides = _split(typed)
    run = None if own["run"] is None else Path(own["run"])
    names, rest = _benchmarks(overrides)
    return Asked(
        setups=[_setup([*rest, *name], run, config_dir) for name in names],
        run=run,
        bases=[_existing(Path(folder)) for folder in (own["base"] or "").split(",") if folder],
        folder=None if own["folder"] is None else Path(own["folder"]),
    )


def _split(overrides: Sequence[str]) -> tuple[dict[str, str | None], list[str]]:
    """This command's own keys, and what Hydra composes."""
    own: dict[str, str | None] = dict.fromkeys(_OWN)
    rest: list[str] = []
    for override in overrides:
        key, found, value = override.partition("=")
        if key in own and found:
            own[key] = value or None
        else:
            rest.append(override)
    return own, rest


def _benchmarks(overrides: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """``benchmark=a,b`` as one override for each of them (no override where none is given), and the other overrides."""
    chosen = [o.partition("=")[2] for o in overrides if o.startswith("benchmark=")]
    rest = [o for o in overrides if not o.startswith("benchmark=")]
    if not chosen:
        return [[]], rest
    names = [name.strip() for name in chosen[-1].split(",") if name.strip()]
    if len({*names}) < len(names) or not names:
        raise ConfigError([f"benchmark={chosen[-1]}: expected names, each once, e.g. benchmark=gsm8k,math500"])
    return [[f"benchmark={name}"] for name in names], rest


def _existing(folder: Path) -> Path:
    if (folder / "evaluation").is_dir():
        raise ConfigError(
            [f"base={folder} is a run: type base={folder / 'evaluation' / 'trained'}, or .../base for its base"]
        )
    if not (folder / "curve.json").is_file():
        raise ConfigError([f"base={folder}: expected the folder of a finished evaluation, with curve.json in it"])
    return folder


def _setup(overrides: Sequence[str], run: Path | None, folder: Path | None) -> Setup:
    cfg = composed(overrides, folder, with_choices=True) if run is None else _of_run(run, overrides, folder)
    with open_dict(cfg):
        choices = {str(group): str(choice) for group, choice in cfg.pop("hydra").runtime.choices.items() if choice}
    return Setup(cfg=cfg, config=load(cfg), choices=choices)


def _of_run(run: Path, overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """A run's configuration with further overrides: what was typed for the run, then these.

    Where ``config.yaml`` has other values than what was typed gives today (the project's own files may have changed since),
    the run's values hold, unless an override changes them.
    """
    if not (run / "config.yaml").is_file() or not (run / "overrides.yaml").is_file():
        raise ConfigError([f"run={run}: expected the folder of a run, with config.yaml and overrides.yaml in it"])
    if not (run / "model").is_dir():
        raise ConfigError([f"run={run}: it has no model/, which a run writes when it has finished"])
    groups = {o.partition("=")[0] for o in overrides} & {*_GROUPS}
    if "model" in groups:
        raise ConfigError(
            [f"run={run} has a model of its own: leave model=... out (options such as model.dtype may change)"]
        )
    if "benchmark" in groups:
        groups.add("reward")  # a benchmark chooses the reward that fits it
    typed = [
        o for o in yaml.safe_load((run / "overrides.yaml").read_text(encoding="utf-8")) if not o.startswith("hydra.")
    ]
    cfg = composed([*(o for o in typed if _section(o) not in groups), *overrides], folder, with_choices=True)
    now = OmegaConf.create(OmegaConf.to_container(composed(typed, folder)))
    saved = OmegaConf.load(run / "config.yaml")
    plain = cast(dict[str, Any], OmegaConf.to_container(saved))
    for key in leaf_keys({name: plain[name] for name in _OF_A_RUN if name in plain and name not in groups}):
        value = OmegaConf.select(saved, key)
        if OmegaConf.select(now, key) != value and OmegaConf.select(cfg, key) == OmegaConf.select(now, key):
            OmegaConf.update(cfg, key, value, force_add=True)
    return cfg


def _section(override: str) -> str:
    """The section that an override touches, e.g. ``benchmark`` of ``+benchmark.path=x``."""
    return re.split(r"[=@.]", override.lstrip("+~"), maxsplit=1)[0]
