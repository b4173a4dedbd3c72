"""The main loop: rollouts against verdicts, updates against the shaped anchor. One screen, one direction."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sage.interfaces import MetricLogger, Progress, Reward, RolloutEngine
from sage.training.advantages import with_advantages
from sage.training.collect import Collected, collect, grade, rollouts
from sage.training.learner import Learner
from sage.training.metrics import rollout_metrics, update_metrics
from sage.training.packing import pack
from sage.training.problems import problems_of_step
from sage.training.update import update
from sage.types import Group, Problem, Sampling


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a run is."""

    step: int
    """Batches of rollouts done."""
    samples: int
    """Completions drawn, those of a bank included."""
    tokens: int
    """Tokens sampled."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run, ready to go."""

    learner: Learner
    engine: RolloutEngine
    reward: Reward
    problems: Sequence[Problem]
    sampling: Sampling
    steps: int
    problems_per_step: int
    completions_per_problem: int
    seed: int
    logger: MetricLogger
    progress: Progress
    after_step: Callable[[Position], None]
    """Called after every step, and first of all with ``start`` where that is not the beginning: checkpoints, evaluation and
    whatever else is due."""
    start: Position
    """Where to go on; the beginning of a run that is new."""


def train(run: Training) -> None:
    """Train for ``run.steps`` batches of rollouts; metrics of the n-th batch are logged at step n, counted from 1."""
    watch, position = Stopwatch(), run.start
    with run.progress.stage("train", run.steps, "steps") as bar:
        if position.step:
            bar.update(position.step)
            run.after_step(position)  # what was due there and may not have come to an end
        for step in range(position.step, run.steps):
            position, metrics = train_step(run, step, position, watch)
            shown = {"reward": "reward/mean", "KL": "kl/reference", "entropy": "policy/entropy"}
            bar.update(1, **{name: metrics[key] for name, key in shown.items() if key in metrics})
            run.after_step(position)


def train_step(run: Training, step: int, position: Position, watch: Stopwatch) -> tuple[Position, dict[str, float]]:
    """One batch of rollouts and its updates, logged."""
    learner = run.learner
    with watch("sync"):
        run.engine.load_weights(learner.policy)
    collected = collect_step(run, step, watch)
    run.engine.sleep()
    with watch("prepare"):
        batch = pack(
            collected.groups,
            device=learner.policy.device,
            noise_seed=(run.seed, "guide", step),
            max_completion_tokens=run.sampling.max_tokens,
        )
        batch = with_advantages(learner, batch, step * learner.updates_per_batch)
    with watch("update"):
        result = update(learner, batch, step)

    drawn = [c for g in (*collected.groups, *collected.discarded) for c in g.completions]
    position = Position(
        step=step + 1,
        samples=position.samples + len(drawn),
        tokens=position.tokens + sum(len(completion.token_ids) for completion in drawn),
    )
    metrics = rollout_metrics(collected) | update_metrics(result) | run.engine.metrics()
    if "kl/anchor" in metrics or "kl/reference" in metrics:
        metrics["kl/beta"] = learner.beta.value
    if "kl/reference" in metrics:
        learner.beta.observe(metrics["kl/reference"])
    metrics |= {"progress/samples": position.samples, "progress/tokens": position.tokens}
    run.logger.log(step + 1, metrics | watch.lap())
    return position, metrics


def collect_step(run: Training, step: int, watch: Stopwatch) -> Collected:
    """Rollouts and verdicts of one step."""
    stream = (run.seed, "rollout", step)

    def attempt(problems: Sequence[Problem]) -> list[Group]:
        with watch("rollout"):
            encode, count = run.learner.policy.encode_prompt, run.completions_per_problem
            groups = rollouts(run.engine, encode, problems, run.sampling, count, stream)
        with watch("verdict"):
            return grade(groups, run.reward)

    chosen = problems_of_step(run.problems, step, run.problems_per_step, run.seed)
    return collect(attempt, chosen, run.problems, run.learner.algorithm, step, run.seed)


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the time that the block takes to ``stage``."""
        start = time.perf_counter()
        yield
        self._seconds[stage] += time.perf_counter() - start

    def lap(self) -> dict[str, float]:
        """``time/<stage>`` since the last lap and their sum ``time/step``, in seconds."""
        lap = {f"time/{stage}": seconds for stage, seconds in self._seconds.items()}
        self._seconds.clear()
        return lap | {"time/step": sum(lap.values())}
