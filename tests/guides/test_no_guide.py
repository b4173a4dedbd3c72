from collections.abc import Callable

import pytest
import torch

from sage.guides.none import NoGuide
from sage.types import GuideInputs


def test_q_is_one_everywhere(guide_inputs: Callable[..., GuideInputs]) -> None:
    guide = NoGuide(strength=1.0, q_min=0.6, q_max=1.4)
    assert torch.equal(guide.q(guide_inputs()), torch.ones(4, 5))
    assert guide.identity


def test_bounds_that_would_move_q_away_from_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"guide\.q_min=1\.1.*needs q_min <= 1 <= q_max"):
        NoGuide(strength=1.0, q_min=1.1, q_max=1.4)
