"""A worker with every bad habit, for the tests of the pool."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sage.rewards.serve import serve


def handle(job: Sequence[str]) -> str:
    match job:
        case ["echo", text]:
            return text
        case ["pid"]:
            return str(os.getpid())
        case ["print", text]:
            print(text, flush=True)
            os.write(2, text.encode())
            return text
        case ["raise", text]:
            raise ValueError(text)
        case ["tower"] | ["check", "x + tower"]:
            return str(9**9**9)  # one operation, inside which no signal handler of Python runs
        case ["check", _]:
            return ""
        case ["eat"]:
            return str(len(bytearray(1 << 40)))
        case ["stop"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case [("stop" | "die") as what, marker]:
            if not Path(marker).exists():
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGSTOP if what == "stop" else signal.SIGKILL)
        case ["work", seconds]:
            end = time.process_time() + float(seconds)
            while time.process_time() < end:
                pass
    return "done"


if __name__ == "__main__":
    if os.environ.get("ODD_WORKER_FAILS"):
        sys.exit("no such luck")
    serve(handle)
