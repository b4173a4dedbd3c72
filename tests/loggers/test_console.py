import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from sage.loggers.console import ConsoleProgress, print_headline
from sage.loggers.formats import duration, number, plural, rate


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def run_stage(console: Console, seconds_per_step: float, steps: int = 1000) -> list[str]:
    clock = Clock()
    with ConsoleProgress(console, clock).stage("train", steps, "steps") as bar:
        for step in range(steps):
            clock.now += seconds_per_step
            bar.update(reward=step / steps, kl=0.001)
    return output(console).splitlines()


def test_without_a_terminal_a_stage_gives_a_line_a_tenth_and_no_control_characters():
    console = plain_console()
    lines = run_stage(console, seconds_per_step=1.0)
    # One at the start, at 10 %, 20 % ... 90 %, and the closing one.
    assert len(lines) == 11
    assert lines[0] == "train: 1,000 steps"
    assert (
        lines[1]
        == "  train                       10 %   100/1,000 steps   1.00/s   15:00 left   reward 0.0990   KL 0.00100"
    )
    assert lines[-1].split() == ["✓", "train", "1,000", "steps", "16:40", "1.00/s", "reward", "0.999", "KL", "0.00100"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", output(console))


def test_a_short_stage_leaves_two_plain_lines_and_a_slow_one_speaks_every_five_minutes():
    assert len(run_stage(plain_console(), seconds_per_step=0.001)) == 2
    # 20 steps of 400 s: each is over five minutes; start, 19 steps before the last, end.
    assert len(run_stage(plain_console(), seconds_per_step=400.0, steps=20)) == 21


def test_a_stage_inside_another_is_indented_and_leaves_no_line_when_it_is_short():
    console, clock = plain_console(), Clock()
    progress = ConsoleProgress(console, clock)
    with progress.stage("train", 2, "steps") as bar:
        bar.update()
        for seconds in (0.5, 1.5):
            with progress.stage("validation", 64, "problems") as inner:
                clock.now += seconds
                inner.update(64)
        bar.update()
    lines = output(console).splitlines()
    assert [line.split()[:2] for line in lines] == [["train:", "2"], ["✓", "validation"], ["✓", "train"]]
    assert lines[1].startswith("  ✓ validation               64 problems")


@pytest.mark.parametrize("terminal", [True, False])
def test_an_exception_marks_the_stage_as_stopped_and_passes_on(terminal):
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, highlight=False)

    def fail() -> None:
        with ConsoleProgress(console).stage("train", 150, "steps") as bar:
            bar.update(37)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "stopped at 37 of 150 steps" in output(console)


def test_on_a_terminal_bars_show_count_and_numbers_in_80_columns_and_one_line_stays(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    console = Console(file=io.StringIO(), width=80, force_terminal=True, highlight=False)
    progress = ConsoleProgress(console)
    with progress.stage("train", 150, "steps") as bar:
        bar.update(75, reward=0.4125, kl=0.0013, entropy=1.3)
        with progress.stage("validation", 64, "problems") as inner:
            inner.update(32)
            with progress.stage("validation: a name that is too long", 1, "problem"):
                pass  # a new bar draws the others again
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output(console)).replace("\r", "\n").splitlines()
    assert any("━" in line and "75/150" in line for line in shown)
    assert any("validation" in line and "32/64" in line for line in shown)
    assert any(line.strip() == "reward 0.412   KL 0.00130   entropy 1.30" for line in shown)
    assert max(len(line) for line in shown) <= 80
    assert any(line.split()[:4] == ["✓", "train", "75", "steps"] for line in shown)


def test_the_first_line_names_the_choices_and_is_possible_before_torch_is_loaded():
    console = plain_console()
    print_headline(console, "0.1.0", {"guide": "branch", "kl_mode": "reverse"})
    assert output(console) == "sage 0.1.0  guide=branch  kl_mode=reverse\n"
    script = "import sys; import sage.loggers.console, sage.loggers.screens; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_a_stream_without_unicode_gets_question_marks_instead_of_an_error():
    script = (
        "from sage.loggers.console import make_console, ConsoleProgress\n"
        "with ConsoleProgress(make_console()).stage('train', 1, 'steps') as bar: bar.update()\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("? train ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.41249, "0.412"),
        (0.0013, "0.00130"),
        (12.345, "12.3"),
        (38400.0, "38,400"),
        (1.2e-5, "1.2e-05"),
        (0.0, "0.00"),
        (-0.5, "-0.500"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers_keep_three_digits(value, text):
    assert number(value) == text


def test_durations_and_rates_take_the_unit_that_reads_best():
    assert [duration(s) for s in (8.4, 59.96, 62.0, 7384.0)] == ["8.4 s", "1:00", "1:02", "2:03:04"]
    # 150 steps in 30 s are 5 a second; 3 steps in 96 s take 32 s each.
    assert rate(150, 30.0) == "5.00/s"
    assert rate(3, 96.0) == "32.0 s each"
    assert rate(0, 5.0) == ""
    assert [plural(unit) for unit in ("step", "completions")] == ["steps", "completions"]
