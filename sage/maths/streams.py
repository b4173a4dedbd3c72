"""Random streams keyed by name: the n-th draw of a stream depends on its key and n alone.

Samples therefore do not depend on batch composition, padding, micro-batches or the number of processes, two (seed, problem,
sample) triples never share a stream, and a resumed run has no random state to restore. The generator is SplitMix64
(Steele, Lea and Flood 2014), whose n-th output is a mixing function of ``key + n * golden``.
"""

import hashlib
import math

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX2 = 0x94D049BB133111EB - (1 << 64)


def stream_key(*parts: int | str) -> int:
    """A signed 64-bit key from names and numbers, e.g. ``(seed, "rollout", step, problem_id, sample)``.

    >>> stream_key(0, "rollout", 64) == stream_key(64, "rollout", 0)
    False
    """
    # repr keeps 1 and "1" apart, and the tuple's commas keep ("a", "b") and ("ab",) apart.
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's >> on int64 copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return x ^ _shift_right(x, 31)


def uniform_at(keys: Tensor, position: int) -> Tensor:
    """Draw number ``position`` of each stream, uniform in [0, 1).

    Args:
        keys: int64, any shape.
        position: from 0.

    Returns:
        float64 of the same shape, on a grid of 2^-53.
    """
    offset = ((position + 1) * _GOLDEN + (1 << 63)) % (1 << 64) - (1 << 63)
    return _shift_right(_mix(keys + offset), 11).double() * 2.0**-53


def sub_streams(keys: Tensor, name: str) -> Tensor:
    """Keys of the sub-stream ``name`` of each key, int64 of the same shape."""
    # Mixing once spreads sub-keys: keys that differ by a multiple of the increment would give shifted copies otherwise.
    return _mix(keys ^ stream_key(name))


def uniform(keys: Tensor, length: int, name: str) -> Tensor:
    """The first ``length`` draws of the sub-stream ``name`` of each key, ``[B] -> [B, length]``, uniform in [0, 1)."""
    sub_keys = sub_streams(keys, name)
    if length == 0:
        return torch.zeros(*keys.shape, 0, dtype=torch.float64, device=keys.device)
    return torch.stack([uniform_at(sub_keys, t) for t in range(length)], dim=-1)


def normal(keys: Tensor, length: int, name: str) -> Tensor:
    """Like :func:`uniform`, standard normal by the Box-Muller transform.

    >>> keys = torch.tensor([1, 2])
    >>> bool((normal(keys, 3, "q")[:, :2] == normal(keys, 2, "q")).all())   # a longer draw only appends
    True
    """
    radius = torch.sqrt(-2.0 * torch.log1p(-uniform(keys, length, f"{name}/radius")))
    return radius * torch.cos(2.0 * math.pi * uniform(keys, length, f"{name}/angle"))
