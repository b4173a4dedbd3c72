"""Types of values as they come from yaml or a command line: does one fit, and how to say what was expected."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

MISSING = "???"
"""How OmegaConf writes a value that must be given."""

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    type(None): "null",
}


def show(value: object) -> str:
    """A value as one would type it on the command line, cut to 60 characters.

    >>> show(None), show(True), show([1, "a"])
    ('null', 'true', '[1,a]')
    """
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case dict():
            text = "{" + ",".join(f"{k}:{show(v)}" for k, v in cast(dict[object, object], value).items()) + "}"
        case list():
            text = "[" + ",".join(show(item) for item in cast(list[object], value)) + "]"
        case _:
            text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def describe(expected: Any) -> str:
    """What a type wants, in words.

    >>> describe(int | None), describe(tuple[float, float])
    ('a whole number or null', 'a list of 2: a number, a number')
    """
    origin, args = get_origin(expected), get_args(expected)
    if expected in _WORDS:
        return _WORDS[expected]
    if expected is None:
        return "null"
    if origin is Literal:
        return "one of " + ", ".join(map(show, args))
    if _is_union(origin):
        return " or ".join(describe(arg) for arg in args)
    if _is_fixed_tuple(origin, args):
        return f"a list of {len(args)}: " + ", ".join(map(describe, args))
    if _is_list(expected, origin):
        return f"a list, each item {describe(args[0])}" if args and args[0] is not Any else "a list"
    if _is_mapping(expected, origin):
        return "a mapping {key: value}"
    return "a value"


def fits(expected: Any, value: object) -> bool:
    """Whether a plain yaml value may stand where ``expected`` is annotated. Types it does not know accept anything.

    >>> fits(int, True), fits(float, 1), fits(float, "1"), fits(tuple[float, float], [0.9, 0.99])
    (False, True, False, True)
    """
    origin, args = get_origin(expected), get_args(expected)
    if expected in (None, type(None)):
        return value is None
    if expected is bool:
        return isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    if expected in (str, Path):
        return isinstance(value, str)
    if origin is Literal:
        # 1 == True in Python, but not for somebody who reads a yaml file.
        return any(type(value) is type(arg) and value == arg for arg in args)
    if _is_union(origin):
        return any(fits(arg, value) for arg in args)
    return _container_fits(expected, value)


def _container_fits(expected: Any, value: object) -> bool:
    origin, args = get_origin(expected), get_args(expected)
    if _is_fixed_tuple(origin, args):
        items = cast(list[object], value) if isinstance(value, list) else None
        return items is not None and len(items) == len(args) and all(map(fits, args, items))
    if _is_list(expected, origin):
        item = args[0] if args else Any
        return isinstance(value, list) and all(fits(item, part) for part in cast(list[object], value))
    if _is_mapping(expected, origin):
        item = args[1] if len(args) == 2 else Any
        return isinstance(value, dict) and all(fits(item, part) for part in cast(dict[str, object], value).values())
    return True


def convert(expected: Any, value: Any) -> Any:
    """A fitting yaml value as the Python type that was asked for: lists to tuples, text to paths."""
    if expected is Path:
        return Path(value).expanduser()
    if expected is float:
        return float(value)
    if get_origin(expected) is tuple:
        kinds = get_args(expected)
        return tuple(map(convert, kinds[:1] * len(value) if Ellipsis in kinds else kinds, value))
    return value


def _is_union(origin: Any) -> bool:
    return origin is Union or origin is types.UnionType


def _is_fixed_tuple(origin: Any, args: tuple[Any, ...]) -> bool:
    return origin is tuple and Ellipsis not in args


def _is_list(expected: Any, origin: Any) -> bool:
    return (origin or expected) in (list, tuple, set, frozenset, Sequence)


def _is_mapping(expected: Any, origin: Any) -> bool:
    return (origin or expected) in (dict, Mapping)
