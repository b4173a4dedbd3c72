"""One evaluation: samples -> verdicts -> curve, each a file in the evaluation's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sage.evaluation.compare import compare
from sage.evaluation.curves import Curve, make_curve, save_curve
from sage.evaluation.files import write_jsonl
from sage.evaluation.grade import grade
from sage.evaluation.sample import draw
from sage.evaluation.stats import completion_stats
from sage.interfaces import Policy, Progress, ProgressBar, Reward, RolloutEngine
from sage.types import Problem, Sampling, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """What all evaluations of a run share."""

    confidence: float
    """Coverage of the bootstrap intervals over problems."""
    bootstrap_samples: int
    """Problem sets drawn for them."""
    stats_n: int
    """Samples a problem from which entropy and KL to the reference are computed."""
    batch_size: int
    """Completions asked of the engine at once."""
    micro_batch_size: int
    """Sequences a forward pass holds."""


def evaluate(
    *,
    policy: Policy,
    engine: RolloutEngine,
    reward: Reward,
    problems: Sequence[Problem],
    split: Split,
    benchmark_name: str,
    sampling: Sampling,
    n: int,
    seed: int,
    settings: EvaluationSettings,
    folder: Path,
    progress: Progress,
    title: str,
    base: Curve | None,
    reference_available: bool,
) -> Curve:
    """Judge a policy on one split by n samples a problem.

    Writes ``problems.jsonl``, ``samples.jsonl``, ``verdicts.jsonl`` and ``curve.json`` into ``folder``.

    Args:
        policy: the model; its weights are loaded into the engine first.
        engine: draws the completions.
        reward: judges them.
        problems: all problems that are to count.
        split: their split; with seed, problem and sample it keys the random streams.
        benchmark_name: for the curve.
        sampling: how to draw.
        n: samples of every problem.
        seed: of samples and bootstrap.
        settings: the rest.
        folder: where the files go.
        progress: where to report.
        title: what is evaluated, for the progress bars.
        base: curve of the base model on the same problems with the same n; the result then has a comparison.
        reference_available: whether the KL to the policy's reference can be computed.
    """
    if not problems:
        raise ValueError(f"{benchmark_name} has no problem in split {split}: nothing to evaluate")
    with progress.stage(title, len(problems) * n, "completions") as bar:
        inside = _Sampling(bar)
        engine.load_weights(policy)
        write_jsonl(folder / "problems.jsonl", ({"id": p.id, "prompt": p.prompt, "answer": p.answer} for p in problems))
        prompts = [(problem, policy.encode_prompt(problem.prompt)) for problem in problems]
        groups = draw(
            engine,
            prompts,
            sampling=sampling,
            n=n,
            seed=seed,
            split=split,
            batch_size=settings.batch_size,
            path=folder / "samples.jsonl",
            progress=inside,
            title=title,
        )
        groups = grade(groups, reward, path=folder / "verdicts.jsonl", progress=inside, title=title)
        stats = None
        if sampling.temperature > 0:  # a greedy policy is a point mass: entropy 0, KL infinite
            stats = completion_stats(
                policy,
                groups,
                temperature=sampling.temperature,
                stats_n=settings.stats_n,
                micro_batch_size=settings.micro_batch_size,
                reference=reference_available,
                progress=inside,
                title=title,
            )
        curve = make_curve(
            groups,
            benchmark=benchmark_name,
            split=split,
            seed=seed,
            n=n,
            sampling=sampling,
            confidence=settings.confidence,
            bootstrap_samples=settings.bootstrap_samples,
            entropy=stats and stats.entropy,
            kl_to_reference=stats and stats.kl_to_reference,
        )
        if base is not None:
            curve = replace(curve, comparison=compare(curve, base))
        save_curve(folder / "curve.json", curve)
        bar.update(0, **{f"pass@{k}": curve.pass_at_k[k].value for k in (1, curve.ks[-1])})
    return curve


class _Sampling:
    """Sampling moves the bar of the whole evaluation; grading and statistics take a moment after it."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[ProgressBar]:
        yield self._bar if name.endswith(": sample") else _NoBar()


class _NoBar:
    def update(self, advance: int = 1, **shown: float) -> None:
        """Nothing to draw."""
