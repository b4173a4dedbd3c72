"""Problems to graded groups: rollouts from the engine, verdicts from the reward."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from sage.interfaces import Reward, RolloutEngine
from sage.maths.streams import stream_key
from sage.types import Completion, Group, Problem, SampleRequest, Sampling, Verdict, VerdictReason

log = logging.getLogger(__name__)


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
    return [replace(g, verdicts=tuple(_verdict(reward, g.problem, c) for c in g.completions)) for g in groups]


def _verdict(reward: Reward, problem: Problem, completion: Completion) -> Verdict:
    try:
        return reward.score(problem, completion)
    except Exception:
        # A reward is the user's code: one bad text must not end a run of days. The completion drops out of the update, the
        # verdict's reason is counted in the metrics, and the log names problem and text (K39).
        log.exception("reward failed on problem %s, completion %.500r", problem.id, completion.text)
        return Verdict(reward=None, reason=VerdictReason.ERROR)
