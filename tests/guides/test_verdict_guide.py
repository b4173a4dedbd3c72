import pytest

from sage.guides.none import NoGuide
from sage.guides.product import ProductGuide
from sage.guides.verdict import VerdictGuide
from sage.kl_modes.none import NoKL
from sage.kl_modes.reverse import ReverseKL
from tests.fakes import bank_group

BOUNDS = {"strength": 1.0, "q_min": 0.6, "q_max": 1.4}
GUIDE = VerdictGuide(**BOUNDS)


def test_q_is_the_reward_of_the_response_clipped_to_0_and_1_and_0_without_a_verdict():
    rows = [((1,), reward, None) for reward in (1.0, 0.0, 0.25, -1.0, 3.0, None)]
    assert GUIDE.q_responses(bank_group("p", (1,), rows)) == [1.0, 0.0, 0.25, 0.0, 1.0, 0.0]


def test_tokens_of_the_policy_are_left_alone(guide_inputs):
    assert GUIDE.q(guide_inputs()).eq(1).all()


def test_no_guide_takes_every_response_alike_and_a_guide_of_tokens_none():
    group = bank_group("p", (1,), [((1,), 1.0, None), ((2,), 0.0, None)])
    assert NoGuide(**BOUNDS).q_responses(group) == [1.0, 1.0]


@pytest.mark.parametrize(
    "mode",
    [ReverseKL(beta=0.05, estimator="k3", placement="loss", ratio_max=10.0), NoKL(beta=0.0)],
)
def test_a_mode_without_a_bank_is_refused_with_the_reason_and_the_way_out(mode):
    refusal = GUIDE.refusal(mode)
    assert refusal is not None
    assert "VerdictGuide weighs whole graded responses of the reference" in refusal
    assert "type kl=forward_bank" in refusal
    assert "guide=verified" in refusal


def test_it_is_no_factor_of_a_product_of_token_guides():
    with pytest.raises(ValueError, match=r"guide\.factors\.a: expected a guide of tokens.*type guide=verdict"):
        ProductGuide(**BOUNDS, factors={"a": GUIDE})


def test_a_negative_strength_is_refused_as_zero_has_no_inverse():
    with pytest.raises(ValueError, match=r"guide\.strength=-1\.0: expected a number >= 0"):
        VerdictGuide(**BOUNDS | {"strength": -1.0})
