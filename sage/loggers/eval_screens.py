"""The result of an evaluation on the screen. Imports rich only, and takes plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

Interval = tuple[float, float, float]
"""Value, lower end, upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """One k."""

    k: int
    pass_at_k: Interval
    maj_at_k: Interval | None
    difference: tuple[float, float] | None
    """pass@k minus the base's, and its standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One benchmark of a combined one, or their mean."""

    name: str
    problems: int | None
    values: Sequence[float | None]
    """Under the columns of :attr:`EvalResult.source_columns`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """What :func:`print_evaluation` shows."""

    title: str
    """What was measured, e.g. ``smollm2-135m on gsm8k, 1,319 problems x 64 samples``."""
    confidence: float
    """Of the intervals."""
    rows: Sequence[EvalRow]
    measures: Mapping[str, str]
    """Further numbers, name -> text."""
    source_columns: Sequence[str]
    sources: Sequence[SourceRow]
    folder: Path


def print_evaluation(console: Console, result: EvalResult) -> None:
    """The table of pass@k and maj@k, the sources of a combined benchmark, further numbers, and the folder."""
    console.print()
    console.print(Text.assemble((" result  ", "bold cyan"), (result.title, "")), soft_wrap=True)
    console.print(_curve(result.rows))
    console.print(Text(f"  [ ] {100 * result.confidence:g} % bootstrap interval over problems", style="dim"))
    if result.sources:
        console.print(_sources(result))
    console.print()
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in result.measures.items():
        table.add_row(f"  {name}", value)
    console.print(table)
    # Paths are copied from the screen, so they are never folded.
    console.print(Text.assemble(("\n files  ", "bold cyan"), str(result.folder)), soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="dim", border_style="bright_black", padding=(0, 1), pad_edge=True)
    for column in columns:
        table.add_column(column, no_wrap=True, justify="right" if column in ("k", "problems") else "left")
    return table


def _curve(rows: Sequence[EvalRow]) -> Table:
    votes, compared = (any(getattr(r, name) for r in rows) for name in ("maj_at_k", "difference"))
    table = _table("k", "pass@k", *(["maj@k"] if votes else []), *(["pass@k against the base"] if compared else []))
    for row in rows:
        cells = [_interval(row.pass_at_k), *([_interval(row.maj_at_k)] if row.maj_at_k else [])]
        if row.difference is not None:
            value, error = row.difference
            style = "" if abs(value) <= 2 * error else "green" if value > 0 else "red"
            cells.append(Text.assemble((f"{value:+.3f}", style), (f" ± {error:.3f}", "dim")))
        table.add_row(str(row.k), *cells)
    return table


def _interval(value: Interval) -> Text:
    return Text.assemble((f"{value[0]:.3f}", "bold"), (f" [{value[1]:.3f} {value[2]:.3f}]", "dim"))


def _sources(result: EvalResult) -> Table:
    table = _table("benchmark", "problems", *result.source_columns)
    for row in result.sources:
        values = ["-" if value is None else f"{value:.3f}" for value in row.values]
        table.add_row(row.name, "" if row.problems is None else f"{row.problems:,}", *values)
    return table
