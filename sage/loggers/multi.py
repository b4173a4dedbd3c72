"""The logger that a run holds: ``metrics.jsonl`` first, then the tracking plug-in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType

from sage.interfaces import MetricLogger
from sage.loggers.base import RunInfo, Tracker

_log = logging.getLogger(__name__)


class MultiLogger:
    """Writes to ``primary``, then to ``tracker``.

    ``primary`` is the record of the run, so its errors are errors. The tracker is a view of it that must not cost a
    training run: what it refuses is counted, the first time with a warning. A tracker that cannot *start* is an error,
    because the user asked for it. As a context manager it closes both, as failed after an exception.
    """

    def __init__(self, primary: MetricLogger, tracker: Tracker) -> None:
        self._primary = primary
        self._tracker = tracker
        self._started = False
        self.lost = 0
        """Calls that the tracker refused."""

    def start(self, info: RunInfo) -> str | None:
        """Begin the tracking run; returns its id (see :meth:`Tracker.start`)."""
        run_id = self._tracker.start(info)
        self._started = True
        return run_id

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars to both."""
        self._primary.log(step, metrics)
        self._track(lambda: self._tracker.log(step, metrics))

    def log_curve(self, step: int, name: str, curve: Mapping[int, float]) -> None:
        """Write a curve to both."""
        self._primary.log_curve(step, name, curve)
        self._track(lambda: self._tracker.log_curve(step, name, curve))

    def close(self, *, failed: bool = False) -> None:
        """End both; the tracking run too when closing the primary raises."""
        try:
            self._primary.close(failed=failed)
        finally:
            self._track(lambda: self._tracker.close(failed=failed))
            self._started = False
            if self.lost > 1:
                _log.warning("%s refused %d calls; metrics.jsonl is complete", self._tracker_name, self.lost)

    @property
    def _tracker_name(self) -> str:
        return type(self._tracker).__name__

    def _track(self, call: Callable[[], None]) -> None:
        if not self._started:
            return
        try:
            call()
        except Exception as error:  # whatever a tracking library raises, training goes on
            self.lost += 1
            if self.lost == 1:
                _log.warning("%s refused a call, metrics.jsonl goes on: %s", self._tracker_name, error)

    def __enter__(self) -> MultiLogger:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(failed=error is not None)
