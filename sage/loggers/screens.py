"""The first and the last thing on the screen: what will run, and what came of it.

Imports rich only. Takes plain values, so that a run, an evaluation and a report can all use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sage.loggers.formats import MAX_WIDTH, duration, number


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What :func:`print_plan` shows."""

    guide: str
    """Name and what sets it apart, e.g. ``branch, strength 1``."""
    kl_mode: str
    """E.g. ``reverse, beta 0.05``."""
    gradient: str
    """The sentence of ``KLMode.gradient``."""
    algorithm: str
    model: str
    benchmark: str
    steps: int
    problems_per_step: int
    completions_per_problem: int
    on_policy: bool
    """Whether each batch takes one optimiser step."""
    evaluation: str
    """E.g. ``200 test problems x 256 samples, before and after``."""
    folder: Path
    memory: str = ""
    """How much it will take; empty where that is not worth a line."""
    seconds: float | None = None
    """Expected length of the run; ``None`` where it is not known."""
    notes: tuple[str, ...] = ()
    """Warnings, all in one place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """One k of the result table. Values are shares in [0, 1]; intervals are (low, high)."""

    label: str
    base: float
    base_interval: tuple[float, float]
    trained: float
    trained_interval: tuple[float, float]
    difference: float
    """trained - base."""
    standard_error: float
    """Of the difference, paired over problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Problems solved at least once in the same number of samples (arXiv 2507.14843)."""

    preserved: int
    """By both models."""
    shrunk: int
    """By the base only."""
    expanded: int
    """By the trained model only."""
    unsolved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What :func:`print_result` shows."""

    title: str
    """What was measured, e.g. ``countdown, 200 test problems x 256 samples``."""
    confidence: float
    """Of the intervals, e.g. 0.95."""
    curve: Sequence[CurveRow]
    support: Support | None
    measures: Mapping[str, tuple[float | None, float | None]]
    """Further numbers, name -> (base, trained): distinct solutions, entropy ... Names of up to 26 characters fit 80
    columns."""
    folder: Path
    files: Mapping[str, str]
    """Path below ``folder`` -> what it holds."""
    commands: Sequence[tuple[str, str]]
    """(command, what it does): what to try next."""
    seconds: float
    """Length of the run."""
    notes: tuple[str, ...] = field(default=())


def print_plan(console: Console, plan: RunPlan) -> None:
    """The panel at the start: what will run, with which gradient, how much of it, and where it goes."""
    samples = plan.steps * plan.problems_per_step * plan.completions_per_problem
    size = f"{plan.steps:,} steps x {plan.problems_per_step:,} problems x {plan.completions_per_problem:,} completions"
    rows = [
        ("train", f"{plan.model} on {plan.benchmark} with {plan.algorithm}"),
        ("guide", plan.guide),
        ("KL", plan.kl_mode),
        ("", Text(plan.gradient, style="dim")),
        ("size", f"{size} = {samples:,} samples"),
        ("evaluate", plan.evaluation),
        ("folder", str(plan.folder)),
    ]
    if plan.memory:
        rows.append(("memory", plan.memory))
    if plan.seconds is not None:
        rows.append(("time", _about(plan.seconds)))
    if plan.on_policy:
        # One update per batch has ratio 1 everywhere: the surrogate's value is minus the mean advantage, which is 0.
        note = "about 0 by construction (one update a batch): watch reward/mean, policy/grad_norm, reward/zero_spread_share"
        rows.append(("loss", Text(note, style="dim")))
    rows += [("note" if index == 0 else "", Text(note, style="yellow")) for index, note in enumerate(plan.notes)]
    title = Text("plan", style="bold cyan")
    width = min(console.width, MAX_WIDTH)
    console.print(
        Panel(_pairs(rows), box=ROUNDED, title=title, title_align="left", border_style="bright_black", width=width)
    )


def print_result(console: Console, result: RunResult) -> None:
    """The table base -> trained at the end, then support, further measures, files and the next commands."""
    console.print()
    console.print(Text.assemble((" result  ", "bold cyan"), (result.title, "")), soft_wrap=True)
    console.print(_curve_table(result.curve))
    console.print(
        Text(
            f"  [ ] {100 * result.confidence:g} % interval   ▲ ▼ differs by more than two standard errors", style="dim"
        )
    )
    console.print()
    rows: list[tuple[str, str | Text]] = []
    if result.support is not None:
        rows.append(("support", _support(result.support)))
    rows += [(name, _change(base, trained)) for name, (base, trained) in result.measures.items()]
    rows.append(("time", duration(result.seconds)))
    rows += [("note" if index == 0 else "", Text(note, style="yellow")) for index, note in enumerate(result.notes)]
    console.print(_pairs(rows, indent=2))
    _print_files(console, result)
    _print_commands(console, result)


def _print_files(console: Console, result: RunResult) -> None:
    console.print()
    # Paths and commands are copied from the screen, so they are never folded.
    console.print(Text.assemble((" files  ", "bold cyan"), str(result.folder)), soft_wrap=True)
    width = max((len(path) for path in result.files), default=0)
    for path, content in result.files.items():
        console.print(Text.assemble(f"  {path:<{width}}  ", (content, "dim")), soft_wrap=True)


def _print_commands(console: Console, result: RunResult) -> None:
    console.print()
    console.print(Text(" next", style="bold cyan"))
    for command, purpose in result.commands:
        console.print(Text.assemble("  ", (f"# {purpose}", "dim")), soft_wrap=True)
        console.print(Text(f"  {command}"), soft_wrap=True)


def _pairs(rows: Sequence[tuple[str, str | Text]], indent: int = 0) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(" " * indent + name, value)
    return table


def _curve_table(curve: Sequence[CurveRow]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="dim", border_style="bright_black", padding=(0, 1), pad_edge=True)
    table.add_column("", no_wrap=True)
    for model in ("base", "trained"):
        table.add_column(model, no_wrap=True)
    table.add_column("difference", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in curve:
        mark, style = _verdict(row)
        table.add_row(
            row.label,
            _interval(row.base, row.base_interval),
            _interval(row.trained, row.trained_interval, "bold"),
            Text.assemble((f"{row.difference:+.3f}", style), (f" ± {row.standard_error:.3f}", "dim")),
            Text(mark, style=style),
        )
    return table


def _verdict(row: CurveRow) -> tuple[str, str]:
    if abs(row.difference) <= 2 * row.standard_error:
        return "", ""
    return ("▲", "green") if row.difference > 0 else ("▼", "red")


def _interval(value: float, interval: tuple[float, float], style: str = "") -> Text:
    return Text.assemble((f"{value:.3f}", style), (f" [{interval[0]:.3f} {interval[1]:.3f}]", "dim"))


def _support(support: Support) -> Text:
    return Text.assemble(
        f"{support.preserved:,} preserved",
        (" · ", "dim"),
        (f"{support.expanded:,} expanded", "green" if support.expanded else ""),
        (" · ", "dim"),
        (f"{support.shrunk:,} shrunk", "red" if support.shrunk else ""),
        (f" · {support.unsolved:,} unsolved", "dim"),
    )


def _change(base: float | None, trained: float | None) -> Text:
    parts = ["-" if value is None else number(value) for value in (base, trained)]
    return Text.assemble((parts[0], "dim"), (" → ", "dim"), parts[1])


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 90 * 60 else f"about {seconds / 3600:.1f} h"
