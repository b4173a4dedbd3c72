"""Weighted sums, their parts, and parts that abstain."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig

from sage.interfaces import Reward
from sage.rewards.weighted import WeightedReward
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason

PROBLEM = Problem(id="p", prompt="", answer="7")


def completion(text: str) -> Completion:
    return Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=StopReason.END)


@dataclass
class Fixed(Reward):
    """Pays what it is told; ``None`` abstains."""

    reward: float | None
    reason: VerdictReason = VerdictReason.WRONG
    parts: dict[str, float] = field(default_factory=dict)
    closed: bool = False

    def score(self, problem: Problem, completion: Completion) -> Verdict:
        if completion.text == "raise":
            raise ValueError("no")
        return Verdict(reward=self.reward, reason=self.reason, answer="a", solution="s", parts=self.parts)

    def close(self) -> None:
        self.closed = True


def weighted(abstaining: str = "drop", judge: str = "a", **parts: tuple[float, Fixed]) -> WeightedReward:
    return WeightedReward(
        parts={name: part for name, (_, part) in parts.items()},
        weights={name: weight for name, (weight, _) in parts.items()},
        judge=judge,
        abstaining=abstaining,
    )


def test_the_shipped_sum_pays_for_answer_and_form(composed: Callable[..., DictConfig]):
    reward = instantiate(composed("reward=weighted").reward, _convert_="all")
    right, formless = reward.score_all([(PROBLEM, completion(r"\boxed{7}")), (PROBLEM, completion("The answer is 7."))])
    # 1.0 * 1 + 0.1 * 1, and 1.0 * 1 + 0.1 * 0 for a right answer without a box.
    assert (right.reward, dict(right.parts)) == (pytest.approx(1.1), {"math": 1.0, "format": 1.0})
    assert (formless.reward, dict(formless.parts)) == (pytest.approx(1.0), {"math": 1.0, "format": 0.0})
    assert right.correct
    assert formless.correct
    reward.close()


def test_the_judge_says_whether_an_answer_is_right_whatever_is_paid():
    reward = weighted(judge="b", a=(1.0, Fixed(1.0, VerdictReason.CORRECT)), b=(0.0, Fixed(0.0, VerdictReason.WRONG)))
    verdict = reward.score(PROBLEM, completion(""))
    assert (verdict.reward, verdict.correct, verdict.answer, verdict.solution) == (1.0, False, "a", "s")


def test_parts_of_parts_are_logged_too():
    reward = weighted(a=(2.0, Fixed(0.5, parts={"gold": 1.0})), b=(-1.0, Fixed(0.25)))
    verdict = reward.score(PROBLEM, completion(""))
    # 2 * 0.5 - 1 * 0.25
    assert verdict.reward == pytest.approx(0.75)
    assert verdict.parts == {"a": 0.5, "a/gold": 1.0, "b": 0.25}


def test_a_part_that_abstains_drops_the_completion_or_is_left_out():
    parts = {"a": (1.0, Fixed(1.0)), "b": (3.0, Fixed(None)), "c": (1.0, Fixed(0.0))}
    dropped = weighted("drop", **parts).score(PROBLEM, completion(""))
    assert (dropped.reward, dropped.parts) == (None, {"a": 1.0, "c": 0.0})
    # a and c have 2 of the weights' sum of 5: (1 * 1 + 1 * 0) * 5 / 2
    assert weighted("skip", **parts).score(PROBLEM, completion("")).reward == pytest.approx(2.5)


@pytest.mark.parametrize("abstaining", ["drop", "skip"])
def test_a_part_without_weight_may_abstain_and_the_only_one_with_weight_may_not(abstaining: str):
    watched = weighted(abstaining, a=(1.0, Fixed(1.0)), b=(0.0, Fixed(None)))
    assert watched.score(PROBLEM, completion("")).reward == 1.0
    alone = weighted(abstaining, a=(1.0, Fixed(None)), b=(0.0, Fixed(1.0)))
    assert alone.score(PROBLEM, completion("")).reward is None


def test_a_part_that_raises_abstains_and_the_others_are_logged():
    """K39."""
    reward = weighted(a=(1.0, Fixed(1.0)), b=(1.0, Fixed(1.0)))
    good, bad = reward.score_all([(PROBLEM, completion("")), (PROBLEM, completion("raise"))])
    assert (good.reward, bad.reward, bad.reason) == (2.0, None, VerdictReason.ERROR)


def test_the_judge_alone_says_which_golds_can_be_used_and_which_answers_are_equal():
    """K34: a part that only looks at the form refuses no gold."""

    class Judge(Fixed):
        def check(self, problems):
            return ["no"] * len(problems)

        def group(self, answers):
            return [0] * len(answers)

    reward = weighted(judge="b", a=(1.0, Fixed(0.0)), b=(0.0, Judge(0.0)))
    assert reward.check([PROBLEM, PROBLEM]) == ["no", "no"]
    assert reward.group(["x", "y"]) == [0, 0]


def test_a_hacked_proxy_shows_as_the_gap_to_the_gold_and_pass_at_k_counts_the_gold(
    composed: Callable[..., DictConfig],
):
    """``reward=proxy_and_gold``: listing guesses is paid and is not right."""
    reward = instantiate(composed("reward=proxy_and_gold").reward, _convert_="all")
    texts = [r"So it is \boxed{7}.", r"1 2 3 4 5 6 7 8 9, so \boxed{3}", r"\boxed{3}"]
    verdicts = reward.score_all([(PROBLEM, completion(text)) for text in texts])
    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, 0.0]
    assert [verdict.correct for verdict in verdicts] == [True, False, False]
    assert [dict(verdict.parts) for verdict in verdicts[:2]] == [
        {"proxy": 1.0, "gold": 1.0},
        {"proxy": 1.0, "gold": 0.0},
    ]
    # (1 - 1 + 1 - 0 + 0 - 0) / 3 completions
    assert fmean(v.parts["proxy"] - v.parts["gold"] for v in verdicts) == pytest.approx(1 / 3)
    reward.close()


def test_proxy_and_gold_can_be_exchanged_on_the_command_line(composed: Callable[..., DictConfig]):
    chosen = ("reward@reward.parts.proxy=format", "reward@reward.parts.gold=last_number")
    reward = instantiate(composed("reward=proxy_and_gold", *chosen).reward, _convert_="all")
    verdict = reward.score(PROBLEM, completion("7 * 1 = 7."))
    assert (verdict.reward, verdict.correct, dict(verdict.parts)) == (0.0, True, {"proxy": 0.0, "gold": 1.0})


def test_close_reaches_every_part():
    parts = {"a": (1.0, Fixed(1.0)), "b": (1.0, Fixed(1.0))}
    weighted(**parts).close()
    assert [part.closed for _, part in parts.values()] == [True, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"weights": {"a": 1.0, "b": 1.0}},
            r"reward\.weights has \['a', 'b'\], reward\.parts \['a'\]: expected the same",
        ),
        ({"judge": "b"}, r"reward\.judge=b: expected one of reward\.parts: a"),
        ({"abstaining": "maybe"}, r"reward\.abstaining=maybe: expected drop or skip"),
    ],
)
def test_impossible_options_are_refused(changes: dict, message: str):
    values = {"parts": {"a": Fixed(1.0)}, "weights": {"a": 1.0}, "judge": "a", "abstaining": "drop"}
    with pytest.raises(ValueError, match=message):
        WeightedReward(**values | changes)
