from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sage.guides.verified import VerifiedGuide
from sage.types import GuideInputs, Stat, TokenStats

Build = Callable[..., GuideInputs]


def verified_guide(**changes: Any) -> VerifiedGuide:
    options: dict[str, Any] = {
        "strength": 1.0,
        "q_min": 0.6,
        "q_max": 1.4,
        "alpha": 0.3,
        "norm": "rank",
        "source": "new",
    }
    return VerifiedGuide(**(options | changes))


def rewarded(build: Build, rewards: list[float]) -> GuideInputs:
    """The same three tokens with each of the rewards; their ranks are 1, 0, 1/2."""
    surprisal = torch.tensor([[3.0, 1.0, 2.0]]).repeat(len(rewards), 1)
    return build(
        policy=TokenStats(logprobs=-surprisal, entropy=torch.zeros_like(surprisal)),
        mask=torch.ones_like(surprisal, dtype=torch.bool),
        noise_keys=torch.arange(len(rewards)),
        rewards=torch.tensor(rewards),
    )


def test_q_rises_with_surprisal_in_rewarded_responses_only(guide_inputs: Build) -> None:
    q = verified_guide().q(rewarded(guide_inputs, [1.0, 0.0, 0.5]))
    torch.testing.assert_close(q, torch.tensor([[1.3, 1.0, 1.15], [1.0, 1.0, 1.0], [1.15, 1.0, 1.075]]))


def test_abstained_verdicts_count_as_zero_and_rewards_are_clipped(guide_inputs: Build) -> None:
    """K03: a missing reward does not spread."""
    q = verified_guide().q(rewarded(guide_inputs, [float("nan"), -1.0, 2.0]))
    torch.testing.assert_close(q, torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.3, 1.0, 1.15]]))


@pytest.mark.parametrize("norm", ["minmax", "rank", "zscore"])
@pytest.mark.parametrize("source", ["new", "ref"])
def test_every_norm_and_source_agrees_over_the_vocabulary(guide_inputs: Build, norm: str, source: str) -> None:
    guide, inputs = verified_guide(norm=norm, source=source), guide_inputs(rewards=torch.tensor([1.0, 0.5, 1.0, 1.0]))
    every = guide.q_vocabulary(inputs)
    sampled = every.gather(-1, inputs.response_ids.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(sampled[inputs.mask], guide.q(inputs)[inputs.mask])
    assert (every.amax(-1) > every.amin(-1))[0].any()


def test_over_the_vocabulary_a_wrong_response_leaves_the_reference(guide_inputs: Build) -> None:
    every = verified_guide().q_vocabulary(guide_inputs(rewards=torch.tensor([1.0, 0.0, float("nan"), 1.0])))
    assert torch.equal(every[1:3], torch.ones_like(every[1:3]))


def test_the_reference_is_needed_and_read_as_a_source(guide_inputs: Build) -> None:
    inputs = guide_inputs()
    assert inputs.reference is not None
    guide = verified_guide(source="ref")
    assert guide.needs == {Stat.REFERENCE}
    assert verified_guide().needs == frozenset()
    assert torch.equal(guide.q(inputs), verified_guide().q(replace(inputs, policy=inputs.reference)))
    with pytest.raises(ValueError, match=r"guide\.source=ref needs the reference"):
        guide.q(guide_inputs(reference=None))


def test_over_the_vocabulary_the_source_must_come_with_it(guide_inputs: Build) -> None:
    values: Tensor = torch.zeros(4, 5)
    with pytest.raises(ValueError, match=r"Stat\.VOCABULARY"):
        verified_guide().q_vocabulary(guide_inputs(policy=TokenStats(logprobs=values, entropy=values)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": -0.1}, r"guide\.alpha=-0\.1: expected a number >= 0"),
        ({"norm": "max"}, r"guide\.norm=max: expected one of minmax, rank, zscore"),
        ({"source": "both"}, r"guide\.source=both"),
    ],
)
def test_impossible_options_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verified_guide(**change)
