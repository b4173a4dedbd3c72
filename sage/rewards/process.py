"""One worker process as its parent sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence


class Worker:
    """A fresh interpreter that runs ``module`` and answers line by line."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        # OpenMP threads would only multiply the address space that the memory limit counts.
        environment = os.environ | {"PYTHONPATH": _search_path(), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            bufsize=0,
        )
        self._partial = b""
        self._heard = time.monotonic()
        self.is_ready = False
        self.assigned: deque[int] = deque()
        """Jobs sent and not answered, the one in work first."""
        self.complaint = ""
        """What the process wrote to standard error, once it has ended."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def output(self) -> int:
        """File descriptor to wait for replies on."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def is_idle(self) -> bool:
        """Whether it has started and nothing is asked of it."""
        return self.is_ready and not self.assigned

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def silent_for(self) -> float:
        """Seconds since it was started, sent a message, or answered."""
        return time.monotonic() - self._heard

    def send(self, line: str) -> None:
        """Write a message; to a process that is gone it is written in vain, which reading will show."""
        if not line:
            return
        self._heard = time.monotonic()
        assert self._process.stdin is not None
        try:
            rest = memoryview(line.encode() + b"\n")
            while rest:  # a signal may cut a write short
                rest = rest[self._process.stdin.write(rest) or 0 :]
        except BrokenPipeError:
            return

    def read(self) -> list[str] | None:
        """Whole lines that have come; ``None`` when the process has ended and all is read."""
        data = os.read(self.output, 65536)
        if not data:
            return None
        self._heard = time.monotonic()
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [line.decode() for line in lines]

    def end(self) -> int:
        """Kill the process if it lives; its return code, negative for a signal."""
        if self._process.poll() is None:
            self._process.kill()  # one that is ending already keeps its code
        code = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        if not self._errors.closed:
            self._errors.seek(0)
            self.complaint = self._errors.read()[-2000:].decode(errors="replace").strip()
            self._errors.close()
        return code


def _search_path() -> str:
    """This process's import path: the module must be found wherever the run was started."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
