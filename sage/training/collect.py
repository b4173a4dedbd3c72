"""Problems to graded groups: rollouts from the engine, verdicts from the reward, refills where the algorithm wants them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sage.interfaces import Algorithm, Reward, RolloutEngine
from sage.maths.streams import stream_key
from sage.training.problems import refill_problems
from sage.types import Group, Problem, SampleRequest, Sampling


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The groups of a step."""

    groups: list[Group]
    """P groups to train on."""
    discarded: list[Group]
    """Groups that the algorithm refused and that were replaced; drawn and graded for nothing but their price."""
    refills: int
    """How often further problems were drawn."""


def collect(
    attempt: Callable[[Sequence[Problem]], list[Group]],
    chosen: Sequence[Problem],
    problems: Sequence[Problem],
    algorithm: Algorithm,
    step: int,
    seed: int,
) -> Collected:
    """The groups of a step, refused ones replaced while the algorithm's ``max_refills`` allows.

    This is the dynamic sampling of DAPO (Yu et al. 2025, arXiv 2503.14476) with a bound. Refused groups fill the places that
    are still empty after the last refill, so a batch always has its full size.

    Args:
        attempt: draws and grades groups for some problems.
        chosen: the step's own problems.
        problems: the training split, where replacements come from; a step never sees a problem twice.
        algorithm: says which groups to keep.
        step: from 0.
        seed: the run's seed.
    """
    groups = attempt(chosen)
    kept = [group for group in groups if algorithm.keep(group)]
    refused = [group for group in groups if not algorithm.keep(group)]
    used = {problem.id for problem in chosen}
    refills = 0
    while len(kept) < len(chosen) and refills < algorithm.max_refills:
        more = refill_problems(problems, used, step, refills, len(chosen) - len(kept), seed)
        if not more:
            break
        refills += 1
        used |= {problem.id for problem in more}
        for group in attempt(more):
            (kept if algorithm.keep(group) else refused).append(group)
    missing = len(chosen) - len(kept)
    return Collected(groups=kept + refused[:missing], discarded=refused[missing:], refills=refills)


def rollouts(
    engine: RolloutEngine,
    encode_prompt: Callable[[str], tuple[int, ...]],
    problems: Sequence[Problem],
    sampling: Sampling,
    count: int,
    stream: tuple[int | str, ...],
) -> list[Group]:
    """Draw ``count`` completions of each problem; completion g of a problem has the stream ``(*stream, problem.id, g)``."""
    requests = [
        SampleRequest(
            prompt_ids=encode_prompt(problem.prompt),
            keys=tuple(stream_key(*stream, problem.id, g) for g in range(count)),
        )
        for problem in problems
    ]
    completions = engine.generate(requests, sampling)
    return [
        Group(problem=problem, prompt_ids=request.prompt_ids, completions=tuple(drawn))
        for problem, request, drawn in zip(problems, requests, completions, strict=True)
    ]


def grade(groups: Sequence[Group], reward: Reward) -> list[Group]:
    """Attach a verdict to every completion."""
    verdicts = iter(reward.score_all([(group.problem, c) for group in groups for c in group.completions]))
    return [replace(group, verdicts=tuple(next(verdicts) for _ in group.completions)) for group in groups]
