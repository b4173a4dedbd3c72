"""``sage-data``: checks a benchmark's data before any model is loaded.

``sage-data check benchmark=paper_math`` composes like ``sage-run``. Exit status: 0 nothing wrong, 1 something is wrong with
the data, 2 it could not be checked.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from sage.config import ConfigError, check_plugin, composed, explain, register_resolvers
from sage.datacheck import CountTokens, DataReport, Lengths, Overlap, Shared, check, overlap
from sage.interfaces import Benchmark, Reward
from sage.loggers.console import make_console

_EXAMPLES = 3
_EPILOG = """examples:
  sage-data check benchmark=math500
  sage-data check benchmark=dapo_math benchmark.path=dapo.jsonl --against amc23=amc23.jsonl --against math500
  sage-data check benchmark=paper_math --tokenizer Qwen/Qwen2.5-Math-7B --json report.json
exit status: 0 nothing wrong, 1 something is wrong with the data, 2 it could not be checked"""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="sage-data",
        description="Rows, prompt lengths, golds, repeats, and test questions in the training set; no model is loaded.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["check"], help="what to do")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for sage-run; needs benchmark=NAME")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="NAME[=FILE]",
        help="compare the training questions with the test questions of this benchmark too; may be repeated",
    )
    parser.add_argument("--tokenizer", metavar="NAME", help="count the tokens of prompts with this tokenizer")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything found, with the ids")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="folder with own plug-ins, as for sage-run")
    return parser


def main() -> None:
    """The ``sage-data`` command."""
    given = arguments().parse_intermixed_args()
    # The report says what the benchmarks would log.
    logging.getLogger("sage").addHandler(logging.NullHandler())
    try:
        report = _check(given)
        if given.json is not None:
            given.json.write_text(json.dumps(as_json(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except (HydraException, OmegaConfBaseException, ValueError, OSError) as error:
        text = explain(error) or (None if isinstance(error, HydraException) else str(error))
        if text is None:
            raise
        print(f"sage: {text}", file=sys.stderr)
        sys.exit(2)
    show(report, make_console())
    sys.exit(1 if report.findings else 0)


def _check(given: argparse.Namespace) -> DataReport:
    register_resolvers()
    cfg = composed(given.overrides, given.config_dir)
    reward: Reward = _made(cfg, "reward")
    count_tokens = None if given.tokenizer is None else _tokenizer(given.tokenizer)
    try:
        against = [_benchmark_of(entry, given.config_dir) for entry in given.against]
        return check(_made(cfg, "benchmark"), reward, against=against, count_tokens=count_tokens)
    finally:
        reward.close()


def _benchmark_of(entry: str, folder: Path | None) -> Benchmark:
    """``amc23`` or ``amc23=FILE``."""
    name, _, file = entry.partition("=")
    path = [f"benchmark.path={json.dumps(file)}"] if file else []
    return _made(composed([f"benchmark={name}", *path], folder), "benchmark")


def _made(cfg: DictConfig, section: str) -> Any:
    faults = check_plugin(section, cfg[section])
    if faults:
        raise ConfigError(faults)
    return instantiate(cfg[section], _convert_="all")


def _tokenizer(name: str) -> CountTokens:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    return lambda texts: [len(ids) for ids in tokenizer(list(texts))["input_ids"]]


def as_json(report: DataReport) -> dict[str, Any]:
    """The report as plain values; an overlap states its counts too."""
    plain: dict[str, Any] = asdict(report) | {"findings": report.findings}
    for values, found in zip(plain["overlaps"], report.overlaps, strict=True):
        values |= {"same": found.same, "near": found.near}
    return plain


def show(report: DataReport, console: Console) -> None:
    """Print the report."""
    console.print(_splits(report))
    if report.left_out or report.near_repeats or report.bad_golds:
        console.print(_rows(report))
    if report.overlaps:
        console.print(_overlaps(report))
    for finding in report.findings:
        console.print(f"[red]wrong[/red]  {finding}", soft_wrap=True)
    if not report.findings:
        console.print("[green]nothing wrong[/green]")


def _splits(report: DataReport) -> Table:
    table = Table("split", "source", title=f"{report.benchmark}: prompts", title_justify="left")
    with_tokens = any(split.tokens for split in report.splits)
    names = ["problems", "characters: median", "95 %", "longest"]
    names += ["tokens: median", "95 %", "longest", "too long"] if with_tokens else []
    for name in names:
        table.add_column(name, justify="right")
    for split in report.splits:
        cells = [split.split, split.source, f"{split.problems:,}", *_cells(split.characters)]
        table.add_row(*cells, *([*_cells(split.tokens), str(split.too_long)] if with_tokens else []))
    return table


def _cells(lengths: Lengths | None) -> list[str]:
    if lengths is None:
        return ["-"] * 3
    return [f"{lengths.median:,.0f}", f"{lengths.most_95:,.0f}", f"{lengths.longest:,}"]


def _rows(report: DataReport) -> Table:
    """Counts of rows that need a look, each with a few examples."""
    found: dict[str, list[str]] = {}
    for name, reason, detail in report.left_out:
        found.setdefault(f"left out: {reason}", []).append(f"{name} {detail}")
    if report.bad_golds:
        found["golds that cannot be used"] = [f"{name}: {fault}" for name, fault in report.bad_golds.items()]
    if report.near_repeats:
        found["nearly the same in training"] = [f"{first} and {second}" for first, second in report.near_repeats]
    table = Table("rows", title=f"{report.benchmark}: rows", title_justify="left")
    table.add_column("count", justify="right")
    table.add_column("e.g.")
    for name, rows in found.items():
        table.add_row(name, f"{len(rows):,}", "\n".join(row[:160] for row in rows[:_EXAMPLES]))
    return table


def _overlaps(report: DataReport) -> Table:
    table = Table("test set", title=f"{report.benchmark}: test questions in the training set", title_justify="left")
    for name in ("problems", "same", "near", "with the test's answer"):
        table.add_column(name, justify="right")
    table.add_column("e.g.", overflow="fold")
    for found in report.overlaps:
        answered = {pair.test for pair in found.shared if pair.same_answer}
        counts = (found.problems, len(found.same), len(found.near), len(answered))
        table.add_row(found.source, *map(str, counts), "\n".join([*found.same, *found.near][:_EXAMPLES]))
    return table


__all__ = ["DataReport", "Overlap", "Shared", "as_json", "check", "main", "overlap", "show"]

if __name__ == "__main__":
    main()
