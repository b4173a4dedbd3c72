"""Compares two answers part by part; what a single part means is a leaf's business.

The three values of a verdict: true, false, and ``None`` where a leaf cannot tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sage.rewards.answers.normal import key, tidy
from sage.rewards.answers.shape import RELATION, Kind, Shape, shapes

Leaf = Callable[[str, str], bool | None]
"""Gold and answer, tidied, each one thing."""

_DEEPEST = 6
_WHOLE = re.compile(
    r"\\(?:cup|cap|setminus|in|mathbb|emptyset|varnothing|le|ge|ne|infty|mid|lor|land)(?![A-Za-z])|[<>]"
)
r"""What can say in one formula what a shape says with brackets: ``x < 3`` and ``(-\infty, 3)``."""


def compare(gold: str, answer: str, leaf: Leaf, depth: int = 0) -> bool | None:
    """Whether an answer is the gold answer.

    Args:
        gold: as the benchmark states it.
        answer: as it was cut out of the completion.
        leaf: compares two single things.
        depth: of the nesting so far.
    """
    gold, answer = tidy(gold), tidy(answer)
    if gold and key(gold) == key(answer):
        return True
    return _compare_parts(gold, answer, leaf, depth)


def self_check(gold: str, leaf: Leaf) -> bool | None:
    """Whether a gold answer equals itself when equal writing is not taken for proof."""
    gold = tidy(gold)
    return _compare_parts(gold, gold, leaf, 0, by_writing=False)


def _compare_parts(gold: str, answer: str, leaf: Leaf, depth: int, *, by_writing: bool = True) -> bool | None:
    if depth > _DEEPEST:
        return leaf(gold, answer)

    def part(one: str, other: str) -> bool | None:
        if by_writing:
            return compare(one, other, leaf, depth + 1)
        return _compare_parts(tidy(one), tidy(other), leaf, depth + 1, by_writing=False)

    pairs = [(one, other) for one in shapes(gold) for other in shapes(answer)]
    return _any(_compare_shapes(one, other, gold, answer, leaf, part) for one, other in pairs)


def _compare_shapes(one: Shape, other: Shape, gold: str, answer: str, leaf: Leaf, part: Leaf) -> bool | None:
    kinds = {one.kind, other.kind}
    if one.name and other.name and one.name != other.name:
        # y = 2x + 1 and x = (y - 1)/2 may be one line; x = 5 and y = 5 are not.
        return leaf(gold, answer) if kinds == {Kind.ONE} else False
    if kinds == {Kind.ONE}:
        values = leaf(one.parts[0], other.parts[0])
        # y = -x/2 and x + 2y = 0 can be one line, though no side of the one is the other.
        named = [text for text, shape in ((gold, one), (answer, other)) if shape.name]
        unnamed = [text for text, shape in ((gold, one), (answer, other)) if not shape.name]
        as_wholes = len(named) == 2 or (named and any(map(RELATION.search, unnamed)))
        return _any([values, leaf(gold, answer)]) if as_wholes and not values else values
    if Kind.ONE in kinds:
        single, several = (one, other) if one.kind is Kind.ONE else (other, one)
        if several.kind is Kind.SET and len(several.parts) == 1:
            return part(one.parts[0], other.parts[0])
        return leaf(gold, answer) if _WHOLE.search(single.parts[0]) else False
    if len(one.parts) != len(other.parts):
        return False
    if kinds <= {Kind.LIST, Kind.SET}:
        return _any_order(one, other, part) if not _is_ordered(one, other) else _in_order(one, other, part)
    if kinds == {Kind.TUPLE, Kind.LIST}:
        brackets = one.brackets or other.brackets
        return _in_order(one, other, part) if brackets == "()" else False
    if len(kinds) > 1 or one.brackets != other.brackets:
        return False
    return _in_order(one, other, part)


def _is_ordered(one: Shape, other: Shape) -> bool:
    """A sequence with an ellipsis, or values for several named unknowns given without their names."""
    if any(r"\ldots" in item for item in one.parts):
        return True
    names = [shapes(item)[0].name for item in one.parts]
    return len({*names}) > 1 and not any(shapes(item)[0].name for item in other.parts)


def _in_order(one: Shape, other: Shape, part: Leaf) -> bool | None:
    return _all(part(mine, theirs) for mine, theirs in zip(one.parts, other.parts, strict=True))


def _any_order(one: Shape, other: Shape, part: Leaf) -> bool | None:
    """Every element has its own partner. Equality being transitive, taking the first that fits loses nothing."""
    left = list(other.parts)
    unsure = False
    for mine in one.parts:
        verdicts = [part(mine, theirs) for theirs in left]
        if True in verdicts:
            left.pop(verdicts.index(True))
        elif None in verdicts:
            unsure = True
        else:
            return False
    return None if unsure else True


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    result: bool | None = True
    for verdict in verdicts:
        if verdict is False:
            return False
        result = result if verdict else None
    return result


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    result: bool | None = False
    for verdict in verdicts:
        if verdict:
            return True
        result = None if verdict is None else result
    return result
