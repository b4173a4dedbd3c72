"""One evaluation: samples -> verdicts -> curve, each a file in the evaluation's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sage.evaluation.compare import refuse_other_base, with_comparison
from sage.evaluation.curves import Curve, make_curve, save_curve
from sage.evaluation.files import write_jsonl
from sage.evaluation.grade import grade
from sage.evaluation.sample import draw
from sage.evaluation.settings import claimed, settings_of
from sage.evaluation.stats import CompletionStats, completion_stats, pooled
from sage.evaluation.votes import Votes, count_votes
from sage.interfaces import Policy, Progress, ProgressBar, Reward, RolloutEngine
from sage.types import Group, Problem, Sampling, Split

SOURCE = "source"
"""Column of a combined benchmark's problems: the name of the benchmark that a problem comes from."""


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
    origin: Mapping[str, Any],
    folder: Path,
    progress: Progress,
    title: str,
    base: Curve | None,
    reference_available: bool,
) -> Curve:
    """Judge a policy on one split by n samples a problem.

    Writes ``settings.json``, ``problems.jsonl``, ``samples.jsonl``, ``verdicts.jsonl`` and ``curve.json`` into ``folder``.
    Samples that the folder has already, of the same settings, are kept: an interrupted evaluation goes on, and a larger n
    draws only what is missing. Everything after the samples is done anew.

    Args:
        policy: the model; its weights are loaded into the engine if there is anything to draw.
        engine: draws the completions.
        reward: judges them.
        problems: all problems that are to count.
        split: their split; with seed, problem and sample it keys the random streams.
        benchmark_name: for the curve.
        sampling: how to draw.
        n: samples of every problem.
        seed: of samples and bootstrap.
        settings: the rest.
        origin: model, benchmark, reward and engine as plain values, for ``settings.json``.
        folder: where the files go.
        progress: where to report.
        title: what is evaluated, for the progress bars.
        base: curve of the base model on the same problems with the same n; the result then has a comparison.
        reference_available: whether the KL to the policy's reference can be computed.

    Raises:
        ConfigError: the folder holds samples of other settings, or the base is one of other settings.
    """
    if not problems:
        raise ValueError(f"{benchmark_name} has no problem in split {split}: nothing to evaluate")
    made_of = settings_of(origin, problems, split=split, sampling=sampling, seed=seed, stats_n=settings.stats_n)
    measured = {"benchmark": benchmark_name, "split": split, "n": n, "sampling": sampling}
    if base is not None:  # before anything is drawn
        refuse_other_base(base, **measured, ids=[p.id for p in problems], settings=made_of)
    with claimed(folder, made_of), progress.stage(title, len(problems) * n, "completions") as bar:
        inside = _Sampling(bar)
        write_jsonl(folder / "problems.jsonl", ({"id": p.id, "prompt": p.prompt, "answer": p.answer} for p in problems))
        groups = draw(
            policy,
            engine,
            problems,
            sampling=sampling,
            n=n,
            seed=seed,
            split=split,
            batch_size=settings.batch_size,
            keep_tokens=settings.stats_n,
            path=folder / "samples.jsonl",
            progress=inside,
            title=title,
        )
        engine.sleep()  # scoring needs the memory
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
        judged = _Judged(groups=groups, votes=count_votes(groups, reward), stats=stats)
        shared = measured | {
            "seed": seed,
            "confidence": settings.confidence,
            "bootstrap_samples": settings.bootstrap_samples,
        }
        curve = replace(judged.curve(**shared), sources=judged.sources(**shared), settings=made_of)
        if base is not None:
            curve = with_comparison(curve, base)
        save_curve(folder / "curve.json", curve)
        bar.update(0, **{f"pass@{k}": curve.pass_at_k[k].value for k in (1, curve.ks[-1])})
    return curve


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """Graded problems with what else a curve is made of, problem by problem."""

    groups: Sequence[Group]
    votes: Sequence[Votes] | None
    stats: Sequence[CompletionStats] | None

    def curve(self, **shared: Any) -> Curve:
        stats = None if self.stats is None else pooled(self.stats)
        known = {"entropy": stats and stats.entropy, "kl_to_reference": stats and stats.kl_to_reference}
        return make_curve(self.groups, votes=self.votes, **known, **shared)

    def sources(self, **shared: Any) -> tuple[Curve, ...]:
        """One curve for each benchmark that a combined one consists of."""
        rows: dict[str, list[int]] = {}
        for row, group in enumerate(self.groups):
            if SOURCE in group.problem.columns:
                rows.setdefault(str(group.problem.columns[SOURCE]), []).append(row)
        return tuple(self._of(chosen).curve(**shared | {"benchmark": name}) for name, chosen in rows.items())

    def _of(self, rows: Sequence[int]) -> _Judged:
        return _Judged(
            groups=[self.groups[row] for row in rows],
            votes=None if self.votes is None else [self.votes[row] for row in rows],
            stats=None if self.stats is None else [self.stats[row] for row in rows],
        )


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
