"""Progress on the screen: bars on a terminal, a few plain lines in a file, pipe or batch job.

Imports rich only, so that the first line can be shown before anything heavy is loaded. The plan and the result of a run
are in :mod:`sage.loggers.screens`.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from sage.loggers.formats import MAX_WIDTH, duration, number, plural, rate

_NAME_WIDTH = 26
_REFRESH_PER_SECOND = 4
"""Drawing takes the interpreter from training, so it is kept rare."""
_LINE_SECONDS = 2.0
"""Plain lines come no faster than this ..."""
_SILENCE_SECONDS = 300.0
"""... and no slower than this."""
_SHORT_SECONDS = 1.0
"""A stage inside another that takes less, and has no numbers to show, leaves no line."""


def make_console() -> Console:
    """The console on standard output: colours and bars on a terminal, plain text elsewhere; ``NO_COLOR`` counts."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and "utf" not in (stream.encoding or "").lower():
        # A terminal that knows no "→" shows "?" instead of ending the run.
        stream.reconfigure(errors="replace")
    return Console(highlight=False)


def print_headline(console: Console, version: str, choices: Mapping[str, str]) -> None:
    """The first line of a program, e.g. ``sage 0.1.0  guide=branch  kl_mode=reverse``."""
    line = Text.assemble(("sage", "bold cyan"), (f" {version}", "cyan"))
    for group, choice in choices.items():
        line.append("  ")
        line.append(f"{group}=", style="dim")
        line.append(choice)
    console.print(line, soft_wrap=True)


def _numbers(shown: Mapping[str, float]) -> Text:
    """``reward 0.412   KL 0.0013``."""
    text = Text()
    for name, value in shown.items():
        text.append("   " if text else "")
        text.append(f"{'KL' if name == 'kl' else name.replace('_', ' ')} ", style="dim")
        text.append(number(value))
    return text


class _Stage:
    """What is known of a running stage; draws nothing."""

    def __init__(self, name: str, total: int, unit: str, nested: bool, clock: Callable[[], float]) -> None:
        self.name, self.total, self.unit, self.nested = name, total, plural(unit), nested
        self.done = 0
        self.shown: dict[str, float] = {}
        self._clock = clock
        self._start = clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._start

    def advance(self, count: int, shown: Mapping[str, float]) -> None:
        self.done += count
        self.shown.update(shown)

    def closing_line(self, failed: bool, width: int) -> Text:
        """``✓ train  150 steps  32.1 s  4.67/s  reward 0.412``; the numbers go to a second line where too long."""
        mark, style = ("✗", "red") if failed else ("✓", "green")
        count = (
            f"{self.done:,} {self.unit}" if not failed else f"stopped at {self.done:,} of {self.total:,} {self.unit}"
        )
        indent = "  " if self.nested else ""
        line = Text.assemble(indent, (f"{mark} ", style), f"{self.name:<{_NAME_WIDTH - len(indent)}} {count:<18}")
        line.append(f"  {duration(self.seconds):>7}  {rate(self.done, self.seconds):<11}", style="dim")
        numbers = _numbers(self.shown)
        if numbers:
            line.append("  " if line.cell_len + 2 + numbers.cell_len <= width else f"\n  {'':{_NAME_WIDTH}} ")
            line.append_text(numbers)
        line.rstrip()
        return line


class _RateColumn(ProgressColumn):
    """Units a second, lately."""

    def render(self, task: Task) -> Text:
        return Text(rate(task.speed or 0.0, 1.0), style="dim")


class _Bars(RichProgress):
    """Rich's bars, each with a second line for its numbers: any count of them fits into 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            table = self.make_tasks_table([task])
            table.width = min(self.console.width, MAX_WIDTH)
            yield table
            numbers = _numbers(task.fields["shown"])
            if numbers:
                yield Padding(numbers, (0, 0, 0, _NAME_WIDTH + 3))


class _View(Protocol):
    """How a stage is drawn."""

    def begin(self, stage: _Stage) -> None: ...
    def update(self, stage: _Stage) -> None: ...
    def end(self, stage: _Stage, failed: bool) -> None: ...


class _TerminalView:
    """Bars that vanish when their stage ends; one line stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: _Bars | None = None
        self._tasks: dict[_Stage, TaskID] = {}

    def begin(self, stage: _Stage) -> None:
        if self._bars is None:
            self._bars = _Bars(
                TextColumn(
                    "{task.description}", markup=False, table_column=Column(width=_NAME_WIDTH + 2, no_wrap=True)
                ),
                BarColumn(bar_width=None, style="bright_black", complete_style="cyan", finished_style="cyan"),
                TextColumn("{task.fields[count]}", markup=False, table_column=Column(justify="right", no_wrap=True)),
                _RateColumn(table_column=Column(width=11, justify="right", no_wrap=True)),
                TimeRemainingColumn(compact=True, table_column=Column(width=7, justify="right")),
                console=self._console,
                refresh_per_second=_REFRESH_PER_SECOND,
                transient=True,
                expand=True,
            )
            self._bars.start()
        self._tasks[stage] = self._bars.add_task(
            ("    " if stage.nested else "  ") + stage.name, total=stage.total, **self._fields(stage)
        )

    def update(self, stage: _Stage) -> None:
        assert self._bars is not None
        self._bars.update(self._tasks[stage], completed=stage.done, **self._fields(stage))

    def end(self, stage: _Stage, failed: bool) -> None:
        assert self._bars is not None
        self._bars.remove_task(self._tasks.pop(stage))
        if not self._tasks:
            self._bars.stop()
            self._bars = None
        if failed or not stage.nested or stage.shown or stage.seconds >= _SHORT_SECONDS:
            self._console.print(stage.closing_line(failed, self._console.width), soft_wrap=True)

    @staticmethod
    def _fields(stage: _Stage) -> dict[str, Any]:
        return {
            "shown": dict(stage.shown),
            "count": f"{stage.done:,}/{stage.total:,}",
        }


class _PlainView:
    """A line at the start, about one each tenth, one at the end; no control characters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed: dict[_Stage, tuple[int, float]] = {}

    def begin(self, stage: _Stage) -> None:
        self._printed[stage] = (0, stage.seconds)
        if not stage.nested:
            self._print(Text(f"{stage.name}: {stage.total:,} {stage.unit}"))

    def update(self, stage: _Stage) -> None:
        tenth = 10 * stage.done // max(stage.total, 1)
        last_tenth, last_seconds = self._printed[stage]
        since = stage.seconds - last_seconds
        due = (tenth > last_tenth and since >= _LINE_SECONDS) or since >= _SILENCE_SECONDS
        if not due or stage.done >= stage.total:
            return
        self._printed[stage] = (tenth, stage.seconds)
        share = 100 * stage.done // max(stage.total, 1)
        left = duration(stage.seconds / stage.done * (stage.total - stage.done)) if stage.done else "?"
        parts = [f"{share:3d} %", f"{stage.done:,}/{stage.total:,} {stage.unit}"]
        parts += [rate(stage.done, stage.seconds), f"{left} left", _numbers(stage.shown).plain]
        self._print(
            Text(f"{'  ' if stage.nested else ''}  {stage.name:<{_NAME_WIDTH}} " + "   ".join(p for p in parts if p))
        )

    def end(self, stage: _Stage, failed: bool) -> None:
        del self._printed[stage]
        if failed or not stage.nested or stage.shown or stage.seconds >= _SHORT_SECONDS:
            self._print(stage.closing_line(failed, sys.maxsize))

    def _print(self, line: Text) -> None:
        # A log is read with tools that work by lines, so none is folded.
        self._console.print(line, soft_wrap=True)


class _Bar:
    """The handle a stage reports through."""

    def __init__(self, stage: _Stage, view: _View) -> None:
        self._stage, self._view = stage, view

    def update(self, advance: int = 1, **shown: float) -> None:
        """Advance, and show the named numbers beside the bar."""
        self._stage.advance(advance, shown)
        self._view.update(self._stage)


class ConsoleProgress:
    """Progress of a run's stages (``sage.interfaces.Progress``). A stage may be opened inside another one.

    Args:
        console: where to; bars when it is a terminal that can move its cursor, plain lines otherwise.
        clock: seconds; another one only in tests.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        bars = console.is_terminal and not console.is_dumb_terminal
        self._view: _View = _TerminalView(console) if bars else _PlainView(console)
        self._clock = clock
        self._open = 0

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[_Bar]:
        """A bar for ``total`` units (``step``, ``completions``); an exception marks it as stopped and passes on."""
        stage = _Stage(name, total, unit, nested=self._open > 0, clock=self._clock)
        self._open += 1
        failed = True
        self._view.begin(stage)
        try:
            yield _Bar(stage, self._view)
            failed = False
        finally:
            self._open -= 1
            self._view.end(stage, failed)
