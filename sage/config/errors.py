"""One readable error for all that is wrong with a command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, cast

from sage.config.values import show
from sage.types import Refusal


class ConfigError(ValueError):
    """The configuration cannot work. Each fault is one line: what was wrong, what was expected, what to type."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(*self.faults)

    def __str__(self) -> str:
        if len(self.faults) == 1:
            return self.faults[0]
        return f"{len(self.faults)} faults in the configuration:\n" + "\n".join(f"  {fault}" for fault in self.faults)


def unknown(key: str, value: object, options: Iterable[str], *, where: str = "", elsewhere: Iterable[str] = ()) -> str:
    """The fault of a key that does not exist.

    Args:
        key: dotted, e.g. ``train.stesp``.
        value: what was given.
        options: names that exist beside it.
        where: whose options they are, when that is not plain from the key.
        elsewhere: dotted keys of the whole configuration; one that ends in the same name is a likely guess too.
    """
    section, _, name = key.rpartition(".")
    names = sorted(options)
    dotted = [f"{section}.{option}" if section else option for option in names]
    nearest = get_close_matches(name, names, n=1)
    same_name = [other for other in elsewhere if other != key and other.rpartition(".")[2] == name]
    same_name = [other for other in same_name if section and other.startswith(f"{section}.")] or same_name
    head = f"{key}={show(value)}: no such option" + (f" of {where}" if where else "")
    if nearest:
        return f"{head}; did you mean {dotted[names.index(nearest[0])]}?"
    if same_name:
        return f"{head}; did you mean {' or '.join(same_name)}?"
    return f"{head}; {section or 'the configuration'} has {', '.join(names) or 'none'}"


def leaf_keys(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of all values in a plain nested mapping.

    >>> list(leaf_keys({"a": {"b": 1}, "c": 2}))
    ['a.b', 'c']
    """
    for key, value in section.items():
        if isinstance(value, dict):
            yield from leaf_keys(cast(dict[str, Any], value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def wrong(key: str, value: object, expected: str) -> str:
    """The fault of a value that cannot stand where it does."""
    return f"{key}={show(value)}: expected {expected}"


def missing(key: str, expected: str) -> str:
    """The fault of a value that must be given."""
    return f"{key} is missing: expected {expected}; type {key}=..."


def unresolved(error: Any) -> str:
    """The fault of a ``${...}`` that OmegaConf cannot replace."""
    reason = str(error.msg or error).splitlines()[0]
    return f"{error.full_key or 'configuration'}: cannot be resolved: {reason}"


@contextmanager
def readable_errors() -> Generator[None, None, None]:
    """Ends the program with a short message on stderr where the user's configuration is at fault; other errors pass.

    Wraps a call of the function that ``hydra.main`` decorated. Hydra's own report of an unknown key advises to add the
    key with ``+``, which is never right here, and its report of a refused plug-in is a traceback. With the environment
    variable HYDRA_FULL_ERROR=1 every error passes with its traceback.

    Raises:
        SystemExit: status 1, after the message.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    # The variable makes Hydra raise instead of printing; the message is ours.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        text = explain(error)
        if text is None:
            raise
        print(f"sage: {text}", file=sys.stderr)
        raise SystemExit(1) from error
    except OSError as error:  # an output folder that cannot be made
        if error.filename is None:
            raise
        print(f"sage: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from error
    finally:
        os.environ.pop("HYDRA_FULL_ERROR", None)


def explain(error: Exception) -> str | None:
    """The message for a user, or ``None`` where the traceback is needed.

    Args:
        error: a :class:`ConfigError`, or what Hydra raised on composing or instantiating.
    """
    from hydra.errors import CompactHydraException, InstantiationException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, GrammarParseError, InterpolationResolutionError

    cause = error.__cause__
    if isinstance(error, ConfigError | Refusal):
        return str(error)
    if isinstance(error, InterpolationResolutionError | GrammarParseError):
        return unresolved(error)
    if isinstance(error, InstantiationException):
        # A plug-in's ValueError names the option, the value and what is allowed; anything else is a bug in it.
        if type(cause) in (ValueError, ConfigError, Refusal):
            return str(cause)
        return _broken_plugin(error) if isinstance(_first(error), ImportError | AttributeError) else None
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
        return _unknown_override(cause)
    if isinstance(error, CompactHydraException):
        return _with_nearest_option(str(error)) + (f"\n{cause}" if cause is not None else "")
    return None


def _first(error: BaseException) -> BaseException:
    """The error that started it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _broken_plugin(error: BaseException) -> str:
    """A plug-in whose module does not import or lacks its class."""
    first = _first(error)
    return f"a plug-in cannot be built: {type(first).__name__}: {first}"


def _unknown_override(cause: Any) -> str:
    from omegaconf import OmegaConf

    # Hydra stops at the first key that it cannot override, and does not say which value it was given.
    parent = cause.parent_node
    root = OmegaConf.to_container(parent._get_root(), resolve=False)
    names = [name for name in map(str, parent) if not name.startswith("_")]
    fault = unknown(cause.full_key, "", names, elsewhere=leaf_keys(cast(dict[str, Any], root)))
    return fault.replace("=:", ":", 1)


def _with_nearest_option(text: str) -> str:
    """Hydra's list of a group's options, with the nearest name first and without its search path."""
    lines = text.split("Config search path:")[0].splitlines()
    asked = next((line.split("'")[-2] for line in lines if "Could not find '" in line), "")
    group, _, name = asked.rpartition("/")
    options = [line.strip() for line in lines if line.startswith("\t")]
    nearest = get_close_matches(name, options, n=1)
    hint = [f"{group}={name}: no such option; did you mean {group}={nearest[0]}?"] if nearest and group else []
    return "\n".join([*hint, *lines]).rstrip()
