"""Right answers in any writing are paid, everything else is not, and every text ends in a verdict."""

import doctest
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.rewards.answers import Judgement
from sage.rewards.math import MathReward
from sage.types import Completion, Problem, StopReason, Verdict, VerdictReason

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "math_answers.jsonl").read_text(encoding="utf-8").splitlines()
]
TOWERS = ("9^{999999999}", "10^{10^{10}}", "(100000!)!", "5^{5^{5^{5^5}}}", "9^{9^{9^{9}}}")


def build(**changes) -> MathReward:
    return instantiate(OmegaConf.load(conf_dir() / "reward" / "math.yaml"), **changes)


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    made = build(cpu_seconds=1)
    yield made
    made.close()


@contextmanager
def other_worker(reward: MathReward, name: str) -> Iterator[None]:
    """Have a worker of the tests judge."""
    pool = reward._pool
    module, pool.module = pool.module, f"tests.rewards.{name}"
    pool.close()
    yield
    pool.module = module
    pool.close()


def problem(gold: str) -> Problem:
    return Problem(id="math/test/0000", prompt=r"A hint: \boxed{1}", answer=gold)


def completion(text: str, *, cut: bool = False) -> Completion:
    return Completion(
        token_ids=(), sampler_logprobs=(), text=text, stop_reason=StopReason.LENGTH if cut else StopReason.END
    )


def faults(reward: MathReward, *golds: str) -> list[str | None]:
    return reward.check([problem(gold) for gold in golds])


def judge(reward: MathReward, gold: str, text: str, *, cut: bool = False) -> Verdict:
    return reward.score(problem(gold), completion(text, cut=cut))


def boxed(reward: MathReward, gold: str, answer: str) -> VerdictReason:
    return judge(reward, gold, rf"So it is $\boxed{{{answer}}}$.").reason


@pytest.mark.parametrize("case", PAIRS, ids=[case["gold"] for case in PAIRS])
def test_pairs_of_gold_and_completion_are_judged_right(reward: MathReward, case: dict):
    """K35, K36, K37, K38, K41, K42 and what else goes wrong in comparing answers."""
    assert judge(reward, case["gold"], case["prediction"]).correct is case["equal"]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("4.5e33", r"4.5 \times 10^{33}"),  # read elsewhere as 4.5 times e times 33
        (r"2.88 \times 10^{-19}", "2.88e-19"),
        (r"10\%", "10"),
        (r"10\%", "0.1"),
        (r"10\%", r"10 \%"),
        ("10", r"10\%"),
        ("2,125", "2125"),
        ("2,125", "2{,}125"),
        ("2,125", "2, 125"),
        ("100,200", "200, 100"),
        (r"21\text{ dogs}", "21 dogs"),
        (r"21\text{ dogs}", "21"),
        (r"35 \text{ cm}", r"35\mathrm{~cm}"),
        (r"10\sqrt{3}\text{ cm}", r"10\sqrt3"),
        ("5 million", "5000000"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\text{ellipse}", "an ellipse"),
        ("np.arcsin(10/13)", r"\arcsin(10/13)"),
        (r"\frac43", "4/3"),
        (r"\frac{1}{3}", "0.333333"),
        (r"\frac13", r"0.\overline{3}"),
        ("025", "25"),
        ("27.0", "27"),
        (r"90^\circ", "90"),
        ("[1,2]", r"1 \le x \le 2"),
        (r"(-\infty,0)\cup(1,\infty)", r"x<0 \text{ or } x>1"),
        (r"1 \pm \sqrt{2}", r"1-\sqrt{2}, 1+\sqrt{2}"),
        ("x=1, y=2", "y=2, x=1"),
        ("x=1, y=2", "(1,2)"),
        ("2x<4", "x<2"),
        (r"\pi(R^2-r^2)", r"\pi(R-r)(R+r)"),
        (r"\sin^2 t", r"1-\cos^2 t"),
        ("(1+i)^2", "2i"),
        ("E_{1},E_{2}", "E_2, E_1"),
        ("-1./3", r"-\frac{1}{3}"),
        (r"\dfrac{2469}{20,\!000}", "0.12345"),
        ("$8$,$221$", "221, 8"),
        (r"\text{(C)}", "(c)"),
    ],
)
def test_other_writings_of_an_answer_are_right(reward: MathReward, gold: str, answer: str):
    assert boxed(reward, gold, answer) is VerdictReason.CORRECT


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
        (r"6.6 \times 10^{-34}", r"1 \times 10^{-20}"),
        (r"2.88 \times 10^{-19}", r"1.44 \times 10^{-19}"),
        ("0", "10^{-20}"),
        ("x + 10^{-300}", "x"),
        ("x < 1/2^{99}", "x < 1/2^{98}"),
        ("41.8", "41.81"),
        (r"\frac13", "0.33"),
        ("1000000", "1000000.5"),
        ("52_8", "52"),  # the base is part of the value
        ("52_8", "42"),
        ("52", "52_8"),
        (r"\{2,4\}", "(2,4)"),
        ("(2,4)", r"\{2,4\}"),
        ("(2,4)", "(4,2)"),
        ("(2,4)", "2"),
        ("1331, 1728", "1728"),  # K38
        ("1331, 1728", "1331, 1728, 5"),
        ("5", "4 or 5"),
        ("5", "7=5"),
        ("5", "5 million"),
        (r"35 \text{ cm}", r"35 \text{ m}"),
        (r"\pi(R^2-r^2)", "0"),  # capital and small letters are two symbols
        ("|x|", "x"),
        ("p - q", "q - p"),
        ("x=5", "y=5"),
        ("2x<4", "x>2"),
        (r"\infty", "5"),
        (r"\text{Evelyn}", r"\text{Evan}"),
        ("5", r"\text{five or so}"),
        ("12:00", "12"),
        ("3", r"3 \cdot x"),
        (r"3\sqrt{13}", "3"),  # K35: the first number of the gold is not the gold
        (r"\frac 59", "59"),
    ],
)
def test_other_answers_are_wrong(reward: MathReward, gold: str, answer: str):
    assert boxed(reward, gold, answer) is VerdictReason.WRONG


@pytest.mark.parametrize(
    "text", ["<SOLUTION>{}</SOLUTION>", "<SOLUTION> {} </SOLUTION>", "<SOLUTION>{}", "<answer>{}</answer>"]
)
def test_a_number_in_a_tag_is_read_and_not_the_last_one_of_the_working(reward: MathReward, text: str):
    """Elsewhere a number directly behind a tag is skipped, and the 8 of the working is scored."""
    text = "So 3 + 5 = 8. " + text.format(34)
    assert judge(reward, "34", text).answer == "34"
    assert (judge(reward, "34", text).reward, judge(reward, "8", text).reward) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (r"\boxed{7} ... the correct value is \boxed{8", False),
        (r"\boxed{7} ... the correct value is \boxed{8 + \boxed{7}", False),
        (r"<think>maybe \boxed{7}", False),
        (r"<think>no</think> \boxed{7} <think> or rather", False),
        ("<SOLUTION>7</SOLUTION> no, <SOLUTION>", False),
        ("<SOLUTION>7", True),
        ("The answer is 7", True),
        ("#### 7", True),
        ("", False),
        ("I do not know.", False),
        (r"\boxed{}", False),
    ],
)
def test_withdrawn_and_unfinished_answers_are_no_answers(reward: MathReward, text: str, cut: bool):
    """K37."""
    verdict = judge(reward, "7", text, cut=cut)
    assert (verdict.reward, verdict.reason, verdict.answer) == (0.0, VerdictReason.NO_ANSWER, None)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (r"<think>\boxed{8}</think>The answer: \boxed{7}", False),
        (r"so \boxed{8}</think>\boxed{7}", False),  # the prompt opened the reasoning
        (r"\boxed{8}, no: \boxed{7} and then a text that never en", True),
        ("Some reasoning\n#### 7", False),
        (r"<SOLUTION>$\boxed{7}$</SOLUTION>", False),
        (r"\boxed{\boxed{7}}", False),
        ("I write \\boxed{ when done.\n\nIt is \\boxed{7}.", False),
        ("**Final Answer:** 7", False),
    ],
)
def test_the_last_finished_answer_after_the_reasoning_counts(reward: MathReward, text: str, cut: bool):
    assert judge(reward, "7", text, cut=cut).correct


def test_braces_that_are_written_out_do_not_close_a_box(reward: MathReward):
    assert judge(reward, r"\{1,2\}", r"\boxed{\{2, 1\}}").answer == r"\{2, 1\}"


def test_reasoning_that_the_prompt_opened_must_be_closed():
    made = build(thinking_opened=True)
    assert judge(made, "7", r"so \boxed{7}").reason is VerdictReason.NO_ANSWER
    assert judge(made, "7", r"so</think>\boxed{7}").correct


def test_only_the_configured_formats_are_read():
    made = build(formats=["<SOLUTION>"])
    assert judge(made, "7", r"The answer is \boxed{7}").reason is VerdictReason.NO_ANSWER
    assert judge(made, "7", "<SOLUTION>7</SOLUTION>").correct


def test_the_prompt_is_never_read(reward: MathReward):
    assert judge(reward, "1", "I cannot tell.").reason is VerdictReason.NO_ANSWER


@pytest.mark.parametrize("answer", [r"\frac{1}{", "x+", "*" * 50, "7" * 1001, r"4\sqrt(", "}{"])
def test_what_cannot_be_read_is_counted_apart_from_wrong(reward: MathReward, answer: str):
    verdict = judge(reward, r"x^2", f"<answer>{answer}</answer>")
    assert (verdict.reward, verdict.reason) == (0.0, VerdictReason.UNPARSABLE)


def test_hanging_answers_end_in_timeouts_and_the_next_check_works(reward: MathReward, caplog: pytest.LogCaptureFixture):
    """K33, K71: in the main thread and in another, with a worker killed on top."""
    pairs = [(problem("x"), completion(rf"\boxed{{{tower}}}")) for tower in TOWERS]
    ordinary = [(problem(r"\sqrt{2} + 1"), completion(r"\boxed{1 + \sqrt{2}}"))] * 8
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        verdicts = reward.score_all([*pairs, *ordinary])
    assert [verdict.reward for verdict in verdicts] == [0.0] * 5 + [1.0] * 8
    # The first two are small enough as floating-point numbers to be compared.
    assert [verdict.reason for verdict in verdicts[:5]] == [VerdictReason.WRONG] * 2 + [VerdictReason.TIMEOUT] * 3
    assert "3 of 13 answers ran into a limit" in caplog.text
    # 3 answers of at most 2 s of processor time on 2 workers, and 3 new workers: far below this even on a busy machine.
    assert time.monotonic() - start < 60
    os.kill(reward._pool.pids[0], 9)
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.extend(reward.score_all([pairs[2], *ordinary])))
    thread.start()
    thread.join()
    assert [verdict.reason for verdict in found] == [VerdictReason.TIMEOUT] + [VerdictReason.CORRECT] * 8


def test_a_verdict_is_the_same_in_main_thread_thread_and_process(reward: MathReward):
    """K32: the library's own timeouts use a signal, which raises in a thread."""
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(judge(reward, "2", r"\boxed{\sqrt{4}}")))
    thread.start()
    thread.join()
    code = (
        "from tests.rewards.test_math_reward import *\nmade = build(workers=1)\n"
        "print(judge(made, '2', r'\\boxed{\\sqrt{4}}').reward)"
    )
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert (judge(reward, "2", r"\boxed{\sqrt{4}}").reward, found[0].reward, done.stdout.strip()) == (1.0, 1.0, "1.0")


def test_ordinary_answers_are_right_while_all_cores_are_busy(reward: MathReward):
    """K78."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        pairs = [(problem(rf"{n} + \sqrt{{2}}"), completion(rf"\boxed{{\sqrt2 + {n}}}")) for n in range(64)]
        assert [verdict.reason for verdict in reward.score_all(pairs)] == [VerdictReason.CORRECT] * 64
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@pytest.mark.parametrize("gold", ["", "  ", "$$", "see figure", "See the diagram above", "N/A", r"\frac{1}{"])
def test_an_unusable_gold_is_reported_and_pays_nobody(reward: MathReward, gold: str):
    """K34: elsewhere it pays every completion in full."""
    assert faults(reward, gold) != [None]
    for text in (rf"\boxed{{{gold}}}", r"\boxed{5}", "<answer></answer>", "words"):
        verdict = judge(reward, gold, text)
        assert (verdict.reward, verdict.reason) == (None, VerdictReason.ERROR)


def test_golds_are_checked_without_a_model(reward: MathReward):
    """K35, K48."""
    golds = [
        r"\frac{\pi}{2}",
        "(3,4,5)",
        r"\text{Evelyn}",
        "p - q",
        r"\sqrt{17}",
        r"1-\sqrt{2}",
        "5x - 7y + 11z + 4 = 0",
    ]
    assert faults(reward, *golds) == [None] * 7
    assert faults(reward, "see figure", "7") == ["it points to something else instead of stating an answer", None]


def test_a_gold_that_runs_into_a_limit_is_reported(reward: MathReward):
    with other_worker(reward, "odd_worker"):
        assert faults(reward, "x + tower", "x + 7") == ["it cannot be judged within the limits: processor_time", None]


def test_plain_numbers_start_no_worker():
    """A benchmark of those is checked and judged at once: 100,000 golds within a second or two."""
    made = build(formats=["number"])
    golds = [str(n) for n in range(100_000)]
    start = time.monotonic()
    assert {*faults(made, *golds)} == {None}
    assert time.monotonic() - start < 20
    assert [judge(made, "12", text).reward for text in ("3 * 4 = 12.", "12 is 3 * 4", "-12")] == [1.0, 0.0, 0.0]
    assert made._pool.pids == []


@pytest.mark.parametrize(
    ("text", "cut", "reason"),
    [
        ("3 * 4 = 12.", False, VerdictReason.CORRECT),
        ("It is **12**", False, VerdictReason.CORRECT),
        ("3 * 4 = 12. Let us", True, VerdictReason.CORRECT),
        ("3 * 4 = 12", True, VerdictReason.NO_ANSWER),  # perhaps 120
        ("12 = 3 * 4", False, VerdictReason.WRONG),
        ("1,200", False, VerdictReason.WRONG),
        ("twelve", False, VerdictReason.NO_ANSWER),
        ("<think>12.", False, VerdictReason.NO_ANSWER),
    ],
)
def test_the_last_number_of_a_text_may_be_the_answer(text: str, cut: bool, reason: VerdictReason):
    """``reward=last_number``; K37: reasoning that is not over has no answer, nor has a number that is cut off."""
    made = instantiate(OmegaConf.load(conf_dir() / "reward" / "last_number.yaml"))
    assert judge(made, "12", text, cut=cut).reason is reason


def test_votes_are_grouped_by_equality_and_not_by_writing(reward: MathReward):
    """K75: 1/2, 0.5 and 0.50 are one candidate with three votes."""
    assert reward.group(["1/2", "0.5", "3", "0.50", r"\sqrt{9}", "x+", "x+"]) == [0, 0, 1, 0, 1, 2, 2]


def test_a_failing_comparison_is_logged_and_drops_its_completion_alone(
    reward: MathReward, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """K39."""

    def fails(gold: str, answer: str, max_characters: int) -> Judgement:
        if answer == "3":
            raise ZeroDivisionError("third")
        return Judgement.RIGHT

    monkeypatch.setattr("sage.rewards.math.compare_plainly", fails)
    verdicts = reward.score_all([(problem("1"), completion(rf"\boxed{{{n}}}")) for n in range(1, 5)])
    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, None, 1.0]
    assert verdicts[2].reason is VerdictReason.ERROR
    assert "'3'" in caplog.text


def test_what_a_worker_raises_drops_the_completion(reward: MathReward, caplog: pytest.LogCaptureFixture):
    """K39: seen from outside as an answer that the comparison chokes on."""
    with other_worker(reward, "raising_worker"):
        verdict = judge(reward, "x", r"\boxed{y+z}")
    assert (verdict.reward, verdict.reason, verdict.answer) == (None, VerdictReason.ERROR, "y+z")
    assert "raised ValueError: broken" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formats": []}, r"reward\.formats=\[\]: expected a list of box"),
        ({"formats": ["boxed"]}, r"reward\.formats: 'boxed' is not a format; expected box"),
        ({"workers": 0}, r"reward\.workers=0: expected a whole number >= 1"),
        ({"cpu_seconds": 0}, r"reward\.cpu_seconds=0: expected a whole number >= 1"),
        ({"memory_mb": 100}, r"reward\.memory_mb=100: expected a whole number >= 512"),
        ({"wall_seconds": 2.0}, r"reward\.wall_seconds=2\.0: expected more than reward\.cpu_seconds=3"),
    ],
)
def test_impossible_options_are_refused(changes: dict, message: str):
    values = OmegaConf.to_container(OmegaConf.load(conf_dir() / "reward" / "math.yaml"))
    assert isinstance(values, dict)
    del values["_target_"]
    with pytest.raises(ValueError, match=message):
        MathReward(**values | changes)


@pytest.mark.parametrize("name", ["normal", "numbers", "plain", "units"])
def test_examples_in_the_documentation_are_true(name: str):
    module = importlib.import_module(f"sage.rewards.answers.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
