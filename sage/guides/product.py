"""Several guides at once: q is the product of their factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from sage.interfaces import Guide
from sage.maths.anchor import bounded_q, log_q
from sage.maths.streams import sub_streams
from sage.types import GuideInputs, Stat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ProductGuide(Guide):
    """``q = prod_i clamp(q_i)^strength_i`` over the factors, each with its own bounds and strength.

    The product's bounds and strength then apply to q itself. Factors draw noise from streams of their own, so that two
    guides of one kind do not repeat each other.
    """

    factors: Mapping[str, Guide]
    """Guides by a name of your choice; at least one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.factors, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"guide.factors={self.factors}: expected a mapping of names to guides")
        wrong = [name for name, factor in self.factors.items() if not isinstance(factor, Guide)]  # pyright: ignore[reportUnnecessaryIsInstance]
        if wrong or not self.factors:
            named = ", ".join(f"guide.factors.{name}" for name in wrong) or "guide.factors={}"
            raise ValueError(
                f"{named}: expected at least one guide, each with its _target_; "
                "type +guide@guide.factors.token=token to add conf/guide/token.yaml as a factor"
            )

        whole = [name for name, factor in self.factors.items() if factor.of_responses]
        if whole:
            raise ValueError(
                f"guide.factors.{whole[0]}: expected a guide of tokens, and {type(self.factors[whole[0]]).__name__} weighs "
                "whole responses of a bank; type guide=verdict (or verdict_flat) with kl=forward_bank to use it alone"
            )

    # A product is what its factors make it, so these depend on the instance.
    @property
    def identity(self) -> bool:
        """Whether every factor is 1 everywhere."""
        return all(factor.identity for factor in self.factors.values())

    @property
    def over_vocabulary(self) -> bool:
        """Whether any factor differs between the tokens of a position."""
        return any(factor.over_vocabulary for factor in self.factors.values())

    @property
    def needs(self) -> frozenset[Stat]:
        """All that the factors need."""
        return frozenset[Stat]().union(*(factor.needs for factor in self.factors.values()))

    def q(self, inputs: GuideInputs) -> Tensor:
        """``[B, T]``."""
        terms = [_log_factor(f, f.q(own), own.mask) for f, own in self._with_own_noise(inputs)]
        return torch.stack(terms).sum(0).exp()

    def q_vocabulary(self, inputs: GuideInputs) -> Tensor:
        """``[B, T, V]``; a factor without q over the vocabulary multiplies every token of a position alike."""
        if not self.over_vocabulary:
            return super().q_vocabulary(inputs)
        total = inputs.policy.logprobs.new_zeros(())
        for factor, own in self._with_own_noise(inputs):
            q = factor.q_vocabulary(own) if factor.over_vocabulary else factor.q(own).unsqueeze(-1)
            total = total + _log_factor(factor, q, own.mask)
        return total.exp()

    def _with_own_noise(self, inputs: GuideInputs) -> list[tuple[Guide, GuideInputs]]:
        return [
            (factor, replace(inputs, noise_keys=sub_streams(inputs.noise_keys, f"factor/{name}")))
            for name, factor in self.factors.items()
        ]


def _log_factor(factor: Guide, q: Tensor, mask: Tensor) -> Tensor:
    return log_q(bounded_q(q, mask, q_min=factor.q_min, q_max=factor.q_max), factor.strength)
