"""Verdict rewards to shaped rewards."""

from torch import Tensor


def overlong_penalty(lengths: Tensor, max_tokens: int, buffer: int) -> Tensor:
    """Soft overlong punishment (DAPO, Yu et al. 2025, arXiv 2503.14476, equation 13): what to add to the reward.

    0 up to ``max_tokens - buffer`` tokens, then a straight line down to -1 at ``max_tokens``, and -1 beyond.

    Args:
        lengths: ``[B]`` tokens of each response, the end token included.
        max_tokens: the longest completion that sampling allows.
        buffer: length of the slope, in 1..max_tokens.

    Returns:
        ``[B]`` float64 in [-1, 0].

    Raises:
        ValueError: for a buffer that is empty or longer than a response.

    >>> import torch
    >>> overlong_penalty(torch.tensor([10, 16, 18, 20]), max_tokens=20, buffer=4).tolist()
    [0.0, 0.0, -0.5, -1.0]
    """
    if not 1 <= buffer <= max_tokens:
        raise ValueError(f"buffer={buffer}: expected a whole number from 1 to max_tokens={max_tokens}")
    free = max_tokens - buffer
    # 0.0 - x and not -x: a response within the limit gets 0.0 and not -0.0.
    return 0.0 - ((lengths.double() - free) / buffer).clamp(0, 1)
