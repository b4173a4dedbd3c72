from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sage.guides.token import TokenGuide
from sage.maths.streams import normal
from sage.types import GuideInputs, Stat, TokenStats


def token_guide(**changes: Any) -> TokenGuide:
    options: dict[str, Any] = {
        "strength": 1.0,
        "q_min": 0.6,
        "q_max": 1.4,
        "alpha_max": 0.3,
        "alpha_min": 0.1,
        "sigma_max": 0.0,
        "sigma_min": 0.0,
        "cycles": 8,
        "decay": 0.9,
        "norm": "rank",
        "source": "new",
    }
    return TokenGuide(**(options | changes))


def surprisals(build: Callable[..., GuideInputs], values: Tensor, **changes: Any) -> GuideInputs:
    stats = TokenStats(logprobs=-values, entropy=torch.zeros_like(values))
    return build(policy=stats, mask=torch.ones_like(values, dtype=torch.bool), noise_keys=torch.tensor([7]), **changes)


def test_q_rises_with_the_rank_of_the_surprisal(guide_inputs: Callable[..., GuideInputs]) -> None:
    # Ranks 2, 0, 1 of 2: w = 1, 0, 1/2 and alpha is 0.3 at step 0.
    q = token_guide().q(surprisals(guide_inputs, torch.tensor([[3.0, 1.0, 2.0]])))
    torch.testing.assert_close(q, torch.tensor([[1.3, 1.0, 1.15]]))


def test_alpha_follows_the_schedule(guide_inputs: Callable[..., GuideInputs]) -> None:
    # 800 steps in 8 cycles: step 100 opens the second one with peak 0.3 * 0.9.
    q = token_guide().q(surprisals(guide_inputs, torch.tensor([[3.0, 1.0]]), step=100, num_steps=800))
    torch.testing.assert_close(q, torch.tensor([[1.27, 1.0]]))


def test_noise_is_scaled_by_the_weight(guide_inputs: Callable[..., GuideInputs]) -> None:
    guide = token_guide(sigma_max=0.25, sigma_min=0.1)
    q = guide.q(surprisals(guide_inputs, torch.tensor([[3.0, 1.0, 2.0]])))
    noise = normal(torch.tensor([7]), 3, "token/noise").float()
    weight = torch.tensor([[1.0, 0.0, 0.5]])
    torch.testing.assert_close(q, 1 + 0.3 * weight + 0.25 * weight * noise)


@pytest.mark.parametrize("norm", ["minmax", "rank", "zscore"])
@pytest.mark.parametrize("source", ["new", "ref"])
def test_every_norm_and_source_agrees_over_the_vocabulary(
    guide_inputs: Callable[..., GuideInputs], norm: str, source: str
) -> None:
    guide, inputs = token_guide(norm=norm, source=source, sigma_max=0.25), guide_inputs()
    every = guide.q_vocabulary(inputs)
    assert every.shape == (4, 5, 7)
    sampled = every.gather(-1, inputs.response_ids.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(sampled[inputs.mask], guide.q(inputs)[inputs.mask])
    assert (every.amax(-1) > every.amin(-1))[0].any()


def test_the_reference_is_needed_and_read_as_a_source(guide_inputs: Callable[..., GuideInputs]) -> None:
    inputs = guide_inputs()
    assert inputs.reference is not None
    guide = token_guide(source="ref")
    assert guide.needs == {Stat.REFERENCE}
    assert torch.equal(guide.q(inputs), token_guide().q(replace(inputs, policy=inputs.reference)))
    with pytest.raises(ValueError, match=r"guide\.source=ref needs the reference"):
        guide.q(guide_inputs(reference=None))


def test_missing_vocabulary_statistics_are_an_error(guide_inputs: Callable[..., GuideInputs]) -> None:
    with pytest.raises(ValueError, match=r"Stat\.VOCABULARY"):
        token_guide().q_vocabulary(surprisals(guide_inputs, torch.ones(1, 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "softmax"}, r"guide\.norm=softmax: expected one of minmax, rank, zscore"),
        ({"source": "old"}, r"guide\.source=old: expected new .* or ref"),
        ({"alpha_min": 0.4}, r"guide\.alpha_min=0\.4, guide\.alpha_max=0\.3"),
    ],
)
def test_impossible_options_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        token_guide(**change)
