"""What can be decided by reading alone: numbers, words, and shapes made of them. Most verdicts end here."""

from __future__ import annotations

import re
from enum import StrEnum

from sage.rewards.answers.compare import compare
from sage.rewards.answers.normal import FUNCTION_NAMES, balanced, key, tidy
from sage.rewards.answers.numbers import Number, read_number, same_number


class Judgement(StrEnum):
    """How an answer compares with the gold answer."""

    RIGHT = "right"
    WRONG = "wrong"
    UNREADABLE = "unreadable"
    """The answer says nothing that can be compared."""
    BAD_GOLD = "bad_gold"
    """The gold answer itself cannot be compared: nothing may be paid."""


MOST_GOLD_CHARACTERS = 2000
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_ARTICLE = re.compile(r"^(?:an?|the) (?=.)")
_POINTER = re.compile(
    r"(?i)^(?:see|refer to|as shown|shown)\b|^(?:figure|picture|diagram|graph|table|proof|image)\b|"
    r"^(?:n/?a|nan|null|tbd|unknown|not available|missing|no answer|answers? (?:may )?var(?:y|ies))$"
)
_COLON = re.compile(r"(\d+)\s*:\s*(\d+)(?:\s*:\s*(\d+))?((?:\s*\\text\s*\{[^{}]*\}|\s*[apAP]\.?\s?[mM]\.?)?)")


def compare_plainly(gold: str, answer: str, max_characters: int) -> Judgement | None:
    """The judgement where reading alone gives one; ``None`` where mathematics is needed.

    Args:
        gold: as the benchmark states it.
        answer: as it was cut out of the completion.
        max_characters: a longer answer is unreadable.
    """
    if gold_fault(gold) is not None:
        return Judgement.BAD_GOLD
    if len(answer) > max_characters or not balanced(answer) or not key(answer):
        return Judgement.UNREADABLE
    verdict = compare(gold, answer, plain_leaf)
    return None if verdict is None else Judgement.RIGHT if verdict else Judgement.WRONG


def gold_fault(gold: str) -> str | None:
    """Why a gold answer cannot be used, as far as reading alone shows; ``None`` if it may be."""
    if len(gold) > MOST_GOLD_CHARACTERS:
        return f"{len(gold)} characters; expected a short answer of at most {MOST_GOLD_CHARACTERS}"
    if not key(gold):
        return "it is empty"
    if _POINTER.search(words(tidy(gold)) or ""):
        return "it points to something else instead of stating an answer"
    if not balanced(tidy(gold)):
        return "its braces are not balanced"
    return None


def plain_leaf(gold: str, answer: str) -> bool | None:
    """Two single things: numbers and words, everything else is ``None``."""
    if (clock := _compare_colons(gold, answer)) is not None:
        return clock
    gold_words = words(gold)
    answer_words = words(answer, letters=gold_words is not None)
    gold_words = words(gold, letters=answer_words is not None)
    gold_number, answer_number = _number(gold), _number(answer)
    if gold_number and answer_number:
        return same_number(gold_number, answer_number)
    if gold_words is not None and answer_words is not None:
        return gold_words == answer_words
    # A word is not a number. What else a formula may be, only mathematics can tell.
    if (gold_words and answer_number) or (gold_number and answer_words):
        return False
    if r"\ldots" in gold + answer and (gold.strip() == r"\ldots" or answer.strip() == r"\ldots"):
        return False
    return False if gold_words is not None and r"\text" in gold else None


def words(text: str, *, letters: bool = False) -> str | None:
    r"""A worded answer in small letters, or ``None`` for anything with mathematics in it.

    Args:
        text: a single thing, tidied.
        letters: take a bare letter for a word (a choice) and not for a symbol.

    >>> words(r"\text{(C)}"), words("an ellipse"), words("2x"), words("x")
    ('c', 'ellipse', None, None)
    """
    explicit = r"\text" in text
    bare = _TEXT.sub(lambda match: f" {match[1]} ", text)
    bare = re.sub(r"[\s().!?'\"-]+", " ", bare).strip()
    if not re.fullmatch(r"[^\W\d_]+(?:[ ,/]+[^\W\d_]+)*", bare):
        return None
    found = bare.split()
    # One or two bare letters are symbols, and so is a product of them; a function's name is a formula.
    if not (explicit or letters) and (
        all(len(word) < 3 for word in found) or any(word in FUNCTION_NAMES for word in found)
    ):
        return None
    return _ARTICLE.sub("", " ".join(found).casefold())


def _number(text: str) -> Number | None:
    inner = _TEXT.fullmatch(text.strip())
    return read_number(inner[1].strip() if inner else text)


def _compare_colons(gold: str, answer: str) -> bool | None:
    """Clock times and ratios: equal entry by entry. A ratio is not computed, as 12:00 is no division."""
    mine, theirs = _COLON.fullmatch(gold), _COLON.fullmatch(answer)
    if mine is None:
        return None
    if theirs is None:
        return False if len(mine[2]) == 2 and len(mine[1]) <= 2 else None
    halves = [re.sub(r"\\text|[^a-z]", "", match[4].lower()) for match in (mine, theirs)]
    if halves[0] and halves[1] and halves[0] != halves[1]:
        return False
    return [int(entry or 0) for entry in mine.groups()[:3]] == [int(entry or 0) for entry in theirs.groups()[:3]]
