"""First stage of an evaluation: problems -> completions -> ``samples.jsonl``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sage.evaluation.files import read_jsonl, write_jsonl
from sage.interfaces import Progress, RolloutEngine
from sage.maths.streams import stream_key
from sage.types import Completion, Group, Problem, SampleRequest, Sampling, Split, StopReason

Prompt = tuple[Problem, tuple[int, ...]]
"""A problem and its encoded prompt."""


def sample_key(seed: int, split: Split, problem_id: str, sample: int) -> int:
    """The random stream of one evaluation sample.

    It knows nothing of step, stage, batch or weights: no two (seed, problem, sample) share a stream, and base and
    trained model are compared under common random numbers.
    """
    return stream_key(seed, "evaluation", split.value, problem_id, sample)


def draw(
    engine: RolloutEngine,
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling,
    n: int,
    seed: int,
    split: Split,
    batch_size: int,
    path: Path,
    progress: Progress,
    title: str,
) -> list[Group]:
    """Draw n completions of each problem and write them.

    Args:
        engine: holds the weights that are to be judged.
        prompts: problems with their prompt ids.
        sampling: how to draw; at temperature 0 with n > 1 it warns that all samples of a problem are equal.
        n: completions of every problem.
        seed: with split, problem and sample number it keys the random streams.
        split: the problems' split.
        batch_size: completions asked of the engine at once; does not change any of them.
        path: ``samples.jsonl``, one row a completion.
        progress: where to report.
        title: what is evaluated, for the progress bar.

    Returns:
        One group a problem, in order.
    """
    if n < 1 or batch_size < 1:
        raise ValueError(f"eval.n={n}, eval.batch_size={batch_size}: expected whole numbers >= 1")
    if sampling.temperature == 0 and n > 1:
        warnings.warn(
            f"temperature 0 with n={n}: all samples of a problem are equal, so pass@k is pass@1 for every k; "
            "set eval.sampling.temperature above 0, or eval.n=1",
            stacklevel=2,
        )
    drawn: list[list[Completion]] = [[] for _ in prompts]
    with progress.stage(f"{title}: sample", len(prompts) * n, "completions") as bar:
        for batch in _batches(len(prompts), n, batch_size):
            requests = [
                SampleRequest(
                    prompt_ids=prompts[p][1],
                    keys=tuple(sample_key(seed, split, prompts[p][0].id, s) for s in samples),
                )
                for p, samples in batch
            ]
            for (p, samples), completions in zip(batch, engine.generate(requests, sampling), strict=True):
                if len(completions) != len(samples):
                    raise ValueError(
                        f"problem {prompts[p][0].id}: the engine gave {len(completions)} of {len(samples)} completions"
                    )
                drawn[p].extend(completions)
            bar.update(sum(len(samples) for _, samples in batch))
    groups = [
        Group(problem=problem, prompt_ids=ids, completions=tuple(completions))
        for (problem, ids), completions in zip(prompts, drawn, strict=True)
    ]
    write_jsonl(path, _rows(groups))
    return groups


def _batches(num_problems: int, n: int, batch_size: int) -> Iterator[list[tuple[int, range]]]:
    """Runs of (problem, its samples) of ``batch_size`` samples in all; only the last may be smaller."""
    batch: list[tuple[int, range]] = []
    room = batch_size
    for problem in range(num_problems):
        start = 0
        while start < n:
            stop = min(n, start + room)
            batch.append((problem, range(start, stop)))
            room -= stop - start
            start = stop
            if room == 0:
                yield batch
                batch, room = [], batch_size
    if batch:
        yield batch


def _rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    for group in groups:
        for sample, completion in enumerate(group.completions):
            yield {
                "problem_id": group.problem.id,
                "sample": sample,
                "text": completion.text,
                "num_tokens": len(completion.token_ids),
                "stop_reason": completion.stop_reason.value,
            }


def load_samples(path: Path, problems: Sequence[Problem]) -> list[Group]:
    """Groups of a ``samples.jsonl``, to be graded again.

    Token ids are not in the file: -1 stands for each, so lengths are right and no model takes them for tokens.

    Args:
        path: the file.
        problems: those that were sampled, which give prompts and answers.

    Raises:
        ValueError: naming the problem that one side lacks, or whose samples are not 0, 1, 2...
    """
    drawn: dict[str, list[Completion]] = {problem.id: [] for problem in problems}
    for row in read_jsonl(path):
        _append(drawn, row, path)
    for problem_id, completions in drawn.items():
        if not completions:
            raise ValueError(f"{path}: no sample of problem {problem_id}")
    return [Group(problem=p, prompt_ids=(), completions=tuple(drawn[p.id])) for p in problems]


def _append(drawn: Mapping[str, list[Completion]], row: Mapping[str, Any], path: Path) -> None:
    if row["problem_id"] not in drawn:
        raise ValueError(
            f"{path}: problem {row['problem_id']} is not among the given problems; pass the same benchmark"
        )
    completions = drawn[row["problem_id"]]
    if row["sample"] != len(completions):
        raise ValueError(
            f"{path}: problem {row['problem_id']} has sample {row['sample']} after {len(completions)} samples"
        )
    completions.append(
        Completion(
            token_ids=(-1,) * row["num_tokens"],
            sampler_logprobs=(),
            text=row["text"],
            stop_reason=StopReason(row["stop_reason"]),
        )
    )
