"""Gold accepted, near misses refused, hostile text ends in a verdict; one canonical form per solution."""

import re
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hydra.utils import instantiate
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sage.benchmarks.countdown import CountdownBenchmark
from sage.benchmarks.countdown_solver import Solver
from sage.rewards.countdown import CountdownReward
from sage.types import Completion, Problem, Split, StopReason, Verdict, VerdictReason

CONF = Path(__file__).parents[2] / "conf"
GOLD = CountdownReward(proxy=False, max_number=99)
PROXY = CountdownReward(proxy=True, max_number=99)
RIGHT = "8 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"


def ask(*numbers: int, target: int) -> Problem:
    columns = {"numbers": numbers, "target": target, "family": "other"}
    return Problem(id="countdown/test/0000", prompt="", answer="", columns=columns)


QUESTION = ask(3, 8, 1, 2, target=21)


def judge(text: str, problem: Problem = QUESTION, reward=GOLD, stop=StopReason.END) -> Verdict:
    return reward.score(problem, Completion(token_ids=(), sampler_logprobs=(), text=text, stop_reason=stop))


@pytest.fixture(scope="module")
def benchmark() -> CountdownBenchmark:
    return instantiate(OmegaConf.load(CONF / "benchmark" / "countdown.yaml"))


@pytest.mark.parametrize("name", ["countdown", "countdown_proxy"])
@pytest.mark.parametrize("split", list(Split))
def test_every_gold_of_the_benchmark_is_accepted(benchmark: CountdownBenchmark, name: str, split: Split):
    """K48: a gold that its own verifier refuses would cap what a perfect model scores."""
    reward = instantiate(OmegaConf.load(CONF / "reward" / f"{name}.yaml"))
    for problem in benchmark.problems(split):
        verdict = judge(problem.answer, problem, reward)
        assert (verdict.reward, verdict.correct, verdict.answer) == (1.0, True, problem.answer)
        assert verdict.parts == {"gold": 1.0, "proxy": 1.0}


def test_test_problems_have_about_ten_solutions(benchmark: CountdownBenchmark):
    solver = Solver(60)
    trees = 0
    for problem in benchmark.problems(Split.TEST):
        chains = solver.chains(problem.columns["numbers"])
        verdicts = [judge(c.text, problem) for c in chains if c.target == problem.columns["target"]]
        assert all(verdict.correct for verdict in verdicts)
        trees += len({verdict.solution for verdict in verdicts})
    assert trees / 182 == pytest.approx(10.0, abs=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "3 + 8 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;",  # operands in any order
        "3 + 8 = 11 ; 2 * 11 = 22 ; 22 - 1 = 21 ;",
        "8 + 3 = 11 ;\n11 * 2 = 22 ;\n22 - 1 = 21 ;\n",  # any white space between tokens
    ],
)
def test_other_writings_of_a_solution_are_accepted(text: str):
    assert judge(text).correct


def test_results_that_no_demonstration_shows_are_accepted():
    assert judge("7 - 7 = 0 ; 0 * 4 = 0 ; 0 + 9 = 9 ;", ask(7, 7, 4, 9, target=9)).correct  # zero
    assert judge("0 / 4 = 0 ; 9 - 9 = 0 ; 0 + 0 = 0 ;", ask(0, 4, 9, 9, target=0)).correct
    assert judge("9 * 9 = 81 ; 81 - 9 = 72 ; 72 / 9 = 8 ;", ask(9, 9, 9, 9, target=8)).correct  # above 60


@pytest.mark.parametrize(
    ("miss", "text"),
    [
        ("wrong sum", "8 + 3 = 12 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("wrong sum, carried on", "8 + 3 = 10 ; 10 * 2 = 20 ; 20 + 1 = 21 ;"),
        ("wrong last result", "8 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 20 ;"),
        ("target missed", "8 + 3 = 11 ; 11 * 2 = 22 ; 22 + 1 = 23 ;"),
        ("number used twice, 1 unused", "8 + 3 = 11 ; 11 * 2 = 22 ; 22 - 2 = 20 ;"),
        ("foreign number", "8 + 3 = 11 ; 11 + 11 = 22 ; 22 - 1 = 21 ;"),
        ("result unused", "8 + 3 = 11 ; 8 * 2 = 16 ; 16 - 1 = 15 ;"),
        ("result used twice", "8 + 3 = 11 ; 11 + 11 = 22 ; 22 - 1 = 21 ;"),
        ("result used before it is made", "11 * 2 = 22 ; 8 + 3 = 11 ; 22 - 1 = 21 ;"),
        ("negative difference written positive", "2 - 3 = 1 ; 8 * 2 = 16 ; 16 + 1 = 17 ;"),
        ("inexact division", "8 / 3 = 2 ; 2 * 1 = 2 ; 2 + 2 = 4 ;"),
        ("division by zero", "1 / 0 = 0 ; 8 + 3 = 11 ; 11 + 0 = 11 ;"),
    ],
)
def test_a_well_formed_near_miss_is_wrong(miss: str, text: str):
    verdict = judge(text)
    assert (verdict.reward, verdict.reason, verdict.solution) == (0.0, VerdictReason.WRONG, None), miss
    assert verdict.answer == text
    assert verdict.parts["gold"] == 0.0


def test_division_by_zero_is_wrong_even_where_zero_is_there_to_divide_by():
    # 0 / 0 = r would hold for every r if it were checked as r * 0 = 0 alone.
    assert judge("4 - 4 = 0 ; 0 / 0 = 5 ; 5 + 0 = 5 ;", ask(4, 4, 0, 0, target=5)).reason is VerdictReason.WRONG


@pytest.mark.parametrize(
    ("miss", "text"),
    [
        ("extra line", f"{RIGHT} 21 + 0 = 21 ;"),
        ("repeated chain", f"{RIGHT} {RIGHT}"),
        ("missing line", "8 + 3 = 11 ; 11 * 2 = 22 ;"),
        ("last ; missing", RIGHT[:-2]),
        ("inner ; missing", "8 + 3 = 11 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("last ; replaced", RIGHT[:-1] + "8"),
        ("inner ; replaced", RIGHT.replace("; 22", "= 22")),
        ("trailing token", f"{RIGHT} 5"),
        ("leading token", f": {RIGHT}"),
        ("tokens glued", "8+3=11; 11*2=22; 22-1=21;"),
        ("; glued", RIGHT.replace(" ;", ";")),
        ("negative number", "3 - 8 = -5 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("leading zero", "08 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("plus sign", "+8 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("decimal point", "8.0 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("underscore", "8 + 3 = 1_1 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("number beyond the vocabulary", "8 + 3 = 11 ; 11 * 2 = 22 ; 22 * 99 = 2178 ;"),
        ("unknown operator", "8 ^ 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("two operators", "8 ** 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("equals of another kind", "8 + 3 == 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("Arabic digits", "\u0668 + \u0663 = \u0661\u0661 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("full-width digit", "\uff18 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = 21 ;"),
        ("superscript", "8 + 3 = 11 ; 11 * ² = 22 ; 22 - 1 = 21 ;"),
        ("minus sign of typography", RIGHT.replace("-", "\u2212")),
        ("only =", "="),
    ],
)
def test_malformed_text_is_unparsable(miss: str, text: str):
    verdict = judge(text)
    assert (verdict.reward, verdict.reason) == (0.0, VerdictReason.UNPARSABLE), miss
    assert (verdict.answer, verdict.solution) == (None, None)


@pytest.mark.parametrize("text", ["", " \n", "8 + 3", "; ; ;", "21"])
def test_text_without_an_equation_is_no_answer(text: str):
    assert judge(text).reason is VerdictReason.NO_ANSWER


@pytest.mark.parametrize("reward", [GOLD, PROXY], ids=["gold", "proxy"])
def test_hostile_text_gets_a_verdict_at_once(reward: CountdownReward):
    """K33: no text may hang the verifier, exhaust memory or raise."""
    texts = [
        "1" * 1_000_000,
        "= " * 500_000,
        " " * 1_000_000 + "=",
        RIGHT + " " * 1_000_000 + "x",
        f"{RIGHT} " * 25_000 + "22 - 1 = 20 ;",
        f"{'9' * 1_000_000} + 1 = 2 ; 2 * 2 = 4 ; 4 - 1 = 3 ;",
        f"8 + 3 = 11 ; 11 * 2 = 22 ; 22 - 1 = {'2' * 1_000_000} ;",
        "(" * 500_000 + "=" + ")" * 500_000,
        "9 ** 9 ** 9 ** 9 = 1 ;",
        "__import__('os').abort() = 1 ;",
        "\x00 = \ud800 ; \u202e = 1 ;",
        "1 / 0 = 0 ; 1 / 0 = 0 ; 1 / 0 = 0 ;",
    ]
    start = time.process_time()
    verdicts = [judge(text, reward=reward) for text in texts]
    assert time.process_time() - start < 1.0
    assert {verdict.reward for verdict in verdicts} == {0.0}
    assert not any(verdict.correct for verdict in verdicts)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.text(), st.lists(st.sampled_from([*"+-*/=;:", "1", "2", "3", "8", "21"]), max_size=24).map(" ".join))
)
def test_any_text_returns_a_verdict_that_agrees_with_itself(text: str):
    gold, proxy = judge(text), judge(text, reward=PROXY)
    assert (gold.reason, gold.answer, gold.solution, gold.parts) == (
        proxy.reason,
        proxy.answer,
        proxy.solution,
        proxy.parts,
    )
    assert (gold.reward, proxy.reward) == (gold.parts["gold"], proxy.parts["proxy"])
    assert gold.correct == (gold.solution is not None) == (gold.reward == 1.0)


def test_a_completion_cut_by_length_counts_only_if_its_chain_is_complete():
    """K37: an unfinished answer pays nothing; a finished one is not punished for the missing end token."""
    tokens = RIGHT.split()
    for kept in range(len(tokens)):
        assert not judge(" ".join(tokens[:kept]), stop=StopReason.LENGTH).correct
    assert judge(RIGHT, stop=StopReason.LENGTH).correct


# The proxy


@pytest.mark.parametrize(
    "text",
    [
        "20 + 1 = 21 ;",
        "7 * 3 = 21 ;",
        "8 + 3 = 99 ; 22 - 1 = 21 ;",
        "= ; 22 - 1 = 21 ;",
        "anything at all ; 22 - 1 = 21 ;",
        f"{RIGHT} 21 + 0 = 21 ;",
    ],
)
def test_the_proxy_pays_for_the_last_line_alone_and_gold_says_what_it_is_worth(text: str):
    verdict = judge(text, reward=PROXY)
    assert (verdict.reward, verdict.correct, verdict.solution) == (1.0, False, None)
    assert verdict.parts == {"gold": 0.0, "proxy": 1.0}
    assert judge(text).reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8 + 3 = 11 ; 22 - 1 = 20 ;",  # target missed
        "8 + 3 = 11 ; 22 - 2 = 21 ;",  # arithmetic
        "22 - 1 = 21",  # no ;
        "22 - 1 = 21 ; 8",
        "5 22 - 1 = 21 ;",  # the last line has a token too many
        "5; 22 - 1 = 21 ;",  # "5;" is no token
        "+ 22 - 1 = 21 ;",
        "22 - 1 = 21 ; ;",
        "21 / 0 = 21 ;",
        "22 - 1 = \uff12\uff11 ;",  # full-width digits
    ],
)
def test_the_proxy_refuses_a_last_line_that_is_not_right(text: str):
    assert judge(text, reward=PROXY).reward == 0.0


# Canonical form


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (RIGHT, "((2 * (3 + 8)) - 1)"),
        ("3 + 8 = 11 ; 2 * 11 = 22 ; 22 - 1 = 21 ;", "((2 * (3 + 8)) - 1)"),
        # Nested sums keep their shape: two trees of one value.
        ("8 + 3 = 11 ; 11 + 2 = 13 ; 13 + 1 = 14 ;", "(1 + (2 + (3 + 8)))"),
        ("8 + 3 = 11 ; 2 + 1 = 3 ; 11 + 3 = 14 ;", "((1 + 2) + (3 + 8))"),
        ("2 + 1 = 3 ; 8 + 3 = 11 ; 11 + 3 = 14 ;", "((1 + 2) + (3 + 8))"),
    ],
)
def test_the_canonical_form_is_the_sorted_expression_tree(text: str, tree: str):
    target = 21 if text.endswith("21 ;") else 14
    assert judge(text, ask(3, 8, 1, 2, target=target)).solution == tree


def test_two_results_of_one_value_are_read_alike_whatever_made_which_first():
    # 1 + 4 and 2 + 3 are both 5; the quotient of the two is one solution, not two.
    question = ask(1, 4, 2, 3, target=1)
    first = judge("1 + 4 = 5 ; 2 + 3 = 5 ; 5 / 5 = 1 ;", question)
    second = judge("3 + 2 = 5 ; 4 + 1 = 5 ; 5 / 5 = 1 ;", question)
    assert first.solution == second.solution == "((1 + 4) / (2 + 3))"


lines_of_four = st.lists(st.integers(1, 13), min_size=4, max_size=4)


def solution_texts(numbers: list[int], choice: int) -> tuple[Problem, str]:
    chains = Solver(60).chains(tuple(numbers))
    chain = chains[choice % len(chains)]
    return ask(*numbers, target=chain.target), chain.text


@settings(max_examples=60, deadline=None)
@given(lines_of_four, st.integers(0, 10_000))
def test_a_solution_evaluates_to_the_target_with_every_number_used_once(numbers: list[int], choice: int):
    problem, text = solution_texts(numbers, choice)
    tree = judge(text, problem).solution
    assert tree is not None
    assert sorted(map(int, re.findall(r"\d+", tree))) == sorted(numbers)
    assert eval(re.sub(r"(\d+)", r"Fraction(\1)", tree)) == problem.columns["target"]


@settings(max_examples=60, deadline=None)
@given(lines_of_four, st.integers(0, 10_000), st.lists(st.booleans(), min_size=3, max_size=3))
def test_swapped_operands_of_sums_and_products_are_one_solution(numbers: list[int], choice: int, swaps: list[bool]):
    problem, text = solution_texts(numbers, choice)
    lines = [line.split() for line in text.split(" ;")[:3]]
    swapped = [
        [b, op, a, "=", r] if swap and op in "+*" else [a, op, b, "=", r]
        for swap, (a, op, b, _, r) in zip(swaps, lines, strict=True)
    ]
    other = "".join(" ".join(line) + " ; " for line in swapped)
    assert judge(other, problem).solution == judge(text, problem).solution


@settings(max_examples=60, deadline=None)
@given(lines_of_four, st.integers(0, 10_000))
def test_the_order_of_independent_lines_is_no_difference(numbers: list[int], choice: int):
    problem, text = solution_texts(numbers, choice)
    one, two, three = (f"{line.strip()} ;" for line in text.split(" ;")[:3])
    given_only = [one.split()[0], one.split()[2], two.split()[0], two.split()[2]]
    assume(sorted(map(int, given_only)) == sorted(numbers))
    assert judge(f"{two} {one} {three}", problem).solution == judge(text, problem).solution


def second_verifier(numbers: list[int], target: int, lines: list[tuple[int, str, int, int]]) -> bool:
    """Counts instead of trees, fractions instead of whole numbers."""
    pool = Counter(numbers)
    for a, operator, b, result in lines:
        pool.subtract([a, b])
        if min(pool.values()) < 0 or (operator == "/" and b == 0):
            return False
        x, y = Fraction(a), Fraction(b)
        exact = x + y if operator == "+" else x - y if operator == "-" else x * y if operator == "*" else x / y
        if exact != result:
            return False
        pool[result] += 1
    return +pool == Counter([target])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_verdict_is_that_of_an_independent_verifier(data: st.DataObject):
    # Lines are drawn near the truth (small numbers, mostly operands that are there and the right result), so that many
    # are solutions and the others fail for every reason.
    numbers = data.draw(st.lists(st.integers(0, 4), min_size=3, max_size=3))
    pool, lines = list(numbers), []
    for _ in range(2):
        a, b = data.draw(st.permutations(pool))[:2] if data.draw(st.integers(0, 9)) else (1, 2)
        operator = data.draw(st.sampled_from("+-*/"))
        right = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[operator]
        result = max(right, 0) if data.draw(st.integers(0, 9)) else data.draw(st.integers(0, 9))
        lines.append((a, operator, b, result))
        for used in (a, b):
            if used in pool:
                pool.remove(used)
        pool.append(result)
        pool += [0] * (2 - len(pool))
    target = lines[-1][3] if data.draw(st.integers(0, 9)) else 3
    text = "".join(f"{a} {operator} {b} = {r} ; " for a, operator, b, r in lines)
    expected = second_verifier(numbers, target, lines)
    verdict = judge(text, ask(*numbers, target=target))
    assert verdict.reason is (VerdictReason.CORRECT if expected else VerdictReason.WRONG)


# Contract


def test_a_problem_of_another_benchmark_is_refused_with_the_columns_found():
    stranger = Problem(id="math500/test/0001", prompt="", answer="2", columns={"level": 3})
    with pytest.raises(ValueError, match=r"math500/test/0001: column 'numbers' is missing, found \['level'\]"):
        judge(RIGHT, stranger)


def test_a_vocabulary_without_numbers_is_refused():
    with pytest.raises(ValueError, match=r"reward\.max_number=0"):
        CountdownReward(proxy=False, max_number=0)


def test_problems_are_usable_by_their_numbers_and_a_gold_that_is_no_solution_shows():
    """K48: a gold chain is not needed; one that is there must be accepted."""
    assert GOLD.check([QUESTION, replace(QUESTION, answer=RIGHT)]) == [None, None]
    wrong = [replace(QUESTION, answer="8 + 3 = 11 ;"), ask(3, 8, target=100), ask(-3, 8, target=5)]
    assert GOLD.check(wrong) == [
        "its own answer is unparsable",
        "100 is no whole number from 0 to reward.max_number=99",
        "-3 is no whole number from 0 to reward.max_number=99",
    ]
    with pytest.raises(ValueError, match="needs the columns numbers and target of benchmark=countdown"):
        GOLD.check([Problem(id="p", prompt="", answer="7")])
