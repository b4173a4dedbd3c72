from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.maths.aggregate import bnpo, dapo, dr_grpo, grpo, token_sum
from sage.maths.masking import response_mask

Share = Callable[[Tensor, Tensor, Tensor], Tensor]
LONGEST = 8


def denominated(name: str) -> Share:
    """The aggregation as a function of a micro-batch and the mask of the whole mini-batch."""
    return {
        "grpo": lambda loss, mask, whole: grpo(loss, mask, len(whole)),
        "bnpo": lambda loss, mask, whole: bnpo(loss, mask, len(whole)),
        "dapo": lambda loss, mask, whole: dapo(loss, mask, int(whole.sum())),
        "dr_grpo": lambda loss, mask, whole: dr_grpo(loss, mask, len(whole), LONGEST),
        "sum": lambda loss, mask, whole: token_sum(loss, mask, len(whole)),
    }[name]


def shares(name: str, loss: Tensor, mask: Tensor, size: int) -> Tensor:
    return sum(
        (
            denominated(name)(part, part_mask, mask)
            for part, part_mask in zip(loss.split(size), mask.split(size), strict=True)
        ),
        start=loss.new_zeros(()),
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", (-2 + 1) / 2),
        ("bnpo", (4 * -2 + 1) / 5),
        ("dapo", (4 * -2 + 1) / 5),
        ("dr_grpo", (4 * -2 + 1) / (2 * LONGEST)),
        ("sum", (4 * -2 + 1) / 2),
    ],
)
def test_lengths_four_and_one_with_losses_minus_two_and_one(name: str, expected: float) -> None:
    """K19: advantages 2 and -1 on policy are losses -2 and 1; the token mean over both rows is -7/5 = -1.4."""
    loss, mask = torch.tensor([[-2.0] * 4, [1.0] * 4]), response_mask(torch.tensor([4, 1]), 4)
    assert shares(name, loss, mask, 2).item() == pytest.approx(expected)


def test_only_bnpo_depends_on_the_cut() -> None:
    """K19: apart, the token means are -2 and 1, and their mean is -0.5."""
    loss, mask = torch.tensor([[-2.0] * 4, [1.0] * 4]), response_mask(torch.tensor([4, 1]), 4)
    assert shares("bnpo", loss, mask, 1).item() == pytest.approx(-0.5)
    for name in ("grpo", "dapo", "dr_grpo", "sum"):
        torch.testing.assert_close(shares(name, loss, mask, 1), shares(name, loss, mask, 2))


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(0, LONGEST), min_size=1, max_size=6),
    size=st.integers(1, 6),
    seed=st.integers(0, 999),
    name=st.sampled_from(["grpo", "dapo", "dr_grpo", "sum"]),
)
def test_micro_batches_add_up_to_the_loss_and_gradient_of_the_whole(
    lengths: list[int], size: int, seed: int, name: str
) -> None:
    """K19."""
    mask = response_mask(torch.tensor(lengths), LONGEST)
    generator = torch.Generator().manual_seed(seed)
    loss = torch.randn(mask.shape, dtype=torch.float64, generator=generator).requires_grad_()
    whole, cut = shares(name, loss, mask, len(lengths)), shares(name, loss, mask, size)
    torch.testing.assert_close(cut, whole)
    torch.testing.assert_close(torch.autograd.grad(cut, loss)[0], torch.autograd.grad(whole, loss)[0])


@pytest.mark.parametrize("name", ["grpo", "bnpo", "dapo", "dr_grpo", "sum"])
def test_a_fully_masked_batch_has_loss_zero_and_gradient_zero(name: str) -> None:
    """K07: four cut-off completions that are masked out."""
    loss = torch.full((4, 3), float("nan"), requires_grad=True)
    total = shares(name, loss, torch.zeros(4, 3, dtype=torch.bool), 4)
    assert total.item() == 0
    (gradient,) = torch.autograd.grad(total, loss)
    assert torch.equal(gradient, torch.zeros(4, 3))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("grpo", 1 / (2 * 10), 1 / (2 * 1000)),
        ("bnpo", 1 / 1010, 1 / 1010),
        ("dapo", 1 / 1010, 1 / 1010),
        ("dr_grpo", 1 / (2 * LONGEST), 1 / (2 * LONGEST)),
        ("sum", 1 / 2, 1 / 2),
    ],
)
def test_the_weight_of_a_token_of_a_short_and_of_a_long_response(name: str, right: float, wrong: float) -> None:
    """K21: a right answer of 10 tokens and a wrong one of 1000; only grpo punishes a long answer's tokens less."""
    mask = response_mask(torch.tensor([10, 1000]), 1000)
    loss = torch.zeros(2, 1000, dtype=torch.float64, requires_grad=True)
    (weight,) = torch.autograd.grad(shares(name, loss, mask, 2), loss)
    assert weight[0, 0].item() == pytest.approx(right)
    assert weight[1, 999].item() == pytest.approx(wrong)


def test_changing_the_padding_changes_nothing() -> None:
    mask = response_mask(torch.tensor([2, 1]), 3)
    loss = torch.arange(6.0).view(2, 3)
    for name in ("grpo", "bnpo", "dapo", "dr_grpo", "sum"):
        assert torch.equal(shares(name, loss, mask, 2), shares(name, loss.masked_fill(~mask, torch.inf), mask, 2))


@pytest.mark.parametrize("name", ["grpo", "bnpo", "dapo", "dr_grpo", "sum"])
def test_each_optimiser_step_of_a_batch_of_rollouts_has_the_size_of_an_ordinary_step(name: str) -> None:
    """K20: four micro-batches of rollouts, two optimiser steps of two each, lengths equal: each step is a whole one."""
    mask = response_mask(torch.tensor([3] * 8), 3)
    loss = torch.full((8, 3), 2.0)
    ordinary = shares(name, loss[:4], mask[:4], 4)
    for step in (slice(0, 4), slice(4, 8)):
        torch.testing.assert_close(shares(name, loss[step], mask[step], 2), ordinary)
