"""A run in numbers and words: the plan before it, its evaluation metrics, the result after it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from sage.evaluation.curves import Curve, curve_row
from sage.evaluation.files import write_json
from sage.job import Job
from sage.loggers.screens import CurveRow, RunPlan, RunResult, Support
from sage.training.estimate import Speed
from sage.types import Split, Stat

_SHOWN_KS = (1, 4, 16, 64, 256)


def title(job: Job) -> str:
    """What was measured, e.g. ``countdown, 182 test problems x 256 samples``."""
    return f"{job.parts.benchmark.name}, {len(job.problems(Split.TEST))} test problems × {job.config.eval.n} samples"


def run_plan(job: Job, seconds: float) -> RunPlan:
    """The first panel."""
    config, parts = job.config, job.parts
    guide = job.choices["guide"]
    kl_mode = job.choices["kl_mode"]
    adapter = getattr(parts.model.lora, "rank", None)
    evaluation = f"{len(job.problems(Split.TEST))} test problems × {config.eval.n} samples, before and after"
    if config.eval.every:
        evaluation += f"; validation every {config.eval.every} steps"
    return RunPlan(
        guide=guide if parts.guide.identity else f"{guide}, strength {parts.guide.strength:g}",
        kl_mode=kl_mode if parts.kl_mode.beta == 0 else f"{kl_mode}, beta {parts.kl_mode.beta:g}",
        gradient=parts.kl_mode.gradient,
        algorithm=job.choices["algorithm"],
        model=job.choices["model"] + ("" if adapter is None else f" (LoRA, rank {adapter})"),
        benchmark=parts.benchmark.name,
        steps=config.train.steps,
        problems_per_step=config.train.problems_per_step,
        completions_per_problem=config.train.completions_per_problem,
        on_policy=parts.algorithm.epochs * parts.algorithm.minibatches == 1,
        evaluation=evaluation,
        folder=job.folder,
        seconds=seconds,
        notes=_notes(job),
    )


def _notes(job: Job) -> tuple[str, ...]:
    """What a reader must know before comparing this run with another."""
    bank = job.parts.kl_mode.bank
    if bank is None:
        return ()
    problems = len(job.problems(Split.TRAIN))
    return (
        f"bank of {problems:,} problems x {bank.samples:,} samples of the base = {problems * bank.samples:,}, drawn once and "
        "cached; progress/samples and progress/tokens count them",
    )


def estimated_seconds(job: Job, speed: Speed, *, sft_cached: bool) -> float:
    """How long the run should take: its sequences, each at its measured price, if all were of full length."""
    config, parts = job.config, job.parts
    needs = parts.kl_mode.needs | parts.guide.needs
    passes = (Stat.REFERENCE in needs) + (parts.kl_mode.in_reward or parts.algorithm.minibatches > 1)
    rollout = config.train.problems_per_step * config.train.completions_per_problem
    update = parts.algorithm.epochs * speed.update
    step = rollout * (speed.sample + passes * speed.forward + update)
    bank = parts.kl_mode.bank
    if bank is not None:
        step += config.train.problems_per_step * bank.draws * update
    validations = 0 if not config.eval.every else 1 + config.train.steps // config.eval.every
    evaluated = 2 * len(job.problems(Split.TEST)) * config.eval.n
    evaluated += validations * len(job.problems(Split.VALIDATION)) * config.eval.validation_n
    sft = 0 if sft_cached else config.sft.steps * config.sft.batch_size * speed.update
    evaluated += 0 if bank is None else len(job.problems(Split.TRAIN)) * bank.samples
    return sft + config.train.steps * step + evaluated * speed.sample


def curve_metrics(curve: Curve) -> dict[str, float]:
    """What an evaluation logs beside its pass@k values."""
    metrics: dict[str, float | None] = {
        "pass@1_standard_error": curve.pass_at_k[1].standard_error,
        "distinct_correct": curve.distinct_correct,
        "entropy": curve.entropy,
        "kl_to_reference": curve.kl_to_reference,
        "reward": curve.mean_reward,
        "truncated_share": curve.truncated_share,
        "tokens_mean": curve.mean_tokens,
    }
    if curve.comparison is not None:
        counts = curve.comparison.problems
        metrics |= {f"support/{name}": getattr(counts, name) for name in _SUPPORT}
    return {name: float(value) for name, value in metrics.items() if value is not None}


_SUPPORT = ("preserved", "shrunk", "expanded", "unsolved")


def write_summary(path: Path, base: Curve, trained: Curve) -> None:
    """``curve.json``: both curves, the trained one with its comparison."""
    write_json(path, {"base": curve_row(base), "trained": curve_row(trained)})


def run_result(job: Job, base: Curve, trained: Curve, seconds: float) -> RunResult:
    """The closing screen."""
    comparison = trained.comparison
    assert comparison is not None
    ks = [k for k in trained.ks if k in _SHOWN_KS or k == trained.ks[-1]]
    counts = comparison.problems
    return RunResult(
        title=title(job),
        confidence=trained.confidence,
        curve=[
            CurveRow(
                label=f"pass@{k}",
                base=base.pass_at_k[k].value,
                base_interval=(base.pass_at_k[k].low, base.pass_at_k[k].high),
                trained=trained.pass_at_k[k].value,
                trained_interval=(trained.pass_at_k[k].low, trained.pass_at_k[k].high),
                difference=comparison.difference[k].value,
                standard_error=comparison.difference[k].standard_error or 0.0,
            )
            for k in ks
        ],
        support=Support(**{name: getattr(counts, name) for name in _SUPPORT}),
        measures={
            "distinct solutions/problem": (base.distinct_correct, trained.distinct_correct),
            "token entropy (nats)": (base.entropy, trained.entropy),
            "KL to reference (nats)": (base.kl_to_reference, trained.kl_to_reference),
            "tokens/completion": (base.mean_tokens, trained.mean_tokens),
        },
        folder=job.folder,
        files=_FILES,
        commands=_next_commands(job),
        seconds=seconds,
    )


_FILES: Mapping[str, str] = {
    "pass_at_k.png": "the curve, base against trained",
    "curve.json": "its numbers, problem by problem",
    "metrics.jsonl": "every metric of every step",
    "evaluation/": "samples, verdicts and curve of each evaluation",
    "model/": "the trained model, for from_pretrained",
}


def _next_commands(job: Job) -> list[tuple[str, str]]:
    """Three things to try: another guide, a stronger one, a sweep; with what the user had set kept."""
    kept = [o for o in job.info.overrides if o.split("=")[0].lstrip("+~") not in {"guide", "guide.strength", "seed"}]
    kept = [o for o in kept if not o.startswith(("guide.", "hydra."))]
    tail = "".join(f" {shlex.quote(o)}" for o in kept)
    guides = ["random", "branch", "token"] if job.parts.kl_mode.bank is None else ["verdict", "verdict_flat"]
    other = next(guide for guide in reversed(guides) if guide != job.choices["guide"])
    every = ",".join(["none", *guides])
    return [
        (f"sage-run guide={other}{tail}", "another guide"),
        (f"sage-run -m guide={other} guide.strength=0,1,2,4{tail}", "how strong it should be"),
        (f"sage-run -m guide={every} seed=0,1,2{tail}", "all guides, three seeds"),
    ]
