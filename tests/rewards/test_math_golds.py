"""Real golds: each equals itself, in other writings too, fast enough for training."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.rewards.answers import Judgement
from sage.rewards.math import MathReward
from sage.types import Completion, Problem, StopReason, VerdictReason
from tests.data import rows

GOLDS = {
    "math500.jsonl": lambda row: row["answer"],
    "aime24.jsonl": lambda row: row["answer"],
    "aime25.jsonl": lambda row: row["answer"],
    "amc23.jsonl": lambda row: str(row["answer"]),
    "minerva_math.jsonl": lambda row: row["answer"],
    "gsm8k_test.jsonl": lambda row: row["answer"].partition("####")[2].strip(),
    "gsm8k_train_2k.jsonl": lambda row: row["answer"].partition("####")[2].strip(),
    "olympiadbench.jsonl": lambda row: row["final_answer"][0],
    "math_train_2k.jsonl": lambda row: row["answer"],
    "dapo_math_17k_en_2k.jsonl": lambda row: row["solution"],
    "dapo_math_17k_en.jsonl": lambda row: row["solution"],
}


def golds(name: str) -> list[str]:
    return [GOLDS[name](row) for row in rows(name)]


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    made = instantiate(OmegaConf.load(conf_dir() / "reward" / "math.yaml"))
    yield made
    made.close()


def verdicts(reward: MathReward, pairs: list[tuple[str, str]]) -> Counter:
    """Reasons of completions with these texts."""
    return Counter(
        verdict.reason
        for verdict in reward.score_all(
            [
                (
                    Problem(id="p", prompt="", answer=gold),
                    Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=StopReason.END),
                )
                for gold, text in pairs
            ]
        )
    )


@pytest.mark.parametrize("name", GOLDS)
def test_every_gold_of_a_benchmark_equals_itself(reward: MathReward, name: str):
    """K35, K48: both by what it means and in a box, as a model would write it."""
    answers = golds(name)
    problems = [Problem(id=answer, prompt="", answer=answer) for answer in answers]
    assert [*filter(None, reward.check(problems))] == []
    assert verdicts(reward, [(a, rf"The final answer is $\boxed{{{a}}}$.") for a in answers]) == {
        VerdictReason.CORRECT: len(answers)
    }


def rewritten(gold: str) -> list[str]:
    """The gold as another writer might put it, the same in meaning and different as a string."""
    found = [gold.replace(r"\frac", r"\dfrac"), gold.replace("(", r"\left(").replace(")", r"\right)")]
    if re.fullmatch(r"[-+]?[\d.]+e[-+]?\d+", gold):
        mantissa, _, exponent = gold.partition("e")
        found.append(rf"{mantissa} \times 10^{{{exponent}}}")
    if re.fullmatch(r"-?\\d?frac\{\d+\}\{\d+\}", gold):
        found.append(re.sub(r"\\d?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", gold))
    if re.fullmatch(r"-?\d{4,}", gold):
        found.append(f"{int(gold):,}")
    if re.fullmatch(r"[-\w\\{} +^]+", gold) and not re.search(r"text|mbox|_|\\%|circ|begin", gold):
        found += [f"0 + {gold}", f"({gold})"]
    return found


@pytest.mark.parametrize("name", ["math500.jsonl", "minerva_math.jsonl", "olympiadbench.jsonl"])
def test_other_writings_of_real_golds_are_right(reward: MathReward, name: str):
    pairs = [(gold, other) for gold in golds(name) for other in rewritten(gold)]
    judged = reward.judge_all(pairs)
    refused = [pair for pair, judgement in zip(pairs, judged, strict=True) if judgement is not Judgement.RIGHT]
    assert refused == []
    assert len(pairs) > 500


@pytest.mark.parametrize("name", ["math500.jsonl", "minerva_math.jsonl", "olympiadbench.jsonl"])
def test_no_real_gold_is_accepted_for_another(reward: MathReward, name: str):
    """Neighbours in a file with different writing: what is accepted must be equal in value, which few are."""
    answers = list(dict.fromkeys(golds(name)))
    pairs = list(pairwise(answers))
    judged = reward.judge_all(pairs)
    assert [pair for pair, j in zip(pairs, judged, strict=True) if j is Judgement.RIGHT] == []


def test_a_bare_number_behind_a_tag_is_scored_on_every_training_row(reward: MathReward):
    """Elsewhere, 1,964 of these 2,000 wrong answers are paid, as the tag's number is skipped and the 8 is read."""
    answers = golds("dapo_math_17k_en_2k.jsonl")
    text = "So 3 + 5 = 8.\n<SOLUTION>{}</SOLUTION>"
    others = [answer for answer in answers if answer != "8"]
    assert len(others) == 1964
    assert verdicts(reward, [(a, text.format(a)) for a in answers]) == {VerdictReason.CORRECT: 2000}
    assert verdicts(reward, [("8", text.format(a)) for a in others]) == {VerdictReason.WRONG: 1964}


def test_ordinary_verdicts_come_at_twenty_thousand_a_minute(reward: MathReward):
    """All golds of the test sets, each with its own writing, variants and a neighbour's answer: 15,938 pairs."""
    names = ["math500.jsonl", "minerva_math.jsonl", "olympiadbench.jsonl", "gsm8k_test.jsonl", "aime24.jsonl"]
    pairs = []
    for name in names:
        answers = golds(name)
        for gold, other in zip(answers, answers[1:] + answers[:1], strict=True):
            pairs += [(gold, rf"So \boxed{{{a}}}") for a in (gold, other, *rewritten(gold))]
    reward.judge_all([("x", "y + z")] * 2)  # warm: the workers run
    start = time.monotonic()
    verdicts(reward, pairs)
    assert len(pairs) / (time.monotonic() - start) * 60 > 20_000
