import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.schedules import check_cosine_restarts, cosine_restarts

TABLE = json.loads((Path(__file__).parents[1] / "cases" / "shaped_anchor_losses.json").read_text())["schedule"]


@pytest.mark.parametrize("name", ["alpha", "sigma"])
def test_the_schedule_equals_the_stored_table(name: str) -> None:
    for row in TABLE["values"]:
        value = cosine_restarts(
            row["step"],
            TABLE["max_steps"],
            upper=TABLE[f"{name}_ub"],
            lower=TABLE[f"{name}_lb"],
            cycles=TABLE["num_cycles"],
            decay=TABLE["decay_rate"],
        )
        assert value == pytest.approx(row[name], abs=1e-12), row


def test_a_run_shorter_than_its_cycles_stays_at_the_decayed_peaks() -> None:
    # Cycle length max(1, 3 // 8) = 1, so every step is a peak: 1, 1/2, 1/4.
    values = [cosine_restarts(step, 3, upper=1.0, lower=0.0, cycles=8, decay=0.5) for step in range(3)]
    assert values == [1.0, 0.5, 0.25]


def test_steps_after_the_last_full_cycle_stay_in_the_last_cycle() -> None:
    # 10 steps in 3 cycles of 3: step 9 would open cycle 3, but c = min(3, 2) keeps the peak of cycle 2.
    assert cosine_restarts(9, 10, upper=1.0, lower=0.0, cycles=3, decay=0.5) == 0.25


@settings(max_examples=40, deadline=None)
@given(
    step=st.integers(0, 400),
    num_steps=st.integers(1, 400),
    cycles=st.integers(1, 12),
    bounds=st.tuples(st.floats(0, 2), st.floats(0, 2)).map(sorted),
)
def test_the_value_stays_within_its_bounds_when_peaks_do_not_decay(
    step: int, num_steps: int, cycles: int, bounds: list[float]
) -> None:
    lower, upper = bounds
    value = cosine_restarts(step, num_steps, upper=upper, lower=lower, cycles=cycles, decay=1.0)
    assert lower - 1e-12 <= value <= upper + 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lower": -0.1}, r"guide\.alpha_min=-0\.1"),
        ({"lower": 0.5}, r"expected 0 <= guide\.alpha_min <= guide\.alpha_max"),
        ({"cycles": 0}, r"guide\.cycles=0: expected a whole number >= 1"),
        ({"decay": 0.0}, r"guide\.decay=0\.0: expected 0 < decay <= 1"),
        ({"decay": 1.1}, r"guide\.decay=1\.1"),
    ],
)
def test_impossible_parameters_are_named(change: dict[str, float], message: str) -> None:
    possible: dict[str, float] = {"upper": 0.3, "lower": 0.1, "decay": 0.9}
    cycles = int(change.get("cycles", 8))
    possible |= {name: value for name, value in change.items() if name != "cycles"}
    with pytest.raises(ValueError, match=message):
        check_cosine_restarts("guide.alpha", cycles=cycles, **possible)
