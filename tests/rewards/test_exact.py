"""Strings are compared, white space aside."""

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.rewards.exact import ExactReward
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason


def build(**changes) -> ExactReward:
    return instantiate(OmegaConf.load(conf_dir() / "reward" / "exact.yaml"), **changes)


def judge(reward: ExactReward, gold: str, text: str) -> Verdict:
    completion = Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=StopReason.END)
    return reward.score(Problem(id="p", prompt="", answer=gold), completion)


@pytest.mark.parametrize("text", ["a  b\n", "<answer>a b</answer>", r"so \boxed{a b}", "<think>c</think>a b"])
def test_the_gold_in_any_format_is_right(text: str):
    assert judge(build(), " a b ", text).reward == 1.0


@pytest.mark.parametrize("text", ["ab", "A b", "a b c", "a b <answer>c</answer>"])
def test_anything_else_is_wrong(text: str):
    verdict = judge(build(), "a b", text)
    assert (verdict.reward, verdict.reason) == (0.0, VerdictReason.WRONG)


def test_case_may_be_ignored():
    assert judge(build(ignore_case=True), "Straße", "STRASSE").correct


@pytest.mark.parametrize("text", ["", "  ", "<answer></answer>", "<think>a b"])
def test_no_answer_is_told_from_a_wrong_one(text: str):
    assert judge(build(), "a b", text).reason is VerdictReason.NO_ANSWER


def test_without_the_whole_text_as_a_format_a_mark_is_needed():
    assert judge(build(formats=["<answer>"]), "a", "a").reason is VerdictReason.NO_ANSWER


def test_an_empty_gold_pays_nobody():
    """K34."""
    problems = [Problem(id=gold, prompt="", answer=gold) for gold in ("", " ", "a")]
    assert build().check(problems) == ["it is empty", "it is empty", None]
    assert judge(build(), "", r"\boxed{a}").reward is None
    assert judge(build(), "", "").reward is None


def test_votes_are_grouped_as_answers_are_compared():
    assert build().group(["a b", "A b", " a  b "]) == [0, 1, 0]
    assert build(ignore_case=True).group(["a b", "A b", "c"]) == [0, 0, 1]
