"""``metrics.jsonl``: one JSON object a line, ``{"step": 3, "train/reward": 0.41, ...}``. Written by every run.

A step may take several lines (training, then an evaluation of it); :func:`read_metrics` merges them. JSON has no NaN
and no infinity: they are written as the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which ``float()`` of
Python, ``Number()`` of JavaScript and the type inference of pandas turn back into numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sage.loggers.base import curve_scalars


class JsonlLogger:
    """Appends to ``path``, one flushed line a call, so that a killed run keeps all it logged.

    Args:
        path: the file; an existing one is continued, without the torn last line that a killed process may have left.
    """

    def __init__(self, path: Path) -> None:
        _drop_torn_line(path)
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line.

        Raises:
            ValueError: a metric called ``step``, which is the line's own key.
        """
        if "step" in metrics:
            raise ValueError("a metric may not be called 'step': give it an area, e.g. 'train/step'")
        line = {"step": step, **{name: _encode(float(value)) for name, value in metrics.items()}}
        self._file.write(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n")
        self._file.flush()

    def log_curve(self, step: int, name: str, curve: Mapping[int, float]) -> None:
        """Write the points of a pass@k curve as scalars ``<name>/pass@<k>``."""
        self.log(step, curve_scalars(name, curve))

    def close(self, *, failed: bool = False) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All metrics, one dict a step, ascending; of a value written twice the later one counts (a resumed run).

    A last line without its line break is still being written, or was when the run was killed: it is left out.

    Raises:
        ValueError: a complete line that is no metrics line, with its number.
    """
    steps: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        try:
            record = json.loads(line)
            step = record.pop("step")
            values = {name: float(value) for name, value in record.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f'{path}:{number}: expected {{"step": 3, "area/name": 0.5, ...}}, found {line!r}'
            ) from error
        steps.setdefault(step, {"step": step}).update(values)
    return [steps[step] for step in sorted(steps)]


def _encode(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _drop_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        with path.open("r+b") as file:
            file.truncate(complete)
