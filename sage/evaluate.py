"""``sage-eval``: pass@k and maj@k of any model, adapter or run, on any benchmark; interrupted, it goes on where it stopped."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from sage import __version__
from sage.config import ConfigError, explain
from sage.eval_policy import identity, load_policy
from sage.evaluation.command import Asked, Setup, read_command
from sage.interfaces import Model, Policy, Reward, RolloutEngine
from sage.loggers.console import ConsoleProgress, make_console, print_headline
from sage.loggers.eval_screens import print_evaluation
from sage.types import Problem, Refusal, Split

if TYPE_CHECKING:
    from sage.evaluation.curves import Curve

_EPILOG = """examples:
  sage-eval model=smollm2-135m benchmark=gsm8k eval.n=64
  sage-eval model=hf model.name=Qwen/Qwen2.5-Math-7B benchmark=math500,amc23 rollout=vllm
  sage-eval run=outputs/2026-01-31/12-00-00-000000 benchmark=math500 eval.sampling.temperature=0.6
  sage-eval model=hf model.name=FOLDER benchmark=math500 base=outputs/evaluations/EVALUATION
the same command again goes on where it stopped; with a larger eval.n it draws what is missing.
exit status: 0 done, 1 failed, 2 refused, 130 interrupted"""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="sage-eval",
        description="pass@k, mean@n and maj@k of a model on benchmarks, with samples, verdicts and curve as files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "overrides",
        nargs="+",
        metavar="KEY=VALUE",
        help="as for sage-run, with several benchmarks as benchmark=A,B; and run=FOLDER evaluates the model that a run "
        "trained, with its configuration where nothing else is given; base=FOLDER compares with another evaluation (one for "
        "each benchmark: base=A,B); folder=FOLDER says where the files go",
    )
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="folder with own plug-ins, as for sage-run")
    return parser


def main() -> None:
    """The ``sage-eval`` command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = arguments().parse_intermixed_args()
    try:
        asked = read_command(given.overrides, given.config_dir)  # refuses what cannot work before torch is imported
        console = make_console()
        first = asked.setups[0].choices
        model = {"model": first["model"]} if asked.run is None else {"run": str(asked.run)}
        benchmarks = ",".join(setup.choices["benchmark"] for setup in asked.setups)
        print_headline(console, __version__, model | {"benchmark": benchmarks, "rollout": first["rollout"]})
        console.print("[dim]loading torch and transformers[/dim]")
        _evaluate(asked, console)
    except KeyboardInterrupt:
        print("sage: interrupted; the same command goes on where it stopped", file=sys.stderr)
        sys.exit(130)
    except (ConfigError, Refusal, HydraException, OmegaConfBaseException) as error:
        _refuse(explain(error), error)
    except OSError as error:  # a folder that cannot be read or made
        _refuse(None if error.filename is None else f"{error.filename}: {error.strerror}", error)


def _refuse(text: str | None, error: BaseException) -> None:
    if text is None:
        raise error
    print(f"sage: {text}", file=sys.stderr)
    sys.exit(2)


@contextmanager
def _refusals() -> Iterator[None]:
    """Models, benchmarks and rewards say with a ``ValueError`` what to type instead."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([str(error)]) from error


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """One evaluation before it starts."""

    setup: Setup
    label: str
    """Of the model, for people."""
    name: str
    """Of the benchmark."""
    reward: Reward
    problems: Sequence[Problem]
    notes: tuple[str, ...]
    origin: Mapping[str, Any]
    folder: Path
    base: Curve | None


def _evaluate(asked: Asked, console: Console) -> None:
    """One model, loaded once, on one benchmark after the other; all of them are looked at before it is loaded."""
    from transformers.utils.logging import disable_progress_bar

    from sage.eval_result import evaluation_result

    disable_progress_bar()  # it would draw over our own bars
    first = asked.setups[0]
    with ExitStack() as stack:
        with _refusals():
            model: Model = _made(first, "model")
            weights = identity(model, asked.run)
            bases = _bases(asked)
            plans = [_plan(asked, setup, model, weights, bases, stack) for setup in asked.setups]
        if bases:
            names = ", ".join(plan.name for plan in plans)
            raise ConfigError(
                [f"base={','.join(map(str, asked.bases))}: one of {', '.join(bases)}; expected one of {names}"]
            )
        for plan in plans:
            _show_plan(plan, asked, console)
        with _refusals():
            policy, has_reference = load_policy(model, asked.run, first.config.seed)
        engine, section = None, None
        for plan in plans:
            if engine is None or plan.setup.plain["rollout"] != section:
                if engine is not None:
                    engine.close()
                section = plan.setup.plain["rollout"]
                engine = stack.enter_context(closing(_made(plan.setup, "rollout")))
            curve = _curve(plan, policy, engine, has_reference, console)
            print_evaluation(console, evaluation_result(curve, plan.label, plan.folder))


def _curve(plan: _Plan, policy: Policy, engine: RolloutEngine, has_reference: bool, console: Console) -> Curve:
    from sage.evaluation.evaluate import EvaluationSettings, evaluate

    config = plan.setup.config
    return evaluate(
        policy=policy,
        engine=engine,
        reward=plan.reward,
        problems=plan.problems,
        split=Split.TEST,
        benchmark_name=plan.name,
        sampling=config.eval.sampling,
        n=config.eval.n,
        seed=config.seed,
        settings=EvaluationSettings(
            confidence=config.eval.confidence,
            bootstrap_samples=config.eval.bootstrap_samples,
            stats_n=config.eval.stats_n,
            batch_size=config.eval.batch_size,
            micro_batch_size=config.train.micro_batch_size,
        ),
        origin=plan.origin,
        folder=plan.folder,
        progress=ConsoleProgress(console),
        title=plan.name,
        base=plan.base,
        reference_available=has_reference,
    )


def _made(setup: Setup, section: str) -> Any:
    return instantiate(setup.cfg[section], _convert_="all")


def _bases(asked: Asked) -> dict[str, Curve]:
    from sage.evaluation.curves import load_curve

    return {curve.benchmark: curve for curve in (load_curve(folder / "curve.json") for folder in asked.bases)}


def _plan(
    asked: Asked,
    setup: Setup,
    model: Model,
    weights: Mapping[str, Any],
    bases: dict[str, Curve],
    stack: ExitStack,
) -> _Plan:
    """Look at problems and settings; takes its base out of ``bases``."""
    from sage.evaluation.compare import refuse_other_base
    from sage.evaluation.settings import digest, origin_of, settings_of
    from sage.usable import usable_problems

    config = setup.config
    _refuse_long(model, setup)
    benchmark = _made(setup, "benchmark")
    reward: Reward = stack.enter_context(closing(_made(setup, "reward")))
    found = usable_problems(
        benchmark,
        reward,
        model.prompts(),
        splits=[Split.TEST],
        max_tokens=config.prompts.max_tokens,
        too_long=config.prompts.too_long,
    )
    problems = found.problems[Split.TEST][: config.eval.max_problems]
    if not problems:
        raise ConfigError([f"benchmark {benchmark.name}: its split test has no problem; expected at least one"])
    measured: dict[str, Any] = {"split": Split.TEST, "sampling": config.eval.sampling}
    origin = origin_of(setup.plain, weights)
    settings = settings_of(origin, problems, seed=config.seed, stats_n=config.eval.stats_n, **measured)
    base = bases.pop(benchmark.name, None)
    if base is not None:
        ids = [problem.id for problem in problems]
        refuse_other_base(base, benchmark=benchmark.name, n=config.eval.n, ids=ids, settings=settings, **measured)
    label = _label(asked, setup)
    if asked.folder is None:
        name = re.sub(r"[^\w.+-]+", "-", f"{label}-{benchmark.name}-{digest(settings)[:8]}")
        folder = config.paths.outputs / "evaluations" / name
    else:
        folder = asked.folder if len(asked.setups) == 1 else asked.folder / benchmark.name
    return _Plan(
        setup=setup,
        label=label,
        name=benchmark.name,
        reward=reward,
        problems=problems,
        notes=found.notes,
        origin=origin,
        folder=folder,
        base=base,
    )


def _refuse_long(model: Model, setup: Setup) -> None:
    most, prompt, asked = (
        model.facts().max_length,
        setup.config.prompts.max_tokens,
        setup.config.eval.sampling.max_tokens,
    )
    if most is not None and prompt + asked > most:
        raise ConfigError(
            [
                f"eval.sampling.max_tokens={asked}: expected at most {most - prompt}, as the model holds {most} tokens and "
                f"prompts.max_tokens={prompt} of them are the prompt's"
            ]
        )


def _label(asked: Asked, setup: Setup) -> str:
    if asked.run is not None:
        return f"run-{asked.run.resolve().name}"
    section, choice = setup.plain["model"], setup.choices["model"]
    named = Path(str(section.get("name"))).name if choice == "hf" else choice
    adapter = section.get("adapter")
    return named if adapter is None else f"{named}-{Path(str(adapter)).name}"


def _show_plan(plan: _Plan, asked: Asked, console: Console) -> None:
    size = f"{len(plan.problems):,} problems x {plan.setup.config.eval.n:,} samples"
    console.print(f"{plan.label} on {plan.name}: {size}, into {plan.folder}", soft_wrap=True, markup=False)
    notes = plan.notes
    if asked.run is None and plan.setup.config.sft.enabled:
        notes += (
            f"sage-run gives {plan.label} an SFT stage first; here it is judged as it is (run=FOLDER judges a run's)",
        )
    for note in notes:
        console.print(f"note: {note}", style="yellow", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
