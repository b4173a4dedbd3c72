"""A run before it starts: its configuration, one plug-in of each group, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from sage.config import RunConfig
from sage.interfaces import Algorithm, Benchmark, Guide, KLMode, Model, Reward, RolloutEngine
from sage.loggers.base import RunInfo, Tracker
from sage.loggers.console import ConsoleProgress
from sage.types import Problem, Split


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """One of each group."""

    guide: Guide
    kl_mode: KLMode
    algorithm: Algorithm
    model: Model
    benchmark: Benchmark
    reward: Reward
    rollout: RolloutEngine
    logger: Tracker

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The configuration groups that hold a plug-in."""
        return tuple(f.name for f in fields(cls))


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run before it starts."""

    config: RunConfig
    parts: Plugins
    choices: Mapping[str, str]
    """Group -> chosen option."""
    folder: Path
    info: RunInfo
    plain: Mapping[str, Any]
    """The resolved configuration."""
    console: Console

    @cached_property
    def progress(self) -> ConsoleProgress:
        """Where stages report to."""
        return ConsoleProgress(self.console)

    usable: Mapping[Split, Sequence[Problem]] | None = None
    """What is left of the benchmark's problems once prompts and golds were looked at; ``None`` before."""
    longest_prompt: int | None = None
    """In tokens, once they were looked at."""
    notes: tuple[str, ...] = ()
    """What was found on the way: sentences for the first screen."""

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split that count: all, or the first ``eval.max_problems`` of those to evaluate on."""
        problems = self.parts.benchmark.problems(split) if self.usable is None else self.usable.get(split, ())
        return problems if split is Split.TRAIN else problems[: self.config.eval.max_problems]
