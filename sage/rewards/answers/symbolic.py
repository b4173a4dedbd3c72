"""Mathematical equality on math-verify. Runs on what a model wrote: only ever in a worker process with limits.

math-verify reads the LaTeX and compares sets and relations. Formulas and numbers are compared by
:mod:`~sage.rewards.answers.sampled`: math-verify rounds them to six decimals, so that all small numbers are equal, and its
``simplify`` is where most of the hanging happens.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.relational import Relational

from sage.rewards.answers.compare import compare, self_check
from sage.rewards.answers.normal import tidy
from sage.rewards.answers.plain import Judgement, gold_fault, plain_leaf
from sage.rewards.answers.sampled import has_tiny, same_expression, same_up_to_factor
from sage.rewards.answers.units import clash, split_unit

# Not its units: it takes the m of k + m for metres.
_NORMAL = replace(LatexExtractionConfig().normalization_config, units=False)
_LATEX = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=_NORMAL)]
_NO_SYMBOL = re.compile(r"\\(?:text|begin|end|operatorname|math[a-z]+)\s*\{[^{}]*\}|\\[A-Za-z]+")
_SYMBOL = re.compile(rf"{_NO_SYMBOL.pattern}|([A-Z])(?:_(\{{[^{{}}]*\}}|\w))?")
_OR = re.compile(r"\\text\s*\{\s*,?\s*or\s*\}|(?<![A-Za-z\\])or(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])")
_BASED = re.compile(r"(?<![A-Za-z}\\\d])\d+_\{?\d+\}?")


class _Leaf:
    """Compares two single things, and remembers whether an answer could not be read."""

    def __init__(self) -> None:
        self.unreadable = False

    def __call__(self, gold: str, answer: str) -> bool:
        verdict = plain_leaf(gold, answer)
        if verdict is not None:
            return verdict
        if _BASED.search(gold) or _BASED.search(answer):
            # math-verify drops the base; only equal writing is safe.
            return _BASED.sub(_in_words, gold) == _BASED.sub(_in_words, answer)
        (gold, gold_unit), (answer, answer_unit) = split_unit(gold), split_unit(answer)
        if clash(gold_unit, answer_unit):
            return False
        letters = _both_cases(gold) | _both_cases(answer)
        mine, theirs = _read(gold, letters), _read(answer, letters)
        if mine is None:
            return tidy(gold) == tidy(answer)  # a gold that math-verify cannot read is equal to its own writing only
        self.unreadable |= theirs is None
        return theirs is not None and _equal(mine, theirs)


def judge(gold: str, answer: str) -> Judgement:
    """The full comparison of one answer; see :func:`~sage.rewards.answers.plain.compare_plainly` for the cheap part."""
    if gold_fault(gold) is not None:
        return Judgement.BAD_GOLD
    leaf = _Leaf()
    try:
        if compare(gold, answer, leaf):
            return Judgement.RIGHT
    except RecursionError:
        return Judgement.UNREADABLE
    return Judgement.UNREADABLE if leaf.unreadable else Judgement.WRONG


def check(gold: str) -> str | None:
    """Why a gold answer cannot be used; ``None`` if it equals itself when both sides are read."""
    fault = gold_fault(gold)
    if fault is not None:
        return fault
    try:
        return None if self_check(gold, _Leaf()) else "it does not equal itself"
    except RecursionError:
        return "it is nested too deeply"


def _in_words(match: re.Match[str]) -> str:
    return match[0].replace("{", "").replace("}", "")


def _both_cases(text: str) -> frozenset[str]:
    r"""Capital letters that math-verify would mix up: it reads all symbols in small letters, so that R^2 - r^2 is 0."""
    symbols = {*_NO_SYMBOL.sub(" ", text)}
    return frozenset(
        letter for letter in symbols if "A" <= letter <= "Z" and (letter.lower() in symbols or f"{letter}_" in text)
    )


@lru_cache(maxsize=4096)
def _read(text: str, letters: frozenset[str] = frozenset()) -> Any:
    """A sympy object, or ``None``. Both sides are read inside a box: bare LaTeX would lose all but a number.

    Args:
        text: a single thing.
        letters: capitals to keep apart from their small letters.
    """
    if (union := _union(text)) is not None:
        return union
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", _scientific(text))
    text = _SYMBOL.sub(lambda match: _renamed(match) if match[1] in letters else match[0], text)
    found = parse(f"$\\boxed{{{text}}}$", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)  # type: ignore[arg-type]
    return found[0] if found and not isinstance(found[0], str) else None


def _union(text: str) -> Any:
    """The solutions of ``x < 0 or x > 1`` as a set; ``None`` for anything else."""
    parts = _OR.split(text)
    if len(parts) < 2 or not all(re.search(r"[<>]|\\[lg]e(?![a-z])", part) for part in parts):
        return None
    relations = [_read(part) for part in parts]
    if not all(isinstance(relation, Relational | And) for relation in relations):
        return None
    if len({symbol for relation in relations for symbol in relation.free_symbols}) != 1:
        return None
    return sympy.Union(*(relation.as_set() for relation in relations))


def _renamed(match: re.Match[str]) -> str:
    subscript = re.sub(r"[\W_]", "", match[2] or "")
    return f" u_{{9{ord(match[1])}{subscript}}}"  # not e, which is Euler's number in any case


def _scientific(text: str) -> str:
    """Without this, math-verify reads ``4.5e33`` as 4.5 times Euler's number times 33."""
    return re.sub(r"(?<![A-Za-z\\])(\d+(?:\.\d*)?)[eE]([-+]?\d+)(?![\w.])", r"\1 \\times 10^{\2}", text)


def _equal(gold: Any, answer: Any) -> bool:
    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return gold.shape == answer.shape and all(map(_equal, gold.flat(), answer.flat()))
    if isinstance(answer, sympy.Eq) and isinstance(gold, sympy.Expr):
        if not answer.lhs.free_symbols and not _equal(answer.lhs, answer.rhs):
            return False  # 7 = 8 states nothing
        answer = answer.rhs
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        return same_expression(gold, answer)
    if isinstance(gold, Relational) and isinstance(answer, Relational):
        return _same_relation(gold, answer)
    return verify([gold], [answer], allow_set_relation_comp=True, timeout_seconds=None)


def _same_relation(gold: Any, answer: Any) -> bool:
    """Whether the sides differ by one factor, as in 2x + 4y = 3 and y = -x/2 + 3/4; the rest is math-verify's."""
    return same_up_to_factor(gold, answer) or (
        not (has_tiny(gold) or has_tiny(answer)) and verify([gold], [answer], timeout_seconds=None)
    )
