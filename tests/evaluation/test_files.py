"""Files are complete or absent, and hold any text."""

import json
from pathlib import Path

import pytest

from sage.evaluation.files import read_jsonl, write_json, write_jsonl


@pytest.mark.parametrize("text", ["a\nb\r\u2028c", 'quote " back \\ slash', "π ≠ 素", "lone \udc80 surrogate", "\x00"])
def test_any_text_survives_a_jsonl_file(tmp_path: Path, text: str) -> None:
    rows = [{"text": text, "i": i} for i in range(2)]
    write_jsonl(tmp_path / "new" / "rows.jsonl", rows)
    assert read_jsonl(tmp_path / "new" / "rows.jsonl") == rows


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_jsonl(path, [{"x": 2}, {"x": object()}])
    assert json.loads(path.read_text()) == {"x": 1}


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("line", ["{", "[1]"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x": 1}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2"):
        read_jsonl(path)
