"""Hostile text ends in a verdict, not in an exception, a hang, or a reward."""

import random
import time
from collections.abc import Iterator

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.rewards.answers import read_answer
from sage.rewards.math import MathReward
from sage.types import Completion, Problem, StopReason, VerdictReason

PIECES = (
    r"\boxed{", r"\boxed{7}", "}", "{", "<think>", "</think>", "<SOLUTION>", "</SOLUTION>", "<answer>", "#### ", "$", "$$",
    r"\(", r"\)", r"\[", r"\]", r"\frac{1}{2}", r"\frac", r"\sqrt", r"\sqrt{", r"\text{", r"\left(", r"\right)",
    r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", "&", ",", ";", " and ", " or ", r"\pm ", r"\cup ", r"\in ", r"\{", r"\}",
    "(", ")", "[", "]", "=", "<", ">", r"\le ", "^", "_", "!", "!!", "%", "|", "x", "y", "e", "i", "7", "-", "+", "*", "/", "0",
    "0.1", "1e5", "10^{10}", "52_8", r"\int_0^1", r"\sum_{k=1}^{n}", r"\lim_{x\to0}", r"\log", r"\sin", r"\pi", r"\infty",
    "answer is ", "\n", "\n\n", "\0", "\ud800", "\U0001d7d9", "\u0663", "\u2212", "√2", "½", "__import__('os')", "lambda: 0",
    "x.__class__", "f(", r"\mathbb{R}", r"\ldots ", "12:00",
)  # fmt: skip


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    made = instantiate(OmegaConf.load(conf_dir() / "reward" / "math.yaml"), cpu_seconds=1)
    yield made
    made.close()


def texts(count: int, seed: int) -> list[str]:
    stream = random.Random(seed)
    made = ["".join(stream.choices(PIECES, k=stream.randint(1, 12))) for _ in range(count)]
    return [rf"\boxed{{{text}}}" if stream.random() < 0.7 else text for text in made]


def check(reward: MathReward, count: int) -> None:
    gold = Problem(id="p", prompt="", answer=r"\sqrt{1234567}+\pi")
    hostile = texts(count, seed=0)
    verdicts = reward.score_all(
        [(gold, Completion(token_ids=(), sampler_logprobs=(), text=t, stop_reason=StopReason.END)) for t in hostile]
    )
    paid = [text for text, verdict in zip(hostile, verdicts, strict=True) if verdict.reward != 0.0]
    assert paid == []
    assert {verdict.reason for verdict in verdicts} >= {
        VerdictReason.WRONG,
        VerdictReason.UNPARSABLE,
        VerdictReason.NO_ANSWER,
    }


def test_a_few_hundred_hostile_texts_end_in_verdicts(reward: MathReward):
    check(reward, 400)


@pytest.mark.slow
def test_ten_thousand_hostile_texts_end_in_verdicts(reward: MathReward):
    check(reward, 10_000)


REPEATED = (
    r"\boxed{ \boxed{} { } $$ \[ ( (1, \frac{ \text{ <SOLUTION> 1, 999999999 \pm <think> $a ** . \boxed{1}, \sqrt "
    "((1,2),(3,4)),"
)


@pytest.mark.parametrize("piece", [*REPEATED.split(), "a ", "- ", "1 ", "answer is ", "\n\n", "and "])
def test_long_repetitions_are_read_in_linear_time(reward: MathReward, piece: str):
    """Of a text of 100,000 characters, in the training process itself."""
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    for wrapped in (text, rf"\boxed{{{text}}}", rf"\boxed{{{text[:900]}}}", f"the answer is {text[:900]}"):
        read = read_answer(wrapped, reward.formats, thinking_opened=False, truncated=False)
        for gold in ("7", "(1,2)", r"\{1,2,3\}", r"x^2+1"):
            reward._plainly(gold, read.answer or "")
    assert time.process_time() - start < 2.0


def test_code_in_an_answer_is_never_run(reward: MathReward, tmp_path):
    marker = tmp_path / "marker"
    code = f"__import__('pathlib').Path('{marker}').touch()"
    gold = Problem(id="p", prompt="", answer="x")
    for text in (code, rf"\boxed{{{code}}}", f"<answer>{code}</answer>", f"The answer is {code}", f"${code}$"):
        completion = Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=StopReason.END)
        assert reward.score(gold, completion).reward == 0.0
    assert not marker.exists()
