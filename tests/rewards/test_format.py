"""Form is judged apart from content."""

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.rewards.format import FormatReward
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason


def build(**changes) -> FormatReward:
    return instantiate(OmegaConf.load(conf_dir() / "reward" / "format.yaml"), **changes)


def judge(reward: FormatReward, text: str, *, cut: bool = False) -> Verdict:
    stop = StopReason.LENGTH if cut else StopReason.END
    completion = Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=stop)
    return reward.score(Problem(id="p", prompt="", answer="1"), completion)


@pytest.mark.parametrize(
    "text",
    [r"So $\boxed{7}$.", "a <SOLUTION>7</SOLUTION>", "<answer>7</answer>\n", "#### 7", r"<think>hm</think>\boxed{7}"],
)
def test_a_finished_answer_at_the_end_is_well_formed(text: str):
    assert judge(build(), text).reward == 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The answer is 7.", VerdictReason.NO_ANSWER),
        (r"\boxed{7", VerdictReason.NO_ANSWER),
        (r"<think>\boxed{7}", VerdictReason.NO_ANSWER),
        ("", VerdictReason.NO_ANSWER),
        # 41 characters behind the answer; 40 are allowed.
        (r"\boxed{7}" + " x" * 41, VerdictReason.WRONG),
    ],
)
def test_other_forms_are_not(text: str, reason: VerdictReason):
    verdict = judge(build(), text)
    assert (verdict.reward, verdict.reason) == (0.0, reason)


def test_a_text_that_was_cut_is_not_well_formed():
    assert judge(build(), r"\boxed{7} and", cut=False).reward == 1.0
    assert judge(build(), r"\boxed{7} and", cut=True).reward == 0.0


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        (r"<think>a</think>\boxed{7}", 1.0),
        (r" <think>a</think> so \boxed{7}", 1.0),
        (r"\boxed{7}", 0.0),
        (r"a<think>b</think>\boxed{7}", 0.0),
        (r"<think> </think>\boxed{7}", 0.0),
        (r"<think>a</think><think>b</think>\boxed{7}", 0.0),
        (r"a</think>\boxed{7}", 0.0),
    ],
)
def test_reasoning_may_be_required_exactly_once(text: str, paid: float):
    assert judge(build(require_thinking=True), text).reward == paid


def test_reasoning_that_the_prompt_opened_is_closed_once():
    reward = build(require_thinking=True, thinking_opened=True)
    assert judge(reward, r"a</think>\boxed{7}").reward == 1.0
    assert judge(reward, r"<think>a</think>\boxed{7}").reward == 0.0


def test_impossible_options_are_refused():
    values = {"formats": ["box"], "thinking_opened": False, "require_thinking": False, "max_trailing_chars": 0}
    with pytest.raises(ValueError, match=r"reward\.max_trailing_chars=-1: expected a whole number >= 0"):
        FormatReward(**values | {"max_trailing_chars": -1})
    with pytest.raises(ValueError, match=r"reward\.formats: 'bxo' is not a format"):
        FormatReward(**values | {"formats": ["bxo"]})


def test_no_gold_is_refused_as_none_is_looked_at():
    assert build().check([Problem(id="p", prompt="", answer="")]) == [None]
