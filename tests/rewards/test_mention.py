"""The gold anywhere in the text."""

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.rewards.mention import MentionReward
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason


def judge(gold: str, text: str, **changes) -> Verdict:
    reward: MentionReward = instantiate(OmegaConf.load(conf_dir() / "reward" / "mention.yaml"), **changes)
    completion = Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=StopReason.LENGTH)
    return reward.score(Problem(id="p", prompt="", answer=gold), completion)


@pytest.mark.parametrize("text", ["7", "1, 7, 9", "It is 7.", "(7)", r"\boxed{7}", "x=7, or 8"])
def test_a_text_with_the_gold_in_it_is_paid(text: str):
    verdict = judge("7", text)
    assert (verdict.reward, verdict.correct, verdict.answer) == (1.0, True, "7")


@pytest.mark.parametrize("text", ["", "17", "7.5", "-7", "7,000", "1.7", "seven", "7th"])
def test_a_part_of_another_number_or_word_is_no_mention(text: str):
    assert judge("7", text).reason is VerdictReason.NO_ANSWER


def test_case_may_count_and_symbols_are_no_pattern():
    assert judge("paris", "Paris").reward == 1.0
    assert judge("paris", "Paris", ignore_case=False).reward == 0.0
    assert judge("x.", "xy").reward == 0.0


def test_an_empty_gold_pays_nobody():
    """K34."""
    assert judge(" ", "anything").reward is None
