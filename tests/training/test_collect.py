"""Rollouts carry their streams; a reward that raises costs one completion, not the run."""

import logging

import pytest

from sage.interfaces import Reward
from sage.maths.streams import stream_key
from sage.training.collect import collect, grade, rollouts
from sage.types import Problem, Verdict, VerdictReason
from tests.fakes import SAMPLING, completion, group


class Recorder:
    def __init__(self):
        self.requests = []

    def load_weights(self, policy):
        """Nothing to load."""

    def generate(self, requests, sampling):
        self.requests += requests
        return [[completion((1,)) for _ in r.keys] for r in requests]


def test_each_completion_has_a_stream_of_its_own_named_by_problem_and_number():
    engine = Recorder()
    problems = [Problem(id="a", prompt="x", answer=""), Problem(id="b", prompt="yy", answer="")]
    groups = rollouts(engine, lambda text: (len(text),), problems, SAMPLING, 3, (7, "rollout", 0))
    assert [g.problem.id for g in groups] == ["a", "b"]
    assert [g.prompt_ids for g in groups] == [(1,), (2,)]
    keys = [k for r in engine.requests for k in r.keys]
    assert len(set(keys)) == 6
    assert keys[4] == stream_key(7, "rollout", 0, "b", 1)


class RaisesForTheThird(Reward):
    def __init__(self):
        self.calls = 0

    def score(self, problem, completion):
        self.calls += 1
        if self.calls == 3:
            raise ZeroDivisionError("bad text")
        return Verdict(reward=1.0, reason=VerdictReason.CORRECT)


def test_a_raising_reward_drops_one_completion_and_leaves_a_trace(caplog):
    """K39: the others keep their verdicts, the reason is not "wrong", the log names problem, text and error."""
    with caplog.at_level(logging.ERROR):
        (graded,) = grade([group("the-problem", (1,), [(5,)] * 4)], RaisesForTheThird())
    assert [v.reward for v in graded.verdicts] == [1, 1, None, 1]
    assert graded.verdicts[2].reason is VerdictReason.ERROR
    assert "the-problem" in caplog.text
    assert "ZeroDivisionError: bad text" in caplog.text


class Keeps:
    """An algorithm that keeps groups whose first reward is positive."""

    def __init__(self, refills):
        self.max_refills = refills

    def keep(self, group):
        return group.verdicts[0].reward > 0


def _collect(good, refills, count=3, total=9):
    problems = [Problem(id=str(i), prompt="", answer="") for i in range(total)]
    asked = []

    def attempt(chosen):
        asked.append([p.id for p in chosen])
        return [group(p.id, (1,), [(5,)], [1 if p.id in good else 0]) for p in chosen]

    return collect(attempt, problems[:count], problems, Keeps(refills), 0, 0), asked


def test_refused_groups_are_replaced_by_groups_of_fresh_problems():
    collected, asked = _collect(good={"0", "3", "4", "5", "6", "7", "8"}, refills=1)
    assert collected.groups[0].problem.id == "0"
    assert all(g.verdicts[0].reward > 0 for g in collected.groups)
    assert len(collected.groups) == 3
    assert sorted(g.problem.id for g in collected.discarded) == ["1", "2"]
    assert [len(ids) for ids in asked] == [3, 2]
    assert len({i for ids in asked for i in ids}) == 5


def test_refills_are_bounded_and_refused_groups_then_fill_the_batch():
    collected, asked = _collect(good=set(), refills=2)
    assert collected.refills == 2
    assert [len(ids) for ids in asked] == [3, 3, 3]
    assert [g.problem.id for g in collected.groups] == ["0", "1", "2"]
    assert len(collected.discarded) == 6


def test_refills_end_when_no_problem_is_left():
    collected, asked = _collect(good=set(), refills=100)
    assert sorted(i for ids in asked for i in ids) == sorted(map(str, range(9)))
    assert collected.refills == 2


def test_without_dynamic_sampling_nothing_is_drawn_twice():
    collected, asked = _collect(good=set(), refills=0)
    assert len(asked) == 1
    assert (collected.refills, collected.discarded, len(collected.groups)) == (0, [], 3)


class PaysANumber(Reward):
    def score(self, problem, completion):
        return 1.0


def test_a_reward_that_gives_no_verdict_is_named():
    with pytest.raises(TypeError, match=r"PaysANumber\.score gave float: expected a sage\.types\.Verdict"):
        grade([group("p", (1,), [(5,)])], PaysANumber())
