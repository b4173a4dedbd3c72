"""Which problems a step trains on."""

import pytest

from sage.training.problems import problems_of_step
from sage.types import Problem

NINE = [Problem(id=str(i), prompt="", answer="") for i in range(9)]


def _ids(step, count=3, seed=0):
    return [p.id for p in problems_of_step(NINE, step, count, seed)]


def test_a_step_sees_distinct_problems_and_an_epoch_sees_each_once():
    """K50: 9 problems, 3 a step: three steps are one epoch."""
    epoch = [_ids(step) for step in range(3)]
    assert all(len(set(ids)) == 3 for ids in epoch)
    assert sorted(i for ids in epoch for i in ids) == sorted(p.id for p in NINE)


def test_epochs_and_seeds_are_ordered_differently():
    epochs = [[i for step in range(3 * e, 3 * e + 3) for i in _ids(step)] for e in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert _ids(0) != _ids(0, seed=1)


def test_a_step_is_a_pure_function_of_seed_and_number():
    """K53: nothing to restore after a resume."""
    assert [_ids(s) for s in range(5, 10)] == [_ids(s) for s in range(10)][5:]


def test_problems_that_do_not_fill_a_batch_wait_for_the_next_epoch():
    assert len({i for step in range(2) for i in _ids(step, count=4)}) == 8


@pytest.mark.parametrize("count", [0, 10])
def test_a_batch_that_cannot_be_filled_is_refused_with_the_limit(count):
    with pytest.raises(ValueError, match=rf"problems_per_step={count}: expected 1 to 9"):
        _ids(0, count=count)
