"""JSON and JSONL files that are complete or absent: written aside, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def json_line(row: Mapping[str, Any]) -> bytes:
    """One JSON object, ended by a line break."""
    # A lone surrogate in a text has no UTF-8 form; backslashreplace writes \udcXX, which JSON reads back as itself.
    return _ENCODER.encode(row).encode("utf-8", "backslashreplace") + b"\n"


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.partial")
    with aside.open("wb") as file:
        yield file
    os.replace(aside, path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one indented JSON object; NaN and infinities are refused, write ``None`` for what is undefined."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with writing(path) as file:
        file.write(text.encode("utf-8", "backslashreplace") + b"\n")


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line."""
    with writing(path) as file:
        file.writelines(map(json_line, rows))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file.

    Raises:
        ValueError: naming file and line, for a line that is no JSON object.
    """
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: expected a JSON object, got {type(row).__name__}")
            rows.append(row)
    return rows
