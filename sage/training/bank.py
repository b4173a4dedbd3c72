"""The bank: graded samples of the reference on every training problem, drawn once, kept in a file that survives interruption."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from sage.interfaces import Progress, Reward, RolloutEngine
from sage.training.collect import grade, rollouts
from sage.training.locks import locked
from sage.types import BankSettings, Completion, Group, Problem, Sampling, StopReason, Verdict, VerdictReason

_FILE = "bank.jsonl"
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Graded samples of the reference, by problem."""

    groups: Mapping[str, Group]
    """Problem id -> its samples with verdicts; sampler log-probs are not kept."""

    def pass_rate(self, problem_id: str) -> float:
        """Mean credit of the reference on a problem, in [0, 1]."""
        return fmean(verdict.credit for verdict in self.groups[problem_id].verdicts)

    @property
    def samples(self) -> int:
        """Completions in all."""
        return sum(len(group.completions) for group in self.groups.values())

    @property
    def tokens(self) -> int:
        """Sampled tokens in all: what the bank cost, whether it was drawn by this run or found."""
        return sum(len(c.token_ids) for group in self.groups.values() for c in group.completions)

    def metrics(self) -> dict[str, float]:
        """What the reference knows, by the training reward: ``bank/*`` of ``docs/metrics.md``."""
        solutions = [set(group.solutions) - {None} for group in self.groups.values()]
        return {
            "bank/pass_rate": fmean(map(self.pass_rate, self.groups)),
            "bank/solved_problems": fmean(bool(found) for found in solutions),
            "bank/distinct_correct": fmean(map(len, solutions)),
            "bank/samples": self.samples,
            "bank/tokens": self.tokens,
        }


@dataclass(frozen=True, kw_only=True)
class BankSource:
    """Where the samples of a bank come from."""

    engine: RolloutEngine
    """Holds the reference's weights."""
    encode_prompt: Callable[[str], tuple[int, ...]]
    reward: Reward
    problems: Sequence[Problem]
    sampling: Sampling
    settings: BankSettings
    batch_size: int
    """Completions asked of the engine at once, whole problems at least; does not change any of them."""


def bank_key(source: BankSource, base: Path | None, inputs: Mapping[str, str]) -> str:
    """Names a bank by everything that goes into it: weights and tokenizer, problems, reward and its code, sampling, settings.

    Args:
        source: draws the bank.
        base: folder with the weights that RL starts from; every file in it counts. ``None`` where ``inputs`` name the model.
        inputs: what else identifies benchmark, reward, engine and model, as text.
    """
    problems = [(p.id, p.prompt, p.answer) for p in source.problems]
    settings = (source.settings.samples, source.settings.seed)  # not draws: they are made from a bank, not for it
    code = Path(inspect.getfile(type(source.reward))).parent
    found = [*([] if base is None else sorted(base.glob("*"))), *sorted(code.glob("*.py"))]
    files = [path for path in found if path.is_file()]
    digest = hashlib.blake2b(digest_size=10)
    digest.update(repr((problems, settings, source.sampling, sorted(inputs.items()))).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def cached_bank(folder: Path, source: BankSource, progress: Progress) -> Bank:
    """Read the bank of a folder; draw it, or what an interruption left undrawn, where it is not complete.

    Problems are drawn and graded in turn, each one line of the file. As every sample has a stream of its own, named by
    the bank's seed, problem and number, a bank that was interrupted and resumed is the same file as any other. Runs that want
    one bank at the same time draw it once: the others wait.

    Args:
        folder: named by :func:`bank_key`.
        source: draws what is missing.
        progress: where the stage ``bank`` reports to.
    """
    finished, partial = folder / _FILE, folder / f"{_FILE}.partial"
    if not finished.exists():
        with locked(folder / "lock", f"the bank {folder.name}"):
            if not finished.exists():
                _fill(partial, source, progress)
                os.replace(partial, finished)
    return _read(finished, source)


def _fill(partial: Path, source: BankSource, progress: Progress) -> None:
    """Append the problems that the file lacks."""
    count = source.settings.samples
    with partial.open("a+b") as file:
        done = keep_complete_lines(file)
        at_once = max(1, source.batch_size // count)
        with progress.stage("bank", len(source.problems) * count, "completions") as bar:
            bar.update(done * count)
            for start in range(done, len(source.problems), at_once):
                problems = source.problems[start : start + at_once]
                stream = ("bank", source.settings.seed)
                drawn = rollouts(source.engine, source.encode_prompt, problems, source.sampling, count, stream)
                file.write(b"".join(map(_line, grade(drawn, source.reward))))
                file.flush()
                bar.update(len(problems) * count)
        os.fsync(file.fileno())


def keep_complete_lines(file: Any) -> int:
    """Cut off a line that an interruption left unfinished; returns the number of those before it, ready to append."""
    file.seek(0)
    lines = [line for line in file if line.endswith(b"\n")]
    file.truncate(sum(map(len, lines)))
    file.seek(0, os.SEEK_END)
    return len(lines)


def _line(group: Group) -> bytes:
    row = {
        "problem_id": group.problem.id,
        "prompt_ids": group.prompt_ids,
        "completions": [
            {
                "token_ids": completion.token_ids,
                "text": completion.text,
                "stop_reason": completion.stop_reason.value,
                "reward": verdict.reward,
                "reason": verdict.reason.value,
                "answer": verdict.answer,
                "solution": verdict.solution,
            }
            for completion, verdict in zip(group.completions, group.verdicts, strict=True)
        ],
    }
    # A lone surrogate in a text has no UTF-8 form; backslashreplace writes \udcXX, which JSON reads back as itself.
    return _ENCODER.encode(row).encode("utf-8", "backslashreplace") + b"\n"


def _read(path: Path, source: BankSource) -> Bank:
    groups: dict[str, Group] = {}
    with path.open(encoding="utf-8") as file:
        for problem, line in zip(source.problems, file, strict=True):
            group = _group(problem, json.loads(line))
            groups[problem.id] = group
    return Bank(groups=groups)


def _group(problem: Problem, row: dict[str, Any]) -> Group:
    if row["problem_id"] != problem.id:
        raise ValueError(f"the bank has problem {row['problem_id']} where {problem.id} belongs: delete its folder")
    found = row["completions"]
    return Group(
        problem=problem,
        prompt_ids=tuple(row["prompt_ids"]),
        completions=tuple(
            Completion(
                token_ids=tuple(c["token_ids"]),
                sampler_logprobs=(),
                text=c["text"],
                stop_reason=StopReason(c["stop_reason"]),
            )
            for c in found
        ),
        verdicts=tuple(
            Verdict(
                reward=c["reward"],
                reason=VerdictReason(c["reason"]),
                answer=c["answer"],
                solution=c["solution"],
            )
            for c in found
        ),
    )
