"""The chain enumerator against a second solver that splits multisets into expression trees."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from sage.benchmarks.countdown_solver import Solver

MAX_RESULT = 60


def reachable(numbers: tuple[int, ...]) -> set[tuple[int, bool]]:
    """(result, additive) of every expression that uses all numbers: join the results of the two sides of each split."""
    if len(numbers) == 1:
        return {(numbers[0], True)}
    found = set()
    positions = range(len(numbers))
    for size in range(1, len(numbers)):
        for side in combinations(positions, size):
            left = reachable(tuple(numbers[i] for i in side))
            right = reachable(tuple(numbers[i] for i in positions if i not in side))
            for a, a_additive in left:
                for b, b_additive in right:
                    additive = a_additive and b_additive
                    found |= {(a + b, additive), (a - b, additive), (a * b, False)}
                    if b and a % b == 0:
                        found.add((a // b, False))
    return {(value, additive) for value, additive in found if 1 <= value <= MAX_RESULT}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 13), min_size=2, max_size=4))
def test_the_targets_and_their_families_are_those_of_an_independent_solver(numbers: list[int]):
    chains = Solver(MAX_RESULT).chains(tuple(numbers))
    assert {(chain.target, chain.additive) for chain in chains} == reachable(tuple(numbers))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 13), min_size=2, max_size=4), st.randoms())
def test_chains_are_listed_once_and_do_not_depend_on_the_order_of_the_numbers(numbers: list[int], random):
    solver = Solver(MAX_RESULT)
    chains = solver.chains(tuple(numbers))
    assert len({chain.text for chain in chains}) == len(chains)
    random.shuffle(numbers)
    assert solver.chains(tuple(numbers)) == chains


def test_two_numbers_give_every_line_in_the_normal_form():
    # 6 and 3: 9, 3, 18, 2. 3 and 3 give no difference (0), 9 and 7 no product (63 > 60) and no quotient.
    solver = Solver(MAX_RESULT)
    assert [c.text for c in solver.chains((3, 6))] == ["6 + 3 = 9 ;", "6 - 3 = 3 ;", "6 * 3 = 18 ;", "6 / 3 = 2 ;"]
    assert [c.text for c in solver.chains((3, 3))] == ["3 + 3 = 6 ;", "3 * 3 = 9 ;", "3 / 3 = 1 ;"]
    assert [c.text for c in solver.chains((7, 9))] == ["9 + 7 = 16 ;", "9 - 7 = 2 ;"]
