"""The bank's file: one and the same however often its drawing was interrupted, and found again by what goes into it."""

import time
from dataclasses import replace
from threading import Thread

import pytest

from sage.interfaces import Reward
from sage.training.bank import BankSource, bank_key, cached_bank
from sage.types import BankSettings, Problem, Verdict, VerdictReason
from tests.fakes import SAMPLING, SilentProgress, completion, small_bank

PROBLEMS = [Problem(id=f"p{i}", prompt="x" * (i + 1), answer="") for i in range(7)]


class KeyedEngine:
    """Responses that are functions of their streams; fails after so many problems, as if it were killed."""

    def __init__(self, fails_after=None, seconds=0.0):
        self.left = fails_after
        self.seconds = seconds
        self.problems = 0

    def load_weights(self, policy):
        """Nothing to load."""

    def generate(self, requests, sampling):
        time.sleep(self.seconds)
        drawn = []
        for request in requests:
            if self.left is not None and self.problems == self.left:
                raise KeyboardInterrupt
            self.problems += 1
            drawn.append([completion((k % 5, k % 3), text=f"é\udc80 {k % 5} {k % 3}") for k in request.keys])
        return drawn


class PaysZero(Reward):
    """Right when the first token is 0; the second token tells solutions apart."""

    def score(self, problem, completion):
        good = completion.token_ids[0] == 0
        reason = VerdictReason.CORRECT if good else VerdictReason.WRONG
        return Verdict(reward=float(good), reason=reason, solution=str(completion.token_ids[1]) if good else None)


def source(engine=None, **changes):
    settings = BankSettings(samples=4, draws=2, seed=0)
    values = {
        "engine": engine or KeyedEngine(),
        "encode_prompt": lambda text: (len(text),),
        "reward": PaysZero(),
        "problems": PROBLEMS,
        "sampling": SAMPLING,
        "settings": settings,
        "batch_size": 8,
    }
    return BankSource(**values | changes)


def undisturbed(tmp_path):
    cached_bank(tmp_path / "whole", source(), SilentProgress())
    return (tmp_path / "whole" / "bank.jsonl").read_bytes()


@pytest.mark.parametrize("kills", [(0,), (2,), (3, 1), (1, 1, 1, 3)])
@pytest.mark.parametrize("batch_size", [1, 8, 100])
def test_an_interrupted_bank_goes_on_where_it_stopped_and_is_the_same_file(tmp_path, kills, batch_size):
    """Killed by the engine after so many problems, each time; chunks that were complete are not drawn again."""
    folder = tmp_path / "bank"
    at_once = max(1, batch_size // 4)
    complete = 0
    for kill in kills:
        with pytest.raises(KeyboardInterrupt):
            cached_bank(folder, source(KeyedEngine(kill), batch_size=batch_size), SilentProgress())
        complete += kill // at_once * at_once
        assert not (folder / "bank.jsonl").exists(), "an unfinished bank is never taken for a finished one"
    engine, progress = KeyedEngine(), SilentProgress()
    cached_bank(folder, source(engine, batch_size=batch_size), progress)
    assert engine.problems == len(PROBLEMS) - complete
    assert progress.stages["bank"].done == 28
    assert (folder / "bank.jsonl").read_bytes() == undisturbed(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 25, -1])
def test_a_line_that_was_cut_in_the_middle_is_drawn_again(tmp_path, kept):
    whole = undisturbed(tmp_path)
    lines = whole.splitlines(keepends=True)
    folder = tmp_path / "bank"
    folder.mkdir()
    (folder / "bank.jsonl.partial").write_bytes(b"".join(lines[:3]) + lines[3][:kept])
    engine = KeyedEngine()
    cached_bank(folder, source(engine), SilentProgress())
    assert engine.problems == 4
    assert (folder / "bank.jsonl").read_bytes() == whole


def test_a_finished_bank_is_read_and_nothing_is_drawn(tmp_path):
    drawn = cached_bank(tmp_path, source(), SilentProgress())
    progress = SilentProgress()
    again = cached_bank(tmp_path, source(KeyedEngine(fails_after=0)), progress)
    assert again == drawn
    assert progress.stages == {}
    first = again.groups["p0"]
    assert first.prompt_ids == (1,)
    assert first.completions[0].text.startswith("é\udc80 ")
    assert all((v.credit == 1) == (c.token_ids[0] == 0) for c, v in zip(first.completions, first.verdicts, strict=True))


def test_runs_that_want_one_bank_at_the_same_time_draw_it_once(tmp_path):
    engines = [KeyedEngine(seconds=0.02) for _ in range(4)]
    threads = [Thread(target=cached_bank, args=(tmp_path, source(e), SilentProgress())) for e in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(engine.problems for engine in engines) == [0, 0, 0, 7]


def test_a_file_of_other_problems_is_refused(tmp_path):
    cached_bank(tmp_path, source(), SilentProgress())
    other = [replace(problem, id=f"other-{problem.id}") for problem in PROBLEMS]
    with pytest.raises(ValueError, match="the bank has problem p0 where other-p0 belongs"):
        cached_bank(tmp_path, source(problems=other), SilentProgress())


def test_the_key_changes_with_everything_that_goes_into_a_bank_and_with_nothing_else(tmp_path):
    base, other = tmp_path / "base", tmp_path / "other"
    for folder, weights in ((base, b"weights"), (other, b"weightt")):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(weights)
    inputs = {"benchmark": "b", "reward": "r", "engine": "e"}
    settings = BankSettings(samples=4, draws=2, seed=0)
    key = bank_key(source(), base, inputs)
    changed = [
        bank_key(source(), other, inputs),
        *(bank_key(source(), base, inputs | {name: "changed"}) for name in inputs),
        *(bank_key(source(settings=replace(settings, **c)), base, inputs) for c in ({"samples": 5}, {"seed": 1})),
        *(
            bank_key(source(sampling=replace(SAMPLING, **{name: value})), base, inputs)
            for name, value in {"temperature": 0.9, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "max_tokens": 25}.items()
        ),
        bank_key(source(problems=PROBLEMS[:-1]), base, inputs),
        bank_key(source(problems=[*PROBLEMS[:-1], replace(PROBLEMS[-1], answer="changed")]), base, inputs),
    ]
    assert len({key, *changed}) == 1 + len(changed)
    same = source(batch_size=1, settings=replace(settings, draws=9), engine=KeyedEngine(fails_after=0))
    assert bank_key(same, base, dict(reversed(inputs.items()))) == key
    (other / "model.safetensors").write_bytes(b"weights")
    assert bank_key(source(), other, inputs) == key, "the place does not count, the bytes do"


def test_an_edited_reward_does_not_find_the_bank_of_the_old_one(tmp_path, monkeypatch):
    code = tmp_path / "rewards" / "mine.py"
    code.parent.mkdir()
    monkeypatch.setattr("inspect.getfile", lambda owner: str(code))
    keys = []
    for text in ("paid = 1", "paid = 2"):
        code.write_text(text)
        keys.append(bank_key(source(), tmp_path, {}))
    assert keys[0] != keys[1]


def test_the_metrics_of_a_bank_by_hand():
    """Pass rates 3/6, 1/4 (the abstained sample counts as wrong) and 0: mean 1/4. Solutions {a, b}, {c} and none: mean 1."""
    metrics = small_bank().metrics()
    assert metrics["bank/pass_rate"] == pytest.approx(0.25)
    assert metrics["bank/solved_problems"] == pytest.approx(2 / 3)
    assert metrics["bank/distinct_correct"] == pytest.approx(1.0)
    assert metrics["bank/samples"] == 12
    # 3 + 3 + 2 + 3 * 2 = 14, 4 + 3 * 2 = 10, 2 * 2 = 4
    assert metrics["bank/tokens"] == 28
