"""Worker processes for judging text that a model wrote: whatever an answer does, the batch returns, in order.

Workers are fresh interpreters that run one module. Nothing is forked, so threads and CUDA in this process do not matter, and
its main module is not imported again. Limits of one job are its own processor time and memory, kept by the kernel
(:mod:`sage.rewards.serve`): a busy machine makes no right answer wrong. The wall limit is only for a worker that hangs
without working. A job whose worker hung or died is tried once more with nothing beside it, since it may not be to blame.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sage.rewards.process import Worker
from sage.rewards.serve import DONE, MEMORY

log = logging.getLogger(__name__)

_MOST_JOBS = 32
"""Of one message to a worker; a pipe must hold the message (64 KiB), or writing could wait for a stopped worker."""
_MOST_BYTES = 16_000
_START_SECONDS = 120.0
"""Wall time that a worker may take to start: it imports sympy, perhaps from a slow disk."""
_STARTS = 3
"""Workers in a row that may fail to start before that is an error."""


class Failure(StrEnum):
    """Why a job has no result."""

    PROCESSOR_TIME = "processor_time"
    WALL_TIME = "wall_time"
    MEMORY = "memory"
    DIED = "died"
    """Its worker ended, twice."""
    RAISED = "raised"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job."""

    text: str
    """The result, or what the worker raised."""
    failure: Failure | None = None


class WorkerPool:
    """Runs jobs, lists of strings, in worker processes that start on first use and are replaced when they are lost."""

    def __init__(self, *, module: str, workers: int, cpu_seconds: int, wall_seconds: float, memory_mb: int) -> None:
        self.module = module
        self.workers = workers
        self.wall_seconds = wall_seconds
        self._arguments = (str(cpu_seconds), str(memory_mb))
        self._lock = threading.Lock()
        self._alive: list[Worker] = []
        self._process = os.getpid()
        # Also at interpreter exit; holds the list and not the pool, which could otherwise never be collected.
        self._finalizer = weakref.finalize(self, _end_all, self._alive)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, busy or idle."""
        return [worker.pid for worker in self._alive]

    def run(self, jobs: Sequence[Sequence[str]]) -> list[Outcome]:
        """The outcomes of all jobs, in order. Threads take turns.

        Raises:
            RuntimeError: workers cannot be started; the message has what they wrote.
        """
        if not jobs:
            return []
        if os.getpid() != self._process:  # a fork of the owner must not talk to the owner's workers
            self._lock, self._alive, self._process = threading.Lock(), [], os.getpid()
            self._finalizer = weakref.finalize(self, _end_all, self._alive)
        with self._lock:
            batch = _Batch(self, jobs)
            try:
                batch.run(list(range(len(jobs))), self.workers)
                for number in batch.suspects.copy():
                    batch.run([number], 1)
            except BaseException:
                self.close()  # replies of this batch would be taken for the next one's
                raise
            return [batch.outcomes[number] for number in range(len(jobs))]

    def close(self) -> None:
        """End all workers; the next batch starts new ones."""
        _end_all(self._alive)

    def start(self) -> Worker:
        """A new worker; it says that it is ready before it gets work."""
        worker = Worker(self.module, self._arguments)
        self._alive.append(worker)
        return worker

    def drop(self, worker: Worker) -> int:
        """End one worker; its return code."""
        code = worker.end()
        self._alive.remove(worker)
        return code

    def idle(self, most: int) -> list[Worker]:
        """Living workers from earlier batches, at most so many; those that died meanwhile are dropped."""
        for worker in [worker for worker in self._alive if worker.has_ended()]:
            self.drop(worker)
        return self._alive[:most]


class _Batch:
    """One call of :meth:`WorkerPool.run`. Jobs are known by their number."""

    def __init__(self, pool: WorkerPool, jobs: Sequence[Sequence[str]]) -> None:
        self.pool = pool
        self.jobs = jobs
        self.outcomes: dict[int, Outcome] = {}
        self.suspects: list[int] = []
        """Jobs whose worker was lost for a reason that may lie elsewhere."""
        self.failed_starts = 0

    def run(self, numbers: Iterable[int], most: int) -> None:
        """Fill in the outcomes of these jobs, or make them suspects."""
        self.waiting = deque(numbers)
        self.share = max(1, min(_MOST_JOBS, len(self.waiting) // (4 * most)))
        active = self.pool.idle(most)
        for worker in active:
            self._feed(worker)
        while self.waiting or any(worker.assigned for worker in active):
            wanted = min(most, len(active) + len(self.waiting))
            active += [self.pool.start() for _ in range(wanted - len(active))]
            for worker in self._listen(active):
                active.remove(worker)

    def _listen(self, active: list[Worker]) -> list[Worker]:
        """Wait for replies; the workers that were lost."""
        lost: list[Worker] = []
        with selectors.DefaultSelector() as selector:
            for worker in active:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            ready = {key.data for key, _ in selector.select(timeout=self._patience(active))}
        for worker in active:
            if worker in ready:
                lines = worker.read()
                if lines is None:
                    self._lost(worker, self.pool.drop(worker), hung=False)
                    lost.append(worker)
                else:
                    self._take(worker, lines)
            elif self._rest(worker) <= 0:
                self.pool.drop(worker)
                self._lost(worker, 0, hung=True)
                lost.append(worker)
        return lost

    def _patience(self, active: list[Worker]) -> float:
        return max(0.0, min(self._rest(worker) for worker in active)) + 0.01

    def _rest(self, worker: Worker) -> float:
        """Seconds that a worker may stay silent from now on."""
        allowed = self.pool.wall_seconds if worker.is_ready else max(_START_SECONDS, self.pool.wall_seconds)
        return _START_SECONDS if worker.is_idle else allowed - worker.silent_for()

    def _take(self, worker: Worker, lines: list[str]) -> None:
        for line in lines:
            number, status, text = json.loads(line)
            if not worker.is_ready:
                worker.is_ready = True
                self.failed_starts = 0
                continue
            worker.assigned.remove(number)
            failure = None if status == DONE else Failure.MEMORY if status == MEMORY else Failure.RAISED
            self.outcomes[number] = Outcome(text, failure)
        if not worker.assigned:
            self._feed(worker)

    def _feed(self, worker: Worker) -> None:
        if not worker.is_ready:
            return
        message, size = [], 0
        while self.waiting and len(message) < self.share and (not message or size < _MOST_BYTES):
            number = self.waiting.popleft()
            message.append([number, list(self.jobs[number])])
            size += len(json.dumps(message[-1]))
            worker.assigned.append(number)
        worker.send(json.dumps(message) if message else "")

    def _lost(self, worker: Worker, code: int, *, hung: bool) -> None:
        """Blame the job that a lost worker was at; the others of its message wait again."""
        if not worker.is_ready:
            self.failed_starts += 1
            if self.failed_starts >= _STARTS:
                raise RuntimeError(
                    f"{self.pool.module}: {_STARTS} worker processes in a row did not start (status {code}); the last one "
                    f"wrote: {worker.complaint or 'nothing'}"
                )
            return
        assigned, worker.assigned = list(worker.assigned), deque()
        if not assigned:
            return
        first, *others = assigned
        self.waiting.extendleft(reversed(others))
        if not hung and code == -signal.SIGXCPU:
            self.outcomes[first] = Outcome("", Failure.PROCESSOR_TIME)
        elif first in self.suspects:
            self.outcomes[first] = Outcome("", Failure.WALL_TIME if hung else Failure.DIED)
        else:
            log.warning(
                "a worker %s; its job is tried again alone: %.300r", "hung" if hung else "died", self.jobs[first]
            )
            self.suspects.append(first)


def _end_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().end()
