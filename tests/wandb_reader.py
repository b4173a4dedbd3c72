"""Reads offline W&B runs back: wandb has no public reader of its own files."""

import json
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class OfflineRun:
    """What an offline W&B file holds."""

    run_id: str = ""
    name: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    step_metrics: dict[str, str] = field(default_factory=dict)
    exit_code: int | None = None


def _messages(content: bytes) -> Iterator[bytes]:
    """The payloads of a W&B file: the LevelDB log format after a header of 7 bytes.

    Blocks of 32 KiB hold chunks ``crc32, length, kind``; kind 1 is a whole payload; 2, 3 and 4 are its first, middle
    and last part.
    """
    block, position, parts = 32 * 1024, 7, b""
    while position + 7 <= len(content):
        if block - position % block < 7:  # no chunk header fits: the rest of the block is padding
            position += block - position % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        if kind == 0:
            position += block - position % block
            continue
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if position > len(content):
            return
        if kind in (1, 4):
            yield parts
            parts = b""


def _history_line(items: Iterable[Any]) -> dict[str, Any]:
    line: dict[str, Any] = {}
    for item in items:
        first, *rest = item.nested_key or [item.key]
        value = json.loads(item.value_json)
        if rest:
            line.setdefault(first, {})[".".join(rest)] = value
        else:
            line[first] = value
    return line


def _read(path: Path) -> OfflineRun:
    from wandb.proto import wandb_internal_pb2

    result = OfflineRun()
    for message in _messages(path.read_bytes()):
        record: Any = wandb_internal_pb2.Record()  # pyright: ignore[reportAttributeAccessIssue]
        record.ParseFromString(message)
        match record.WhichOneof("record_type"):
            case "run":
                run = record.run
                result.run_id, result.name, result.group = run.run_id, run.display_name, run.run_group
                result.tags = list(run.tags)
                result.config = {i.key: json.loads(i.value_json) for i in run.config.update if i.key != "_wandb"}
            case "history":
                result.history.append(_history_line(record.history.item))
            case "metric":
                metric = record.metric
                result.step_metrics[metric.glob_name or metric.name] = metric.step_metric
            case "exit":
                result.exit_code = record.exit.exit_code
            case _:
                pass
    return result


def offline_runs(folder: Path) -> list[OfflineRun]:
    """All ended offline W&B runs below a folder."""
    # Ending a run returns some milliseconds before W&B's own process has written the last record.
    deadline = time.monotonic() + 10
    while True:
        runs = [_read(path) for path in sorted(folder.glob("**/wandb/offline-run-*/run-*.wandb"))]
        if all(run.exit_code is not None for run in runs):
            return runs
        assert time.monotonic() < deadline, "an offline W&B run has no end"
        time.sleep(0.01)
