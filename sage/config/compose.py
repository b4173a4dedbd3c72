"""Composing a configuration outside of ``sage-run``, with the same overrides."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from sage.config.errors import ConfigError
from sage.config.folders import conf_dir


def composed(overrides: Sequence[str], folder: Path | None, *, with_choices: bool = False) -> DictConfig:
    """What ``sage-run`` would compose of these overrides.

    Args:
        overrides: as typed.
        folder: with own plug-ins, as ``--config-dir``; its Python files can be imported afterwards.
        with_choices: keep the section ``hydra``, whose ``runtime.choices`` name the option of each group.

    Raises:
        ConfigError: the folder does not exist; composing raises Hydra's own errors beside it.
    """
    search: list[str] = []
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError([f"--config-dir={folder}: no such folder"])
        search = [f"hydra.searchpath=[file://{folder.resolve()}]"]
        if str(folder.resolve()) not in sys.path:
            sys.path.insert(0, str(folder.resolve()))
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return compose("config", [*overrides, *search], return_hydra_config=with_choices)
