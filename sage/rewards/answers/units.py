"""Units behind a number: read off it, and compared only where both are known."""

from __future__ import annotations

import re

from sage.rewards.answers.normal import FUNCTION_NAMES

_KNOWN = {
    "length": "mm millimeter millimetre; cm centimeter centimetre; m meter metre; km kilometer kilometre; "
    "in inch inche; ft foot feet; yd yard; mi mile",
    "mass": "mg milligram; g gram; kg kilogram; lb pound; oz ounce",
    "time": "s sec second; min minute; h hr hour; day; week; month; year yr",
    "money": "cent; dollar usd; euro; pound",
    "angle": "degree deg circ; radian rad",
    "volume": "ml milliliter millilitre; l liter litre; gallon; quart; pint",
}
_CANONICAL = {
    name: names.split()[0] for group in _KNOWN.values() for names in group.split(";") for name in names.split()
}
_MULTIPLES = frozenset({"dozen", "hundred", "thousand", "million", "billion", "trillion"})
_JOINERS = frozenset(
    {"and", "or", "to", "mod", "modulo", "plus", "minus", "times", "over", "choose", "if", "by", "of", "pi"}
)
_TEXT_UNIT = re.compile(r"\s*\\text\s*\{([^{}]*)\}\s*(\^\s*(?:\{\s*\d\s*\}|\d))?$")
_DEGREES = re.compile(r"\s*\^\s*\\circ(?:\s*[CF])?$")
_WORD = r"[A-Za-z][A-Za-z.]*"
_WORD_UNIT = re.compile(
    rf"(?<=[\d}})])\s*({_WORD}(?:\s{_WORD}){{0,5}}|[A-Za-z]+/[A-Za-z]+)\s*(\^\s*(?:\{{\s*\d\s*\}}|\d))?$"
)


def split_unit(text: str) -> tuple[str, str]:
    r"""The quantity, and the unit written behind it ("" without one).

    Letters are units where they are words: ``5 cm`` and ``21 dogs``, but not ``5x`` or ``5 m``, which may be a product.

    >>> split_unit(r"35 \text{ cm}"), split_unit("21 dogs"), split_unit("5 x")
    (('35', 'cm'), ('21', 'dog'), ('5 x', ''))
    """
    if (match := _DEGREES.search(text)) is not None and match.start() > 0:
        return text[: match.start()], "degree"
    match = _TEXT_UNIT.search(text)
    if match is None:
        match = _WORD_UNIT.search(text)
        if match is None or not _are_words(match[1].split()):
            return text, ""
    words = re.findall(r"[a-z]+", match[1].lower())
    if match.start() == 0 or not words or {*words} & (_MULTIPLES | _JOINERS):
        return text, ""
    power = re.sub(r"[^\d]", "", match[2] or "")
    return text[: match.start()].rstrip(), " ".join(map(_canonical, words)) + power


def _are_words(words: list[str]) -> bool:
    return all(len(word) >= 2 and word.lower() not in FUNCTION_NAMES for word in words if word.lower() != "a")


def _canonical(word: str) -> str:
    singular = word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word
    return _CANONICAL.get(word, _CANONICAL.get(singular, singular))


def clash(gold: str, answer: str) -> bool:
    """Whether two units are known and differ: centimetres for metres, but not dogs for puppies."""
    if not gold or not answer or gold == answer:
        return False
    known = {*_CANONICAL.values()}
    return gold.rstrip("0123456789") in known and answer.rstrip("0123456789") in known
