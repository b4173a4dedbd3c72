"""Finds the final answer in a completion.

The last answer after the reasoning counts, and only a finished one: a box or a tag that the end of the text cuts open says
that no answer was given, whatever an earlier one holds. The prompt is never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sage.rewards.answers.prose import answer_in_prose, last_number

PLAIN_FORMATS = ("box", "####", "number", "text", "whole")
"""Beside these, ``<NAME>`` is an answer between ``<NAME>`` and ``</NAME>``."""
_TAG = re.compile(r"<([A-Za-z][A-Za-z0-9_-]*)>")
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_THINKING = re.compile(r"<(/?)(?:think|thinking)>", re.IGNORECASE)
_JOIN = re.compile(r"(?:[\s$.,;]|\\[()\[\],;]|\\text\{\s*(?:,?\s*(?:and|or)|,)\s*\}|\b(?:and|or)\b)*")
_JOIN_NEEDS = re.compile(r"[,;]|\b(?:and|or)\b")
_LONGEST_JOIN = 40
"""Characters between two boxes of one list."""
_HASHES = re.compile(r"^[ \t]*####[ \t]*(.*)$", re.MULTILINE)


class Reading(NamedTuple):
    """What a text gives as its answer."""

    answer: str | None
    """``None`` where there is none."""
    start: int
    """Where in the text the answer begins, its mark included; -1 without one."""
    end: int
    """Where it ends, its mark included; -1 without one."""


class _Span(NamedTuple):
    start: int
    end: int
    content: str | None
    """``None``: begun and not finished."""


NO_ANSWER = Reading(None, -1, -1)


def check_formats(formats: Sequence[str], key: str) -> None:
    """Refuse a list of formats that cannot be read.

    Args:
        formats: where answers may stand.
        key: the option's name in error messages, e.g. ``reward.formats``.

    Raises:
        ValueError: naming the entry and what is allowed.
    """
    allowed = 'box, "####", "<NAME>" with any NAME, number, text, whole; e.g. [box, "<SOLUTION>"]'
    if isinstance(formats, str) or not formats:
        raise ValueError(f"{key}={formats!r}: expected a list of {allowed}")
    for entry in formats:
        if entry not in PLAIN_FORMATS and not _TAG.fullmatch(entry):
            raise ValueError(f"{key}: {entry!r} is not a format; expected {allowed}")


def reasoning_end(text: str, *, thinking_opened: bool) -> int | None:
    """Where the answer part begins; ``None`` while the reasoning is still open.

    Args:
        text: the completion.
        thinking_opened: the prompt itself ended in ``<think>``, so that the completion starts inside the reasoning.
    """
    is_open, start = thinking_opened, 0
    for mark in _THINKING.finditer(text):
        is_open = not mark[1]
        start = mark.end()
    if is_open:
        return None
    return start


def read_answer(text: str, formats: Sequence[str], *, thinking_opened: bool, truncated: bool) -> Reading:
    """The final answer of a completion.

    Boxes, tags and hash lines are marks: the last of them counts, whichever it is. Only where the text has none are the
    formats ``number`` (the last one of the text), ``whole`` and ``text`` (an answer phrase, or else the last formula or
    number) looked for; of several the first in this order.

    Args:
        text: the completion, without its prompt.
        formats: where answers may stand.
        thinking_opened: see :func:`reasoning_end`.
        truncated: the text was cut by length. A mark counts if it is complete; an answer without a mark, or in a tag that
            is not closed, does not, as nobody knows what would have followed. (A stop string may have taken a closing tag
            off a text that was not cut.) The format ``number`` asks for no end of the text, only for one of the number.
    """
    begin = reasoning_end(text, thinking_opened=thinking_opened)
    if begin is None:
        return NO_ANSWER
    spans = [span for entry in formats for span in _marked(text, begin, entry, truncated)]
    if spans:
        last = max(spans, key=lambda span: (span.end, -span.start))
        if last.content is None:
            return NO_ANSWER
        return _reading(last.content, last.start, last.end)
    if "number" in formats:
        number = last_number(text[begin:], truncated=truncated)
        return NO_ANSWER if number is None else _reading(number, begin, len(text))
    if truncated:
        return NO_ANSWER
    if "whole" in formats:
        return _reading(text[begin:], begin, len(text))
    found = answer_in_prose(text[begin:]) if "text" in formats else None
    return NO_ANSWER if found is None else _reading(found, begin, len(text))


def _reading(content: str, start: int, end: int) -> Reading:
    inner = [span.content for span in _box_runs(content, 0) if span.content is not None]
    answer = (inner[-1] if inner else content).strip()
    return Reading(answer, start, end) if answer else NO_ANSWER


def _marked(text: str, begin: int, entry: str, truncated: bool) -> Iterator[_Span]:
    if entry == "box":
        yield from _box_runs(text, begin)
    elif entry == "####":
        for match in _HASHES.finditer(text, begin):
            cut = truncated and match.end() == len(text)
            yield _Span(match.start(), match.end(), None if cut else match[1])
    elif tag := _TAG.fullmatch(entry):
        yield from _tags(text, begin, tag[1], truncated)


def _tags(text: str, begin: int, name: str, truncated: bool) -> Iterator[_Span]:
    opener, closer = f"<{name}>", f"</{name}>"
    start = text.rfind(opener, begin)
    if start < 0:
        return
    inside = start + len(opener)
    end = text.find(closer, inside)
    if end >= 0:
        yield _Span(start, end + len(closer), text[inside:end])
    else:
        yield _Span(start, len(text), None if truncated else text[inside:])


def _box_runs(text: str, begin: int) -> list[_Span]:
    """Boxes in order; those with only commas and words such as "and" between them are one answer, a list."""
    runs: list[list[_Span]] = []
    for box in _boxes(text, begin):
        if runs and _joined(text, runs[-1][-1], box):
            runs[-1].append(box)
        else:
            runs.append([box])
    return [_merged(run) for run in runs]


def _joined(text: str, one: _Span, other: _Span) -> bool:
    if one.content is None or other.content is None or other.start - one.end > _LONGEST_JOIN:
        return False
    between = text[one.end : other.start]
    return _JOIN.fullmatch(between) is not None and _JOIN_NEEDS.search(between) is not None


def _merged(run: list[_Span]) -> _Span:
    contents = list(dict.fromkeys(box.content for box in run if box.content is not None))
    return _Span(run[0].start, run[-1].end, ", ".join(contents) if contents else None)


def _boxes(text: str, begin: int) -> Iterator[_Span]:
    position = begin
    while (match := _BOX.search(text, position)) is not None:
        end = _closing_brace(text, match.end())
        if end is not None:
            position = end + 1
            yield _Span(match.start(), position, text[match.end() : end])
            continue
        # A box cannot reach over a paragraph: what is open there was a slip of the pen if a later paragraph has a box.
        paragraph = text.find("\n\n", match.end())
        if paragraph < 0:
            yield _Span(match.start(), len(text), None)
            return
        later = _BOX.search(text, paragraph)
        if later is None:
            yield _Span(match.start(), len(text), None)
            return
        position = later.start()


_BRACE: Callable[[str, int], re.Match[str] | None] = re.compile(r"\\.|\n[ \t]*\n|[{}]", re.DOTALL).search


def _closing_brace(text: str, start: int) -> int | None:
    r"""Where the brace that is open at ``start`` closes; ``\{`` and ``\}`` are no braces."""
    depth, position = 1, start
    while (match := _BRACE(text, position)) is not None:
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.start()
        elif match[0][0] == "\n":
            return None
        position = match.end()
    return None
