"""First stage of an evaluation: problems -> completions -> ``samples.jsonl``, in a file that survives interruption."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sage.config import ConfigError
from sage.evaluation.files import json_line, read_jsonl, write_jsonl
from sage.interfaces import Policy, Progress, RolloutEngine
from sage.maths.streams import stream_key
from sage.training.bank import keep_complete_lines
from sage.types import Completion, Group, Problem, SampleRequest, Sampling, Split, StopReason

Place = tuple[str, int]
"""Id of a problem, and number of a sample of it."""
UNKNOWN = -1
"""Stands for each token of a sample whose tokens are not in the file: lengths are right, and no model takes it for a token."""


def sample_key(seed: int, split: Split, problem_id: str, sample: int) -> int:
    """The random stream of one evaluation sample.

    It knows nothing of step, stage, batch or weights: no two (seed, problem, sample) share a stream, and base and
    trained model are compared under common random numbers.
    """
    return stream_key(seed, "evaluation", split.value, problem_id, sample)


def draw(
    policy: Policy,
    engine: RolloutEngine,
    problems: Sequence[Problem],
    *,
    sampling: Sampling,
    n: int,
    seed: int,
    split: Split,
    batch_size: int,
    keep_tokens: int,
    path: Path,
    progress: Progress,
    title: str,
) -> list[Group]:
    """n completions of each problem: those in the file, and what it lacks.

    Each batch is appended to ``samples.unsorted.jsonl`` as it comes, so that an interruption costs one batch. When nothing is
    missing ``samples.jsonl`` is written in the order of problems and samples, the same bytes whatever happened on the way.

    Args:
        policy: what is judged; loaded into the engine if there is anything to draw.
        engine: draws.
        problems: in their order.
        sampling: how to draw; at temperature 0 with n > 1 it warns that all samples of a problem are equal.
        n: completions of every problem.
        seed: with split, problem and sample number it keys the random streams.
        split: the problems' split.
        batch_size: completions asked of the engine at once; does not change any of them.
        keep_tokens: of the first so many samples of a problem the token ids are kept, which scoring needs.
        path: ``samples.jsonl``, one row a completion; a file with fewer samples is completed.
        progress: where to report.
        title: what is evaluated, for the progress bar.

    Returns:
        One group a problem, in order; sampler log-probs are dropped.

    Raises:
        ConfigError: the file has more than n samples a problem, or rows that cannot be its own.
    """
    if n < 1 or batch_size < 1:
        raise ValueError(f"eval.n={n}, eval.batch_size={batch_size}: expected whole numbers >= 1")
    if sampling.temperature == 0 and n > 1:
        warnings.warn(
            f"temperature 0 with n={n}: all samples of a problem are equal, so pass@k is pass@1 for every k; "
            "set eval.sampling.temperature above 0, or eval.n=1",
            stacklevel=2,
        )
    prompts = {problem.id: policy.encode_prompt(problem.prompt) for problem in problems}
    found = _finished(path, prompts, n)
    places = [(problem.id, sample) for problem in problems for sample in range(n)]
    if len(found) < len(places):
        unsorted = path.with_suffix(".unsorted.jsonl")
        found |= _begun(unsorted, prompts)
        missing = [place for place in places if place not in found]
        with progress.stage(f"{title}: sample", len(places), "completions") as bar, unsorted.open("ab") as file:
            bar.update(len(places) - len(missing))
            if missing:
                engine.load_weights(policy)
            for start in range(0, len(missing), batch_size):
                batch = missing[start : start + batch_size]
                drawn = _generate(engine, prompts, batch, sampling, seed, split)
                found |= {place: _slim(c, place, keep_tokens) for place, c in zip(batch, drawn, strict=True)}
                file.write(b"".join(json_line(_row(place, found[place])) for place in batch))
                file.flush()
                bar.update(len(batch))
        write_jsonl(path, (_row(place, found[place]) for place in places))
        unsorted.unlink()
    return [
        Group(problem=p, prompt_ids=prompts[p.id], completions=tuple(found[p.id, sample] for sample in range(n)))
        for p in problems
    ]


def _generate(
    engine: RolloutEngine,
    prompts: Mapping[str, tuple[int, ...]],
    batch: Sequence[Place],
    sampling: Sampling,
    seed: int,
    split: Split,
) -> list[Completion]:
    """The completions of a batch, in its order: samples of one problem stand together, and share a request."""
    keys: dict[str, list[int]] = {}
    for problem_id, sample in batch:
        keys.setdefault(problem_id, []).append(sample_key(seed, split, problem_id, sample))
    requests = [SampleRequest(prompt_ids=prompts[problem_id], keys=tuple(of)) for problem_id, of in keys.items()]
    drawn: list[Completion] = []
    for (problem_id, of), completions in zip(keys.items(), engine.generate(requests, sampling), strict=True):
        if len(completions) != len(of):
            raise ValueError(f"problem {problem_id}: the engine gave {len(completions)} of {len(of)} completions")
        drawn += completions
    return drawn


def _slim(completion: Completion, place: Place, keep_tokens: int) -> Completion:
    """Without what nobody will read: an evaluation can have millions of tokens."""
    ids = completion.token_ids if place[1] < keep_tokens else (UNKNOWN,) * len(completion.token_ids)
    return replace(completion, token_ids=ids, sampler_logprobs=())


def _row(place: Place, completion: Completion) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem_id": place[0],
        "sample": place[1],
        "text": completion.text,
        "num_tokens": len(completion.token_ids),
        "stop_reason": completion.stop_reason.value,
    }
    return row if UNKNOWN in completion.token_ids else row | {"token_ids": completion.token_ids}


def _finished(path: Path, prompts: Mapping[str, Any], n: int) -> dict[Place, Completion]:
    """The samples of a finished file, the same number of every problem; nothing where there is none."""
    if not path.exists():
        return {}
    found = _read(path, prompts)
    most = max((sample for _, sample in found), default=-1) + 1
    if most > n:
        raise ConfigError([f"{path} has {most} samples a problem: type eval.n={most} or more, or give another folder"])
    return found


def _begun(path: Path, prompts: Mapping[str, Any]) -> dict[Place, Completion]:
    """The samples that an interrupted drawing left; a line that it left unfinished is cut off."""
    with path.open("a+b") as file:
        keep_complete_lines(file)
    return _read(path, prompts)


def _read(path: Path, known: Mapping[str, Any]) -> dict[Place, Completion]:
    found: dict[Place, Completion] = {}
    try:
        for number, row in enumerate(read_jsonl(path), 1):
            if row["problem_id"] not in known:
                raise ValueError(
                    f"line {number}: problem {row['problem_id']} is not among the problems of the benchmark"
                )
            found[row["problem_id"], row["sample"]] = _completion(row)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            [f"{path}: a row is damaged ({error}): remove the file, and its samples are drawn again"]
        ) from error
    except ValueError as error:
        raise ConfigError(
            [f"{path} cannot be used: {error}; remove the file, and its samples are drawn again"]
        ) from error
    return found


def _completion(row: Mapping[str, Any]) -> Completion:
    ids = row.get("token_ids")
    return Completion(
        token_ids=(UNKNOWN,) * row["num_tokens"] if ids is None else tuple(ids),
        sampler_logprobs=(),
        text=row["text"],
        stop_reason=StopReason(row["stop_reason"]),
    )


def load_samples(path: Path, problems: Sequence[Problem]) -> list[Group]:
    """Groups of a ``samples.jsonl``, to be graded again; without prompt ids.

    Args:
        path: the file.
        problems: those that were sampled, which give prompts and answers.

    Raises:
        ConfigError: naming the problem that one side lacks, or whose samples are not 0, 1, 2...
    """
    found = _read(path, {problem.id: None for problem in problems})
    drawn: dict[str, list[int]] = {problem.id: [] for problem in problems}
    for problem_id, sample in found:
        drawn[problem_id].append(sample)
    return [
        Group(problem=p, prompt_ids=(), completions=tuple(_all_of(p.id, drawn[p.id], found, path))) for p in problems
    ]


def _all_of(
    problem_id: str, samples: Sequence[int], found: Mapping[Place, Completion], path: Path
) -> Iterator[Completion]:
    if not samples:
        raise ConfigError([f"{path}: no sample of problem {problem_id}"])
    for number in range(len(samples)):
        if (problem_id, number) not in found:
            raise ConfigError([f"{path}: problem {problem_id} has {len(samples)} samples without number {number}"])
        yield found[problem_id, number]
