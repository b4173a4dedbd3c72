"""The main job: SFT base -> evaluation -> training -> evaluation -> curve, figure and model in one folder."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from sage.config import ConfigError
from sage.evaluation.curves import Curve
from sage.evaluation.evaluate import EvaluationSettings, evaluate
from sage.evaluation.figure import plot_pass_at_k
from sage.interfaces import Policy
from sage.job import Job
from sage.loggers.jsonl import JsonlLogger, read_metrics
from sage.loggers.multi import MultiLogger
from sage.loggers.screens import print_plan, print_result
from sage.summary import curve_metrics, estimated_seconds, figure_title, run_plan, run_result, write_summary
from sage.training.bank import BankSource, bank_key, cached_bank
from sage.training.beta import AdaptiveBeta
from sage.training.estimate import measure_speed
from sage.training.learner import Learner
from sage.training.loop import Training, train
from sage.training.optimiser import LearningRate, adamw
from sage.training.response_anchor import ResponseAnchor
from sage.training.sft import SftSettings, cached_sft, check_finite, sft_key
from sage.types import Split, Stat, VerdictReason

log = logging.getLogger(__name__)


def run(job: Job) -> Curve:
    """Run the job to its end.

    Returns:
        The trained model's curve on the test problems, compared with the base's.
    """
    start = time.monotonic()
    sft = sft_folder(job)
    prompt = job.problems(Split.TRAIN)[0].prompt
    rows = min(128, job.config.train.micro_batch_size)
    speed = measure_speed(job.parts.model.create(), job.parts.rollout, prompt, job.config.train.sampling, rows)
    print_plan(job.console, run_plan(job, estimated_seconds(job, speed, sft_cached=sft is None or sft.exists())))
    if sft is not None and sft.exists():
        job.console.print(f"[green]✓[/green] sft          cached in {sft}", soft_wrap=True)
    logger = MultiLogger(JsonlLogger(job.folder / "metrics.jsonl"), job.parts.logger)
    with logger, closing(job.parts.reward):
        _start(logger, job)
        start_folder = base_folder(job)
        policy = _begin_rl(job, start_folder)
        evaluator = Evaluator(job, policy, logger)
        base = evaluator.test(0, "base", None)
        _refuse_broken_reward(base)
        evaluator.validate(0)
        anchor = response_anchor(job, policy, start_folder)
        if anchor is not None:
            logger.log(0, anchor.bank.metrics())
        train(_training(job, policy, anchor, logger, evaluator))
        check_finite(policy, "train")
        trained = evaluator.test(job.config.train.steps, "trained", base)
    policy.save(job.folder / "model")
    plot_pass_at_k({"base": base, "trained": trained}, job.folder / "pass_at_k.png", figure_title(job))
    write_summary(job.folder / "curve.json", base, trained)
    metrics = read_metrics(job.folder / "metrics.jsonl")
    print_result(job.console, run_result(job, base, trained, metrics, time.monotonic() - start))
    return trained


def _start(logger: MultiLogger, job: Job) -> None:
    try:
        logger.start(job.info)
    except RuntimeError as error:  # it says what to type instead
        raise ConfigError([str(error)]) from error


def _begin_rl(job: Job, folder: Path) -> Policy:
    try:
        policy = job.parts.model.begin_rl(folder, job.config.seed)
    except Exception as error:
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
    inputs = {"model": model.fingerprint(), "benchmark": repr(job.plain["benchmark"])}
    return job.config.paths.cache / "sft" / sft_key(_sft_settings(job), inputs, type(model), type(benchmark))


def base_folder(job: Job) -> Path:
    """The folder with the weights that RL starts from: the SFT stage's, or the untrained model's."""
    model, benchmark, folder = job.parts.model, job.parts.benchmark, sft_folder(job)
    if folder is None:
        folder = job.folder / "base"
        model.create().save(folder)
        return folder
    start = lambda: (model.create(), benchmark.demonstrations())  # noqa: E731
    return cached_sft(folder, start, _sft_settings(job), job.progress)


def _sft_settings(job: Job) -> SftSettings:
    sft = job.config.sft
    return SftSettings(seed=sft.seed, steps=sft.steps, batch_size=sft.batch_size, **asdict(sft.optimizer))


def response_anchor(job: Job, policy: Policy, base: Path) -> ResponseAnchor | None:
    """The bank of the base in ``base``, drawn with ``policy`` (which still equals it) or found in the cache, under the guide.

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
    }
    folder = job.config.paths.cache / "bank" / bank_key(source, base, inputs)
    return ResponseAnchor.shape(cached_bank(folder, source, job.progress), parts.guide, parts.kl_mode)


class Evaluator:
    """Evaluates a policy when it is due, and logs the curve."""

    def __init__(self, job: Job, policy: Policy, logger: MultiLogger) -> None:
        self._job = job
        self._policy = policy
        self._logger = logger
        self._keep_reference = Stat.REFERENCE in job.parts.kl_mode.needs | job.parts.guide.needs

    def after_step(self, step: int) -> None:
        """Validate every ``eval.every`` steps."""
        every = self._job.config.eval.every
        if every and step % every == 0:
            self.validate(step)

    def validate(self, step: int) -> None:
        """Evaluate on the validation problems."""
        if self._job.config.eval.every:
            n = self._job.config.eval.validation_n
            self._evaluate(step, Split.VALIDATION, n, f"validation-{step:06d}", "eval", None)

    def test(self, step: int, name: str, base: Curve | None) -> Curve:
        """Evaluate on the test problems, against ``base`` where given."""
        return self._evaluate(step, Split.TEST, self._job.config.eval.n, name, "test", base)

    def _evaluate(self, step: int, split: Split, n: int, name: str, area: str, base: Curve | None) -> Curve:
        job, settings = self._job, self._job.config.eval
        curve = evaluate(
            policy=self._policy,
            engine=job.parts.rollout,
            reward=job.parts.reward,
            problems=job.problems(split),
            split=split,
            benchmark_name=job.parts.benchmark.name,
            sampling=settings.sampling,
            n=n,
            seed=job.config.seed,
            settings=EvaluationSettings(
                confidence=settings.confidence,
                bootstrap_samples=settings.bootstrap_samples,
                stats_n=settings.stats_n,
                batch_size=settings.batch_size,
                micro_batch_size=job.config.train.micro_batch_size,
            ),
            folder=job.folder / "evaluation" / name,
            progress=job.progress,
            title=f"validation {step}" if split is Split.VALIDATION else name,
            base=base,
            reference_available=True,
        )
        if not self._keep_reference:
            self._policy.release_reference()
        section = f"{area}/{job.parts.benchmark.name}"
        self._logger.log_curve(step, section, curve.values())
        self._logger.log(step, {f"{section}/{name}": value for name, value in curve_metrics(curve).items()})
        return curve


def _training(
    job: Job, policy: Policy, anchor: ResponseAnchor | None, logger: MultiLogger, evaluator: Evaluator
) -> Training:
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
        after_step=evaluator.after_step,
    )
