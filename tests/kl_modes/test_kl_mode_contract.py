"""What every KL mode with a yaml must keep; a new one is picked up by its file."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from sage.guides.none import NoGuide
from sage.interfaces import KLMode
from sage.types import KLInputs, Stat, TokenStats

CONF = Path(__file__).parents[2] / "conf"
FILES = sorted((CONF / "kl_mode").glob("*.yaml"))
Enumerated = Callable[..., KLInputs]

every_mode = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def load(file: Path) -> KLMode:
    return instantiate(OmegaConf.load(file))


def outputs(mode: KLMode, inputs: KLInputs) -> list[Tensor]:
    return [out for out in (mode.token_reward(inputs), mode.token_loss(inputs)) if out is not None]


def test_the_shorthand_group_has_the_same_names() -> None:
    assert [file.name for file in sorted((CONF / "kl").glob("*.yaml"))] == [file.name for file in FILES]


@every_mode
def test_a_mode_sits_in_the_loss_or_in_the_reward(file: Path, enumerated: Enumerated) -> None:
    mode = load(file)
    policy = torch.tensor([0.2, 0.3, 0.5]).log().requires_grad_()
    found = outputs(mode, enumerated(policy, torch.tensor([0.5, 0.3, 0.2]).log()))
    assert len(found) == (Stat.REFERENCE in mode.needs)
    for out in found:
        assert out.shape == (3, 1)
    reward = mode.token_reward(enumerated(policy, policy.detach()))
    assert reward is None or not reward.requires_grad
    # The loop asks in_reward before it scores anything: a mode that says no is never asked for its token reward.
    assert mode.in_reward == (reward is not None)


@every_mode
def test_policy_equal_to_anchor_costs_nothing(file: Path, enumerated: Enumerated) -> None:
    policy = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    for out in outputs(load(file), enumerated(policy, policy)):
        torch.testing.assert_close(out, torch.zeros(3, 1, dtype=torch.float64))


@every_mode
def test_masked_tokens_give_zero_and_no_gradient_whatever_they_hold(file: Path, enumerated: Enumerated) -> None:
    mode = load(file)
    policy = torch.tensor([0.2, 0.3, 0.5]).log().requires_grad_()
    mask = torch.tensor([[True], [False], [True]])
    clean = enumerated(policy, torch.tensor([0.5, 0.3, 0.2]).log(), mask=mask)

    def spoil(stats: TokenStats) -> TokenStats:
        return replace(stats, logprobs=stats.logprobs.masked_fill(~mask, 999.0))

    dirty = replace(
        clean,
        policy=spoil(clean.policy),
        reference=spoil(clean.reference),
        old_logprobs=clean.old_logprobs.masked_fill(~mask, -999.0),
    )
    for found, expected in zip(outputs(mode, dirty), outputs(mode, clean), strict=True):
        assert torch.equal(found, expected)
        assert found[1].item() == 0
        if found.requires_grad:
            (gradient,) = torch.autograd.grad(found.sum(), policy)
            assert gradient.isfinite().all()


@every_mode
def test_no_gradient_reaches_the_anchor(file: Path, enumerated: Enumerated) -> None:
    policy = torch.tensor([0.2, 0.3, 0.5]).log().requires_grad_()
    reference = torch.tensor([0.5, 0.3, 0.2]).log().requires_grad_()
    q = torch.tensor([1.2, 0.9, 1.0], requires_grad=True)
    for out in outputs(load(file), enumerated(policy, reference, q=q)):
        if out.requires_grad:
            gradients = torch.autograd.grad(out.sum(), [policy, reference, q], allow_unused=True)
            assert gradients[0] is not None
            assert gradients[1] is None
            assert gradients[2] is None


@every_mode
def test_statistics_that_are_not_needed_are_not_read(file: Path, enumerated: Enumerated) -> None:
    mode = load(file)
    policy = torch.tensor([0.2, 0.3, 0.5]).log()
    inputs = enumerated(policy, policy)
    bare = replace(
        inputs,
        policy=replace(inputs.policy, vocabulary_logprobs=None),
        reference=replace(inputs.reference, vocabulary_logprobs=None),
    )
    if Stat.VOCABULARY in mode.needs:
        with pytest.raises(ValueError, match=r"Stat\.VOCABULARY"):
            outputs(mode, bare)
    else:
        assert all(map(torch.equal, outputs(mode, bare), outputs(mode, inputs)))


@every_mode
def test_no_guide_is_accepted_and_the_gradient_is_one_sentence(file: Path) -> None:
    mode = load(file)
    assert mode.refusal(NoGuide(strength=1.0, q_min=0.6, q_max=1.4)) is None
    assert mode.gradient.endswith(".")
    assert "\n" not in mode.gradient


@every_mode
def test_a_negative_beta_is_refused(file: Path) -> None:
    mode = load(file)
    values = {f.name: getattr(mode, f.name) for f in fields(mode)}
    with pytest.raises(ValueError, match=r"kl_mode\.beta=-0\.1"):
        type(mode)(**(values | {"beta": -0.1}))
