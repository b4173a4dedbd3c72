"""A KL coefficient that adapts itself to a target divergence."""

from __future__ import annotations

_GAIN = 0.1
_LARGEST_ERROR = 0.2


class AdaptiveBeta:
    """The proportional controller of Ziegler et al. 2019 (arXiv 1909.08593, section 2.2).

    After every batch ``beta *= 1 + 0.1 * clip(KL / target - 1, -0.2, 0.2)``.

    Args:
        start: the first beta, > 0.
        target: the KL to hold, in nats a token, > 0; ``None`` never changes beta.
    """

    def __init__(self, start: float, target: float | None) -> None:
        self.value = start
        self._target = target

    def observe(self, kl: float) -> None:
        """Adapt to the KL of the last batch.

        >>> beta = AdaptiveBeta(0.1, target=0.02)
        >>> beta.observe(0.04)          # twice the target: an error of 1, cut to 0.2
        >>> round(beta.value, 6)
        0.102
        """
        if self._target is not None:
            error = max(-_LARGEST_ERROR, min(_LARGEST_ERROR, kl / self._target - 1))
            self.value *= 1 + _GAIN * error
