"""The embedded benchmark: what it holds, that it never changes unseen, and what it refuses."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.benchmarks.countdown import CountdownBenchmark
from sage.types import Problem, Split

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "conf" / "benchmark" / "countdown.yaml"
SIZES = {Split.TEST: 182, Split.VALIDATION: 91, Split.TRAIN: 273}
DIGESTS = {
    Split.TEST: "07267bdbd754e263",
    Split.VALIDATION: "9069f9ce7e68085e",
    Split.TRAIN: "aa59fd69f0209599",
}
DEMONSTRATIONS_DIGEST = "57778618e873221b"


def build(**changes) -> CountdownBenchmark:
    return instantiate(OmegaConf.merge(OmegaConf.load(CONFIG), changes))


@pytest.fixture(scope="module")
def benchmark() -> CountdownBenchmark:
    return build()


def digest(rows) -> str:
    return hashlib.sha256("\n".join(json.dumps(row) for row in rows).encode()).hexdigest()[:16]


def problem_rows(problems):
    return [[p.id, p.prompt, p.answer, dict(p.columns)] for p in problems]


def multiset(problem: Problem) -> tuple[int, ...]:
    return tuple(sorted(problem.columns["numbers"]))


@pytest.mark.parametrize("split", list(Split))
def test_a_split_is_the_committed_one(benchmark: CountdownBenchmark, split: Split):
    # A new digest is a new benchmark: results before and after do not compare.
    assert digest(problem_rows(benchmark.problems(split))) == DIGESTS[split]


def test_the_demonstrations_are_the_committed_ones(benchmark: CountdownBenchmark):
    rows = ([d.prompt, d.completion] for d in benchmark.demonstrations())
    assert digest(rows) == DEMONSTRATIONS_DIGEST


def test_problems_do_not_depend_on_the_hash_seed_of_the_process(benchmark: CountdownBenchmark):
    script = (
        "import sys, yaml; from sage.benchmarks.countdown import CountdownBenchmark; from sage.types import Split;"
        "config = yaml.safe_load(open(sys.argv[1])); config.pop('_target_');"
        "print([p.prompt for p in CountdownBenchmark(**config).problems(Split.TEST)])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(CONFIG)],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str([p.prompt for p in benchmark.problems(Split.TEST)])


@pytest.mark.parametrize(("split", "size"), SIZES.items())
def test_every_split_has_its_size_unique_ids_and_half_its_problems_additive(benchmark, split: Split, size: int):
    problems = benchmark.problems(split)
    assert [p.id for p in problems] == [f"countdown/{split}/{i:04d}" for i in range(size)]
    # 0.5 * 91 = 45.5 and 0.5 * 273 = 136.5: the odd one is "other".
    assert Counter(p.columns["family"] for p in problems) == {"additive": size // 2, "other": size - size // 2}
    # Beginnings are fair too: eval.max_problems takes one.
    assert Counter(p.columns["family"] for p in problems[:20]) == {"additive": 10, "other": 10}


def test_splits_and_demonstrations_share_no_multiset(benchmark: CountdownBenchmark):
    multisets = [multiset(p) for split in Split for p in benchmark.problems(split)]
    assert len(set(multisets)) == len(multisets) == sum(SIZES.values())
    shown = {tuple(sorted(map(int, d.prompt.split()[:4]))) for d in benchmark.demonstrations()}
    # 1,820 multisets - 546 = 1,274 for SFT, of which (1, 1, 1, 1) reaches no target from 5 on.
    assert len(shown) == 1_273
    assert shown.isdisjoint(multisets)


def test_demonstrations_have_the_stated_number_and_skew(benchmark: CountdownBenchmark):
    demonstrations = benchmark.demonstrations()
    # 200 for each of 1,273 multisets; 85 % of each 200 are additive.
    assert len(demonstrations) == 254_600
    assert sum(not set(d.completion) & set("*/") for d in demonstrations) == 216_410


def test_demonstrations_are_in_normal_form_and_end_in_the_target_of_their_prompt(benchmark: CountdownBenchmark):
    for demonstration in benchmark.demonstrations()[::50]:
        *_, target, colon = demonstration.prompt.split()
        tokens = demonstration.completion.split()
        assert (len(demonstration.prompt.split()), colon, len(tokens), tokens[16]) == (6, ":", 18, target)
        for start in (0, 6, 12):
            left, operator, right, _, result, _ = tokens[start : start + 6]
            a, b, r = int(left), int(right), int(result)
            assert a >= b
            assert 1 <= r <= 60
            assert {"+": a + b == r, "-": a - b == r, "*": a * b == r, "/": b * r == a}[operator]
        assert int(target) >= 5


def test_prompts_state_the_columns_and_fit_the_stated_lengths(benchmark: CountdownBenchmark):
    for split in Split:
        for problem in benchmark.problems(split):
            numbers, target = problem.columns["numbers"], problem.columns["target"]
            assert problem.prompt == f"{' '.join(map(str, numbers))} {target} :"
            assert len(problem.prompt.split()) <= benchmark.max_prompt_tokens
            assert len(problem.answer.split()) + 1 <= benchmark.max_completion_tokens
            assert 5 <= target <= 60


def test_numbers_are_shuffled_in_the_prompt(benchmark: CountdownBenchmark):
    # 1 of 24 orders of four different numbers is sorted: about 8 of 182, a few more for repeated numbers.
    in_order = [p for p in benchmark.problems(Split.TEST) if list(p.columns["numbers"]) == sorted(p.columns["numbers"])]
    assert len(in_order) < 40


def test_another_seed_gives_other_problems_and_resizing_a_later_split_does_not(benchmark: CountdownBenchmark):
    test = benchmark.problems(Split.TEST)
    assert {multiset(p) for p in build(seed=1).problems(Split.TEST)} != {multiset(p) for p in test}
    assert build(train_problems=10, validation_problems=5).problems(Split.TEST) == test


def test_three_numbers_work_as_well_as_four():
    small = build(count=3, test_problems=20, validation_problems=10, train_problems=40, max_prompt_tokens=5)
    assert [len(small.problems(split)) for split in Split] == [40, 10, 20]
    assert all(len(p.answer.split()) == 12 for p in small.problems(Split.TEST))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"count": 1}, r"benchmark\.count=1"),
        ({"max_result": 100}, "max_result=100"),
        ({"max_number": 0}, "max_number=0"),
        ({"min_target": 61}, r"min_target=61"),
        ({"train_problems": 1_547}, "1820 multisets"),
        ({"train_problems": -1}, "-1"),
        ({"max_prompt_tokens": 5}, "max_prompt_tokens=5: expected at least 6"),
        ({"max_completion_tokens": 18}, "max_completion_tokens=18: expected at least 19"),
        ({"additive_problems": 1.5}, r"additive_problems=1\.5"),
        ({"additive_demonstrations": -0.1}, r"additive_demonstrations=-0\.1"),
        ({"demonstrations_per_multiset": -1}, "demonstrations_per_multiset=-1"),
    ],
)
def test_impossible_options_are_refused_by_name(changes: dict, named: str):
    # Built without Hydra, which would wrap the error.
    config = {str(key): value for key, value in OmegaConf.load(CONFIG).items() if key != "_target_"}
    with pytest.raises(ValueError, match=named):
        CountdownBenchmark(**(config | changes))


def test_more_problems_than_usable_multisets_are_refused():
    # 1,819 of 1,820 may be asked for, but not all of the others reach a target of both families from 60 on.
    narrow = build(min_target=60, test_problems=1_000, validation_problems=0, train_problems=0)
    with pytest.raises(ValueError, match="multisets reach targets of both families"):
        narrow.problems(Split.TEST)


def test_the_fingerprint_names_what_the_demonstrations_depend_on(benchmark: CountdownBenchmark):
    same = {"name": "other", "max_prompt_tokens": 60, "max_completion_tokens": 60}
    assert replace(benchmark, **same).fingerprint() == benchmark.fingerprint()
    for changes in ({"seed": 1}, {"max_result": 61}, {"test_problems": 181}, {"additive_demonstrations": 0.5}):
        assert replace(benchmark, **changes).fingerprint() != benchmark.fingerprint()
