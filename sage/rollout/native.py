"""The embedded sampler: transformers with a KV cache, one prefill per prompt, inverse-CDF sampling from keyed streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sage.interfaces import Policy, RolloutEngine
from sage.maths.sampling import draw
from sage.maths.streams import uniform_at
from sage.rollout.completions import completions, stopped, tail_length
from sage.types import Completion, SampleRequest, Sampling

# Dropping finished rows copies the cache, so it is done only once this share of the rows has finished.
_COMPACT_BELOW = 0.75


class NativeEngine(RolloutEngine):
    """Draws completions from the policy's own weights, in process.

    Args:
        max_rows: sequences decoded at once; bounds the memory of the KV cache.
    """

    def __init__(self, *, max_rows: int) -> None:
        if max_rows < 1:
            raise ValueError(f"rollout.max_rows={max_rows}: expected a whole number >= 1, e.g. 4096")
        self.max_rows = max_rows
        self._policy: Any = None

    def load_weights(self, policy: Policy) -> None:
        """Sample from ``policy``. It is shared, not copied, and no cache outlives a call, so nothing can go stale."""
        self._policy = policy

    @torch.no_grad()
    def generate(self, requests: Sequence[SampleRequest], sampling: Sampling) -> list[list[Completion]]:
        """One list per request, one completion per key of it, in order.

        Raises:
            RuntimeError: before :meth:`load_weights`.
        """
        if self._policy is None:
            raise RuntimeError("the engine has no weights yet: call load_weights first")
        # One row per completion wanted, in slices of at most max_rows; a request may straddle two slices.
        owner = [i for i, request in enumerate(requests) for _ in request.keys]
        keys = [key for request in requests for key in request.keys]
        results: list[list[Completion]] = [[] for _ in requests]
        for start in range(0, len(keys), self.max_rows):
            rows = owner[start : start + self.max_rows]
            first = rows[0]
            prompts = [requests[i].prompt_ids for i in range(first, rows[-1] + 1)]
            with self._policy.autocast():  # as the trainer will score what is drawn
                drawn = self._decode(prompts, [i - first for i in rows], keys[start : start + self.max_rows], sampling)
            for i, completion in zip(rows, drawn, strict=True):
                results[i].append(completion)
        return results

    def _decode(
        self, prompts: list[tuple[int, ...]], owner: list[int], keys: list[int], sampling: Sampling
    ) -> list[Completion]:
        """Decode one slice: row r continues ``prompts[owner[r]]`` with stream ``keys[r]``."""
        from transformers import DynamicCache

        model, device = self._policy.causal_lm, self._policy.device
        end_ids = torch.tensor(sorted(self._policy.end_ids), device=device)
        stream = torch.tensor(keys, device=device)
        cut = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "min_p")}
        cache = DynamicCache(config=model.config)
        state = _prefill(model, cache, prompts, torch.tensor(owner, device=device))

        tokens = torch.zeros(len(keys), sampling.max_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(len(keys), sampling.max_tokens, device=device)
        lengths = torch.full((len(keys),), sampling.max_tokens, device=device)
        ended = torch.zeros(len(keys), dtype=torch.bool, device=device)
        live = torch.arange(len(keys), device=device)  # the row of the result that each row of the batch belongs to
        for t in range(sampling.max_tokens):
            token, logprob = draw(state.logits, uniform_at(stream[live], t), **cut)
            tokens[live, t] = token
            logprobs[live, t] = logprob
            stop = (torch.isin(token, end_ids) | self._stopped(tokens[live, : t + 1], sampling)) & ~ended[live]
            lengths[live[stop]] = t + 1
            ended[live[stop]] = True
            keep = ~ended[live]
            remaining = int(keep.sum())
            if remaining == 0 or t + 1 == sampling.max_tokens:
                break
            if remaining < _COMPACT_BELOW * len(live):
                rows = keep.nonzero().squeeze(1)
                live, token = live[rows], token[rows]
                state = state.select(cache, rows)
            state = state.step(model, cache, token)
        rows = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        return completions(self._policy, sampling, rows, logprobs.tolist())

    def _stopped(self, tokens: Tensor, sampling: Sampling) -> Tensor:
        """``[B]`` whether the last token of each row completed a stop string."""
        if not sampling.stop:
            return tokens.new_zeros(len(tokens), dtype=torch.bool)
        tails = tokens[:, -tail_length(sampling.stop) :].tolist()
        return torch.tensor(stopped(self._policy.tokenizer, tails, sampling.stop), device=tokens.device)


class _State:
    """Where decoding stands: the next token's logits, and masks and positions where prompts differ in length."""

    def __init__(self, logits: Tensor, attention: Tensor | None, position: Tensor | None) -> None:
        self.logits = logits
        self.attention = attention
        self.position = position

    def select(self, cache: Any, rows: Tensor) -> _State:
        """Keep these rows only."""
        cache.batch_select_indices(rows)
        return _State(
            self.logits[rows],
            None if self.attention is None else self.attention[rows],
            None if self.position is None else self.position[rows],
        )

    def step(self, model: Any, cache: Any, token: Tensor) -> _State:
        """Feed one token per row."""
        attention, position = self.attention, self.position
        if attention is not None and position is not None:
            attention = torch.cat([attention, attention.new_ones(len(token), 1)], dim=1)
            position = position + 1
        output = model(
            input_ids=token[:, None],
            attention_mask=attention,
            position_ids=None if position is None else position[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        return _State(output.logits[:, -1], attention, position)


def _prefill(model: Any, cache: Any, prompts: list[tuple[int, ...]], owner: Tensor) -> _State:
    """Run each prompt once, then give every row its prompt's cache."""
    longest = max(map(len, prompts))
    input_ids = torch.tensor([(0,) * (longest - len(p)) + p for p in prompts], device=owner.device)
    attention = position = None
    if any(len(p) != longest for p in prompts):
        # Padding on the left, so that all rows decode into the same column; positions count real tokens only.
        attention = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=owner.device)
        position = (attention.cumsum(1) - 1).clamp(min=0)
    output = model(
        input_ids=input_ids,
        attention_mask=attention,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    last = None if position is None else position[:, -1]
    return _State(output.logits[:, -1], attention, last).select(cache, owner)
