"""The policy that ``sage-eval`` judges: a model as it is, or what a run made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from sage.config import ConfigError
from sage.interfaces import Model, Policy

_ADAPTER = "adapter_config.json"


def load_policy(model: Model, run: Path | None, seed: int) -> tuple[Policy, bool]:
    """The policy to judge, and whether it has a reference other than itself.

    Args:
        model: of the configuration (of the run, where there is one).
        run: folder of a run, whose ``model/`` holds weights or an adapter; ``None`` for the model as it is.
        seed: draws the adapter that the run's takes the place of.

    Raises:
        ConfigError: the weights that an adapter was trained on are gone, or are not of its shape.
    """
    if run is None:
        return model.begin_rl(None, seed), False
    folder = run / "model"
    if not (folder / _ADAPTER).is_file():
        return model.begin_rl(folder, seed), False
    policy = model.begin_rl(_adapter_base(model, folder), seed)
    _load_adapter(policy, folder)
    return policy, True


def _adapter_base(model: Model, folder: Path) -> Path | None:
    """Where the weights lie that an adapter was trained on; ``None`` for the model's own."""
    config = yaml.safe_load((folder.parent / "config.yaml").read_text(encoding="utf-8"))
    if not config["sft"]["enabled"]:
        return None if model.pretrained else folder.parent / "base"
    base = Path(json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"])
    if not base.is_dir():
        raise ConfigError(
            [
                f"run={folder.parent}: its adapter was trained on the SFT base {base}, which is gone; run it again with the same "
                "sft and paths.cache, which makes that base anew"
            ]
        )
    return base


def _load_adapter(policy: Policy, folder: Path) -> None:
    from peft import load_peft_weights, set_peft_model_state_dict

    model: Any = policy.model  # pyright: ignore[reportAttributeAccessIssue]  # a policy of transformers with an adapter
    try:
        result = set_peft_model_state_dict(model, load_peft_weights(str(folder), device="cpu"))
    except RuntimeError as error:
        raise ConfigError([f"{folder}: the adapter is not of the shape of model.lora: {error}"]) from error
    if result.unexpected_keys:
        raise ConfigError([f"{folder}: the adapter has weights that model.lora does not: {result.unexpected_keys[:3]}"])


def identity(model: Model, run: Path | None) -> dict[str, Any]:
    """What tells the weights from others, and where they come from. Raises as :func:`load_policy`."""
    from sage.models.source import content_digest

    if run is None:
        return {"fingerprint": model.fingerprint()}
    folder = run / "model"
    if not (folder / _ADAPTER).is_file():
        return {"weights": content_digest(folder)}
    base = _adapter_base(model, folder)
    return {"weights": content_digest(folder), "base": model.fingerprint() if base is None else content_digest(base)}
