"""Sampled tokens to completions: decoding, and where a stop string ends them. The same for every engine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from sage.interfaces import Policy
from sage.types import Completion, Sampling, StopReason


def completions(
    policy: Policy, sampling: Sampling, token_ids: Iterable[Sequence[int]], logprobs: Iterable[Sequence[float]]
) -> list[Completion]:
    """One completion for each row of sampled tokens.

    Args:
        policy: whose tokenizer decodes, and whose end tokens are left out of the text.
        sampling: what the tokens were drawn with. A row is cut after the token that completes a stop string.
        token_ids: of each row, nothing behind an end token.
        logprobs: of each row, at least one per token.
    """
    kept = [list(ids) for ids in token_ids]
    texts = decode(policy.tokenizer, [_without_end(ids, policy.end_ids) for ids in kept])
    results: list[Completion] = []
    for ids, scores, text in zip(kept, logprobs, texts, strict=True):
        if found := _occurring(text, sampling.stop):
            ids = ids[: _completing(policy.tokenizer, ids, found)]
            text = _cut(decode(policy.tokenizer, [ids])[0], sampling.stop)
            reason = StopReason.STOP
        elif ids[-1] in policy.end_ids:
            reason = StopReason.END
        else:
            # An engine that decodes token by token may see a stop string that the whole text lacks, such as one with a
            # space that begins the text: it has stopped for it all the same.
            reason = StopReason.LENGTH if len(ids) == sampling.max_tokens else StopReason.STOP
        scores = tuple(scores[: len(ids)])
        results.append(Completion(token_ids=tuple(ids), sampler_logprobs=scores, text=text, stop_reason=reason))
    return results


def decode(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    """The text of each row, special tokens left out."""
    return tokenizer.batch_decode(
        [list(row) for row in rows], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def tail_length(stop: Sequence[str]) -> int:
    """Last tokens of a row that are sure to hold a stop string which its last token completes.

    A token that is no special one stands for a byte at least. The margin is for the first tokens of the tail, whose text may
    be less than they stand for in the whole (half a character, a leading space).
    """
    return max((len(text.encode()) for text in stop), default=0) + 8


def stopped(tokenizer: Any, tails: Sequence[Sequence[int]], stop: Sequence[str]) -> list[bool]:
    """Whether a stop string stands in the text of each row's last :func:`tail_length` tokens."""
    return [bool(_occurring(text, stop)) for text in decode(tokenizer, tails)]


def _without_end(ids: list[int], end_ids: frozenset[int]) -> list[int]:
    return ids[:-1] if ids[-1] in end_ids else ids


def _occurring(text: str, stop: Sequence[str]) -> list[str]:
    return [s for s in stop if s in text]


def _completing(tokenizer: Any, ids: list[int], stop: Sequence[str]) -> int:
    """The fewest first tokens whose text holds one of ``stop``; all of them together do."""
    return bisect_left(range(len(ids)), True, key=lambda n: bool(_occurring(decode(tokenizer, [ids[:n]])[0], stop)))


def _cut(text: str, stop: Sequence[str]) -> str:
    """What stands before the first stop string."""
    return text[: min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))]
