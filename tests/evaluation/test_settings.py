"""What an evaluation was made of, and the refusal to mix it with others."""

import json
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from sage.config import ConfigError
from sage.evaluation.settings import claimed, differences, origin_of, settings_of
from sage.types import Problem, Sampling, Split

CONFIG = {
    "prompts": {"max_tokens": 9, "too_long": "error"},
    "benchmark": {"_target_": "b"},
    "reward": {"_target_": "r", "wall_seconds": float("inf")},
    "rollout": {"_target_": "e", "dtype": "float32", "memory_share": 0.4, "max_rows": 8},
    "model": {"name": "m", "chat_template": "plain"},
    "train": {"steps": 3},
}


@pytest.fixture
def made(problems: list[Problem], sampling: Sampling) -> dict[str, Any]:
    origin = origin_of(CONFIG, {"fingerprint": "f"})
    return settings_of(origin, problems, split=Split.TEST, sampling=sampling, seed=0, stats_n=2)


def test_everything_that_makes_the_samples_is_named(made: dict[str, Any]) -> None:
    assert made["model"] == {"name": "m", "chat_template": "plain", "fingerprint": "f"}
    assert made["rollout"] == {"_target_": "e", "dtype": "float32"}, "what changes memory and speed is left out"
    assert made["sampling"]["temperature"] == 0.7
    assert (made["seed"], made["stats_n"], made["problems"]["count"]) == (0, 2, 5)
    assert made["packages"]["torch"]
    assert "train" not in made
    assert json.loads(json.dumps(made, allow_nan=False)) == made


@pytest.mark.parametrize("change", ["id", "prompt", "answer", "columns", "order", "fewer"])
def test_other_problems_have_another_hash(
    made: dict[str, Any], problems: list[Problem], sampling: Sampling, change: str
) -> None:
    others = problems[:-1] if change == "fewer" else problems[::-1] if change == "order" else problems
    if change in ("id", "prompt", "answer", "columns"):
        value: Any = {"x": 1} if change == "columns" else "other"
        others = [replace(problems[0], **{change: value}), *problems[1:]]
    origin = origin_of(CONFIG, {"fingerprint": "f"})
    new = settings_of(origin, others, split=Split.TEST, sampling=sampling, seed=0, stats_n=2)
    assert new["problems"]["hash"] != made["problems"]["hash"]


def test_differences_name_key_and_both_values() -> None:
    there = {"seed": 0, "sampling": {"stop": ["a"], "top_p": 1.0}, "old": None}
    asked = {"seed": 1, "sampling": {"stop": ["b"], "top_p": 1.0}, "new": 2}
    assert differences(there, asked) == [
        "seed: 0 there, 1 asked",
        "sampling.stop: [a] there, [b] asked",
        "old: null there, nothing asked",
        "new: nothing there, 2 asked",
    ]
    assert differences(there, there) == []


def test_a_folder_of_other_settings_is_refused_and_left_alone(made: dict[str, Any], tmp_path: Path) -> None:
    with claimed(tmp_path / "new", made):
        pass
    before = (tmp_path / "new" / "settings.json").read_bytes()
    with claimed(tmp_path / "new", json.loads(json.dumps(made))):
        pass
    other = made | {"seed": 3, "sampling": made["sampling"] | {"temperature": 1.0}}
    refused = pytest.raises(ConfigError, match=r"temperature: 0\.7 there, 1\.0 asked; seed: 0 there, 3 asked")
    with refused as caught, claimed(tmp_path / "new", other):
        pytest.fail("claimed")
    assert "never mixed" in str(caught.value)
    assert (tmp_path / "new" / "settings.json").read_bytes() == before


def test_samples_of_unknown_settings_are_refused(made: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "samples.unsorted.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"results without settings\.json"), claimed(tmp_path, made):
        pass
    (tmp_path / "settings.json").write_text('{"seed": 0')
    with pytest.raises(ConfigError, match="is damaged"), claimed(tmp_path, made):
        pass


def _try(folder: Path, made: dict[str, Any], results: Any) -> None:
    try:
        with claimed(folder, made):
            results.put("claimed")
    except ConfigError as error:
        results.put(str(error))


def test_two_processes_do_not_share_a_folder(made: dict[str, Any], tmp_path: Path) -> None:
    context = get_context("fork")
    results = context.Queue()

    def elsewhere() -> str:
        process = context.Process(target=_try, args=(tmp_path, made, results))
        process.start()
        said = results.get(timeout=30)
        process.join()
        return said

    with claimed(tmp_path, made):
        assert "another process evaluates into it" in elsewhere()
    assert elsewhere() == "claimed"
