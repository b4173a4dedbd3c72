"""Whose answers count as one in a majority vote."""

from collections.abc import Sequence

import pytest
import yaml

from sage.config import conf_dir
from sage.evaluation.curves import make_curve
from sage.evaluation.votes import Votes, count_votes
from sage.interfaces import Reward
from sage.rewards.math import MathReward
from sage.training.collect import grade
from sage.types import Completion, Group, Problem, Sampling, Split, StopReason, Verdict, VerdictReason


def answered(gold: str, texts: Sequence[str]) -> Group:
    completions = [
        Completion(token_ids=(1,), sampler_logprobs=(), text=text, stop_reason=StopReason.END) for text in texts
    ]
    problem = Problem(id="p", prompt="", answer=gold)
    return Group(problem=problem, prompt_ids=(1,), completions=tuple(completions))


@pytest.fixture(scope="module")
def math() -> Reward:
    values = yaml.safe_load((conf_dir() / "reward" / "math.yaml").read_text())
    reward = MathReward(**{name: value for name, value in values.items() if name != "_target_"})
    yield reward
    reward.close()


def boxed(*answers: str) -> list[str]:
    return [f"So it is \\boxed{{{answer}}}." for answer in answers]


def test_votes_are_grouped_by_the_verifiers_equality(math: Reward, sampling: Sampling) -> None:
    """K75: the majority of 1/2, 0.5, 0.50 and 3 is one half, with three votes."""
    texts = boxed("1/2", "0.5", "0.50", "3")
    for gold, expected, accuracy in (("0.5", Votes(right=3, wrong=(1,)), 1.0), ("3", Votes(right=1, wrong=(3,)), 0.0)):
        groups = grade([answered(gold, texts)], math)
        votes = count_votes(groups, math)
        assert votes == [expected]
        known = {"benchmark": "b", "split": Split.TEST, "seed": 0, "n": 4, "sampling": sampling, "votes": votes}
        curve = make_curve(groups, confidence=0.9, bootstrap_samples=10, **known)
        assert curve.maj_at_k is not None
        assert curve.maj_at_k[4].value == accuracy
        assert curve.maj_at_k[1].value == pytest.approx(curve.pass_at_k[1].value)


def test_answers_that_cannot_be_read_have_no_vote(math: Reward) -> None:
    groups = grade([answered("7", [*boxed("7", "8", "8.0"), "I do not know"])], math)
    assert groups[0].verdicts[3].reason is VerdictReason.NO_ANSWER
    assert count_votes(groups, math) == [Votes(right=1, wrong=(2,))]


def test_where_nobody_is_right_nothing_is_compared() -> None:
    class Counts(Reward):
        asked = 0

        def score(self, problem: Problem, completion: Completion) -> Verdict:
            right = completion.text == problem.answer
            reason = VerdictReason.CORRECT if right else VerdictReason.WRONG
            return Verdict(reward=float(right), reason=reason, answer=completion.text)

        def group(self, answers: Sequence[str]) -> list[int]:
            self.asked += 1
            return super().group(answers)

    reward = Counts()
    lost, won = (grade([answered(gold, ["a", "b", "b"])], reward)[0] for gold in ("x", "a"))
    assert count_votes([lost, won], reward) == [Votes(right=0, wrong=()), Votes(right=1, wrong=(2,))]
    assert reward.asked == 1


def test_a_reward_that_reads_no_answer_has_no_votes(groups_of, reward) -> None:
    assert count_votes(groups_of({"a": "RW"}), reward) is None
