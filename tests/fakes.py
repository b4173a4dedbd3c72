"""Small stand-ins for the seams, and builders of inputs, shared by the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from sage.config import conf_dir
from sage.models.causal_lm import CausalPolicy
from sage.models.tiny import TinyModel
from sage.types import Completion, Group, Problem, Sampling, StopReason, Verdict, VerdictReason

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, max_tokens=24)


class SilentBar:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.done = 0

    def update(self, advance: int = 1, **shown: float) -> None:
        self.done += advance


class SilentProgress:
    """Remembers its stages."""

    def __init__(self) -> None:
        self.stages: dict[str, SilentBar] = {}

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[SilentBar]:
        self.stages[name] = SilentBar()
        yield self.stages[name]


class MemoryLogger:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def log(self, step, metrics) -> None:
        self.rows.append((step, dict(metrics)))

    def log_curve(self, step, name, curve) -> None:
        self.rows.append((step, {f"{name}/pass@{k}": v for k, v in curve.items()}))

    def close(self, *, failed: bool = False) -> None:
        pass


def tiny_model(**changes) -> TinyModel:
    """The model of ``conf/model/tiny.yaml`` with some values changed."""
    values = yaml.safe_load((conf_dir() / "model" / "tiny.yaml").read_text())
    del values["_target_"]
    return TinyModel(**values | changes)


def tiny_policy(folder: Path, **changes) -> CausalPolicy:
    """A tiny policy with random weights, ready for RL."""
    model = tiny_model(**changes)
    model.create().save(folder)
    return model.begin_rl(folder, seed=0)


def completion(token_ids, *, text="", stop=StopReason.END, logprob=-1.0) -> Completion:
    """A completion of these tokens."""
    ids = tuple(token_ids)
    return Completion(token_ids=ids, sampler_logprobs=(logprob,) * len(ids), text=text, stop_reason=stop)


def verdict(reward: float | None) -> Verdict:
    """A verdict that pays ``reward``; positive is correct."""
    if reward is None:
        return Verdict(reward=None, reason=VerdictReason.ERROR)
    return Verdict(reward=reward, reason=VerdictReason.CORRECT if reward > 0 else VerdictReason.WRONG)


def group(name: str, prompt_ids, responses, rewards=None) -> Group:
    """One problem with these responses and, if given, rewards."""
    return Group(
        problem=Problem(id=name, prompt="", answer=""),
        prompt_ids=tuple(prompt_ids),
        completions=tuple(completion(r) for r in responses),
        verdicts=() if rewards is None else tuple(verdict(r) for r in rewards),
    )
