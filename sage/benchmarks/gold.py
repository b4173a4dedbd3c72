"""The gold answer of a row as text, and questions and golds found at a path inside a row. Nothing here judges an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

AnswerForm = Literal["plain", "integer", "after_hashes", "last_box"]
"""Where the answer stands in its column: it is the column; a whole number written as 027 or 27.0; behind ``####``; in the
last ``\\boxed{}``."""

_STEP = re.compile(r"\[(-?\d+)\]|\.?([^.\[\]]+)")
_INTEGER = re.compile(r"(-?)0*(\d+)(?:\.0*)?")
_NUMBER = re.compile(r"-?(?=\.?\d)(?:\d{1,3}(?:,\d{3})+|\d*)(?:\.\d+)?")
_DOLLARS = re.compile(r"\$([^$]+)\$")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-z])\s*")
_CALCULATOR = re.compile(r"<<[^<>]*>>")


class RowError(ValueError):
    """A row has no usable question or gold: the reason, in words that follow the row's id."""


def head(path: str) -> str:
    """The column that a path begins with.

    >>> head("final_answer[0]"), head("reward_model.ground_truth")
    ('final_answer', 'reward_model')
    """
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The value at a column name or a path such as ``final_answer[0]`` or ``messages[-1].content``.

    Raises:
        RowError: the row's value ends before the path does.
    """
    if path in row:
        return row[path]
    value: Any = row
    for index, key in _STEP.findall(path):
        try:
            value = value[int(index)] if index else value[key]
        except (IndexError, KeyError, TypeError):
            raise RowError(f"has nothing at {path}") from None
    return value


def text_of(value: Any, option: str, path: str) -> str:
    """A question or answer as text; a whole number stored as a float loses its ``.0``.

    Args:
        value: what the row holds.
        option: of the benchmark, for the message.
        path: the option's value.

    Raises:
        RowError: there is none.
        ValueError: it is a list or a mapping, so the option needs a longer path.
    """
    if isinstance(value, list | dict):
        inside = "[0]" if isinstance(value, list) else f".{next(iter(value), 'key')}"
        raise ValueError(
            f"benchmark.{option}={path} holds a {type(value).__name__}, e.g. {str(value)[:80]}: expected a path to text "
            f"or a number in it, e.g. benchmark.{option}='{path}{inside}'"
        )
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    if not text:
        raise RowError(f"has an empty {path}")
    return text


def gold_of(text: str, form: AnswerForm) -> str:
    """The answer in a column's text, without enclosing dollar signs.

    >>> gold_of("4 + 3 = <<4+3=7>>7 eggs. #### 7", "after_hashes"), gold_of("025", "integer"), gold_of("$x^2$", "plain")
    ('7', '25', 'x^2')

    Raises:
        RowError: the text has no answer in this form.
    """
    if form == "after_hashes":
        _, marker, text = text.rpartition("####")
        if not marker:
            raise RowError("has no line '#### answer'")
    elif form == "last_box":
        boxed = last_box(text)
        if boxed is None:
            raise RowError("has no complete \\boxed{answer}")
        text = boxed
    text = text.strip()
    if enclosed := _DOLLARS.fullmatch(text):
        text = enclosed[1].strip()
    if form == "integer":
        number = _INTEGER.fullmatch(text)
        if not number:
            raise RowError(f"has the answer {text!r}, which is no whole number")
        text = number[1] + number[2]
    if not text:
        raise RowError("has an empty answer")
    return text


def is_number(gold: str) -> bool:
    r"""Whether a gold is a whole or decimal number, thousands perhaps marked by commas.

    >>> [is_number(gold) for gold in ("-3", "1,250.5", ".5", "1/2", "2\\pi", "12,3", "")]
    [True, True, True, False, False, False, False]
    """
    return _NUMBER.fullmatch(gold) is not None


def last_box(text: str) -> str | None:
    r"""What stands in the last complete ``\boxed{}`` or ``\fbox{}``; ``None`` without one.

    >>> last_box(r"so \boxed{2}, or rather \boxed{\frac{1}{2}}."), last_box(r"\boxed 9.")
    ('\\frac{1}{2}', '9')
    """
    for found in reversed([*_BOX.finditer(text)]):
        start = found.end()
        if text[start : start + 1] != "{":
            token = re.match(r"\S", text[start:])
            if token and found[0][-1:].isspace():
                return token[0]
            continue
        depth = 0
        for position in range(start, len(text)):
            escaped = text[position - 1] == "\\"
            depth += 0 if escaped else {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[start + 1 : position].strip()
    return None


def worked_solution(text: str, gold: str, form: AnswerForm) -> str:
    """A dataset's solution as a text to imitate: GSM8K's calculator notes go, and its last line boxes the answer."""
    if form != "after_hashes":
        return text
    body = _CALCULATOR.sub("", text.rpartition("####")[0]).strip()
    return f"{body}\nThe answer is $\\boxed{{{gold}}}$."
