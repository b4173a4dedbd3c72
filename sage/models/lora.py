"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) by PEFT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Train an adapter of this shape instead of the model's own weights."""

    rank: int
    alpha: float
    dropout: float
    targets: str | Sequence[str]
    """Module names, or ``all-linear`` for every linear layer but the head."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"model.lora.rank={self.rank}: expected a whole number >= 1, e.g. 8")
        if self.dropout != 0:
            raise ValueError(
                f"model.lora.dropout={self.dropout}: expected 0.0, as an update must score tokens under the distribution that "
                "they were sampled from"
            )

    def attach(self, model: Any, seed: int) -> Any:
        """Wrap ``model`` with a fresh adapter. B starts at zero, so the policy equals the reference; A is drawn from ``seed``."""
        from peft import LoraConfig, get_peft_model

        targets = (
            self.targets if isinstance(self.targets, str) else list(self.targets)
        )  # JSON knows no ListConfig (K63)
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # pyright: ignore[reportArgumentType]  # PEFT says int, and divides it
            lora_dropout=self.dropout,
            target_modules=targets,
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return get_peft_model(model, config)


def lora_from(options: Mapping[str, Any]) -> Lora:
    """The adapter of a ``model.lora`` section.

    Raises:
        ValueError: for keys that are missing or unknown.
    """
    expected = [field.name for field in fields(Lora)]
    if sorted(options) != sorted(expected):
        raise ValueError(
            f"model.lora has {', '.join(options) or 'no key'}: expected exactly {', '.join(expected)}, e.g. "
            "{rank:8,alpha:16,dropout:0.0,targets:all-linear}"
        )
    return Lora(**options)
