"""The worker's side of :mod:`sage.rewards.pool`: answers jobs from standard input, within limits that the kernel keeps."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence

READY, DONE, FAILED, MEMORY = "ready", "done", "failed", "memory"


def serve(handle: Callable[[Sequence[str]], str]) -> None:
    """Answer jobs until standard input ends.

    A line in is ``[[number, [job...]], ...]``; each job gets a line ``[number, status, text]`` out. The process's arguments are
    the seconds of processor time that a job may take and its memory in MiB. More processor time ends the process by
    SIGXCPU: a signal handler of our own would wait for ever, as Python runs it between two operations and one power of
    whole numbers is a single operation.

    Args:
        handle: job to text. What it raises is reported, and the next job gets its turn.
    """
    seconds, megabytes = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)  # a library's print is no reply
    replies.write(json.dumps([0, READY, ""]) + "\n")
    for line in sys.stdin:
        for number, job in json.loads(line):
            _limit_processor_time(seconds)
            replies.write(json.dumps([number, *_answer(handle, job)]) + "\n")


def _limit_processor_time(seconds: int) -> None:
    # The kernel counts whole seconds of the whole process: the job gets what it was promised, and up to one second more.
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _answer(handle: Callable[[Sequence[str]], str], job: Sequence[str]) -> tuple[str, str]:
    try:
        return DONE, handle(job)
    except MemoryError:
        return MEMORY, ""
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error!s:.200}"
