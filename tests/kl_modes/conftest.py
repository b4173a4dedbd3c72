"""A state with three tokens, enumerated: row v of the batch is the response that consists of token v."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sage.types import KLInputs, TokenStats


def _every_token(logprobs: Tensor) -> TokenStats:
    """``[V]`` log-probs as the statistics of V responses of one token."""
    size = len(logprobs)
    return TokenStats(
        logprobs=logprobs.unsqueeze(-1),
        entropy=torch.zeros(size, 1, dtype=logprobs.dtype),
        vocabulary_logprobs=logprobs.expand(size, 1, size),
    )


@pytest.fixture
def enumerated() -> Callable[..., KLInputs]:
    """A function of log-probs ``[V]`` of policy, old policy (default: the policy) and reference, and of q ``[V]``."""

    def build(
        policy: Tensor,
        reference: Tensor,
        old: Tensor | None = None,
        q: Tensor | None = None,
        **changes: Any,
    ) -> KLInputs:
        size = len(policy)
        log_q = torch.zeros_like(reference) if q is None else q.log()
        before = policy.detach() if old is None else old
        fields: dict[str, Any] = {
            "policy": _every_token(policy),
            "old_logprobs": before.unsqueeze(-1),
            "reference": _every_token(reference),
            "response_ids": torch.arange(size).unsqueeze(-1),
            "mask": torch.ones(size, 1, dtype=torch.bool),
            "log_q": log_q.unsqueeze(-1),
            "vocabulary_log_q": None if q is None else log_q.expand(size, 1, size),
        }
        return KLInputs(**(fields | changes))

    return build
