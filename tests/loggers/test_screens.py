import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sage.loggers.screens import CurveRow, RunPlan, RunResult, Support, print_plan, print_result

PLAN = RunPlan(
    guide="branch, strength 1",
    kl_mode="reverse, beta 0.05",
    gradient="On-policy this is the gradient of a q-weighted forward KL at each visited state.",
    algorithm="grpo",
    model="tiny",
    benchmark="countdown",
    steps=150,
    problems_per_step=32,
    completions_per_problem=8,
    on_policy=True,
    evaluation="200 test problems x 256 samples, before and after",
    folder=Path("outputs/[2026]/12-01-33"),
    seconds=240.0,
    notes=("the SFT base is trained first",),
)


def row(label: str, base: float, trained: float, standard_error: float) -> CurveRow:
    return CurveRow(
        label=label,
        base=base,
        base_interval=(base - 0.03, base + 0.03),
        trained=trained,
        trained_interval=(trained - 0.03, trained + 0.03),
        difference=trained - base,
        standard_error=standard_error,
    )


RESULT = RunResult(
    title="countdown, 200 test problems x 256 samples",
    confidence=0.95,
    curve=[row("pass@1", 0.33, 0.40, 0.01), row("pass@16", 0.70, 0.71, 0.01), row("pass@256", 0.90, 0.85, 0.02)],
    support=Support(preserved=168, shrunk=8, expanded=2, unsolved=22),
    measures={"distinct solutions": (7.31, 5.92), "KL to the reference": (None, 0.0731)},
    folder=Path("outputs/a-folder-whose-name-is-so-long-that-it-does-not-fit/on-one-line-of-eighty-columns/12-01-33"),
    files={"curve.json": "the curves as numbers", "model/": "the trained model"},
    commands=[("sage-run guide=none", "the same without a guide")],
    seconds=238.4,
)


def shown(width: int, plan: RunPlan | None = None, result: RunResult | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    if plan is not None:
        print_plan(console, plan)
    if result is not None:
        print_result(console, result)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_plan_says_what_runs_how_much_where_and_how_long(width):
    lines = shown(width, plan=PLAN)
    text = " ".join(" ".join(lines).replace("│", " ").split())
    assert "train tiny on countdown with grpo" in text
    assert PLAN.gradient in text
    # 150 * 32 * 8 = 38,400
    assert "150 steps x 32 problems x 8 completions = 38,400 samples" in text
    assert "outputs/[2026]/12-01-33" in text
    assert "about 4 min" in text
    assert "the SFT base is trained first" in text
    assert max(len(line) for line in lines) == min(width, 100)


def test_an_on_policy_plan_explains_the_loss_of_zero_and_names_what_to_watch():
    """K18: the printed loss is about 0 although the policy learns."""
    text = " ".join(" ".join(shown(100, plan=PLAN)).replace("│", " ").split())
    assert "about 0 by construction (one update a batch): watch reward/mean, policy/grad_norm, " in text
    assert "reward/zero_spread_share" in text
    off_policy = replace(PLAN, on_policy=False, seconds=None, notes=())
    labels = [line.strip("│ ").split(" ")[0] for line in shown(100, plan=off_policy)]
    assert not {"loss", "time", "note"} & set(labels)


def test_the_result_marks_only_differences_beyond_two_standard_errors():
    lines = shown(80, result=RESULT)
    by_label = {line.split()[0]: line for line in lines if line.strip().startswith("pass@")}
    # +0.07 > 2 * 0.01;  +0.01 <= 2 * 0.01;  -0.05 < -2 * 0.02.
    first = " ".join(by_label["pass@1"].split())
    assert first == "pass@1 0.330 [0.300 0.360] 0.400 [0.370 0.430] +0.070 ± 0.010 ▲"
    assert by_label["pass@16"].rstrip().endswith("± 0.010")
    assert by_label["pass@256"].rstrip().endswith("± 0.020   ▼")


def test_the_result_shows_support_measures_files_and_the_next_commands():
    lines = [line.rstrip() for line in shown(80, result=RESULT)]
    text = "\n".join(lines)
    assert "  support              168 preserved · 2 expanded · 8 shrunk · 22 unsolved" in lines
    assert "  distinct solutions   7.31 → 5.92" in lines
    assert "  KL to the reference  - → 0.0731" in lines
    assert "  time                 3:58" in lines
    assert "95 % interval" in text
    assert "  sage-run guide=none" in lines
    assert "  curve.json  the curves as numbers" in lines


def test_a_path_longer_than_the_screen_is_not_folded_so_that_it_can_be_copied():
    assert any(str(RESULT.folder) in line for line in shown(80, result=RESULT))


def test_only_paths_and_commands_are_wider_than_the_screen():
    short = replace(RESULT, folder=Path("outputs/1"))
    assert max(len(line) for line in shown(80, result=short)) <= 80
