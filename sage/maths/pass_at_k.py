"""pass@k of a set of problems from n samples each, with bootstrap intervals over the problems."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sage.maths.streams import uniform


def powers_of_two(n: int) -> list[int]:
    """The k of a curve from n samples: 1, 2, 4, ... up to n, and n itself.

    >>> powers_of_two(16), powers_of_two(20)
    ([1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 20])
    """
    if n < 1:
        raise ValueError(f"n={n} samples a problem: expected a whole number >= 1")
    ks = [1 << i for i in range(n.bit_length())]
    return ks if ks[-1] == n else [*ks, n]


def pass_at_k(correct: Tensor, *, n: int, k: int) -> Tensor:
    """Probability that at least one of k samples, drawn without replacement from n, is correct.

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, eq. 1), ``1 - C(n - c, k) / C(n, k)``, as
    ``1 - prod_{i = n - c + 1}^{n} (1 - k / i)``. Its logarithm is summed, so that neither a large n overflows nor a
    small result cancels.

    Args:
        correct: ``[P]`` integers, c: correct samples of each problem, from 0 to n.
        n: samples of every problem.
        k: from 1 to n.

    Returns:
        ``[P]`` float64.

    Raises:
        ValueError: for k outside 1..n (no number is defined there) or c outside 0..n.

    >>> pass_at_k(torch.tensor([0, 1, 4]), n=4, k=2)
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@k with k={k} and n={n} samples a problem: expected 1 <= k <= n; draw more samples")
    if bool(((correct < 0) | (correct > n)).any()):
        raise ValueError(f"correct counts from {int(correct.min())} to {int(correct.max())}: expected 0..n with n={n}")
    shares = k / torch.arange(n, 0, -1, dtype=torch.float64)
    # From i = k downwards every draw of k must meet a correct sample: the factor 0 gives -inf, and pass@k exactly 1.
    log_miss = torch.log1p(-shares.clamp(max=1.0)).cumsum(0)
    table = torch.cat([torch.zeros(1, dtype=torch.float64), -torch.expm1(log_miss)])
    return table.to(correct.device)[correct.long()]


def pass_at_ks(correct: Tensor, *, n: int, ks: Sequence[int]) -> Tensor:
    """:func:`pass_at_k` for several k: ``[P] -> [P, K]`` float64.

    >>> pass_at_ks(torch.tensor([1, 2]), n=2, ks=[1, 2])
    tensor([[0.5000, 1.0000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    return torch.stack([pass_at_k(correct, n=n, k=k) for k in ks], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Means over problems with their uncertainty; every field is ``[K]`` float64."""

    value: Tensor
    low: Tensor
    """Lower end of the bootstrap interval."""
    high: Tensor
    """Upper end."""
    standard_error: Tensor
    """Sample standard deviation over problems / sqrt(P); NaN for a single problem."""


def bootstrap_means(values: Tensor, *, resamples: int, key: int) -> Tensor:
    """Means of problem sets drawn with replacement, every column under the same sets.

    Two calls with one key and one P draw the same sets, so that differences of results are paired.

    Args:
        values: ``[P, K]``.
        resamples: R, number of drawn sets.
        key: stream key (:func:`sage.maths.streams.stream_key`).

    Returns:
        ``[R, K]`` float64.
    """
    if resamples < 1:
        raise ValueError(f"bootstrap resamples={resamples}: expected a whole number >= 1, e.g. 2000")
    num_problems = values.shape[0]
    keys = torch.arange(resamples, dtype=torch.int64) + key
    # The product may round up to P.
    drawn = (uniform(keys, num_problems, "bootstrap") * num_problems).long().clamp_(max=num_problems - 1)
    weights = torch.zeros(resamples, num_problems, dtype=torch.float64)
    weights.scatter_add_(1, drawn, torch.ones_like(weights))
    return weights @ values.double().cpu() / num_problems


def mean_over_problems(values: Tensor, *, confidence: float, resamples: int, key: int) -> Means:
    """Means over problems, percentile bootstrap interval (Efron 1979) and standard error.

    Args:
        values: ``[P, K]``, P >= 1.
        confidence: coverage of the interval, between 0 and 1.
        resamples: drawn problem sets.
        key: stream key of the bootstrap.

    Raises:
        ValueError: without problems, or for a confidence that is not between 0 and 1.

    >>> means = mean_over_problems(torch.tensor([[0.25], [1.0], [0.0]]), confidence=0.95, resamples=100, key=1)
    >>> round(float(means.value), 5)
    0.41667
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: expected a number between 0 and 1, e.g. 0.95")
    if values.shape[0] == 0:
        raise ValueError("a mean over problems needs at least one problem, got 0")
    values = values.double().cpu()
    tail = (1 - confidence) / 2
    means = bootstrap_means(values, resamples=resamples, key=key)
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64), dim=0)
    num_problems = values.shape[0]
    spread = values.std(dim=0) if num_problems > 1 else torch.full_like(values[0], torch.nan)
    return Means(value=values.mean(dim=0), low=low, high=high, standard_error=spread / num_problems**0.5)
