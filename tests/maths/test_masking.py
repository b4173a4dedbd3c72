import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.masking import masked_mean, masked_quantile, masked_sum, response_mask


def test_the_mask_ends_with_the_end_token() -> None:
    """K05: ids [5, 7, E, 9, 9] are a response of 3 tokens; E itself is trained, nothing after it."""
    assert response_mask(torch.tensor([3]), 5).tolist() == [[True, True, True, False, False]]


def test_the_mask_keeps_an_end_token_that_equals_the_padding() -> None:
    """K06: with pad = end = 2, ids [[5, 6, 2, 2, 2], [5, 6, 7, 8, 2]] have lengths 3 and 5."""
    assert response_mask(torch.tensor([3, 5]), 5).int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]


def test_reductions_ignore_whatever_padding_holds() -> None:
    values = torch.tensor([[1.0, 3.0, float("nan")], [5.0, float("inf"), float("nan")]], requires_grad=True)
    mask = response_mask(torch.tensor([2, 1]), 3)
    # (1 + 3) and 5; the mean over all three tokens is 9 / 3.
    assert masked_sum(values, mask, dim=-1).tolist() == [4.0, 5.0]
    mean = masked_mean(values, mask)
    assert mean.item() == 3.0
    mean.backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad, mask / 3)


def test_an_empty_mask_gives_zero_and_no_gradient() -> None:
    values = torch.full((2, 3), float("nan"), requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    total = masked_mean(values, mask) + masked_mean(values, mask, dim=-1).sum() + masked_sum(values, mask)
    assert total.item() == 0.0
    total.backward()
    assert values.grad is not None
    assert not values.grad.any()
    assert masked_quantile(values.detach(), mask, 0.5).tolist() == [0.0, 0.0]


@settings(max_examples=30, deadline=None)
@given(
    row=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=9),
    padding=st.integers(0, 3),
    fraction=st.floats(0, 1),
)
def test_quantiles_equal_those_of_the_row_without_padding(row: list[float], padding: int, fraction: float) -> None:
    values = torch.tensor([row + [-99.0] * padding], dtype=torch.float64)
    mask = response_mask(torch.tensor([len(row)]), len(row) + padding)
    expected = torch.quantile(torch.tensor(row, dtype=torch.float64), fraction)
    torch.testing.assert_close(masked_quantile(values, mask, fraction)[0], expected)
