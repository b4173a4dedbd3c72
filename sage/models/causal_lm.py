"""The policy: a transformers causal LM with its tokenizer, its reference, and log-probs of responses.

Every model of transformers fits: the backbone gives hidden states of the right-padded sequences (causal attention never
sees padding on the right, so neither masks nor positions are needed) and the output head is applied to the response
tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sage.maths.logprobs import predicting_positions, token_statistics
from sage.types import Batch, TokenStats


class CausalPolicy:
    """A causal LM being trained, and the frozen reference that it started RL from.

    Args:
        model: a ``PreTrainedModel`` with a language-model head, or a ``PeftModel`` around one.
        tokenizer: its tokenizer.
        load_reference: gives the weights as RL began, when somebody asks for them (so that ``kl=none`` never loads them).
            ``None`` with an adapter: the reference is the model without it, and no second copy of the weights exists.
    """

    def __init__(self, model: Any, tokenizer: Any, load_reference: Callable[[], Any] | None = None) -> None:
        self.model = model.eval()  # no dropout: the update must see the distribution that was sampled from
        self.tokenizer = tokenizer
        self._load_reference = load_reference
        self._reference: Any = None
        self._critic: Any = None
        self._value_head: torch.nn.Linear | None = None

    @property
    def has_adapter(self) -> bool:
        """Whether a PEFT adapter is trained instead of the model's own weights."""
        return hasattr(self.model, "disable_adapter")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a completion: the tokenizer's end token and those of the generation config."""
        configured = self.model.generation_config.eos_token_id
        ids = {self.tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])}
        return frozenset(i for i in ids if i is not None)

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        """Prompt text to token ids."""
        return tuple(self.tokenizer(prompt)["input_ids"])

    def token_stats(
        self, batch: Batch, *, temperature: float, vocabulary: bool = False, values: bool = False
    ) -> TokenStats:
        """Log-probs of the response tokens under the policy, with gradient where it is enabled.

        Raises:
            RuntimeError: if ``values`` are asked of a policy without a critic.
        """
        hidden = _response_hidden(self.causal_lm, batch)
        stats = _response_stats(self.causal_lm, hidden, batch, temperature, vocabulary)
        return replace(stats, values=_scatter(self._values(hidden, batch), batch.mask)) if values else stats

    def _values(self, hidden: Tensor, batch: Batch) -> Tensor:
        if self._value_head is None:
            raise RuntimeError("this policy has no critic: call add_critic first")
        if self._critic is not None:
            hidden = _response_hidden(self._critic, batch)
        return self._value_head(hidden).squeeze(-1).float()

    def add_critic(self, *, separate: bool, seed: int) -> None:
        """Give the policy a value head: one linear map of the hidden state that also predicts the token.

        Args:
            separate: on a trunk of its own, which starts as the reference's; otherwise on the policy's, which then learns
                from both losses.
            seed: of the head's weights; they are small, so values start near 0.

        Raises:
            ValueError: for a separate critic beside an adapter, which would hold a second copy of the model.
        """
        if separate and self._load_reference is None:
            raise ValueError(
                "algorithm.critic=separate with an adapter holds a second model: type algorithm.critic=trunk"
            )
        size = self.causal_lm.get_output_embeddings().in_features
        head = torch.nn.Linear(size, 1)
        with torch.no_grad():
            head.weight.normal_(std=size**-1, generator=torch.Generator().manual_seed(seed))
            head.bias.zero_()
        self._value_head = head.to(self.device)
        if separate and self._load_reference is not None:
            self._critic = self._load_reference().to(self.device).eval()
            self._critic.get_output_embeddings().requires_grad_(False)

    @torch.no_grad()
    def reference_stats(self, batch: Batch, *, temperature: float, vocabulary: bool = False) -> TokenStats:
        """The same under the policy as RL began.

        Raises:
            RuntimeError: if the policy was built without a reference.
        """
        if self.has_adapter:
            with self.model.disable_adapter():
                return _score(self.causal_lm, batch, temperature, vocabulary)
        if self._reference is None:
            if self._load_reference is None:
                raise RuntimeError("this policy was built without a reference: RL has not begun")
            self._reference = self._load_reference().to(self.device).eval().requires_grad_(False)
        return _score(self._reference, batch, temperature, vocabulary)

    def release_reference(self) -> None:
        """Forget a reference model that was loaded; it is loaded again when needed."""
        self._reference = None

    @property
    def causal_lm(self) -> Any:
        """The transformers model itself (with the adapter's layers in it, where there is one)."""
        return self.model.get_base_model() if self.has_adapter else self.model

    def trainable_parameters(self) -> Iterator[Tensor]:
        """What the optimiser updates."""
        modules = [m for m in (self.model, self._critic, self._value_head) if m is not None]
        return (p for module in modules for p in module.parameters() if p.requires_grad)

    def save(self, folder: Path) -> None:
        """Write model (or adapter) and tokenizer; ``from_pretrained(folder)`` loads them anywhere."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _score(model: Any, batch: Batch, temperature: float, vocabulary: bool) -> TokenStats:
    return _response_stats(model, _response_hidden(model, batch), batch, temperature, vocabulary)


def _response_hidden(model: Any, batch: Batch) -> Tensor:
    """``[N, D]`` the hidden states that predict the N unmasked response tokens."""
    # The last token of the longest sequence predicts nothing.
    hidden = model.base_model(input_ids=batch.input_ids[:, :-1], use_cache=False).last_hidden_state
    position = predicting_positions(batch.prompt_lengths, batch.response_ids.shape[1])
    row, column = batch.mask.nonzero(as_tuple=True)
    return hidden[row, position[row, column]]


def _response_stats(model: Any, hidden: Tensor, batch: Batch, temperature: float, vocabulary: bool) -> TokenStats:
    """Score the response tokens from their hidden states; masked tokens get zeros."""
    logits = model.get_output_embeddings()(hidden)
    stats = token_statistics(logits, batch.response_ids[batch.mask], temperature, vocabulary=vocabulary)
    full = stats.vocabulary_logprobs
    return TokenStats(
        logprobs=_scatter(stats.logprobs, batch.mask),
        entropy=_scatter(stats.entropy, batch.mask),
        vocabulary_logprobs=None if full is None else _scatter(full, batch.mask),
    )


def _scatter(values: Tensor, mask: Tensor) -> Tensor:
    """``[N, ...]`` values of the unmasked tokens -> ``[B, T, ...]`` with zeros elsewhere."""
    out = values.new_zeros(*mask.shape, *values.shape[1:])
    return out.index_put(mask.nonzero(as_tuple=True), values)
