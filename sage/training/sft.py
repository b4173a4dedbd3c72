"""The supervised stage that a base model needs before RL, cached by a hash of everything that goes into it."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from sage.interfaces import Policy, Progress
from sage.training.optimiser import LearningRate, adamw, optimizer_step
from sage.types import Batch, Demonstration


@dataclass(frozen=True, kw_only=True)
class SftSettings:
    """How the supervised stage trains."""

    seed: int
    steps: int
    batch_size: int
    learning_rate: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    warmup_steps: int
    schedule: str
    max_grad_norm: float


def sft_key(settings: SftSettings, inputs: Mapping[str, str], *classes: type) -> str:
    """Names the result of an SFT stage by everything that goes into it.

    Args:
        settings: of the stage.
        inputs: what identifies model and data, as text.
        classes: of model and data; the Python files beside each one's module count, so that an edited task or model does
            not find the base of the old one.
    """
    folders = [Path(inspect.getfile(owner)).parent for owner in classes]
    files = [inspect.getfile(owner) for owner in (SftSettings, LearningRate)]
    code = [Path(f).read_bytes() for f in (*files, *(f for folder in folders for f in sorted(folder.glob("*.py"))))]
    text = json.dumps([asdict(settings), dict(inputs), torch.__version__], sort_keys=True).encode()
    return hashlib.blake2b(b"\0".join([text, *code]), digest_size=10).hexdigest()


def cached_sft(
    folder: Path,
    start: Callable[[], tuple[Policy, Sequence[Demonstration]]],
    settings: SftSettings,
    progress: Progress,
) -> Path:
    """Train into ``folder`` unless it is there already.

    Args:
        folder: named by :func:`sft_key`.
        start: gives the untrained policy and the demonstrations; called only when training is needed.
        settings: see :class:`SftSettings`.
        progress: where the stage reports to.

    Returns:
        ``folder``, with the model in the Hugging Face layout and ``sft.json``.
    """
    if folder.exists():
        return folder
    policy, demonstrations = start()
    losses = supervised(policy, demonstrations, settings, progress)
    check_finite(policy, "sft")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    policy.save(aside)
    record = {"settings": asdict(settings), "demonstrations": len(demonstrations), "final_loss": fmean(losses[-100:])}
    (aside / "sft.json").write_text(json.dumps(record, indent=2) + "\n")
    try:
        os.rename(aside, folder)  # whole or not at all; two runs may race for it
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(aside)  # the other run was first, with the same result
    return folder


def check_finite(policy: Policy, stage: str) -> None:
    """Refuse weights that are not numbers, before they are saved and loaded by later runs.

    Raises:
        FloatingPointError: naming the option to change.
    """
    if not all(bool(parameter.isfinite().all()) for parameter in policy.trainable_parameters()):
        raise FloatingPointError(f"weights are not finite after {stage}: lower {stage}.optimizer.learning_rate")


def supervised(
    policy: Policy, demonstrations: Sequence[Demonstration], settings: SftSettings, progress: Progress
) -> list[float]:
    """Maximise the log-prob of the demonstrated completions, each closed by the end token; the prompt gets no loss.

    Returns:
        The mean loss per token (nats) of every step.
    """
    if not demonstrations:
        raise ValueError("sft.enabled=true, but the benchmark has no demonstrations: type sft.enabled=false")
    rows = _tokenise(policy, demonstrations)
    rate = LearningRate(
        peak=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        schedule=settings.schedule,
        num_steps=settings.steps,
    )
    optimizer = adamw(policy.trainable_parameters(), settings.betas, settings.eps, settings.weight_decay)
    generator = torch.Generator().manual_seed(settings.seed)
    losses: list[float] = []
    with progress.stage("sft", settings.steps, "steps") as bar:
        for step in range(settings.steps):
            chosen = torch.randint(len(rows), (settings.batch_size,), generator=generator).tolist()
            batch = _batch([rows[i] for i in chosen], policy.device)
            loss = -policy.token_stats(batch, temperature=1.0).logprobs.sum() / batch.mask.sum()
            loss.backward()
            optimizer_step(optimizer, rate.at(step), settings.max_grad_norm)
            losses.append(loss.item())
            bar.update(1, loss=losses[-1])
    return losses


def _tokenise(policy: Policy, demonstrations: Sequence[Demonstration]) -> list[tuple[list[int], list[int]]]:
    end = policy.tokenizer.eos_token_id
    prompts = _encode(policy.tokenizer, [d.prompt for d in demonstrations], special=True)
    completions = _encode(policy.tokenizer, [d.completion for d in demonstrations], special=False)
    return [(prompt, [*completion, end]) for prompt, completion in zip(prompts, completions, strict=True)]


def _encode(tokenizer: Any, texts: list[str], *, special: bool) -> list[list[int]]:
    if not tokenizer.is_fast:
        return tokenizer(texts, add_special_tokens=special)["input_ids"]
    # Three times as fast as the wrapper, which also makes masks; a stage has hundreds of thousands of texts.
    return [e.ids for e in tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=special)]


def _batch(rows: Sequence[tuple[list[int], list[int]]], device: Any) -> Batch:
    longest = max(len(prompt) + len(response) for prompt, response in rows)
    length = max(len(response) for _, response in rows)
    lengths = torch.tensor([len(response) for _, response in rows], device=device)
    response_ids = torch.tensor([response + [0] * (length - len(response)) for _, response in rows], device=device)
    return Batch(
        input_ids=torch.tensor([p + r + [0] * (longest - len(p) - len(r)) for p, r in rows], device=device),
        prompt_lengths=torch.tensor([len(prompt) for prompt, _ in rows], device=device),
        response_ids=response_ids,
        mask=torch.arange(length, device=device) < lengths[:, None],
        sampler_logprobs=torch.zeros(response_ids.shape, device=device),
        rewards=torch.zeros(len(rows), device=device),
        noise_keys=torch.zeros(len(rows), dtype=torch.long, device=device),
        group_size=1,
        max_completion_tokens=length,
    )
