"""Real benchmark rows, which are not part of the project: tests that want them are skipped where they are absent."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("SAGE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def data_file(name: str) -> Path:
    """The path of a file of benchmark rows; skips the test where there is none."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{path} is absent; set SAGE_DATA to a folder with the benchmark files")
    return path


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; skips the test where it is absent."""
    return [json.loads(line) for line in data_file(name).read_text(encoding="utf-8").splitlines()]
