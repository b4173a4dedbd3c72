"""Answers that no box or tag marks: "The answer is 1 1/4.", "**Final Answer:** 73", or the last formula or number."""

from __future__ import annotations

import re
from collections import deque

TAIL = 2000
"""Characters from the end in which an unmarked answer is looked for: it comes last, and a text may be of any length."""

_PHRASE = re.compile(r"(?i)\b(?:final\s+)?answers?\b[ \t*_]*(?:(?:is|are)\b[ \t]*:?|:|=)[ \t*_]*")
_MATH = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w.])[-\u2212+]?\s?\$?"
    r"(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)?(?:(?<=\d)\.\d+|(?<!\d)\.\d+)?"
    r"(?:(?<=\d)[eE][-+]?\d+\b|(?<=\d)\s\d+/\d+|(?<=\d)/\d+)?(?:(?<=\d)\s?\\?%)?"
)
_REASON = re.compile(
    r"\s(?:because|since|as|so|which|when|where|for|with|I hope)\b|[,;:]\s+(?!and\b|or\b)[A-Za-z]|\.\s|\.$"
)
_MARKUP = re.compile(r"\*\*|__|`")


def answer_in_prose(text: str) -> str | None:
    """The answer that a text without boxes and tags ends in, or ``None``."""
    tail = text[-TAIL:]
    phrase = _last(_PHRASE, tail)
    if phrase is not None and (answer := _after_phrase(tail[phrase.end() :])) is not None:
        return answer
    return _last_formula_or_number(tail)


def last_number(text: str, *, truncated: bool) -> str | None:
    """The last number of a text; ``None`` without one, and where the text was cut (``truncated``) while it was written.

    >>> last_number("3 * 4 = 12.", truncated=True), last_number("3 * 4 = 12", truncated=True)
    ('12', None)
    """
    tail = text[-TAIL:]
    numbers = [match for match in _NUMBER.finditer(tail) if any(character.isdigit() for character in match[0])]
    if not numbers or (truncated and numbers[-1].end() == len(tail)):
        return None
    return numbers[-1][0].strip()


def _after_phrase(rest: str) -> str | None:
    line = next((line for line in rest.splitlines() if line.strip(" \t*_#")), "")
    line = _MARKUP.sub("", line).strip()
    formula = _MATH.search(line)
    if formula is not None and not re.search(r"[A-Za-z0-9]", line[: formula.start()]):
        return next(group for group in formula.groups() if group).strip()
    cut = _REASON.search(line)
    answer = (line[: cut.start()] if cut else line).strip(" .")
    return answer or None


def _last_formula_or_number(tail: str) -> str | None:
    tail = _MARKUP.sub("", tail)
    formula = _last(_MATH, tail)
    start = formula.end() if formula is not None else 0
    number = None
    for match in _NUMBER.finditer(tail, start):
        if any(character.isdigit() for character in match[0]):
            number = match
    if number is not None:
        return number[0].strip()
    return None if formula is None else next(group for group in formula.groups() if group).strip()


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
