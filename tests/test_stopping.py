"""Signals: the first lets a step finish, a second ends at once; outside of a step the first one does."""

import os
import signal

import pytest

from sage.stopping import SIGNALS, Stopper


@pytest.mark.parametrize("number", SIGNALS)
def test_in_a_step_the_first_signal_is_remembered_and_the_second_ends_at_once(number, capsys):
    stopper = Stopper()
    with stopper.listening(), stopper.deferred():
        os.kill(os.getpid(), number)
        assert stopper.requested == number
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert "the step is finished and saved" in capsys.readouterr().err


@pytest.mark.parametrize("number", SIGNALS)
def test_outside_of_a_step_a_signal_ends_at_once(number):
    stopper = Stopper()
    with stopper.listening():
        with stopper.deferred(), pytest.raises(SystemExit), stopper.interruptible():
            os.kill(os.getpid(), number)
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), number)


def test_what_was_deferred_is_deferred_again_after_what_may_be_interrupted():
    stopper = Stopper()
    with stopper.listening(), stopper.deferred():
        with stopper.interruptible():
            pass
        os.kill(os.getpid(), SIGNALS[0])
    assert stopper.requested == SIGNALS[0]


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(RuntimeError), Stopper().listening():
        raise RuntimeError
    assert [signal.getsignal(number) for number in SIGNALS] == before
