import pytest

from sage.guides.branch import BranchGuide
from sage.kl_modes.none import NoKL


def test_nothing_is_needed_so_that_no_reference_is_loaded() -> None:
    assert NoKL(beta=0.0).needs == frozenset()


def test_a_guide_is_refused_with_the_reason_and_the_way_out() -> None:
    guide = BranchGuide(strength=1.0, q_min=0.6, q_max=1.4, ratio=0.3, threshold=1.2, source="new")
    refusal = NoKL(beta=0.0).refusal(guide)
    assert refusal is not None
    assert "BranchGuide shapes the anchor of a KL term, and kl=none has no KL term" in refusal
    assert "kl=reverse" in refusal
    assert "guide=none" in refusal


def test_a_beta_without_divergence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kl_mode\.beta=0\.05: kl=none has no divergence"):
        NoKL(beta=0.05)
