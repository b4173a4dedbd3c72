from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from sage.guides.branch import BranchGuide
from sage.types import GuideInputs, Stat, TokenStats


def branch_guide(**changes: Any) -> BranchGuide:
    options: dict[str, Any] = {
        "strength": 1.0,
        "q_min": 0.6,
        "q_max": 1.4,
        "ratio": 0.3,
        "threshold": 1.2,
        "source": "new",
    }
    return BranchGuide(**(options | changes))


def test_q_rises_with_the_entropy_above_the_threshold(guide_inputs: Callable[..., GuideInputs]) -> None:
    entropy = torch.tensor([[0.0, 1.2, 2.2]])
    q = branch_guide().q(guide_inputs(policy=TokenStats(logprobs=torch.zeros(1, 3), entropy=entropy)))
    # 1 + 0.3 * (2.2 - 1.2)
    torch.testing.assert_close(q, torch.tensor([[1.0, 1.0, 1.3]]))


def test_the_reference_is_needed_and_read_as_a_source(guide_inputs: Callable[..., GuideInputs]) -> None:
    inputs = guide_inputs()
    assert inputs.reference is not None
    guide = branch_guide(source="ref")
    assert guide.needs == {Stat.REFERENCE}
    assert torch.equal(guide.q(inputs), branch_guide().q(replace(inputs, policy=inputs.reference)))
    with pytest.raises(ValueError, match=r"guide\.source=ref needs the reference"):
        guide.q(guide_inputs(reference=None))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": -0.1}, r"guide\.ratio=-0\.1: expected a number >= 0"),
        ({"threshold": -1.0}, r"guide\.threshold=-1\.0"),
        ({"source": "both"}, r"guide\.source=both"),
    ],
)
def test_impossible_options_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        branch_guide(**change)
