import logging
from collections.abc import Mapping

import pytest

from sage.loggers.base import RunInfo
from sage.loggers.jsonl import JsonlLogger, read_metrics
from sage.loggers.multi import MultiLogger
from sage.loggers.none import NoLogger


class FragileTracker:
    """Fails where told to, and remembers how it was closed."""

    def __init__(self, failing: bool = False, start_fails: bool = False) -> None:
        self.failing, self.start_fails = failing, start_fails
        self.steps: list[int] = []
        self.closed: list[bool] = []

    def start(self, info: RunInfo) -> str | None:
        if self.start_fails:
            raise RuntimeError("no account")
        return "id-1"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.failing:
            raise ConnectionError("the network is away")
        self.steps.append(step)

    def log_curve(self, step: int, name: str, curve: Mapping[int, float]) -> None:
        self.log(step, {})

    def close(self, *, failed: bool = False) -> None:
        self.closed.append(failed)


def test_both_sinks_get_everything_and_are_closed_once(tmp_path, make_info):
    tracker, path = FragileTracker(), tmp_path / "metrics.jsonl"
    with MultiLogger(JsonlLogger(path), tracker) as logger:
        assert logger.start(make_info()) == "id-1"
        logger.log(1, {"a/b": 1.0})
        logger.log_curve(2, "eval/x", {1: 0.5})
    assert tracker.steps == [1, 2]
    assert [line["step"] for line in read_metrics(path)] == [1, 2]
    assert tracker.closed == [False]


def test_a_tracker_that_fails_while_logging_costs_one_warning_and_no_metric(tmp_path, make_info, caplog):
    path = tmp_path / "metrics.jsonl"
    logger = MultiLogger(JsonlLogger(path), FragileTracker(failing=True))
    logger.start(make_info())
    with caplog.at_level(logging.WARNING):
        for step in range(5):
            logger.log(step, {"a/b": 1.0})
        assert len(caplog.records) == 1
        assert "the network is away" in caplog.text
        logger.close()
    assert logger.lost == 5
    assert "refused 5 calls" in caplog.text
    assert len(read_metrics(path)) == 5


def test_a_tracker_that_cannot_start_ends_the_run_and_is_not_closed(tmp_path, make_info):
    tracker = FragileTracker(start_fails=True)
    with (
        pytest.raises(RuntimeError, match="no account"),
        MultiLogger(JsonlLogger(tmp_path / "m.jsonl"), tracker) as logger,
    ):
        logger.start(make_info())
    assert tracker.closed == []


def test_an_exception_in_the_run_closes_the_tracker_as_failed(tmp_path, make_info):
    """K60: also after an error the tracking run ends."""
    tracker = FragileTracker()

    def interrupted() -> None:
        with MultiLogger(JsonlLogger(tmp_path / "m.jsonl"), tracker) as logger:
            logger.start(make_info())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert tracker.closed == [True]


def test_a_full_disk_is_an_error_yet_the_tracker_is_closed(tmp_path, make_info):
    class FullDisk(FragileTracker):
        def close(self, *, failed: bool = False) -> None:
            raise OSError("no space left on device")

    tracker = FragileTracker()
    logger = MultiLogger(FullDisk(failing=True), tracker)
    logger.start(make_info())
    with pytest.raises(ConnectionError):
        logger.log(0, {"a/b": 1.0})
    with pytest.raises(OSError, match="no space left"):
        logger.close(failed=True)
    assert tracker.closed == [True]


def test_without_tracking_the_metrics_file_is_all_there_is(tmp_path, make_info):
    info = make_info()
    with MultiLogger(JsonlLogger(info.folder / "metrics.jsonl"), NoLogger()) as logger:
        assert logger.start(info) is None
        logger.log(0, {"a/b": 1.0})
        logger.log_curve(0, "eval/x", {1: 0.5})
    assert [path.name for path in info.folder.iterdir()] == ["metrics.jsonl"]
    assert read_metrics(info.folder / "metrics.jsonl") == [{"step": 0, "a/b": 1.0, "eval/x/pass@1": 0.5}]
