import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.reward_shaping import overlong_penalty


@pytest.mark.parametrize(
    ("length", "penalty"),
    [
        (1, 0.0),
        (16384, 0.0),
        (17408, -0.25),  # (16384 - 17408) / 4096
        (18432, -0.5),
        (20480, -1.0),
        (30000, -1.0),
    ],
)
def test_the_papers_lengths(length: int, penalty: float) -> None:
    """DAPO: 16,384 tokens free, a buffer of 4,096."""
    assert overlong_penalty(torch.tensor([length]), max_tokens=20480, buffer=4096).item() == penalty


@settings(max_examples=40, deadline=None)
@given(max_tokens=st.integers(1, 60), data=st.data())
def test_it_equals_the_three_cases_of_the_equation(max_tokens: int, data: st.DataObject) -> None:
    buffer = data.draw(st.integers(1, max_tokens))
    found = overlong_penalty(torch.arange(80), max_tokens=max_tokens, buffer=buffer).tolist()
    for length, value in enumerate(found):
        if length <= max_tokens - buffer:
            assert value == 0
        elif length <= max_tokens:
            assert value == pytest.approx(((max_tokens - buffer) - length) / buffer)
        else:
            assert value == -1


@pytest.mark.parametrize("buffer", [0, 21])
def test_an_impossible_buffer_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match=rf"buffer={buffer}: expected a whole number from 1 to max_tokens=20"):
        overlong_penalty(torch.tensor([3]), max_tokens=20, buffer=buffer)
