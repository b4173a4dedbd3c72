"""Equality of formulas by their values to 60 digits at fixed points.

Two different formulas of the size that answers have agree at all of these points with negligible probability (the argument
of Schwartz 1980 and Zippel 1979), and a difference at one of them is proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

DIGITS = 60
_EXACT = sympy.Rational(1, 10**50)
"""Relative difference up to which two exact values are one: far above what evaluation loses."""
_DECIMAL = sympy.Rational(1, 10**6)
_HIDDEN = sympy.Rational(1, 10**40)
"""A number below this vanishes beside the values at the points."""
_POINTS = ("1", "2", "3", "a", "b", "c", "-a", "-b")
"""Whole numbers, as some formulas are defined there only; then positive and negative numbers of no special kind."""
_TURNED = {sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le}


def same_expression(gold: Any, answer: Any) -> bool:
    """Whether two expressions are equal: as numbers, or as functions wherever both are real."""
    if sympy.zoo in (gold, answer) or sympy.nan in (gold, answer):
        return False
    gold, answer = _plain(gold), _plain(answer)
    if gold == answer:
        return True
    symbols = gold.free_symbols | answer.free_symbols
    if symbols and (has_tiny(gold, _HIDDEN) or has_tiny(answer, _HIDDEN)):
        return sympy.simplify(gold - answer).is_zero is True
    same = partial(_same, is_complex=_is_complex(gold, answer), is_decimal=_is_decimal(gold, answer))
    agreed = 0
    for mine, theirs in _values(gold, answer):
        verdict = same(mine, theirs)
        if verdict is False:
            return False
        agreed += verdict is True
    return agreed >= (2 if symbols else 1) or sympy.simplify(gold - answer).is_zero is True


def same_up_to_factor(gold: Any, answer: Any) -> bool:
    """Whether two relations say the same because their sides differ by one factor, positive in an inequality."""
    kinds, sides = [], []
    for relation in (gold, answer):
        kind = type(relation)
        kinds.append(_TURNED.get(kind, kind))
        sides.append(_plain(relation.lhs - relation.rhs) * (-1 if kind in _TURNED else 1))
    if kinds[0] is not kinds[1]:
        return False
    factors = [(mine / theirs).evalf(DIGITS) for mine, theirs in _values(*sides) if mine and theirs]
    if len(factors) < 2 or not all(factor.is_finite for factor in factors):
        return False
    decimal = _is_decimal(*sides)
    if any(has_tiny(side, _HIDDEN) for side in sides):
        return False
    if not all(_same(factors[0], factor, is_complex=True, is_decimal=decimal) for factor in factors[1:]):
        return False
    return kinds[0] in (sympy.Eq, sympy.Ne) or bool(factors[0].is_real and factors[0] > 0)


def has_tiny(expression: Any, least: Any = _DECIMAL) -> bool:
    """Whether it has a number closer to 0 than ``least``, by default what rounding to six decimals loses."""
    numbers = (part for part in sympy.preorder_traversal(expression) if isinstance(part, sympy.Expr) and part.is_number)
    return any(part.is_real and 0 < abs(part.evalf(DIGITS)) < least for part in numbers)


def _plain(expression: Any) -> Any:
    """With f(x) as a symbol of its own, as it has no value, and with i as the imaginary unit, which is read as a symbol."""
    names: dict[Any, Any] = {call: sympy.Symbol(str(call), real=True) for call in expression.atoms(AppliedUndef)}
    names |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    return expression.xreplace(names)


def _is_complex(gold: Any, answer: Any) -> bool:
    return gold.has(sympy.I) or answer.has(sympy.I)


def _is_decimal(gold: Any, answer: Any) -> bool:
    return gold.has(sympy.Float) or answer.has(sympy.Float)


def _same(mine: Any, theirs: Any, *, is_complex: bool, is_decimal: bool) -> bool | None:
    """Whether two values are one; ``None`` where that says nothing, as one of them does not exist or is not real."""
    if mine is None or theirs is None or (not is_complex and not (mine.is_real and theirs.is_real)):
        return None
    size = max(abs(mine), abs(theirs))
    if size == 0:
        return True
    # One side 0 and the other only rounding: the digits cannot tell 0 from something very small.
    if getattr(mine, "_prec", 0) == 1 or getattr(theirs, "_prec", 0) == 1:
        return None
    near = _DECIMAL * min(sympy.Integer(1), size) if is_decimal else _EXACT * size
    return bool(abs(mine - theirs) <= near)


def _values(gold: Any, answer: Any) -> Iterator[tuple[Any, Any]]:
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for point in _POINTS if symbols else _POINTS[:1]:
        # By name: the two sides may assume different things of one letter.
        values = {symbol: _coordinate(symbol.name, point) for symbol in symbols}
        yield _value(gold, values), _value(answer, values)


def _coordinate(name: str, point: str) -> Any:
    number = int.from_bytes(hashlib.blake2b(f"{name} {point.strip('-')}".encode(), digest_size=4).digest())
    if point.isdigit():
        return sympy.Integer(int(point) + number % 5)
    return sympy.Rational(number % 900 + 100, -331 if point.startswith("-") else 331)


def _value(expression: Any, values: dict[Any, Any]) -> Any:
    try:
        value = expression.evalf(DIGITS, subs=values)
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return None  # sympy cannot evaluate it there
    return value if value.is_number and value.is_finite else None
