"""Configuration to objects: the only place that instantiates plug-ins."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from sage.config import ConfigError, RunConfig
from sage.job import Job, Plugins
from sage.loggers.base import RunInfo
from sage.types import Split, Stat


def plugins(cfg: DictConfig) -> Plugins:
    """Construct every plug-in; a constructor only checks its values, so no model is loaded here.

    Raises:
        ConfigError: if KL mode and guide cannot work together.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # loading and saving would draw over our own bars
    made = {name: instantiate(cfg[name], _convert_="all") for name in Plugins.names()}
    reason = made["guide"].refusal(made["kl_mode"]) or made["kl_mode"].refusal(made["guide"])
    if reason is not None:
        raise ConfigError([reason])
    return Plugins(**made)


def job(
    config: RunConfig,
    parts: Plugins,
    *,
    choices: Mapping[str, str],
    folder: Path,
    info: RunInfo,
    plain: Mapping[str, Any],
    console: Console,
) -> Job:
    """Put a run together and refuse what its parts cannot do.

    Args:
        config: the fixed sections.
        parts: the plug-ins.
        choices: group -> chosen option, for the screen.
        folder: the run's own.
        info: what the tracker is told.
        plain: the resolved configuration as plain values.
        console: where the screen output goes.
    """
    made = Job(config=config, parts=parts, choices=choices, folder=folder, info=info, plain=plain, console=console)
    try:
        faults = list(_impossible(made))
    except ValueError as error:  # a benchmark that cannot have its data says what to type
        raise ConfigError([str(error)]) from error
    if faults:
        raise ConfigError(faults)
    return made


def _impossible(made: Job) -> Iterator[str]:
    """What only the parts themselves can tell."""
    train, minibatches = made.config.train, made.parts.algorithm.minibatches
    sequences = train.problems_per_step * train.completions_per_problem
    if sequences % minibatches:
        valid = ", ".join(str(n) for n in range(1, sequences + 1) if sequences % n == 0)
        yield (
            f"algorithm.minibatches={minibatches}: expected a divisor of train.problems_per_step * "
            f"train.completions_per_problem = {sequences}: {valid}"
        )
    if made.parts.algorithm.separate_critic and made.parts.model.lora is not None:
        yield "algorithm.critic=separate with model.lora holds a second model: type algorithm.critic=trunk"
    least = made.parts.algorithm.min_completions
    if train.completions_per_problem < least:
        yield (
            f"train.completions_per_problem={train.completions_per_problem}: expected a whole number >= {least} (8 is "
            "usual): advantages of this algorithm compare the completions of one problem"
        )
    if train.target_kl is not None and made.parts.kl_mode.beta == 0:
        yield f"train.target_kl={train.target_kl}: expected null where kl_mode.beta is 0, as there is nothing to adapt"
    if train.target_kl is not None and Stat.REFERENCE not in made.parts.kl_mode.needs:
        yield f"train.target_kl={train.target_kl}: expected null, as this KL mode does not measure KL to the reference"
    yield from _bad_problems(made)
    cache = made.config.paths.cache
    if made.config.sft.enabled and not _writable(cache):
        yield f"paths.cache={cache}: expected a folder that can be written; type paths.cache=... or set SAGE_CACHE"
    available = len(made.problems(Split.TRAIN))
    if train.problems_per_step > available:
        yield (
            f"train.problems_per_step={train.problems_per_step}: expected at most {available}, the training problems "
            f"of {made.parts.benchmark.name}"
        )


def _bad_problems(made: Job) -> Iterator[str]:
    """Splits that are empty, and problems that cannot be told apart."""
    benchmark = made.parts.benchmark
    wanted = [Split.TRAIN, Split.TEST, *([Split.VALIDATION] if made.config.eval.every else [])]
    ids = Counter(problem.id for split in wanted for problem in made.problems(split))
    for split in wanted:
        if not made.problems(split):
            hint = " (or eval.every=0, which skips validation)" if split is Split.VALIDATION else ""
            yield f"benchmark {benchmark.name}: its split {split} has no problem; expected at least one{hint}"
    twice = [name for name, count in ids.items() if count > 1]
    if twice:
        yield f"benchmark {benchmark.name}: {len(twice)} problem ids stand for several problems, e.g. {twice[0]!r}"


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or the folder in the nearest one above it that exists."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)
