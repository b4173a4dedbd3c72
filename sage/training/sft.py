"""The supervised stage that a base model needs before RL, cached by a hash of everything that goes into it."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from sage.interfaces import Policy, Progress
from sage.training.locks import locked
from sage.training.optimiser import LearningRate, adamw, optimizer_step
from sage.types import Batch, Demonstration

log = logging.getLogger(__name__)

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of the prompt, and those of the response with its end token."""


@dataclass(frozen=True, kw_only=True)
class SftSettings:
    """How the supervised stage trains."""

    seed: int
    steps: int | None
    """Optimiser steps, each on rows drawn with replacement; ``None`` where ``epochs`` counts."""
    epochs: int | None
    """Passes over the demonstrations, each in an order of its own; ``None`` where ``steps`` counts."""
    batch_size: int
    micro_batch_tokens: int
    """Padded tokens that a forward pass holds; a longer row is a pass of its own."""
    lora: Mapping[str, Any] | None
    """Shape of the adapter that the policy has; ``None`` where every weight is trained."""
    learning_rate: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    warmup_steps: int
    schedule: str
    max_grad_norm: float

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                f"sft.steps={self.steps}, sft.epochs={self.epochs}: expected one of them, and null for the other"
            )

    def num_steps(self, rows: int) -> int:
        """Optimiser steps on so many rows; the last batch of an epoch may be smaller."""
        return self.steps if self.steps is not None else (self.epochs or 0) * -(-rows // self.batch_size)


@dataclass(frozen=True, kw_only=True)
class SftResult:
    """What the stage did."""

    losses: list[float]
    """Mean loss per token of every step, in nats."""
    demonstrations: int
    """Those trained on."""
    too_long: int
    """Those left out, as they are longer than the model takes."""
    tokens: int
    """Response tokens trained on, counted as often as they were."""


def sft_key(settings: SftSettings, inputs: Mapping[str, str], *classes: type) -> str:
    """Names the result of an SFT stage by everything that goes into it.

    Args:
        settings: of the stage; how batches are cut into micro-batches does not count.
        inputs: what identifies model and data, as text.
        classes: of model and data; the Python files beside each one's module count, so that an edited task or model does
            not find the base of the old one.
    """
    folders = [Path(inspect.getfile(owner)).parent for owner in classes]
    files = [inspect.getfile(owner) for owner in (SftSettings, LearningRate)]
    code = [Path(f).read_bytes() for f in (*files, *(f for folder in folders for f in sorted(folder.glob("*.py"))))]
    plain = asdict(settings) | {"micro_batch_tokens": None}
    text = json.dumps([plain, dict(inputs), torch.__version__], sort_keys=True).encode()
    return hashlib.blake2b(b"\0".join([text, *code]), digest_size=10).hexdigest()


def cached_sft(
    folder: Path,
    start: Callable[[], tuple[Policy, Sequence[Demonstration]]],
    settings: SftSettings,
    progress: Progress,
    *,
    max_length: int | None,
) -> Path:
    """Train into ``folder`` unless it is there already. Runs that want one base at the same time train it once.

    Args:
        folder: named by :func:`sft_key`.
        start: gives the untrained policy and the demonstrations; called only when training is needed.
        settings: see :class:`SftSettings`.
        progress: where the stage reports to.
        max_length: see :func:`supervised`.

    Returns:
        ``folder``, with the model in the Hugging Face layout, an adapter merged into it, and ``sft.json``.
    """
    if folder.exists():
        return folder
    with locked(folder.with_name(f".{folder.name}.lock"), f"the SFT base {folder.name}"):
        if not folder.exists():
            policy, demonstrations = start()
            result = supervised(policy, demonstrations, settings, progress, max_length=max_length)
            check_finite(policy, "sft")
            _save(folder, policy, settings, result)
    return folder


def _save(folder: Path, policy: Policy, settings: SftSettings, result: SftResult) -> None:
    """Write the folder whole or not at all."""
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed here
    aside.mkdir()
    policy.save(aside, merged=True)
    record = {
        "settings": asdict(settings),
        "demonstrations": result.demonstrations,
        "too_long": result.too_long,
        "steps": len(result.losses),
        "tokens": result.tokens,
        "final_loss": fmean(result.losses[-100:]),
    }
    (aside / "sft.json").write_text(json.dumps(record, indent=2) + "\n")
    os.rename(aside, folder)


def check_finite(policy: Policy, stage: str) -> None:
    """Refuse weights that are not numbers, before they are saved and loaded by later runs.

    Raises:
        FloatingPointError: naming the option to change.
    """
    if not all(bool(parameter.isfinite().all()) for parameter in policy.trainable_parameters()):
        raise FloatingPointError(f"weights are not finite after {stage}: lower {stage}.optimizer.learning_rate")


def supervised(
    policy: Policy,
    demonstrations: Sequence[Demonstration],
    settings: SftSettings,
    progress: Progress,
    *,
    max_length: int | None,
) -> SftResult:
    """Maximise the log-prob of the demonstrated completions, each closed by the end token; the prompt gets no loss.

    Args:
        policy: to be trained; it encodes prompts as in RL.
        demonstrations: those longer than ``max_length`` are left out.
        settings: see :class:`SftSettings`.
        progress: where the stage ``sft`` reports to.
        max_length: the most tokens of prompt and completion together; ``None`` for no limit.

    Raises:
        ValueError: there is nothing to train on.
    """
    rows = _rows(policy, demonstrations, max_length)
    steps = settings.num_steps(len(rows))
    rate = LearningRate(
        peak=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        schedule=settings.schedule,
        num_steps=steps,
    )
    optimizer = adamw(policy.trainable_parameters(), settings.betas, settings.eps, settings.weight_decay)
    losses: list[float] = []
    tokens = 0
    with progress.stage("sft", steps, "steps") as bar:
        for step, chosen in enumerate(_batches(len(rows), settings)):
            batch = [rows[i] for i in chosen]
            losses.append(_backward(policy, batch, settings.micro_batch_tokens))
            optimizer_step(optimizer, rate.at(step), settings.max_grad_norm)
            tokens += sum(len(response) for _, response in batch)
            bar.update(1, loss=losses[-1])
    too_long = len(demonstrations) - len(rows)
    return SftResult(losses=losses, demonstrations=len(rows), too_long=too_long, tokens=tokens)


def _rows(policy: Policy, demonstrations: Sequence[Demonstration], max_length: int | None) -> list[Row]:
    """The demonstrations that fit, as tokens."""
    if not demonstrations:
        raise ValueError("sft.enabled=true, but the benchmark has no demonstrations: type sft.enabled=false")
    prompts = policy.encode_prompts([d.prompt for d in demonstrations])
    responses = policy.encode_completions([d.completion for d in demonstrations])
    rows = [*zip(prompts, responses, strict=True)]
    fitting = [row for row in rows if max_length is None or _length(row) <= max_length]
    if not fitting:
        shortest = min(map(_length, rows))
        raise ValueError(
            f"all {len(rows)} demonstrations are longer than the {max_length} tokens that the model takes (the shortest has "
            f"{shortest}): type sft.enabled=false, or choose a model that takes more"
        )
    if len(fitting) < len(rows):
        left_out = len(rows) - len(fitting)
        log.warning("%d of %d demonstrations left out: longer than %d tokens", left_out, len(rows), max_length)
    return fitting


def _batches(rows: int, settings: SftSettings) -> Iterator[list[int]]:
    """Indices of the rows of every step."""
    generator = torch.Generator().manual_seed(settings.seed)
    for _ in range(settings.steps or 0):
        yield torch.randint(rows, (settings.batch_size,), generator=generator).tolist()
    for _ in range(settings.epochs or 0):
        order = torch.randperm(rows, generator=generator).tolist()
        yield from (order[start : start + settings.batch_size] for start in range(0, rows, settings.batch_size))


def _backward(policy: Policy, batch: Sequence[Row], micro_batch_tokens: int) -> float:
    """Add the gradient of the batch's mean loss per response token; returns that loss.

    Every micro-batch is divided by the tokens of the whole batch, so the cut into micro-batches changes nothing.
    """
    tokens = sum(len(response) for _, response in batch)
    total = 0.0
    for rows in micro_batches(batch, micro_batch_tokens):
        packed = _packed(rows, policy.device)
        loss = -policy.token_stats(packed, temperature=1.0).logprobs.sum() / tokens
        loss.backward()
        total += loss.item()
    return total


def micro_batches(batch: Sequence[Row], most_tokens: int) -> list[list[Row]]:
    """Rows of like length together, at most ``most_tokens`` of them with padding, but at least one row."""
    found: list[list[Row]] = []
    for row in sorted(batch, key=_length):
        # Sorted: the newest row is the longest, which all are padded to.
        if found and (len(found[-1]) + 1) * _length(row) <= most_tokens:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _length(row: Row) -> int:
    return len(row[0]) + len(row[1])


def _packed(rows: Sequence[Row], device: Any) -> Batch:
    longest = max(map(_length, rows))
    length = max(len(response) for _, response in rows)
    lengths = torch.tensor([len(response) for _, response in rows], device=device)
    response_ids = torch.tensor([response + (0,) * (length - len(response)) for _, response in rows], device=device)
    return Batch(
        input_ids=torch.tensor([p + r + (0,) * (longest - len(p) - len(r)) for p, r in rows], device=device),
        prompt_lengths=torch.tensor([len(prompt) for prompt, _ in rows], device=device),
        response_ids=response_ids,
        mask=torch.arange(length, device=device) < lengths[:, None],
        sampler_logprobs=torch.zeros(response_ids.shape, device=device),
        rewards=torch.zeros(len(rows), device=device),
        noise_keys=torch.zeros(len(rows), dtype=torch.long, device=device),
        group_size=1,
        max_completion_tokens=length,
    )
