import pytest

from sage.guides.branch import BranchGuide
from sage.guides.none import NoGuide
from sage.guides.verdict import VerdictGuide
from sage.guides.verdict_flat import VerdictFlatGuide
from sage.kl_modes.forward_bank import ForwardBankKL
from sage.types import BankSettings

BOUNDS = {"strength": 1.0, "q_min": 0.6, "q_max": 1.4}


def mode(**changes):
    return ForwardBankKL(**{"beta": 0.1, "samples": 8, "draws": 2, "weighting": "uniform", "seed": 3} | changes)


def test_no_reference_is_needed_during_training_and_the_bank_is_asked_for():
    assert mode().needs == frozenset()
    assert mode().bank == BankSettings(samples=8, draws=2, seed=3)


def test_hardness_weighs_by_what_the_reference_fails_and_uniform_does_not():
    assert [mode(weighting="hardness").problem_weight(p) for p in (0.0, 0.25, 1.0)] == [2.0, 1.5, 0.0]
    assert [mode().problem_weight(p) for p in (0.0, 0.25, 1.0)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("guide", [NoGuide(**BOUNDS), VerdictGuide(**BOUNDS), VerdictFlatGuide(**BOUNDS)])
def test_guides_of_whole_responses_and_no_guide_are_accepted(guide):
    assert mode().refusal(guide) is None
    assert guide.refusal(mode()) is None


def test_a_guide_of_tokens_is_refused_with_the_reason_and_the_way_out():
    refusal = mode().refusal(BranchGuide(**BOUNDS, ratio=0.3, threshold=1.2, source="new"))
    assert refusal is not None
    assert "BranchGuide gives q of the tokens" in refusal
    for way in ("guide=verdict", "guide=verdict_flat", "guide=none", "kl=reverse"):
        assert way in refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0}, r"kl_mode\.samples=0: expected a whole number >= 1"),
        ({"draws": 0}, r"kl_mode\.draws=0: expected a whole number >= 1"),
        ({"weighting": "hard"}, r"kl_mode\.weighting=hard: expected one of uniform, hardness"),
    ],
)
def test_values_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        mode(**changes)
