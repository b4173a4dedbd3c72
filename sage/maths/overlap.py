"""Which questions of one list occur in another: the same up to writing, or nearly so.

Exact counts over word sequences, no random sketches: a question is compared only with those that share a sequence of
``SHINGLE_WORDS`` words with it, which an index finds in one pass.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

SHINGLE_WORDS = 6
"""Words in a shingle; a shorter question is one shingle."""
MIN_SHARED = 0.4
"""Share of a question's shingles that a near question holds ..."""
MIN_JACCARD = 0.3
"""... or shared shingles per shingle of either ..."""
MIN_SIMILARITY = 0.8
"""... and characters alike, of those of both."""
CONTAINED = 0.9
"""A question that holds this share of another's shingles contains it, whatever else it says: training sets append sentences
such as "Please give m + n"."""
_MOST_HOLDERS = 50
"""A shingle that more questions of one list hold is a turn of phrase ("find the value of ..."): it proposes no pair within
that list. Between two lists every shingle counts."""

_LAYOUT = re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[,;:! ()\[\]]|[\s${}.,;:!?'\"`~\u2018\u2019\u201c\u201d]+")
_BETWEEN_NUMBERS = re.compile(r"(?<=\d)\$?,?\s+\$?(?=\d)")
_WORD = re.compile(r"\\?[^\W_]+")
Shingles = frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A question of one list that occurs in another."""

    first: int
    """Index in the first list."""
    second: int
    """Index in the second list."""
    similarity: float
    """Characters alike, 0 to 1, or an upper bound where they are too few to matter."""
    contained: float
    """Share of the second question's shingles that the first holds."""
    same: bool
    """Whether the two differ in layout and punctuation at most."""


def normalise(question: str) -> str:
    r"""The question without white space, math delimiters, braces, punctuation and the size of its brackets, in lower case.

    >>> normalise(r"Find $\left( x^{2}+1 \right)$.") == normalise(r"find \((x^2 + 1)\)")
    True
    >>> normalise("x+1") == normalise("x-1"), normalise("1 23") == normalise("12 3")
    (False, False)
    """
    return _LAYOUT.sub("", _BETWEEN_NUMBERS.sub("|", question)).lower()


def shingles(question: str) -> Shingles:
    """All sequences of six words, numbers and commands; the whole question where it has fewer.

    >>> len(shingles("How many of the first ten numbers are prime?"))
    4
    """
    words = tuple(_WORD.findall(question.lower()))
    count = max(len(words) - SHINGLE_WORDS + 1, 1)
    return frozenset(words[start : start + SHINGLE_WORDS] for start in range(count))


def similarity(first: str, second: str) -> float:
    """Characters alike: twice those in matching blocks, over those of both; an upper bound where it is below 0.8.

    >>> similarity("abcdefghij", "abcdefghix")
    0.9
    """
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    # The bound costs linear time, the blocks quadratic: most pairs are far apart.
    bound = matcher.quick_ratio()
    return matcher.ratio() if bound >= MIN_SIMILARITY else bound


def repeats(questions: Sequence[str]) -> list[tuple[int, ...]]:
    """Indices of questions that are the same up to layout and punctuation, one tuple a group of two or more.

    >>> repeats(["What is 1 + 1?", "What is 2?", "what is 1+1"])
    [(0, 2)]
    """
    return [tuple(group) for group in _Questions(questions).by_key.values() if len(group) > 1]


def overlap(first: Sequence[str], second: Sequence[str]) -> list[Match]:
    """Every pair of a question of ``first`` and one of ``second`` that are the same or near.

    Near: the first holds at least 40 % of the second's shingles (or they share 30 % of those of either) and at least 80 %
    of the characters are alike; or the first holds 90 % of the second's shingles. Sister problems with other numbers are
    near too: a reader must judge them.

    >>> [(m.first, m.second, m.same) for m in overlap(["What is 1 + 1?"], ["What is 2?", "What is $1+1$"])]
    [(0, 1, True)]
    """
    return list(_matches(_Questions(first), _Questions(second), most_holders=None))


def near_repeats(questions: Sequence[str]) -> list[Match]:
    """Pairs within one list that are near and not the same; ``second`` comes before ``first`` and is the one held."""
    listed = _Questions(questions)
    found = _matches(listed, listed, most_holders=_MOST_HOLDERS)
    return [match for match in found if not match.same]


class _Questions:
    """A list of questions, each reduced to what is compared."""

    def __init__(self, questions: Sequence[str]) -> None:
        self.keys = [normalise(question) for question in questions]
        self._questions = questions

    @cached_property
    def shingles(self) -> list[Shingles]:
        return [shingles(question) for question in self._questions]

    @cached_property
    def by_key(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for index, key in enumerate(self.keys):
            found[key].append(index)
        return found

    @cached_property
    def by_shingle(self) -> dict[tuple[str, ...], list[int]]:
        found: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index, own in enumerate(self.shingles):
            for shingle in own:
                found[shingle].append(index)
        return found


def _matches(first: _Questions, second: _Questions, *, most_holders: int | None) -> Iterator[Match]:
    for i, key in enumerate(first.keys):
        own = first.shingles[i]
        holders = (second.by_shingle.get(shingle, ()) for shingle in own)
        shared = Counter(j for found in holders if most_holders is None or len(found) <= most_holders for j in found)
        candidates = {j for j, count in shared.items() if _close(count, len(own), len(second.shingles[j]))}
        for j in sorted(candidates.union(second.by_key.get(key, ()))):
            if first is second and j >= i:
                continue
            contained = len(own & second.shingles[j]) / len(second.shingles[j])
            if second.keys[j] == key:
                yield Match(first=i, second=j, similarity=1.0, contained=contained, same=True)
                continue
            alike = similarity(key, second.keys[j])
            if alike >= MIN_SIMILARITY or contained >= CONTAINED:
                yield Match(first=i, second=j, similarity=alike, contained=contained, same=False)


def _close(shared: int, first: int, second: int) -> bool:
    return shared >= MIN_SHARED * second or shared >= MIN_JACCARD * (first + second - shared)
