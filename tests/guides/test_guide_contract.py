"""What every guide with a yaml must keep; a new one is picked up by its file."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from sage.interfaces import Guide
from sage.kl_modes.reverse import ReverseKL
from sage.maths.anchor import bounded_q, log_q
from sage.types import GuideInputs, KLInputs, Stat, TokenStats

FILES = sorted((Path(__file__).parents[2] / "conf" / "guide").glob("*.yaml"))
Build = Callable[..., GuideInputs]


def load(file: Path, **changes: Any) -> Guide:
    return instantiate(OmegaConf.merge(OmegaConf.load(file), changes), _convert_="all")


def shaped(guide: Guide, inputs: GuideInputs) -> tuple[Tensor, Tensor]:
    q = bounded_q(guide.q(inputs), inputs.mask, q_min=guide.q_min, q_max=guide.q_max)
    return q, log_q(q, guide.strength)


def changed_stats(stats: TokenStats, change: Callable[[Tensor], Tensor]) -> TokenStats:
    tensors = {f.name: getattr(stats, f.name) for f in fields(stats)}
    changed: dict[str, Any] = {name: None if value is None else change(value) for name, value in tensors.items()}
    return TokenStats(**changed)


every_guide = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@every_guide
def test_q_is_finite_within_its_bounds_and_one_on_masked_tokens(file: Path, guide_inputs: Build) -> None:
    guide, inputs = load(file), guide_inputs()
    q, _ = shaped(guide, inputs)
    assert q.shape == inputs.mask.shape
    assert q.isfinite().all()
    assert ((q >= guide.q_min) & (q <= guide.q_max)).all()
    assert torch.equal(q[~inputs.mask], torch.ones(int((~inputs.mask).sum())))
    assert q.dtype == inputs.policy.logprobs.dtype


@every_guide
def test_strength_zero_equals_guide_none_bit_for_bit(file: Path, guide_inputs: Build) -> None:
    inputs = guide_inputs()
    mode = ReverseKL(beta=0.05, estimator="k3", placement="loss", ratio_max=10.0)
    assert inputs.reference is not None

    def loss_and_gradient(guide: Guide) -> tuple[Tensor, Tensor]:
        assert inputs.reference is not None
        logprobs = inputs.policy.logprobs.clone().requires_grad_()
        loss = mode.token_loss(
            KLInputs(
                policy=replace(inputs.policy, logprobs=logprobs),
                old_logprobs=inputs.policy.logprobs,
                reference=inputs.reference,
                response_ids=inputs.response_ids,
                mask=inputs.mask,
                log_q=shaped(guide, inputs)[1],
            )
        )
        assert loss is not None
        return loss.detach(), torch.autograd.grad(loss.sum(), logprobs)[0]

    off, none = load(file, strength=0.0), load(file.with_name("none.yaml"))
    for found, expected in zip(loss_and_gradient(off), loss_and_gradient(none), strict=True):
        assert torch.equal(found, expected)


@every_guide
def test_changing_the_padding_changes_nothing(file: Path, guide_inputs: Build) -> None:
    guide, inputs = load(file), guide_inputs()

    def spoil(values: Tensor) -> Tensor:
        padding = ~inputs.mask
        return values.masked_fill(padding if values.dim() == 2 else padding.unsqueeze(-1), -777.0)

    assert inputs.reference is not None
    spoilt = replace(
        inputs, policy=changed_stats(inputs.policy, spoil), reference=changed_stats(inputs.reference, spoil)
    )
    assert torch.equal(shaped(guide, spoilt)[0], shaped(guide, inputs)[0])


@every_guide
def test_a_row_has_the_same_q_alone_and_in_a_batch(file: Path, guide_inputs: Build) -> None:
    guide, inputs = load(file), guide_inputs()
    assert inputs.reference is not None
    for row in range(len(inputs.mask)):
        one = slice(row, row + 1)
        alone = GuideInputs(
            policy=changed_stats(inputs.policy, lambda values, one=one: values[one]),
            reference=changed_stats(inputs.reference, lambda values, one=one: values[one]),
            response_ids=inputs.response_ids[one],
            mask=inputs.mask[one],
            rewards=inputs.rewards[one],
            noise_keys=inputs.noise_keys[one],
            step=inputs.step,
            num_steps=inputs.num_steps,
        )
        torch.testing.assert_close(shaped(guide, alone)[0], shaped(guide, inputs)[0][one])


@every_guide
def test_q_depends_on_the_step_alone_and_on_no_earlier_call(file: Path, guide_inputs: Build) -> None:
    """K13: four micro-batches of a step, or a resume, leave the schedule where it is."""
    guide = load(file)
    first = guide.q(guide_inputs(step=6))
    for step in (0, 6, 99):
        guide.q(guide_inputs(step=step))
    assert torch.equal(guide.q(guide_inputs(step=6)), first)
    assert torch.equal(load(file).q(guide_inputs(step=6)), first)


@every_guide
def test_q_over_the_vocabulary_agrees_on_the_sampled_tokens(file: Path, guide_inputs: Build) -> None:
    guide, inputs = load(file), guide_inputs()
    if not guide.over_vocabulary:
        with pytest.raises(NotImplementedError, match="gives no q over the vocabulary"):
            guide.q_vocabulary(inputs)
        return
    every = guide.q_vocabulary(inputs)
    sampled = every.gather(-1, inputs.response_ids.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(sampled[inputs.mask], guide.q(inputs)[inputs.mask])


@every_guide
def test_a_guide_that_names_no_reference_works_without_one(file: Path, guide_inputs: Build) -> None:
    guide = load(file)
    if Stat.REFERENCE in guide.needs:
        pytest.skip("reads the reference")
    inputs = guide_inputs()
    assert torch.equal(guide.q(replace(inputs, reference=None)), guide.q(inputs))


@every_guide
def test_impossible_bounds_are_refused(file: Path) -> None:
    # Hydra wraps the constructor's ValueError and keeps its text.
    with pytest.raises(Exception, match=r"guide\.q_min=0\.0, guide\.q_max=1\.4: expected 0 < q_min <= q_max"):
        load(file, q_min=0.0)
