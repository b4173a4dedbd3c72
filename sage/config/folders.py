"""Where configuration files lie: ours, and those of a user's own plug-ins."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from omegaconf import OmegaConf

_LONGEST_NAME = 120
"""Bytes; file systems allow 255 for a name."""


def conf_dir() -> Path:
    """The folder of our yaml files, absolute: ``sage/conf`` in an installed wheel, ``conf/`` in a checkout.

    Raises:
        FileNotFoundError: neither holds ``config.yaml``.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"no config.yaml in {package / 'conf'} or {package.parent / 'conf'}: the installation is incomplete; "
        "install sage-rlvr again, or run from a whole checkout"
    )


def use_plugin_folders() -> tuple[Path, ...]:
    """Make Python files in the folders given by ``--config-dir`` (or ``hydra.searchpath``) importable.

    To be called first in the job, before targets are checked: a job that a launcher runs in another process does not
    inherit ``sys.path``, but it does get the list of folders from Hydra.

    Returns:
        The folders, in Hydra's order of precedence.
    """
    from hydra.core.hydra_config import HydraConfig

    sources = HydraConfig.get().runtime.config_sources
    folders = tuple(Path(source.path).resolve() for source in sources if source.schema == "file")
    own = tuple(folder for folder in folders if folder != conf_dir() and folder.is_dir())
    for folder in reversed(own):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return own


def job_folder(number: int | str, overrides: str) -> str:
    """The folder of a sweep's job, e.g. ``3-guide=branch,seed=1``: one name, whatever the overrides hold.

    >>> job_folder(0, "experiment=paper/grpo,seed=1")
    '0-experiment=paper-grpo,seed=1'
    """
    name = re.sub(r"[^A-Za-z0-9=,._+-]+", "-", f"{number}-{overrides}")
    return name[:_LONGEST_NAME].strip("-.,") or str(number)


def register_resolvers() -> None:
    """Make :func:`job_folder` known to ``conf/config.yaml``; to be called before Hydra composes."""
    OmegaConf.register_new_resolver("job_folder", job_folder, replace=True)
