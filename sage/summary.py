"""A run in numbers and words: the plan before it, its evaluation metrics, the result after it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sage.config import conf_dir
from sage.evaluation.curves import Curve, curve_row
from sage.evaluation.files import write_json
from sage.interfaces import Guide
from sage.job import Job
from sage.loggers.screens import CurveRow, RunPlan, RunResult, Support
from sage.training.estimate import Speed
from sage.types import GuideInputs, Split, Stat, VerdictReason

_SHOWN_KS = (1, 4, 16, 64, 256)


def title(job: Job) -> str:
    """What was measured, e.g. ``countdown, 182 test problems x 256 samples``."""
    return f"{job.parts.benchmark.name}, {len(job.problems(Split.TEST))} test problems × {job.config.eval.n} samples"


def figure_title(job: Job) -> str:
    """What sets the run apart, so that two figures can be told apart."""
    guide, kl_mode, algorithm = (job.choices[group] for group in ("guide", "kl_mode", "algorithm"))
    chosen = f"guide {guide}, KL {kl_mode}, {algorithm}, seed {job.config.seed}"
    return f"{job.choices['model']} on {job.parts.benchmark.name}: {chosen}"


def run_plan(job: Job, memory: str, seconds: float | None) -> RunPlan:
    """The first panel; ``seconds`` is the expected length, where it is known."""
    config, parts = job.config, job.parts
    guide = job.choices["guide"]
    kl_mode = job.choices["kl_mode"]
    epochs, minibatches = parts.algorithm.epochs, parts.algorithm.minibatches
    adapter = getattr(parts.model.lora, "rank", None)
    evaluation = f"{len(job.problems(Split.TEST))} test problems × {config.eval.n} samples, before and after"
    if 0 < config.eval.every <= config.train.steps:
        evaluation += f"; validation every {config.eval.every} steps"
    updates = "" if epochs * minibatches == 1 else f" ({epochs} epochs of {minibatches} mini-batches)"
    beta = f"beta {parts.kl_mode.beta:g}" + (
        "" if config.train.target_kl is None else f" at first, to hold {config.train.target_kl:g}"
    )
    return RunPlan(
        guide=guide if parts.guide.identity else f"{guide}, strength {parts.guide.strength:g}",
        kl_mode=kl_mode if parts.kl_mode.beta == 0 else f"{kl_mode}, {beta}",
        gradient=parts.kl_mode.gradient,
        algorithm=job.choices["algorithm"] + updates,
        model=job.choices["model"] + ("" if adapter is None else f" (LoRA, rank {adapter})"),
        benchmark=f"{parts.benchmark.name} (reward {job.choices['reward']})",
        steps=config.train.steps,
        problems_per_step=config.train.problems_per_step,
        completions_per_problem=config.train.completions_per_problem,
        on_policy=epochs * minibatches == 1,
        evaluation=evaluation,
        folder=job.folder,
        memory=memory,
        seconds=seconds,
        notes=_notes(job),
    )


def _notes(job: Job) -> tuple[str, ...]:
    """What a reader must know before comparing this run with another."""
    bank = job.parts.kl_mode.bank
    if bank is None:
        return job.notes
    problems = len(job.problems(Split.TRAIN))
    return (
        *job.notes,
        f"bank of {problems:,} problems x {bank.samples:,} samples of the base = {problems * bank.samples:,}, drawn once and "
        "cached; progress/samples and progress/tokens count them",
    )


def estimated_seconds(job: Job, speed: Speed, *, sft_cached: bool) -> float:
    """How long the run should take: its sequences, each at its measured price, if all were of full length."""
    config, parts = job.config, job.parts
    needs = parts.kl_mode.needs | parts.guide.needs | parts.algorithm.needs
    updates = parts.algorithm.epochs * parts.algorithm.minibatches
    scores_old = parts.kl_mode.in_reward or updates > 1 or Stat.VALUES in needs
    passes = (Stat.REFERENCE in needs) + scores_old
    rollout = config.train.problems_per_step * config.train.completions_per_problem
    update = parts.algorithm.epochs * speed.update
    step = rollout * (speed.sample + passes * speed.forward + update)
    bank = parts.kl_mode.bank
    if bank is not None:
        step += config.train.problems_per_step * bank.draws * update
    validations = 0 if not config.eval.every else 1 + config.train.steps // config.eval.every
    evaluated = 2 * len(job.problems(Split.TEST)) * config.eval.n
    evaluated += validations * len(job.problems(Split.VALIDATION)) * config.eval.validation_n
    sft = 0 if sft_cached else _demonstrations(job) * speed.update
    evaluated += 0 if bank is None else len(job.problems(Split.TRAIN)) * bank.samples
    return sft + config.train.steps * step + evaluated * speed.sample


def _demonstrations(job: Job) -> int:
    """How many the SFT stage goes through."""
    sft = job.config.sft
    if sft.steps is not None:
        return sft.steps * sft.batch_size
    return (sft.epochs or 0) * len(job.parts.benchmark.demonstrations())


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


def run_result(
    job: Job, base: Curve, trained: Curve, metrics: Sequence[Mapping[str, Any]], seconds: float
) -> RunResult:
    """The closing screen; ``metrics`` are those of the steps."""
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
            "cut at max_tokens (share)": (base.truncated_share, trained.truncated_share),
        },
        folder=job.folder,
        files=_FILES
        if job.parts.model.lora is None
        else {**_FILES, "model/": "the trained adapter, for PEFT on its base"},
        commands=_next_commands(job),
        seconds=seconds,
        notes=_findings(job, base, trained, metrics),
    )


_FILES: Mapping[str, str] = {
    "pass_at_k.png": "the curve, base against trained",
    "curve.json": "its numbers, problem by problem",
    "metrics.jsonl": "every metric of every step",
    "evaluation/": "samples, verdicts and curve of each evaluation",
    "model/": "the trained model, for from_pretrained",
}


_HARDLY = 0.02
_MANY = 0.5


def _findings(job: Job, base: Curve, trained: Curve, metrics: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a reader of the result must know: rewards that failed, and a guide that left nearly every token alone."""
    notes: list[str] = []
    failed = max(curve.reason_shares.get(VerdictReason.ERROR, 0.0) for curve in (base, trained))
    if failed:
        notes.append(
            f"the reward failed on up to {failed:.1%} of an evaluation's completions, which count as wrong: see run.log"
        )
    cut = max(base.truncated_share, trained.truncated_share)
    if cut > _MANY:
        notes.append(
            f"up to {cut:.0%} of an evaluation's completions were cut at eval.sampling.max_tokens="
            f"{job.config.eval.sampling.max_tokens} before they ended"
        )
    changed = [row["guide/q_changed_share"] for row in metrics if "guide/q_changed_share" in row]
    acts = job.parts.guide.identity or job.parts.guide.of_responses or not changed or fmean(changed) >= _HARDLY
    if not acts:
        notes.append(
            f"guide={job.choices['guide']} changed q on {fmean(changed):.1%} of the tokens only, so this run hardly differs from "
            "guide=none; experiment=testbed_branch has a branch guide scaled to the tiny model"
        )
    return tuple(notes)


def _next_commands(job: Job) -> list[tuple[str, str]]:
    """Three things to try, with what the user had set kept: strength, another guide where that can work, seeds."""
    typed = [o for o in job.info.overrides if not o.startswith("hydra.")]
    folder = [a for a in sys.argv[1:] if a.startswith("--config-dir=")]
    if "--config-dir" in sys.argv[1:-1]:
        folder = ["--config-dir", sys.argv[sys.argv.index("--config-dir") + 1]]
    typed = [*folder, *typed]
    without_seed = [o for o in typed if not o.startswith("seed=")]
    without_guide = [o for o in without_seed if _group(o) != "guide" and not _sets_guide(o)]
    kl_mode, guide = job.parts.kl_mode, job.parts.guide
    commands: list[tuple[str, str]] = []
    if not guide.identity:
        others = [o for o in without_seed if not o.startswith("guide.strength=")]
        commands.append((_command("-m", *others, "guide.strength=0,0.5,1,2"), "how strong the guide should be"))
    if kl_mode.bank is not None:
        commands.append((_command("-m", *without_guide, "guide=none,verdict,verdict_flat"), "the other guides"))
    elif kl_mode.refusal(_PROBE) is None:
        other = "token" if job.choices["guide"] != "token" else "branch"
        commands.append((_command(*without_guide, f"guide={other}"), "another guide"))
    else:
        free = [o for o in without_guide if not o.startswith(("kl=", "kl_mode"))]
        commands.append((_command(*free, "guide=token", "kl=reverse"), "an anchor that a guide shapes"))
    commands.append((_command("-m", *without_seed, "seed=0,1,2"), "three seeds"))
    if len(commands) < 3:
        free = [o for o in without_seed if not o.startswith("algorithm")]
        commands.insert(0, (_command("-m", *free, "algorithm=grpo,dr_grpo,rloo"), "other policy objectives"))
    return commands


def _group(override: str) -> str:
    """The configuration group that an override touches, e.g. ``guide`` of ``+guide@guide.factors.noise=random``."""
    return override.lstrip("+~").split("=")[0].split("@")[0].split(".")[0]


def _sets_guide(override: str) -> bool:
    """Whether an experiment has options for a guide of its own, which another guide would not know."""
    group, _, name = override.partition("=")
    file = conf_dir() / "experiment" / f"{name}.yaml"
    return group == "experiment" and (not file.is_file() or "\nguide:" in file.read_text(encoding="utf-8"))


def _command(*arguments: str) -> str:
    """A line to paste: ``sage-run`` as it can be found from here."""
    program = "sage-run"
    if shutil.which(program) is None and Path(sys.argv[0]).name == program:
        program = os.path.relpath(sys.argv[0])
    return " ".join([program, *map(shlex.quote, arguments)])


class _AnyGuide(Guide):
    """Asks a KL mode whether it can work with a guide of tokens that is constant over the vocabulary."""

    def q(self, inputs: GuideInputs) -> Any:
        raise NotImplementedError


_PROBE = _AnyGuide(strength=1.0, q_min=1.0, q_max=1.0)
