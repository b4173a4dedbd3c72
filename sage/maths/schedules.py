"""Schedules as pure functions of the optimiser step: a resumed run has nothing to restore."""

import math


def cosine_restarts(step: int, num_steps: int, *, upper: float, lower: float, cycles: int, decay: float) -> float:
    """Cosine annealing with warm restarts (Loshchilov and Hutter 2017) whose peaks decay.

    With cycle length L = max(1, num_steps // cycles), cycle c = min(step // L, cycles - 1) and t = (step mod L) / L::

        value = lower + (upper * decay^c - lower) * (1 + cos(pi * t)) / 2

    Args:
        step: optimiser step, from 0.
        num_steps: optimiser steps of the whole run.
        upper: value at the start of the first cycle.
        lower: value that every cycle falls to.
        cycles: number of restarts plus one, at least 1.
        decay: factor of the peak from one cycle to the next.

    >>> cosine_restarts(0, 1000, upper=0.3, lower=0.1, cycles=8, decay=0.9)
    0.3
    >>> round(cosine_restarts(125, 1000, upper=0.3, lower=0.1, cycles=8, decay=0.9), 12)   # the second peak
    0.27
    """
    length = max(1, num_steps // cycles)
    cycle = min(step // length, cycles - 1)
    position = (step % length) / length
    return lower + (upper * decay**cycle - lower) * 0.5 * (1.0 + math.cos(math.pi * position))


def check_cosine_restarts(option: str, *, upper: float, lower: float, cycles: int, decay: float) -> None:
    """Refuse parameters that :func:`cosine_restarts` cannot use.

    Args:
        option: name of the scheduled option, e.g. ``guide.alpha``; messages add ``_max`` and ``_min``.
        upper: see :func:`cosine_restarts`.
        lower: see there.
        cycles: see there.
        decay: see there.

    Raises:
        ValueError: naming the option, its value and what is allowed.
    """
    if not 0 <= lower <= upper:
        raise ValueError(f"{option}_min={lower}, {option}_max={upper}: expected 0 <= {option}_min <= {option}_max")
    group = option.partition(".")[0]
    if cycles < 1:
        raise ValueError(f"{group}.cycles={cycles}: expected a whole number >= 1 (1 anneals once)")
    if not 0 < decay <= 1:
        raise ValueError(f"{group}.decay={decay}: expected 0 < decay <= 1 (1 keeps every peak)")
