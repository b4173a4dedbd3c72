import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.anchor import anchor_logprobs, bounded_q, log_q, vocabulary_anchor_logprobs

MASK = torch.tensor([[True, True, True, False]])


def test_q_is_clamped_and_one_on_masked_tokens() -> None:
    q = torch.tensor([[0.1, 1.0, 9.0, float("nan")]])
    torch.testing.assert_close(
        bounded_q(q, MASK, q_min=0.6, q_max=1.4), torch.tensor([[0.6, 1.0, 1.4, 1.0]]), rtol=0, atol=0
    )


def test_q_over_the_vocabulary_is_masked_by_position() -> None:
    bounded = bounded_q(torch.full((1, 4, 2), 9.0), MASK, q_min=0.5, q_max=1.5)
    assert bounded.tolist() == [[[1.5, 1.5]] * 3 + [[1.0, 1.0]]]


@settings(max_examples=25, deadline=None)
@given(raw=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=4, max_size=4))
def test_strength_zero_gives_exactly_zero(raw: list[float]) -> None:
    shaped = log_q(bounded_q(torch.tensor([raw]), MASK, q_min=0.6, q_max=1.4), 0.0)
    assert torch.equal(shaped, torch.zeros(1, 4))
    assert not torch.signbit(shaped).any()


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_strength_scales_log_q(strength: float) -> None:
    expected = strength * torch.tensor([0.5, 1.4]).log()
    torch.testing.assert_close(log_q(torch.tensor([0.5, 1.4]), strength), expected)


def test_no_gradient_reaches_the_guide() -> None:
    raw = torch.ones(1, 4, requires_grad=True)
    assert not bounded_q(raw, MASK, q_min=0.6, q_max=1.4).requires_grad
    assert not anchor_logprobs(raw, raw.detach()).requires_grad


def test_the_anchor_is_the_reference_times_q_and_not_normalised() -> None:
    # Reference (1/4, 3/4), q = (2, 2): the anchor has mass 2.
    reference = torch.tensor([[[0.25, 0.75]]]).log()
    one_for_all = vocabulary_anchor_logprobs(reference, torch.tensor([[2.0]]).log(), None)
    torch.testing.assert_close(one_for_all.exp(), torch.tensor([[[0.5, 1.5]]]))
    # q = (2, 1) differs between the tokens and goes before the sampled token's q.
    each = vocabulary_anchor_logprobs(reference, torch.tensor([[2.0]]).log(), torch.tensor([[[2.0, 1.0]]]).log())
    torch.testing.assert_close(each.exp(), torch.tensor([[[0.5, 0.75]]]))
