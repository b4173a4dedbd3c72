"""The evaluations of a run: which, when, and under which names they are logged."""

from __future__ import annotations

from typing import Any

from sage.evaluation.curves import Curve
from sage.evaluation.evaluate import EvaluationSettings, evaluate
from sage.evaluation.settings import digest, origin_of
from sage.interfaces import Policy
from sage.job import Job
from sage.loggers.multi import MultiLogger
from sage.record import plain
from sage.summary import curve_metrics
from sage.types import Split, Stat


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
            origin=self._origin(step),
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
        for each in (curve, *curve.sources):
            section = f"{area}/{each.benchmark}"
            self._logger.log_curve(step, section, each.values())
            named = curve_metrics(each) | evaluation_metrics(each)
            self._logger.log(step, {f"{section}/{name}": value for name, value in named.items()})
        return curve

    def _origin(self, step: int) -> dict[str, Any]:
        """What the weights after ``step`` are made of: the whole configuration, but for what only watches."""
        job = self._job
        watching = {"eval", "logger", "paths", "checkpoint", "resume"}
        training = digest({name: section for name, section in plain(job.plain).items() if name not in watching})
        model = {"fingerprint": job.parts.model.fingerprint(), "training": training, "step": step}
        return origin_of(job.plain, model)


def evaluation_metrics(curve: Curve) -> dict[str, float]:
    """What an evaluation logs of answers and votes, and of the benchmarks that a combined one consists of."""
    metrics = {"off_format_share": curve.off_format_share}
    metrics |= {f"maj@{k}": estimate.value for k, estimate in (curve.maj_at_k or {}).items()}
    return metrics | {f"source_mean/pass@{k}": value for k, value in (curve.source_mean or {}).items()}
