"""Run descriptions for the tests of loggers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sage.loggers.base import RunInfo
from tests import wandb_reader


@pytest.fixture
def offline_runs() -> Callable[[Path], list[wandb_reader.OfflineRun]]:
    """All ended offline W&B runs below a folder."""
    return wandb_reader.offline_runs


@pytest.fixture
def make_info(tmp_path: Path) -> Callable[..., RunInfo]:
    """A run description in a folder of its own."""

    def make(name: str = "a run", **changes: Any) -> RunInfo:
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        values = {"folder": folder, "name": name, "config": {"seed": 0}, "revision": None, "versions": {}}
        return RunInfo(**{**values, **changes})

    return make
