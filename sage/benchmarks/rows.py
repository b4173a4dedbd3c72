"""Rows of a dataset: from the Hugging Face hub, or from a JSON-lines or parquet file. The only importer of ``datasets``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".parquet")


def read_file(path: Path, columns: Mapping[str, str]) -> list[Row]:
    """All rows of a local file.

    Args:
        path: JSON lines (``.jsonl``, ``.json``) or ``.parquet``.
        columns: option of the benchmark -> column that it needs.

    Raises:
        ValueError: no such file, not of these formats, or a column is missing.
    """
    if not path.is_file():
        raise ValueError(f"benchmark.path: no file {path}; expected a {', '.join(SUFFIXES)} file")
    if path.suffix == ".parquet":
        from pyarrow import ArrowInvalid, parquet

        try:
            found = parquet.read_schema(path).names
            check_columns(columns, found, str(path))
            return parquet.read_table(path, columns=[*dict.fromkeys(columns.values())]).to_pylist()
        except ArrowInvalid as error:
            raise ValueError(f"benchmark.path: {path} is no parquet file: {error}") from error
    if path.suffix not in SUFFIXES:
        raise ValueError(f"benchmark.path: {path} ends in {path.suffix!r}; expected one of {', '.join(SUFFIXES)}")
    rows = _json_rows(path)
    # Rows of JSON lines may leave out a column that is empty.
    check_columns(columns, dict.fromkeys(key for row in rows for key in row), str(path))
    return [{key: row.get(key) for key in columns.values()} for row in rows]


def _json_rows(path: Path) -> list[Row]:
    rows: list[Row] = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"benchmark.path: {path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(
                    f"benchmark.path: {path}, line {number} holds a {type(row).__name__}; expected one object a line, "
                    'e.g. {"question": "...", "answer": "..."}'
                )
            rows.append(row)
    return rows


def read_hub(hub: str, config: str | None, revision: str | None, split: str, columns: Mapping[str, str]) -> list[Row]:
    """All rows of one split of a hub dataset, from the local cache where it is there.

    Raises:
        ValueError: it cannot be had (offline, gated, no such name), or a column is missing.
    """
    import datasets

    name = hub if config is None else f"{hub} ({config})"
    try:
        table = datasets.load_dataset(hub, config, split=split, revision=revision)
    # Offline, a gated or mistyped name, and a mistyped configuration or split, in this order.
    except (OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        gated = "gated" in str(error) or "401" in str(error) or "403" in str(error)
        access = f"; accept its terms at https://huggingface.co/datasets/{hub} and set HF_TOKEN" if gated else ""
        needed = ", ".join(dict.fromkeys(columns.values()))
        raise ValueError(
            f"benchmark.hub={hub}: cannot load split {split!r} of {name}: {reason}{access}. Without network, type "
            f"benchmark.path=FILE with a {' or '.join(SUFFIXES)} file that has the columns {needed}"
        ) from error
    assert isinstance(table, datasets.Dataset), "a split was asked for"
    check_columns(columns, table.column_names, f"split {split!r} of {name}")
    # Only what is needed is decoded: some datasets hold pictures.
    return table.select_columns([*dict.fromkeys(columns.values())]).to_list()


def check_columns(columns: Mapping[str, str], found: Iterable[str], source: str) -> None:
    """Refuse a column that is not there, with a list of those that are.

    Raises:
        ValueError: naming every option whose column is missing.
    """
    known = [*found]
    missing = [f"benchmark.{option}={column}" for option, column in columns.items() if column not in known]
    if missing:
        raise ValueError(f"{', '.join(missing)}: no such column in {source}; it has {', '.join(known) or 'no columns'}")


def keep(rows: Sequence[Row], where: Mapping[str, Any]) -> list[tuple[int, Row]]:
    """Rows, with their number in the file, whose columns hold the wanted value, or one of a list of them."""
    wanted = {column: value if isinstance(value, list) else [value] for column, value in where.items()}
    return [(n, row) for n, row in enumerate(rows) if all(row[column] in values for column, values in wanted.items())]
