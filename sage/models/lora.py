"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) by PEFT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from sage.types import Refusal

TRAINED = "default"
"""PEFT's name of the adapter that is trained."""
REFERENCE = "reference"
"""The frozen copy of an adapter that was tuned before RL: the policy as RL began."""


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Train an adapter of this shape instead of the model's own weights."""

    rank: int
    alpha: float
    dropout: float
    """Acts in the forward pass of an update alone: samples, old and reference log-probs are without it. With one update a
    batch the ratio stays 1; with several it does not start there."""
    targets: str | Sequence[str]
    """Module names, or ``all-linear`` for every linear layer but the head."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"model.lora.rank={self.rank}: expected a whole number >= 1, e.g. 8")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.lora.dropout={self.dropout}: expected a number in [0, 1), e.g. 0.0")

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


def merged_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight of a model with adapter layers as if the trained adapter were merged, by its name in a checkpoint.

    Merged one matrix at a time and into new memory: merging in place and back would round the base a little each time.

    Raises:
        ValueError: for an adapter that is more than ``W + scale * B A``.
    """
    from peft.tuners.lora import LoraLayer

    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    merged: set[str] = set()
    for name, layer in layers.items():
        if getattr(layer, "use_dora", {}).get(TRAINED) or getattr(layer, "lora_bias", {}).get(TRAINED):
            raise ValueError(f"the adapter of {name} is not plain LoRA (DoRA or a bias): merge it into its base first")
        if TRAINED in layer.lora_A or TRAINED in layer.lora_embedding_A:
            merged.add(name)
    if model.config.tie_word_embeddings and any(model.get_submodule(n) in _tied(model) for n in merged):
        raise Refusal(
            "model.lora.targets holds an embedding that is also the output head: merged, it would change both; choose other "
            "targets, e.g. all-linear"
        )
    for name, tensor in model.state_dict().items():
        owner, is_base, leaf = name.partition(".base_layer.")
        if is_base:
            tensor = tensor.detach()
            if owner in merged and leaf == "weight":
                tensor = tensor + layers[owner].get_delta_weight(TRAINED).detach().to(tensor.dtype)
            yield f"{owner}.{leaf}", tensor
        elif ".lora_" not in name:
            yield name, tensor.detach()


def _tied(model: Any) -> tuple[Any, Any]:
    return model.get_input_embeddings(), model.get_output_embeddings()
