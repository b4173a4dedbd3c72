"""Fixtures that every test may use."""

import os

# Read once, when torch loads: tests are thousands of tiny operations run side by side, and threads only get in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import settings
from omegaconf import DictConfig

from sage.config import conf_dir

# A red build must be red again on the next try; at home each run looks at other examples.
settings.register_profile("ci", derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def composed() -> Iterator[Callable[..., DictConfig]]:
    """``composed("guide=token", ...)``: the configuration that ``sage-run`` would get from these overrides."""
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        yield lambda *overrides: compose("config", list(overrides))
