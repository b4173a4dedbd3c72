"""Rollouts carry their streams; a reward that raises costs one completion, not the run."""

import logging

from sage.maths.streams import stream_key
from sage.training.collect import grade, rollouts
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


class RaisesForTheThird:
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
