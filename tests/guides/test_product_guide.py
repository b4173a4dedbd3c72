from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from sage.config import load
from sage.guides.branch import BranchGuide
from sage.guides.none import NoGuide
from sage.guides.product import ProductGuide
from sage.guides.random import RandomGuide
from sage.guides.token import TokenGuide
from sage.guides.verified import VerifiedGuide
from sage.interfaces import Guide
from sage.kl_modes.none import NoKL
from sage.kl_modes.reverse import ReverseKL
from sage.maths.anchor import bounded_q, log_q
from sage.types import GuideInputs, Stat, TokenStats

CONF = Path(__file__).parents[2] / "conf" / "guide"
Build = Callable[..., GuideInputs]
BOUNDS: dict[str, Any] = {"strength": 1.0, "q_min": 0.6, "q_max": 1.4}
NONE = NoGuide(**BOUNDS)


def token(**changes: Any) -> TokenGuide:
    schedule: dict[str, Any] = {
        "alpha_max": 0.3,
        "alpha_min": 0.1,
        "sigma_max": 0.0,
        "sigma_min": 0.0,
        "cycles": 1,
        "decay": 1.0,
        "norm": "rank",
        "source": "new",
    }
    return TokenGuide(**(BOUNDS | schedule | changes))


def branch(**changes: Any) -> BranchGuide:
    options: dict[str, Any] = {"ratio": 0.3, "threshold": 1.2, "source": "new"}
    return BranchGuide(**(BOUNDS | options | changes))


def noise() -> RandomGuide:
    sizes: dict[str, Any] = {
        "epsilon_max": 1.0,
        "epsilon_min": 1.0,
        "sigma_max": 0.1,
        "sigma_min": 0.1,
        "cycles": 1,
        "decay": 1.0,
    }
    return RandomGuide(**BOUNDS, **sizes)


def product(factors: dict[str, Guide], **changes: Any) -> ProductGuide:
    return ProductGuide(**(BOUNDS | {"q_max": 9.0} | changes), factors=factors)


def test_q_is_the_product_of_bounded_and_strengthened_factors(guide_inputs: Build) -> None:
    stats = TokenStats(logprobs=torch.tensor([[-3.0, -1.0]]), entropy=torch.tensor([[0.0, 3.2]]))
    inputs = guide_inputs(
        policy=stats, mask=torch.ones(1, 2, dtype=torch.bool), noise_keys=torch.tensor([7]), rewards=torch.zeros(1)
    )
    # token: ranks 1 and 0, so 1.3 and 1, squared by its strength 2.
    # branch: 1 and 1 + 0.3 * (3.2 - 1.2) = 1.6, cut to its bound 1.4.
    guide = product({"a": token(strength=2.0), "b": branch()})
    torch.testing.assert_close(guide.q(inputs), torch.tensor([[1.69, 1.4]]))


def test_bounds_and_strength_of_the_product_come_last(guide_inputs: Build) -> None:
    inputs = guide_inputs()
    guide = product({"a": token(), "b": token()}, q_max=1.5, strength=0.5)
    q = bounded_q(guide.q(inputs), inputs.mask, q_min=guide.q_min, q_max=guide.q_max)
    # The most surprising token has 1.3 twice, 1.69, which is cut to 1.5; strength takes its root.
    assert q.max().item() == pytest.approx(1.5)
    assert log_q(q, guide.strength).exp().max().item() == pytest.approx(1.5**0.5)


@pytest.mark.parametrize("factor", [NONE, token(), branch()])
def test_a_product_of_one_guide_is_that_guide(guide_inputs: Build, factor: Guide) -> None:
    inputs = guide_inputs()
    alone = bounded_q(factor.q(inputs), inputs.mask, q_min=0.6, q_max=1.4)
    torch.testing.assert_close(product({"only": factor}).q(inputs), alone)


def test_the_order_of_the_factors_is_irrelevant(guide_inputs: Build) -> None:
    inputs = guide_inputs()
    one, other = product({"a": token(), "b": branch()}), product({"b": branch(), "a": token()})
    torch.testing.assert_close(one.q(inputs), other.q(inputs))


def test_two_noisy_factors_of_one_kind_do_not_repeat_each_other(guide_inputs: Build) -> None:
    inputs = guide_inputs(rewards=torch.zeros(400), noise_keys=torch.arange(400))
    zeros = torch.zeros(400, 5)
    many = replace(inputs, policy=TokenStats(logprobs=zeros, entropy=zeros), mask=torch.ones(400, 5, dtype=torch.bool))
    first, second = (product({name: noise()}).q(many).flatten() for name in ("a", "b"))
    # Of 2,000 independent pairs the correlation has standard error 0.022.
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 0.09
    torch.testing.assert_close(product({"a": noise(), "b": noise()}).q(many).flatten(), first * second)


def test_needs_and_kind_are_those_of_the_factors() -> None:
    reference = branch(source="ref")
    assert product({"a": token(), "b": reference}).needs == {Stat.REFERENCE}
    assert product({"a": token(), "b": branch()}).needs == frozenset()
    assert product({"a": token(), "b": branch()}).over_vocabulary
    assert not product({"a": branch(), "b": branch()}).over_vocabulary
    assert product({"a": NONE, "b": NONE}).identity
    assert not product({"a": NONE, "b": branch()}).identity


def test_kl_modes_judge_the_product_by_its_factors() -> None:
    """K12: a product of guides of whole positions is one itself."""
    exact = ReverseKL(beta=0.05, estimator="exact", placement="loss", ratio_max=10.0)
    assert exact.refusal(product({"a": branch(), "b": branch()})) is not None
    assert exact.refusal(product({"a": branch(), "b": token()})) is None
    assert NoKL(beta=0.0).refusal(product({"a": branch()})) is not None
    assert NoKL(beta=0.0).refusal(product({"a": NONE})) is None


def test_a_factor_without_vocabulary_multiplies_every_token_alike(guide_inputs: Build) -> None:
    inputs = guide_inputs()
    verified = VerifiedGuide(**BOUNDS, alpha=0.3, norm="minmax", source="new")
    both, alone = product({"a": verified, "b": branch()}), product({"a": verified})
    shared = bounded_q(branch().q(inputs), inputs.mask, q_min=0.6, q_max=1.4).unsqueeze(-1)
    torch.testing.assert_close(both.q_vocabulary(inputs), alone.q_vocabulary(inputs) * shared)


def test_the_shipped_example_repeats_the_values_of_its_factors() -> None:
    factors = OmegaConf.load(CONF / "product.yaml").factors
    assert {name: factors[name] for name in factors} == {
        name: OmegaConf.load(CONF / f"{name}.yaml") for name in ("token", "branch")
    }


def test_factors_are_changed_added_and_removed_on_the_command_line(composed: Callable[..., DictConfig]) -> None:
    cfg = composed(
        "guide=product", "guide.factors.branch.ratio=0.5", "~guide.factors.token", "+guide@guide.factors.noise=random"
    )
    load(cfg)
    guide = instantiate(cfg.guide, _convert_="all")
    assert set(guide.factors) == {"branch", "noise"}
    assert guide.factors["branch"].ratio == 0.5
    assert isinstance(guide.factors["noise"], RandomGuide)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({}, r"guide\.factors=\{\}: expected at least one guide"),
        ({"a": 3, "b": NONE}, r"guide\.factors\.a: expected at least one guide, each with its _target_"),
        ([NONE], r"guide\.factors=.*expected a mapping of names to guides"),
    ],
)
def test_factors_that_are_no_guides_are_refused(factors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        product(factors)
