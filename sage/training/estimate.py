"""How long a run will take, from timing the model for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from sage.interfaces import Policy, RolloutEngine
from sage.maths.streams import stream_key
from sage.training.packing import pack
from sage.types import Completion, Group, Problem, SampleRequest, Sampling, StopReason


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds per sequence of full length."""

    forward: float
    update: float
    """Forward and backward."""
    sample: float


def measure_speed(policy: Policy, engine: RolloutEngine, prompt: str, sampling: Sampling, rows: int) -> Speed:
    """Time ``policy`` and ``engine`` on ``rows`` sequences of full length; gradients are cleared, nothing else changes."""
    prompt_ids = policy.encode_prompt(prompt)
    engine.load_weights(policy)
    request = SampleRequest(prompt_ids=prompt_ids, keys=tuple(stream_key("speed", i) for i in range(rows)))
    completion = Completion(
        token_ids=prompt_ids[:1] * sampling.max_tokens,
        sampler_logprobs=(0.0,) * sampling.max_tokens,
        text="",
        stop_reason=StopReason.LENGTH,
    )
    problem = Problem(id="speed", prompt=prompt, answer="")
    batch = pack(
        [Group(problem=problem, prompt_ids=prompt_ids, completions=(completion,) * rows)], device=policy.device
    )

    def forward() -> None:
        with torch.no_grad():
            policy.token_stats(batch, temperature=1.0)

    def update() -> None:
        policy.token_stats(batch, temperature=1.0).logprobs.sum().backward()
        for parameter in policy.trainable_parameters():
            parameter.grad = None

    return Speed(
        forward=_seconds(forward) / rows,
        update=_seconds(update) / rows,
        sample=_seconds(lambda: engine.generate([request], sampling)) / rows,
    )


def _seconds(call: Callable[[], object]) -> float:
    """The faster of two calls, the first of which also warms up."""
    times: list[float] = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
