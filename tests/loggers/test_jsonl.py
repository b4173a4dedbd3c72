import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.loggers.jsonl import JsonlLogger, read_metrics


def test_each_call_is_one_flushed_line_and_a_step_reads_back_merged(tmp_path):
    path = tmp_path / "metrics.jsonl"
    logger = JsonlLogger(path)
    logger.log(0, {"train/reward": 0.25, "train/kl": 1})
    logger.log_curve(0, "eval/countdown", {4: 0.5, 1: 0.25})

    # Read before close: a killed run keeps what it logged.
    lines = path.read_text().splitlines()
    assert lines[0] == '{"step": 0, "train/reward": 0.25, "train/kl": 1.0}'
    assert lines[1] == '{"step": 0, "eval/countdown/pass@1": 0.25, "eval/countdown/pass@4": 0.5}'
    logger.close()
    assert read_metrics(path) == [
        {"step": 0, "train/reward": 0.25, "train/kl": 1.0, "eval/countdown/pass@1": 0.25, "eval/countdown/pass@4": 0.5}
    ]


def test_an_evaluation_of_an_earlier_step_is_kept_at_its_step(tmp_path):
    """K61: train steps 1..10, the evaluation of step 5 logged after step 7."""
    path = tmp_path / "metrics.jsonl"
    logger = JsonlLogger(path)
    for step in range(1, 11):
        logger.log(step, {"train/reward": float(step)})
        if step == 7:
            logger.log(5, {"eval/pass@1": 0.3})
    logger.close()
    metrics = read_metrics(path)
    assert [line["step"] for line in metrics] == list(range(1, 11))
    assert metrics[4] == {"step": 5, "train/reward": 5.0, "eval/pass@1": 0.3}


@settings(max_examples=30, deadline=None)
@given(value=st.floats(width=64, allow_nan=True, allow_infinity=True))
def test_every_float_is_valid_json_and_reads_back_to_the_last_bit(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    logger = JsonlLogger(path)
    logger.log(1, {"a/b": value})
    logger.close()

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(path.read_text(), parse_constant=refuse)
    read = read_metrics(path)[0]["a/b"]
    assert (
        math.isnan(read) if math.isnan(value) else read == value and math.copysign(1, read) == math.copysign(1, value)
    )


def test_a_killed_run_leaves_a_torn_line_that_neither_reading_nor_resuming_trips_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a/b": 1.0}\n{"step": 1, "a/b": 2.0}\n{"step": 2, "a/')
    assert [line["step"] for line in read_metrics(path)] == [0, 1]
    # Resumed from the checkpoint of step 0: step 1 is written again, and the later value counts.
    logger = JsonlLogger(path)
    logger.log(1, {"a/b": 3.0})
    logger.close()
    assert read_metrics(path) == [{"step": 0, "a/b": 1.0}, {"step": 1, "a/b": 3.0}]


@pytest.mark.parametrize("line", ["{", "[]", '{"a/b": 1.0}', '{"step": 1, "a/b": "much"}'])
def test_a_broken_line_is_named_with_its_number(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a/b": 1.0}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: expected"):
        read_metrics(path)


def test_a_metric_may_not_take_the_name_of_the_x_axis(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="train/step"):
        logger.log(0, {"step": 1.0})
    logger.close()
