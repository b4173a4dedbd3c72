"""maj@k: how often a majority vote over k of n samples is right."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Complex = NDArray[np.complex128]
Real = NDArray[np.float64]


def majority_at_k(right: int, wrong: Sequence[int], *, n: int, k: int) -> float:
    """Expected accuracy of a majority vote over k samples, drawn without replacement from n.

    Exact, not sampled. The candidate with most votes wins, equal ones with equal chance; samples without a vote are drawn
    like any other, and a draw without any vote is wrong. At k = 1 it is pass@1.

    Args:
        right: samples that vote for the right answer.
        wrong: votes for each wrong candidate, every number >= 1.
        n: samples, those without a vote included.
        k: from 1 to n.

    Raises:
        ValueError: for k outside 1..n, or more votes than samples.

    >>> majority_at_k(3, [1], n=4, k=4), majority_at_k(1, [1], n=2, k=2)
    (1.0, 0.5)
    >>> round(majority_at_k(2, [1], n=3, k=2), 6)  # 1/3 of the pairs agree, 2/3 are tied
    0.666667
    """
    if not 1 <= k <= n:
        raise ValueError(f"maj@k with k={k} and n={n} samples a problem: expected 1 <= k <= n; draw more samples")
    votes = right + sum(wrong)
    if right < 0 or min(wrong, default=1) < 1 or votes > n:
        raise ValueError(f"{right} right votes and {list(wrong)} wrong ones of n={n} samples: expected at most n votes")
    if right == 0:
        return 0.0
    if k == n:
        most = max(wrong, default=0)
        return float(right > most) if right != most else 1 / (1 + list(wrong).count(right))
    return _chance(right, tuple(sorted(Counter(wrong).items())), n, k)


@lru_cache(maxsize=1 << 14)
def _chance(right: int, wrong: tuple[tuple[int, int], ...], n: int, k: int) -> float:
    """The chance that the right answer wins; ``wrong`` are (votes, number of candidates with so many), ascending.

    A draw of k from n is n independent draws with probability k / n, given that they are k. So

        P(right wins) B(n, k) = sum_v B(right, v) [x^(k-v)] int_0^1 prod_i (sum_{u<v} B(c_i, u) x^u + y B(c_i, v) x^v) dy

    with binomial probabilities B and a product over all other candidates (samples without a vote are candidates that cannot
    win). The integral makes 1 / (1 + t) of a tie with t others, exactly by Gauss and Legendre's rule; at roots of unity one
    coefficient is a dot product. Every factor is at most 1 in size: nothing overflows, and errors stay near 1e-12.
    """
    p, others = k / n, n - right
    mine, total = _binomial(right, p), float(_binomial(n, p)[k])
    most = wrong[-1][0] if wrong else 0
    # With more votes than any other can have the rest does not matter.
    rest = _binomial(others, p)
    sure = sum(float(mine[v] * rest[k - v]) for v in range(max(most + 1, k - others), min(right, k) + 1))
    frequencies = np.arange((others + 1) // 2 + 1)
    roots: Complex = np.exp(-2j * np.pi * np.arange(others + 1) / (others + 1))
    weights = np.where((frequencies == 0) | (2 * frequencies == others + 1), 1.0, 2.0) / (others + 1)
    tables = [(count, times, _binomial(count, p)) for count, times in wrong]
    partial: dict[int, Complex] = {count: np.zeros(len(frequencies), complex) for count, _ in wrong}
    contested = 0.0
    for v in range(1, min(right, k, most) + 1):
        power, before = (roots[frequencies * u % (others + 1)] for u in (v, v - 1))
        rivals = [entry for entry in tables if entry[0] >= v]
        for count, _, table in rivals:
            partial[count] = partial[count] + table[v - 1] * before
        if k - v > others:
            continue
        beaten = others - sum(count * times for count, times, _ in rivals)
        product = (1 - p + p * roots[frequencies]) ** beaten * np.ones((1, 1))
        ties, shares = _tie_rule(min(sum(times for _, times, _ in rivals), (k - v) // v))
        for count, times, table in rivals:
            product = product * (partial[count] + ties[:, None] * (table[v] * power)) ** times
        back = weights * np.conj(roots[frequencies * (k - v) % (others + 1)])
        contested += float(mine[v]) * float(shares @ (product @ back).real)
    return min(1.0, max(0.0, (sure + contested) / total))


@lru_cache(maxsize=1 << 10)
def _tie_rule(degree: int) -> tuple[Real, Real]:
    """Nodes and weights on [0, 1] that integrate polynomials of this degree exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(degree // 2 + 1)
    return (nodes + 1) / 2, weights / 2


@lru_cache(maxsize=1 << 12)
def _binomial(count: int, p: float) -> Real:
    """``[count + 1]`` probabilities of 0 .. count successes, by logarithms, for 0 < p < 1."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    successes = np.arange(count + 1)
    choices = logs[count] - logs - logs[::-1]
    return np.exp(choices + successes * np.log(p) + (count - successes) * np.log1p(-p))
