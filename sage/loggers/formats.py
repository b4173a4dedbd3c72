"""Numbers as people read them, for everything on the screen."""

from __future__ import annotations

import math

MAX_WIDTH = 100
"""Wider lines are harder to read, however wide the terminal."""


def number(value: float) -> str:
    """Three significant digits: ``0.412``, ``0.00130``, ``1.2e-05``, ``38,400``."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.1e}"
    decimals = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def duration(seconds: float) -> str:
    """``8.4 s``, ``1:02`` (minutes) or ``2:03:04`` (hours)."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(done: float, seconds: float) -> str:
    """``4.70/s``, or ``3.20 s each`` for slow things; empty as long as nothing is known."""
    if done <= 0 or seconds <= 0:
        return ""
    return f"{number(done / seconds)}/s" if done >= seconds else f"{number(seconds / done)} s each"


def plural(unit: str) -> str:
    """``step`` and ``steps`` -> ``steps``."""
    return unit if unit.endswith("s") else f"{unit}s"
