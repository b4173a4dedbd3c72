"""Small stand-ins for the seams, and builders of inputs, shared by the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from sage.config import conf_dir
from sage.models.causal_lm import CausalPolicy
from sage.models.tiny import TinyModel
from sage.training.bank import Bank
from sage.types import Completion, Group, Problem, Sampling, StopReason, Verdict, VerdictReason

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, max_tokens=24, stop=())


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
    del values["_target_"], values["defaults"]
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


def bank_group(name: str, prompt_ids, rows) -> Group:
    """Samples of one problem in a bank; a row is (token ids, reward, solution)."""
    return Group(
        problem=Problem(id=name, prompt="", answer=""),
        prompt_ids=tuple(prompt_ids),
        completions=tuple(completion(ids, text=" ".join(map(str, ids))) for ids, _, _ in rows),
        verdicts=tuple(replace(verdict(reward), solution=solution) for _, reward, solution in rows),
    )


def small_bank() -> Bank:
    """Problems "0", half of whose six samples are right, "1" with one right of four, and "2" with none."""
    rows = {
        "0": [
            ((2, 3), 0, None),
            ((5, 7, 107), 1, "a"),
            ((5, 8, 107), 1, "a"),
            ((2, 3), 0, None),
            ((9, 107), 1, "b"),
            ((2, 3), 0, None),
        ],
        "1": [((60, 61, 62, 107), 1, "c"), ((1, 107), 0, None), ((2, 107), 0, None), ((3, 107), None, None)],
        "2": [((4, 107), 0, None), ((5, 107), 0, None)],
    }
    prompts = {"0": (3, 7, 106), "1": (1, 2, 3, 4, 106), "2": (8, 106)}
    return Bank(groups={name: bank_group(name, prompts[name], rows[name]) for name in rows})
