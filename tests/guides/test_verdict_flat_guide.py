import pytest
import torch

from sage.guides.verdict_flat import VerdictFlatGuide
from sage.maths.bank import response_weights
from tests.fakes import bank_group

GUIDE = VerdictFlatGuide(strength=1.0, q_min=0.6, q_max=1.4)
# Six samples: solution "a" twice in one writing and once in another, "b" once, two wrong ones.
ROWS = [
    ((5, 6), 1, "a"),
    ((5, 6), 1, "a"),
    ((6, 5), 1, "a"),
    ((9,), 1, "b"),
    ((1,), 0, None),
    ((2,), 0, "a"),
]


def weights(rows, strength=1.0):
    q = torch.tensor(GUIDE.q_responses(bank_group("p", (1,), rows)), dtype=torch.float64)
    return response_weights(q, strength).tolist()


def test_q_is_reward_by_the_share_of_the_solution():
    # "a" has 3 of 6 samples: 1 / (3/6) = 2; "b" has 1 of 6: 6. The wrong sample that names "a" counts for nothing.
    assert GUIDE.q_responses(bank_group("p", (1,), ROWS)) == [2, 2, 2, 6, 0, 0]


def test_each_distinct_solution_gets_the_same_mass_and_its_writings_share_it_by_count():
    # q sums to 12: "a" 2/12 each, in all 1/2, of which its writing (5, 6) has 2/3; "b" 6/12.
    assert weights(ROWS) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2, 0, 0])


def test_strength_leads_from_all_samples_by_count_over_right_ones_to_flat_and_beyond():
    assert weights(ROWS, 0.0) == pytest.approx([1 / 6] * 6)
    # sqrt: 2^.5 * 3 + 6^.5 = 6.692131; 6^.5 / 6.692131 = 0.366025
    assert weights(ROWS, 0.5)[3] == pytest.approx(0.366025, abs=1e-6)
    # squares: 4 * 3 + 36 = 48; 36 / 48
    assert weights(ROWS, 2.0)[3] == pytest.approx(0.75)


def test_without_a_canonical_form_the_text_is_the_solution():
    plain = [(ids, reward, None) for ids, reward, _ in ROWS]
    # Writings (5, 6) twice, (6, 5) once, (9) once: three solutions of 1/3.
    assert weights(plain) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3, 0, 0])
