"""Numbers read exactly: whole, decimal, fraction, mixed, scientific, repeating, percent, in a base, with a unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from sage.rewards.answers.units import clash, split_unit

TOLERANCE = Fraction(1, 10**6)
"""Of a decimal: relative below 1, absolute above, so that 0.333333 is 1/3 and 0.0000001 is not 0.0000002."""
_LONGEST = 400
"""Characters, and the largest exponent of ten: whole numbers of this size cost nothing."""

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d*)?|\.\d+)"
_POWER = r"10\s*\^\s*(?:\{\s*([-+]?\s*\d+)\s*\}|([-+]?\d+))"
_TIMES = r"(?:\\times|\\cdot|\*|x)"
_SIMPLE_FRACTION = rf"\\frac\s*\{{\s*([-+]?\s*{_WHOLE})\s*\}}\s*\{{\s*([-+]?\s*{_WHOLE})\s*\}}"
_BASE = re.compile(r"([0-9A-Fa-f]+)\s*_\s*(?:\{\s*(?:\\text\s*\{)?\s*(\w+)\s*\}?\s*\}|(\d+))")
_BASE_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_MULTIPLES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_MULTIPLE = re.compile(
    rf"([^A-Za-z]+?)\s*(?:\\text\s*\{{)?\s*({'|'.join(_MULTIPLES)})\b\s*(?:[A-Za-z ]*\}}|\}}?\s*[A-Za-z ]*)",
    re.IGNORECASE,
)


class Number(NamedTuple):
    """A number as an answer states it."""

    value: Fraction
    decimal: bool = False
    """Written with a decimal point, so that it may be rounded."""
    percent: bool = False
    base: int | None = None
    """Given as a subscript. It is part of the answer: a question that asks for base 8 is not answered in base 10."""
    unit: str = ""


@lru_cache(maxsize=8192)
def read_number(text: str) -> Number | None:
    """The number that a tidied answer is, or ``None``.

    >>> read_number("2.5e3").value, read_number("1 1/4").value, read_number("52_8").base
    (Fraction(2500, 1), Fraction(5, 4), 8)
    """
    if len(text) > _LONGEST:
        return None
    if (multiple := _MULTIPLE.fullmatch(text)) is not None:
        found = read_number(multiple[1])
        scaled = None if found is None else found.value * _MULTIPLES[multiple[2].lower()]
        return None if found is None or scaled is None else found._replace(value=scaled)
    core, unit = split_unit(text)
    if core[-1:] == "%" or unit == "percent":
        found = _read_signed(core.rstrip("% "))
        return None if found is None else found._replace(percent=True)
    found = _read_signed(core)
    return None if found is None else found._replace(unit=unit)


def same_number(gold: Number, answer: Number) -> bool:
    """Whether an answer states the gold number.

    Fractions and whole numbers are exact. A decimal may be off by :data:`TOLERANCE`. Of 10 % and 10, and of 10 % and 0.1,
    one may stand for the other. Units may be left out, but two units that are known to differ are a wrong answer.
    """
    if gold.base != answer.base or clash(gold.unit, answer.unit):
        return False
    if gold.percent == answer.percent:
        return _close(gold, answer)
    percent, plain = (gold, answer) if gold.percent else (answer, gold)
    return _close(percent, plain) or _close(percent._replace(value=percent.value / 100), plain)


def _close(gold: Number, answer: Number) -> bool:
    if gold.value == answer.value:
        return True
    if not (gold.decimal or answer.decimal) or 0 in (gold.value, answer.value):
        return False
    size = max(abs(gold.value), abs(answer.value))
    return abs(gold.value - answer.value) <= TOLERANCE * min(Fraction(1), size)


def _read_signed(text: str) -> Number | None:
    text = text.strip()
    while text[:1] == "(" and text[-1:] == ")" and "(" not in text[1:-1] and "," not in text:
        text = text[1:-1].strip()
    negative = text[:1] == "-"
    found = _read(text[1:].strip() if text[:1] in ("-", "+") else text)
    return found._replace(value=-found.value) if found is not None and negative else found


def _read(text: str) -> Number | None:
    if not text or not (text[0].isdigit() or text[0] in ".\\" or "_" in text) or not text.isascii():
        return None
    for pattern, build in _FORMS:
        if (match := pattern.fullmatch(text)) is not None:
            return build(match)
    return None


def _whole(text: str) -> int:
    return int(re.sub(r"[\s,]", "", text))


def _decimal(text: str) -> Number:
    return Number(Fraction(re.sub(r"[\s,]", "", text)), decimal="." in text)


def _fraction(top: str, bottom: str, whole: str = "0") -> Number | None:
    if _whole(bottom) == 0:
        return None
    return Number(_whole(whole) + Fraction(_whole(top), _whole(bottom)))


def _scaled(mantissa: str, exponent: str) -> Number | None:
    power = _whole(exponent)
    if abs(power) > _LONGEST:
        return None
    number = _decimal(mantissa)
    return number._replace(value=number.value * Fraction(10) ** power)


def _repeating(match: re.Match[str]) -> Number:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    start = Fraction(int(whole + fixed), 10 ** len(fixed))
    return Number(start + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed)))


def _in_base(match: re.Match[str]) -> Number | None:
    name = match[2] or match[3]
    base = int(name) if name.isdigit() and len(name) < 3 else _BASE_WORDS.get(name.lower(), 0)
    if not 2 <= base <= 16 or any(int(digit, 16) >= base for digit in match[1]):
        return None
    return Number(Fraction(int(match[1], base)), base=base)


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Number | None]], ...] = (
    (re.compile(_DECIMAL), lambda m: _decimal(m[0])),
    (re.compile(rf"({_WHOLE})\s*/\s*({_WHOLE})"), lambda m: _fraction(m[1], m[2])),
    (re.compile(_SIMPLE_FRACTION), lambda m: _fraction(m[1], m[2])),
    (re.compile(r"(\d+) (\d+)\s*/\s*(\d+)"), lambda m: _fraction(m[2], m[3], m[1])),
    (re.compile(rf"(\d+)\s*{_SIMPLE_FRACTION}"), lambda m: _fraction(m[2], m[3], m[1])),
    (re.compile(rf"({_DECIMAL})[eE]([-+]?\d+)"), lambda m: _scaled(m[1], m[2])),
    (re.compile(rf"({_DECIMAL})\s*{_TIMES}\s*{_POWER}"), lambda m: _scaled(m[1], m[2] or m[3])),
    (re.compile(_POWER), lambda m: _scaled("1", m[1] or m[2])),
    (re.compile(r"(\d*)\.(\d*)\\overline\s*\{\s*(\d+)\s*\}"), _repeating),
    (_BASE, _in_base),
)
