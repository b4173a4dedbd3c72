"""Signals that end a run: the first lets the step finish and be saved, a second one ends at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

STATUS = 75
"""Exit status of a run that was asked to stop and has saved where it was (EX_TEMPFAIL: try again)."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""What clusters, containers, terminals and SLURM (``--signal=USR1@60``) send before they kill."""


class Stopped(Exception):
    """The run was asked to stop, and its last step is in a checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class Stopper:
    """Takes the signals of a run.

    While something is deferred (training) the first signal is only remembered; anything else it ends at once, as an error
    does, so that files and trackers are closed. A second signal always ends at once.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._deferring = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals until the block ends."""
        before = {number: signal.signal(number, self._take) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def deferred(self) -> AbstractContextManager[None]:
        """Let the block come to where it asks :attr:`requested`."""
        return self._set(True)

    def interruptible(self) -> AbstractContextManager[None]:
        """Inside of :meth:`deferred`: a block that may be left at once, with ``SystemExit``."""
        return self._set(False)

    @contextmanager
    def _set(self, deferring: bool) -> Iterator[None]:
        before, self._deferring = self._deferring, deferring
        try:
            yield
        finally:
            self._deferring = before

    def _take(self, number: int, frame: FrameType | None) -> None:
        first = self.requested is None
        self.requested = signal.Signals(number)
        if not (self._deferring and first):
            sys.exit(128 + number)
        print(f"sage: {self.requested.name}: the step is finished and saved; once more ends at once", file=sys.stderr)
