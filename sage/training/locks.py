"""One maker at a time for what several runs want: a lock file that the system lets go of."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Wait for the file to be ours; the system lets go of it when a process ends, however that happens.

    Args:
        path: the lock file; its folder is made.
        what: what the others wait for, for the log.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("another run makes %s: waiting for it", what)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
