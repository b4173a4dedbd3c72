"""The main job: SFT base -> evaluation -> training -> evaluation -> curve, figure and model in one folder."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from sage.checkpointer import METRICS, Checkpointer, interrupted, restore
from sage.config import ConfigError
from sage.evaluation.curves import Curve, load_curve
from sage.evaluation.figure import plot_pass_at_k
from sage.evaluator import Evaluator
from sage.interfaces import Policy
from sage.job import Job
from sage.loggers.jsonl import JsonlLogger, read_metrics
from sage.loggers.multi import MultiLogger
from sage.loggers.screens import print_plan, print_result
from sage.memory import memory_estimate, memory_sentence
from sage.stopping import Stopper
from sage.summary import estimated_seconds, figure_title, run_plan, run_result, write_summary
from sage.training.bank import BankSource, bank_key, cached_bank
from sage.training.beta import AdaptiveBeta
from sage.training.checkpoint import Checkpoint
from sage.training.estimate import measure_speed
from sage.training.learner import Learner
from sage.training.loop import Position, Training, train
from sage.training.optimiser import LearningRate, adamw
from sage.training.response_anchor import ResponseAnchor
from sage.training.sft import SftSettings, cached_sft, check_finite, sft_key
from sage.types import ModelFacts, Split, Stat, VerdictReason
from sage.usable import usable_problems

log = logging.getLogger(__name__)


def run(job: Job, stopper: Stopper, *, again: bool) -> Curve:
    """Run the job to its end, from its last checkpoint where an earlier process left one.

    Args:
        job: the run.
        stopper: takes the signals.
        again: whether an earlier process began the run.

    Returns:
        The trained model's curve on the test problems, compared with the base's.

    Raises:
        Stopped: the run was asked to stop, and is saved.
    """
    start = time.monotonic()
    with closing(job.parts.reward), closing(job.parts.rollout):
        job, facts = _looked_at(job)
        _print_plan(job, facts)
        trained = _run(job, facts.max_length, start, stopper, interrupted(job) if again else None)
    return trained


def _run(job: Job, max_length: int | None, start: float, stopper: Stopper, saved: Checkpoint | None) -> Curve:
    logger = MultiLogger(JsonlLogger(job.folder / METRICS), job.parts.logger)
    with logger:
        run_id = _start(logger, job, saved)
        start_folder = base_folder(job, max_length)
        policy = _begin_rl(job, start_folder)
        evaluator = Evaluator(job, policy, logger)
        base = _base(job, evaluator, saved)
        anchor = response_anchor(job, policy, start_folder)
        if anchor is not None and saved is None:
            logger.log(0, anchor.bank.metrics())
        training = _training(job, policy, anchor, logger)
        checkpointer = Checkpointer(job, training.learner, evaluator, stopper, run_id)
        position = training.start if saved is None else restore(training.learner, saved)
        with stopper.deferred():
            train(replace(training, start=position, after_step=checkpointer.after_step))
        check_finite(policy, "train")
        trained = evaluator.test(job.config.train.steps, "trained", base)
        policy.save(job.folder / "model")
    plot_pass_at_k({"base": base, "trained": trained}, job.folder / "pass_at_k.png", figure_title(job))
    write_summary(job.folder / "curve.json", base, trained)
    metrics = read_metrics(job.folder / METRICS)
    print_result(job.console, run_result(job, base, trained, metrics, time.monotonic() - start))
    return trained


def _looked_at(job: Job) -> tuple[Job, ModelFacts]:
    """The job with the problems that it can use, and what is known of its model: everything that needs no weights.

    Raises:
        ConfigError: the model cannot be had, or prompts and completions do not fit it.
    """
    config, parts = job.config, job.parts
    try:
        facts, prompts = parts.model.facts(), parts.model.prompts()
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    faults = [
        f"{name}.sampling.max_tokens={sampling.max_tokens}: expected at most {facts.max_length - config.prompts.max_tokens}, as "
        f"the model holds {facts.max_length} tokens and prompts.max_tokens={config.prompts.max_tokens} of them are the prompt's"
        for name, sampling in (("train", config.train.sampling), ("eval", config.eval.sampling))
        if facts.max_length is not None and config.prompts.max_tokens + sampling.max_tokens > facts.max_length
    ]
    if faults:
        raise ConfigError(faults)
    splits = [Split.TRAIN, Split.TEST, *([Split.VALIDATION] if config.eval.every else [])]
    try:
        usable = usable_problems(
            parts.benchmark,
            parts.reward,
            prompts,
            splits=splits,
            max_tokens=config.prompts.max_tokens,
            too_long=config.prompts.too_long,
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    return replace(job, usable=usable.problems, longest_prompt=usable.longest, notes=usable.notes), facts


def _print_plan(job: Job, facts: ModelFacts) -> None:
    sft, seconds, memory = sft_folder(job), None, memory_sentence(memory_estimate(job, facts))
    cached = sft is None or sft.exists()
    if not job.parts.model.pretrained:  # others take longer to load than a first impression is worth
        prompt, rows = job.problems(Split.TRAIN)[0].prompt, min(128, job.config.train.micro_batch_size)
        speed = measure_speed(job.parts.model.create(), job.parts.rollout, prompt, job.config.train.sampling, rows)
        seconds = estimated_seconds(job, speed, sft_cached=cached)
    print_plan(job.console, run_plan(job, memory, seconds))
    if sft is not None and cached:
        job.console.print(f"[green]✓[/green] sft          cached in {sft}", soft_wrap=True)


def _base(job: Job, evaluator: Evaluator, saved: Checkpoint | None) -> Curve:
    """The base's curve; that of the interrupted run where there is one."""
    if saved is not None:
        job.console.print(f"[green]✓[/green] resume       from step {saved.step}, {saved.path}", soft_wrap=True)
        return load_curve(job.folder / "evaluation" / "base" / "curve.json")
    base = evaluator.test(0, "base", None)
    _refuse_broken_reward(base)
    evaluator.validate(0)
    return base


def _start(logger: MultiLogger, job: Job, saved: Checkpoint | None) -> str | None:
    """Begin tracking, or go on with the run's; returns the tracker's id of it."""
    try:
        return logger.start(job.info if saved is None else replace(job.info, run_id=saved.state["run_id"]))
    except RuntimeError as error:  # it says what to type instead
        raise ConfigError([str(error)]) from error


def _begin_rl(job: Job, folder: Path | None) -> Policy:
    try:
        policy = job.parts.model.begin_rl(folder, job.config.seed)
    except Exception as error:
        if folder is None and isinstance(error, ValueError):
            raise ConfigError([str(error)]) from error
        if folder is None:
            raise
        log.exception("the policy cannot be built from %s", folder)  # the message has the error, the log its place
        # Written whole or not at all, so somebody or something else damaged it; every later run would fail the same way.
        raise ConfigError(
            [
                f"the policy cannot be built from the base in {folder} ({type(error).__name__}: {error}): where its files are "
                "damaged, remove the folder and run again, which trains it anew"
            ]
        ) from error
    if Stat.VALUES in job.parts.algorithm.needs:
        policy.add_critic(separate=job.parts.algorithm.separate_critic, seed=job.config.seed)
    try:
        job.parts.rollout.load_weights(policy)
    except ValueError as error:  # an engine that does not start says which option to change
        raise ConfigError([str(error)]) from error
    return policy


def _refuse_broken_reward(base: Curve) -> None:
    if base.reason_shares.get(VerdictReason.ERROR, 0) == 1:
        raise ConfigError(
            [
                "the reward failed on every completion of the base, so there is nothing to learn from: run.log in the run's "
                "folder has the errors"
            ]
        )


def sft_folder(job: Job) -> Path | None:
    """Where the SFT stage's result belongs, named by everything that goes into it; ``None`` without the stage."""
    model, benchmark = job.parts.model, job.parts.benchmark
    if not job.config.sft.enabled:
        return None
    inputs = {"model": model.fingerprint(), "demonstrations": benchmark.fingerprint()}
    return job.config.paths.cache / "sft" / sft_key(_sft_settings(job), inputs, type(model), type(benchmark))


def base_folder(job: Job, max_length: int | None) -> Path | None:
    """The folder with the weights that RL starts from: the SFT stage's, or those of a model that was made up.

    ``None`` for a pretrained model without that stage: its files are where they are.
    """
    model, benchmark, folder = job.parts.model, job.parts.benchmark, sft_folder(job)
    if folder is not None:
        sft = job.config.sft
        start = lambda: (model.create(sft.lora, sft.seed), benchmark.demonstrations())  # noqa: E731
        return cached_sft(folder, start, _sft_settings(job), job.progress, max_length=max_length)
    if model.pretrained:
        return None
    folder = job.folder / "base"
    model.create().save(folder)
    return folder


def _sft_settings(job: Job) -> SftSettings:
    sft = job.config.sft
    return SftSettings(
        seed=sft.seed,
        steps=sft.steps,
        epochs=sft.epochs,
        batch_size=sft.batch_size,
        micro_batch_tokens=sft.micro_batch_tokens,
        lora=sft.lora,
        **asdict(sft.optimizer),
    )


def response_anchor(job: Job, policy: Policy, base: Path | None) -> ResponseAnchor | None:
    """The bank of the policy as RL begins, drawn with ``policy`` (which still is that) or found in the cache, under the guide.

    ``base`` is the folder with its weights; ``None`` for a pretrained model's own.

    ``None`` for a KL mode without a bank.
    """
    parts, settings = job.parts, job.parts.kl_mode.bank
    if settings is None:
        return None
    source = BankSource(
        engine=parts.rollout,
        encode_prompt=policy.encode_prompt,
        reward=parts.reward,
        problems=job.problems(Split.TRAIN),
        sampling=job.config.train.sampling,
        settings=settings,
        batch_size=job.config.eval.batch_size,
    )
    parts.rollout.load_weights(policy)
    inputs = {
        "benchmark": repr(job.plain["benchmark"]),
        "reward": repr(job.plain["reward"]),
        "engine": job.plain["rollout"]["_target_"],
        "model": "" if base is not None else parts.model.fingerprint(),
    }
    folder = job.config.paths.cache / "bank" / bank_key(source, base, inputs)
    return ResponseAnchor.shape(cached_bank(folder, source, job.progress), parts.guide, parts.kl_mode)


def _training(job: Job, policy: Policy, anchor: ResponseAnchor | None, logger: MultiLogger) -> Training:
    config, parts = job.config, job.parts
    optimizer, sampling = config.train.optimizer, config.train.sampling
    num_steps = config.train.steps * parts.algorithm.epochs * parts.algorithm.minibatches
    return Training(
        learner=Learner(
            policy=policy,
            guide=parts.guide,
            kl_mode=parts.kl_mode,
            anchor=anchor,
            beta=AdaptiveBeta(parts.kl_mode.beta, config.train.target_kl),
            algorithm=parts.algorithm,
            optimizer=adamw(policy.trainable_parameters(), optimizer.betas, optimizer.eps, optimizer.weight_decay),
            learning_rate=LearningRate(
                peak=optimizer.learning_rate,
                warmup_steps=optimizer.warmup_steps,
                schedule=optimizer.schedule,
                num_steps=num_steps,
            ),
            num_steps=num_steps,
            max_grad_norm=optimizer.max_grad_norm,
            temperature=sampling.temperature,
            micro_batch_size=config.train.micro_batch_size,
            seed=config.seed,
            importance_sampling=config.train.importance_sampling,
        ),
        engine=parts.rollout,
        reward=parts.reward,
        problems=job.problems(Split.TRAIN),
        sampling=sampling,
        steps=config.train.steps,
        problems_per_step=config.train.problems_per_step,
        completions_per_problem=config.train.completions_per_problem,
        seed=config.seed,
        logger=logger,
        progress=job.progress,
        after_step=lambda position: None,
        # A bank is part of the price, even if it was cached.
        start=Position(
            step=0,
            samples=0 if anchor is None else anchor.bank.samples,
            tokens=0 if anchor is None else anchor.bank.tokens,
        ),
    )
