from collections.abc import Callable
from typing import Any

import pytest
import torch

from sage.guides.random import RandomGuide
from sage.types import GuideInputs, TokenStats


def random_guide(**changes: Any) -> RandomGuide:
    options: dict[str, Any] = {
        "strength": 1.0,
        "q_min": 0.6,
        "q_max": 1.4,
        "epsilon_max": 0.1,
        "epsilon_min": 0.0,
        "sigma_max": 0.15,
        "sigma_min": 0.05,
        "cycles": 8,
        "decay": 0.9,
    }
    return RandomGuide(**(options | changes))


def many(build: Callable[..., GuideInputs], step: int = 0) -> GuideInputs:
    """200 responses of 50 tokens."""
    zeros = torch.zeros(200, 50)
    return build(policy=TokenStats(logprobs=zeros, entropy=zeros), noise_keys=torch.arange(200), step=step)


def test_the_scheduled_share_of_tokens_gets_noise_of_the_scheduled_size(
    guide_inputs: Callable[..., GuideInputs],
) -> None:
    q = random_guide().q(many(guide_inputs))
    noisy = q != 1
    # 10,000 tokens at epsilon 0.1: standard error 0.003; about 1,000 noises with sigma 0.15: standard error 0.0034.
    assert noisy.float().mean().item() == pytest.approx(0.1, abs=0.012)
    assert q[noisy].mean().item() == pytest.approx(1.0, abs=0.02)
    assert q[noisy].std().item() == pytest.approx(0.15, abs=0.014)


def test_epsilon_zero_leaves_every_token_at_one(guide_inputs: Callable[..., GuideInputs]) -> None:
    q = random_guide(epsilon_max=0.0).q(many(guide_inputs))
    assert torch.equal(q, torch.ones(200, 50))


def test_a_lower_epsilon_picks_a_subset_of_the_same_tokens(guide_inputs: Callable[..., GuideInputs]) -> None:
    # Cycle length 100 // 8 = 12; step 6 is its middle, where epsilon is halfway between 0.1 and 0.
    early, late = (random_guide().q(many(guide_inputs, step)) != 1 for step in (0, 6))
    assert late.sum() < early.sum()
    assert (early | ~late).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon_max": 1.5}, r"guide\.epsilon_max=1\.5: a probability"),
        ({"sigma_min": 0.5}, r"guide\.sigma_min=0\.5, guide\.sigma_max=0\.15"),
        ({"cycles": 0}, r"guide\.cycles=0"),
    ],
)
def test_impossible_options_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_guide(**change)
