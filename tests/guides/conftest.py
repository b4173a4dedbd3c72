"""Inputs that a guide sees, made from a fixed seed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sage.maths.logprobs import token_statistics
from sage.maths.masking import response_mask
from sage.types import GuideInputs, TokenStats

VOCABULARY = 7


def _stats(generator: torch.Generator, ids: torch.Tensor) -> TokenStats:
    logits = 2.0 * torch.randn(*ids.shape, VOCABULARY, generator=generator)
    stats = token_statistics(logits, ids, 1.0, vocabulary=True)
    return TokenStats(**stats._asdict())


@pytest.fixture
def guide_inputs() -> Callable[..., GuideInputs]:
    """A function of changes to four responses of 5, 3, 1 and 0 tokens."""

    def build(**changes: Any) -> GuideInputs:
        generator = torch.Generator().manual_seed(5)
        mask = response_mask(torch.tensor([5, 3, 1, 0]), 5)
        ids = torch.randint(0, VOCABULARY, mask.shape, generator=generator)
        fields: dict[str, Any] = {
            "policy": _stats(generator, ids),
            "reference": _stats(generator, ids),
            "response_ids": ids,
            "mask": mask,
            "rewards": torch.tensor([1.0, 0.0, float("nan"), 1.0]),
            "noise_keys": torch.tensor([11, 22, 33, 44]),
            "step": 0,
            "num_steps": 100,
        }
        return GuideInputs(**(fields | changes))

    return build
