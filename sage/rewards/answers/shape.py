"""The outer shape of an answer: one thing, a list, a set, a tuple or interval, a matrix; and what name stands before it."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

MOST_PARTS = 64
"""A longer list is treated as one thing: comparing lists takes a time that grows with the square."""


class Kind(StrEnum):
    """What an answer looks like from outside."""

    ONE = "one"
    LIST = "list"
    """Bare: ``1, 2`` or ``1 and 2``; as a solution set, in any order."""
    SET = "set"
    """In braces, in any order."""
    TUPLE = "tuple"
    """In brackets: a point or an interval; order and brackets count."""
    MATRIX = "matrix"


class Shape(NamedTuple):
    """An answer taken apart once."""

    kind: Kind
    parts: tuple[str, ...]
    """The elements, tidied; for ONE the thing itself."""
    brackets: str = ""
    """Of a tuple, e.g. ``[)``; of a matrix its numbers of rows and columns."""
    name: str = ""
    """``x`` of ``x = 5``."""


_NAME = re.compile(
    r"([A-Za-z](?:_(?:\{[^{}]*\}|\w))?'?(?:\([A-Za-z0-9, ]{1,12}\))?|\\[a-z]{2,8}(?:_(?:\{[^{}]*\}|\w))?)\s*(=|\\in(?![a-z]))\s*"
)
RELATION = re.compile(r"=|<|>|\\(?:le|ge|ne|in|equiv|approx)(?![A-Za-z])")
_WORD = re.compile(
    r"\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])"
)
_TOKEN = re.compile(r"\\begin\{[a-z]+\}|\\end\{[a-z]+\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENERS = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\langle": r"\rangle"}
_CLOSERS = {")", "]", "}", r"\}", r"\rangle"}
_MATRIX = re.compile(r"\\begin\{([pbvV]?matrix)\}(.*?)\\end\{\1\}", re.DOTALL)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+")


@lru_cache(maxsize=8192)
def shapes(text: str) -> tuple[Shape, ...]:
    """The readings of a tidied answer. Only ``100,200`` has two: a number with a thousands mark, and two numbers."""
    name = _NAME.match(text)
    if name is not None and not RELATION.search(text, name.end()):
        return tuple(shape._replace(name=re.sub(r"\s", "", name[1])) for shape in _unnamed(text[name.end() :].strip()))
    # n = 2, 3, 4 names a list; x = 1, y = 2 is a list of names.
    return _unnamed(text)


def _unnamed(text: str) -> tuple[Shape, ...]:
    one = Shape(Kind.ONE, (text,))
    parts = _split(text)
    if parts is None or len(parts) > MOST_PARTS:
        return (one,)
    if len(parts) > 1:
        several = Shape(Kind.LIST, _expanded(parts))
        return (one, several) if _THOUSANDS.fullmatch(text) else (several,)
    if (matrix := _MATRIX.fullmatch(text)) is not None:
        return (_matrix(matrix[2]),)
    enclosed = _enclosed(text)
    if enclosed is not None:
        return (enclosed,)
    both = _expanded([text])
    return (Shape(Kind.LIST, both),) if len(both) > 1 else (one,)


def _enclosed(text: str) -> Shape | None:
    opener = next((opener for opener in _OPENERS if text.startswith(opener)), None)
    closer = next((closer for closer in _CLOSERS if text.endswith(closer)), None)
    if opener is None or closer is None or len(text) < len(opener) + len(closer) or not _encloses(text):
        return None
    inside = text[len(opener) : len(text) - len(closer)].strip()
    parts = _split(inside)
    if parts is None or len(parts) > MOST_PARTS:
        return None
    if opener == r"\{" and closer == r"\}":
        described = re.search(r"\\mid(?![A-Za-z])|[|:<>]|\\(?:in|le|ge)(?![A-Za-z])", inside)
        return None if described or not inside else Shape(Kind.SET, _expanded(parts))
    if len(parts) > 1:
        return Shape(Kind.TUPLE, tuple(parts), brackets=(opener + closer).replace("\\", ""))
    if (opener, closer) == ("(", ")"):
        return _unnamed(inside)[0]
    return None


def _split(text: str) -> list[str] | None:
    """Elements at the outer level; ``None`` where brackets do not match or an element is empty."""
    parts, current, depth = [], [], 0
    for token in _TOKEN.findall(_WORD.sub(_comma_at_most_once, text)):
        if token in _OPENERS or token.startswith(r"\begin"):
            depth += 1
        elif token in _CLOSERS or token.startswith(r"\end"):
            depth -= 1
            if depth < 0:
                return None
        if depth == 0 and token in (",", ";", "\0"):
            parts.append("".join(current).strip())
            current = []
        else:
            current.append(" and " if token == "\0" else token)
    parts.append("".join(current).strip())
    parts = _without_empty(parts, "\0" in _WORD.sub("\0", text))
    return parts if depth == 0 and parts and all(parts) else None


def _comma_at_most_once(_: re.Match[str]) -> str:
    return "\0"


def _without_empty(parts: list[str], has_words: bool) -> list[str]:
    # "19, 46, and 82" has nothing between its comma and its word.
    return [part for part in parts if part] if has_words else parts


def _encloses(text: str) -> bool:
    """Whether the first bracket closes at the very end."""
    depth = 0
    tokens = _TOKEN.findall(text)
    for place, token in enumerate(tokens):
        depth += (token in _OPENERS or token.startswith(r"\begin")) - (token in _CLOSERS or token.startswith(r"\end"))
        if depth == 0:
            return place == len(tokens) - 1
    return False


def _expanded(parts: list[str]) -> tuple[str, ...]:
    r"""Write ``a \pm b`` out; with several signs in one part they could go together or not, so that part stays."""
    found: list[str] = []
    for part in parts:
        if len(re.findall(r"\\pm(?![A-Za-z])", part)) == 1 and r"\mp" not in part:
            found += [re.sub(r"\\pm(?![A-Za-z])", sign, part).lstrip("+ ").strip() for sign in "+-"]
        else:
            found.append(part)
    return tuple(found)


def _matrix(body: str) -> Shape:
    rows = [row.split("&") for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", body.strip()) if row.strip()]
    cells = tuple(cell.strip() for row in rows for cell in row)
    if not rows or len({len(row) for row in rows}) > 1 or len(cells) > MOST_PARTS:
        return Shape(Kind.ONE, (rf"\begin{{pmatrix}}{body}\end{{pmatrix}}",))
    return Shape(Kind.MATRIX, cells, brackets=f"{len(rows)}x{len(rows[0])}")
