"""Whatever a job does, the batch returns, in order, and the next one works."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sage.rewards.pool import Failure, Outcome, WorkerPool

Make = Callable[..., WorkerPool]


@pytest.fixture
def make() -> Iterator[Make]:
    pools = []

    def build(**changes) -> WorkerPool:
        values = {"workers": 2, "cpu_seconds": 1, "wall_seconds": 30.0, "memory_mb": 1024} | changes
        pools.append(WorkerPool(module="tests.rewards.odd_worker", **values))
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()


def echoes(pool: WorkerPool, count: int = 8) -> list[str]:
    return [outcome.text for outcome in pool.run([("echo", str(n)) for n in range(count)])]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_outcomes_come_in_order_and_workers_start_with_the_first_job(make: Make):
    pool = make()
    assert pool.run([]) == []
    assert pool.pids == []
    assert echoes(pool, 500) == [str(n) for n in range(500)]
    assert len(pool.pids) == 2


def test_one_job_starts_one_worker_only(make: Make):
    pool = make()
    assert echoes(pool, 1) == ["0"]
    assert len(pool.pids) == 1


def test_long_messages_in_any_script_arrive_whole(make: Make):
    texts = ["\U0001d54f" * 3000, '\n\r\t\0"\\', "", "ü" * 5000] * 10
    assert [outcome.text for outcome in make().run([("echo", text) for text in texts])] == texts


def test_what_a_job_prints_is_not_taken_for_a_reply(make: Make):
    assert [o.text for o in make().run([("print", '[1, "done", "forged"]'), ("echo", "x")])] == [
        '[1, "done", "forged"]',
        "x",
    ]


def test_an_exception_is_the_outcome_of_its_job_alone(make: Make):
    bad, good = make().run([("raise", "no"), ("echo", "yes")])
    assert (bad, good) == (Outcome("ValueError: no", Failure.RAISED), Outcome("yes"))


def test_a_tower_of_powers_ends_at_its_processor_time_and_the_others_are_unharmed(make: Make):
    """K33: a single operation of Python cannot be stopped from inside the process."""
    pool = make()
    jobs = [("echo", "a"), ("tower",), ("echo", "b"), ("tower",), *[("echo", str(n)) for n in range(20)]]
    outcomes = pool.run(jobs)
    assert [outcome.failure for outcome in outcomes[:4]] == [None, Failure.PROCESSOR_TIME, None, Failure.PROCESSOR_TIME]
    assert [outcome.text for outcome in outcomes[4:]] == [str(n) for n in range(20)]
    assert echoes(pool) == [str(n) for n in range(8)]


def test_many_jobs_may_together_take_longer_than_one_is_allowed(make: Make):
    # 5 jobs of 0.5 s on one worker that allows 1 s a job: 2.5 s of processor time.
    outcomes = make(workers=1).run([("work", "0.5")] * 5)
    assert [outcome.failure for outcome in outcomes] == [None] * 5


def test_memory_has_a_limit(make: Make):
    pool = make()
    assert pool.run([("eat",), ("echo", "x")]) == [Outcome("", Failure.MEMORY), Outcome("x")]
    assert echoes(pool) == [str(n) for n in range(8)]


@pytest.mark.parametrize("what", ["stop", "die"])
def test_a_job_whose_worker_is_lost_once_is_tried_again_alone(make: Make, tmp_path: Path, what: str):
    """K40, K78: the worker may have been killed, or slept, for reasons that are not the job's."""
    pool = make(wall_seconds=1.5)
    jobs = [("echo", "a"), (what, str(tmp_path / "marker")), *[("echo", str(n)) for n in range(20)]]
    assert [outcome.text for outcome in pool.run(jobs)] == ["a", "done", *[str(n) for n in range(20)]]


@pytest.mark.parametrize(("what", "failure"), [("stop", Failure.WALL_TIME), ("die", Failure.DIED)])
def test_a_job_whose_worker_is_lost_twice_fails_and_the_pool_lives(make: Make, what: str, failure: Failure):
    """K71: lost workers are replaced."""
    pool = make(wall_seconds=1.0)
    assert [outcome.failure for outcome in pool.run([(what,), ("echo", "x")])] == [failure, None]
    assert echoes(pool) == [str(n) for n in range(8)]


def test_workers_killed_between_and_during_batches_are_replaced(make: Make):
    """K40: kill one of two workers while it checks; the batch still returns."""
    pool = make()
    echoes(pool)
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert echoes(pool) == [str(n) for n in range(8)]
    killer = threading.Timer(0.3, lambda: os.kill(pool.pids[0], signal.SIGKILL))
    killer.start()
    assert [outcome.text for outcome in pool.run([("work", "0.2")] * 8)] == ["done"] * 8
    killer.join()


def test_threads_take_turns(make: Make):
    """K32: from any thread the same."""
    pool, found = make(), {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: echoes(pool, n)})) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [str(k) for k in range(n)] for n in range(1, 9)}


def test_close_ends_the_workers_and_the_next_batch_starts_new_ones(make: Make):
    pool = make()
    echoes(pool)
    old = pool.pids
    pool.close()
    assert not any(map(alive, old))
    assert echoes(pool, 1) == ["0"]


def test_a_pool_that_is_forgotten_leaves_no_process_behind():
    pool = WorkerPool(module="tests.rewards.odd_worker", workers=1, cpu_seconds=1, wall_seconds=30.0, memory_mb=1024)
    echoes(pool)
    pids = pool.pids
    del pool
    assert not any(map(alive, pids))


def test_workers_end_with_the_interpreter_and_need_no_main_guard(tmp_path: Path):
    """K40: started afresh, a worker does not import the script that started it."""
    script = tmp_path / "script.py"
    script.write_text(
        "from sage.rewards.pool import WorkerPool\n"
        "pool = WorkerPool(module='tests.rewards.odd_worker', workers=1, cpu_seconds=1, wall_seconds=30.0, memory_mb=1024)\n"
        "print(pool.run([('pid',)])[0].text)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=True)
    assert not alive(int(done.stdout))


def test_workers_ignore_an_interrupt_from_the_keyboard(make: Make):
    pool = make()
    echoes(pool)
    before = pool.pids
    for pid in before:
        os.kill(pid, signal.SIGINT)
    time.sleep(0.2)
    assert echoes(pool) == [str(n) for n in range(8)]
    assert {*before} <= {*pool.pids}  # one more may have been started meanwhile


def test_a_worker_that_cannot_start_is_an_error_with_its_last_words(make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ODD_WORKER_FAILS", "1")
    with pytest.raises(RuntimeError, match=r"3 worker processes in a row did not start.*no such luck"):
        make().run([("echo", "x")])
    monkeypatch.delenv("ODD_WORKER_FAILS")
    assert echoes(make(), 1) == ["0"]


def test_ordinary_jobs_succeed_while_all_cores_are_busy(make: Make):
    """K78: the limit counts a job's own processor time, so that others' work takes nothing from it."""
    # Each of 2 jobs needs 0.7 s of the 1 s that it is allowed; beside 2 spinners a core that is over 1 s by the clock.
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        start = time.monotonic()
        outcomes = make().run([("work", "0.7")] * 2)
        assert time.monotonic() - start > 1.0
        assert [outcome.failure for outcome in outcomes] == [None] * 2
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
