"""The anchor of whole responses: a bank, re-weighted by the guide, from which every step draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sage.interfaces import Guide, KLMode
from sage.maths.bank import response_weights
from sage.maths.streams import stream_key, uniform
from sage.training.bank import Bank
from sage.training.packing import pack
from sage.types import BankSettings, Batch, Group


@dataclass(frozen=True, kw_only=True)
class AnchorRows:
    """Responses drawn from the anchor, with their weights in the mean over the problems of a step."""

    batch: Batch
    """N responses."""
    weights: Tensor
    """``[N]`` w(x) / (problems * draws): the weighted sum over all rows is the step's mean."""

    def __len__(self) -> int:
        return len(self.weights)

    def rows(self, index: slice | Tensor) -> AnchorRows:
        """Some of them; weights stay."""
        return AnchorRows(batch=self.batch.rows(index), weights=self.weights[index])

    def times(self, factor: float) -> AnchorRows:
        """The same responses with other weights."""
        return AnchorRows(batch=self.batch, weights=factor * self.weights)


@dataclass(frozen=True, kw_only=True)
class ResponseAnchor:
    """``anchor(y|x)`` over the samples of a bank, and the weight of each problem."""

    bank: Bank
    settings: BankSettings
    weights: Mapping[str, Tensor]
    """Problem id -> ``[n]`` the anchor's probability of each sample; all 0 where it could hold none."""
    problem_weights: Mapping[str, float]
    """Problem id -> w(x)."""

    @classmethod
    def shape(cls, bank: Bank, guide: Guide, kl_mode: KLMode) -> ResponseAnchor:
        """Weigh a bank by a guide of whole responses.

        Raises:
            ValueError: if the KL mode wants no bank.
        """
        if kl_mode.bank is None:
            raise ValueError(f"{type(kl_mode).__name__} has no bank: expected a mode such as kl=forward_bank")
        q = {name: torch.tensor(guide.q_responses(group), dtype=torch.float64) for name, group in bank.groups.items()}
        return cls(
            bank=bank,
            settings=kl_mode.bank,
            weights={name: response_weights(values, guide.strength) for name, values in q.items()},
            problem_weights={name: kl_mode.problem_weight(bank.pass_rate(name)) for name in bank.groups},
        )

    def draw(self, problem_ids: Sequence[str], step: int, seed: int, device: Any) -> AnchorRows | None:
        """Draw responses for the problems of a step, each problem's from a stream of its own.

        Args:
            problem_ids: of the step; those that have nothing to draw, or weight 0, give no rows and count in the mean.
            step: from 0.
            seed: the run's.
            device: where the tensors go.

        Returns:
            ``draws`` rows for each problem that gives any, in order; ``None`` where none does.
        """
        draws = self.settings.draws
        active = [name for name in problem_ids if self.problem_weights[name] > 0 and bool(self.weights[name].any())]
        if not active:
            return None
        weights = torch.tensor([self.problem_weights[name] for name in active], device=device)
        return AnchorRows(
            batch=pack([self._drawn(name, step, seed) for name in active], device=device),
            weights=weights.repeat_interleave(draws) / (len(problem_ids) * draws),
        )

    def _drawn(self, name: str, step: int, seed: int) -> Group:
        """Independent draws with replacement, by the inverse of the cumulated weights."""
        key = torch.tensor([stream_key(seed, "anchor", step, name)])
        support = self.weights[name].nonzero().squeeze(1)
        cumulated = self.weights[name][support].cumsum(0)
        places = torch.searchsorted(
            cumulated, uniform(key, self.settings.draws, "draw")[0] * cumulated[-1], right=True
        ).clamp(max=len(support) - 1)
        group = self.bank.groups[name]
        # Without verdicts every token counts: the guide has decided what is drawn, whatever the reward made of it.
        return replace(group, completions=tuple(group.completions[i] for i in support[places].tolist()), verdicts=())
