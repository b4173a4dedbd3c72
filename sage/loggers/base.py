"""What a tracking plug-in is told about the run, and what it must offer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sage.interfaces import MetricLogger


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Who the run is."""

    folder: Path
    """The run's own folder; a tracker writes below it only."""
    name: str
    config: Mapping[str, Any]
    """Resolved and flat: dotted keys to plain values (``sage.record.flatten``)."""
    revision: str | None
    """Git revision of the code, with ``-dirty`` where it was changed; ``None`` outside a checkout."""
    versions: Mapping[str, str | None]
    """Package versions (``sage.record.package_versions``)."""
    overrides: tuple[str, ...] = ()
    """What the user typed, e.g. ``guide=branch``."""
    group: str | None = None
    """The sweep that the run belongs to."""
    job_type: str = "train"
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    """The tracking run to go on with, as :meth:`Tracker.start` returned it; ``None`` begins a new one."""


class Tracker(MetricLogger, Protocol):
    """A metric logger that has to be started: one tracking run per run."""

    def start(self, info: RunInfo) -> str | None:
        """Begin the run. Returns its id, to be stored with checkpoints, or ``None`` where the tracker has none.

        Raises:
            RuntimeError: the tracker cannot start, with what to type instead.
        """


def curve_scalars(name: str, curve: Mapping[int, float]) -> dict[str, float]:
    """The points of a pass@k curve as scalars.

    >>> curve_scalars("eval/countdown", {1: 0.25, 4: 0.5})
    {'eval/countdown/pass@1': 0.25, 'eval/countdown/pass@4': 0.5}
    """
    return {f"{name}/pass@{k}": float(value) for k, value in sorted(curve.items())}
