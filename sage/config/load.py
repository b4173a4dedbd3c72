"""Composed configuration -> :class:`RunConfig`, with every fault reported at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sage.config.errors import ConfigError, leaf_keys, missing, unknown, unresolved, wrong
from sage.config.schema import RULES, RunConfig
from sage.config.signatures import signature_of
from sage.config.source import TargetError
from sage.config.values import MISSING, convert, describe, fits

PLUGINS = ("guide", "kl_mode", "algorithm", "model", "rollout", "logger", "reward", "benchmark")
"""The sections that name a class by ``_target_``."""

T = TypeVar("T")
_INSTANTIATE_KEYS = frozenset({"_target_", "_partial_", "_convert_", "_recursive_", "_args_"})


def load(cfg: DictConfig) -> RunConfig:
    """Check the whole configuration and return its fixed sections as typed values; paths become absolute.

    Args:
        cfg: as Hydra composed it: the sections of :class:`RunConfig` and the plug-ins of :data:`PLUGINS`.

    Raises:
        ConfigError: listing every unknown key, missing or mistyped value, range and impossible combination.
    """
    plain = _plain(cfg)
    # The group kl only chooses the default of kl_mode; its files hold nothing.
    shorthand = cast(dict[str, Any], plain.pop("kl", None) or {})
    known = {field.name for field in dataclasses.fields(RunConfig)} | {*PLUGINS}
    elsewhere = [*leaf_keys(plain)]
    faults = [unknown(key, value, known, elsewhere=elsewhere) for key, value in plain.items() if key not in known]
    faults += [unknown(f"kl.{key}", value, (), elsewhere=elsewhere) for key, value in shorthand.items()]
    fixed = {key: value for key, value in plain.items() if key in known and key not in PLUGINS}
    config = _read(RunConfig, fixed, "", faults, elsewhere)
    for name in PLUGINS:
        faults += check_plugin(name, plain.get(name))
    if config is not None and not faults:
        faults += _impossible(config, plain)
    if faults or config is None:
        raise ConfigError(faults)
    return dataclasses.replace(config, paths=_absolute(config))


def check_plugin(name: str, section: Any) -> list[str]:
    """The faults of a plug-in section, found by reading the source of its ``_target_``.

    Args:
        name: dotted key of the section, e.g. ``guide``.
        section: a plain mapping with ``_target_`` (a ``DictConfig`` will do); sections nested in it are checked too.
    """
    if isinstance(section, DictConfig):
        section = _plain(section)
    if not isinstance(section, dict) or "_target_" not in section:
        return [f"{name}: expected a section with _target_: package.module.Class, as in conf/{name}/*.yaml"]
    values = cast(dict[str, Any], section)
    target = str(values["_target_"])
    try:
        signature = signature_of(target)
    except TargetError as error:
        return [f"{name}._target_={target}: {error}"]
    if signature is None:
        return []
    faults: list[str] = []
    for key, value in values.items():
        if key in _INSTANTIATE_KEYS:
            continue
        parameter = signature.parameters.get(key)
        if parameter is not None:
            faults += _check_value(f"{name}.{key}", value, parameter.expected)
        elif not signature.is_open:
            faults.append(unknown(f"{name}.{key}", value, signature.parameters, where=target))
    required = [] if values.get("_partial_") else [key for key, item in signature.parameters.items() if item.required]
    absent = [key for key in required if key not in values]
    return faults + [missing(f"{name}.{key}", describe(signature.parameters[key].expected)) for key in absent]


def _check_value(key: str, value: Any, expected: Any) -> list[str]:
    if value == MISSING:
        return [missing(key, describe(expected))]
    section = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if "_target_" in section:
        return check_plugin(key, section)
    nested = {name: cast(dict[str, Any], part) for name, part in section.items() if isinstance(part, dict)}
    inner = {name: part for name, part in nested.items() if "_target_" in part}
    if inner:  # a mapping of plug-ins, such as the factors of a product
        return [fault for name, part in inner.items() for fault in check_plugin(f"{key}.{name}", part)]
    return [] if fits(expected, cast(object, value)) else [wrong(key, cast(object, value), describe(expected))]


def _plain(cfg: DictConfig) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    except OmegaConfBaseException as error:
        raise ConfigError([unresolved(error)]) from error


def _read(kind: type[T], section: Mapping[str, Any], prefix: str, faults: list[str], elsewhere: list[str]) -> T | None:
    """Build the dataclass ``kind`` from a section; ``None``, and new faults, where that is impossible."""
    hints = get_type_hints(kind)
    before = len(faults)
    faults += [
        unknown(f"{prefix}{key}", value, hints, elsewhere=elsewhere)
        for key, value in section.items()
        if key not in hints
    ]
    values: dict[str, Any] = {}
    for key, expected in hints.items():
        path, value = f"{prefix}{key}", section.get(key, MISSING)
        if dataclasses.is_dataclass(expected) and isinstance(value, dict):
            values[key] = _read(cast(type, expected), cast(dict[str, Any], value), f"{path}.", faults, elsewhere)
        elif fault := _fault(path, value, expected):
            faults.append(fault)
        else:
            values[key] = convert(expected, value)
    return kind(**values) if len(faults) == before else None


def _fault(path: str, value: Any, expected: Any) -> str | None:
    rule = RULES.get(path)
    words = describe(expected)
    if dataclasses.is_dataclass(expected):
        words = "a section with " + ", ".join(field.name for field in dataclasses.fields(expected))
    elif rule is not None:
        words = rule.expected
    if value == MISSING:
        return missing(path, words)
    if dataclasses.is_dataclass(expected) or not fits(expected, value):
        return wrong(path, value, words)
    # Where null is allowed, no range applies to it.
    return None if rule is None or value is None or rule.holds(value) else wrong(path, value, words)


def _impossible(config: RunConfig, plain: Mapping[str, Any]) -> Iterator[str]:
    """Values that are each fine and cannot work together."""
    train, evaluation = config.train, config.eval
    rows = train.problems_per_step * train.completions_per_problem
    minibatches = plain["algorithm"].get("minibatches", 1)
    if minibatches > rows:
        yield wrong("algorithm.minibatches", minibatches, f"at most {rows}, the completions of a step")
    if config.sft.enabled and (config.sft.steps is None) == (config.sft.epochs is None):
        yield wrong("sft.epochs", config.sft.epochs, "exactly one of sft.steps and sft.epochs, the other null")
    room = plain["model"].get("max_length")
    prompt = config.prompts.max_tokens
    if isinstance(room, int):
        for name, sampling in (("train", train.sampling), ("eval", evaluation.sampling)):
            if prompt + sampling.max_tokens > room:
                most = (
                    f"at most {room - prompt}: model.max_length={room} holds prompt ({prompt} or more) and completion"
                )
                yield wrong(f"{name}.sampling.max_tokens", sampling.max_tokens, most)


def _absolute(config: RunConfig) -> Any:
    # Relative to where the command was typed, whatever the job's working directory is.
    from hydra.core.hydra_config import HydraConfig

    start = Path(HydraConfig.get().runtime.cwd) if HydraConfig.initialized() else Path.cwd()
    return dataclasses.replace(config.paths, outputs=start / config.paths.outputs, cache=start / config.paths.cache)
