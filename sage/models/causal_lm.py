"""The policy: a transformers causal LM with its tokenizer, its reference, and log-probs of responses.

Every model of transformers fits: the backbone gives hidden states of the right-padded sequences (causal attention never
sees padding on the right, so neither masks nor positions are needed) and the output head is applied to the response
tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    def token_stats(self, batch: Batch, *, temperature: float, vocabulary: bool = False) -> TokenStats:
        """Log-probs of the response tokens under the policy, with gradient where it is enabled."""
        return _response_stats(self.causal_lm, batch, temperature, vocabulary)

    @torch.no_grad()
    def reference_stats(self, batch: Batch, *, temperature: float, vocabulary: bool = False) -> TokenStats:
        """The same under the policy as RL began.

        Raises:
            RuntimeError: if the policy was built without a reference.
        """
        if self.has_adapter:
            with self.model.disable_adapter():
                return _response_stats(self.causal_lm, batch, temperature, vocabulary)
        if self._reference is None:
            if self._load_reference is None:
                raise RuntimeError("this policy was built without a reference: RL has not begun")
            self._reference = self._load_reference().to(self.device).eval().requires_grad_(False)
        return _response_stats(self._reference, batch, temperature, vocabulary)

    def release_reference(self) -> None:
        """Forget a reference model that was loaded; it is loaded again when needed."""
        self._reference = None

    @property
    def causal_lm(self) -> Any:
        """The transformers model itself (with the adapter's layers in it, where there is one)."""
        return self.model.get_base_model() if self.has_adapter else self.model

    def trainable_parameters(self) -> Iterator[Tensor]:
        """What the optimiser updates."""
        return (p for p in self.model.parameters() if p.requires_grad)

    def save(self, folder: Path) -> None:
        """Write model (or adapter) and tokenizer; ``from_pretrained(folder)`` loads them anywhere."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _response_stats(model: Any, batch: Batch, temperature: float, vocabulary: bool) -> TokenStats:
    """Run ``model`` over a batch and score its response tokens; masked tokens get zeros."""
    # The last token of the longest sequence predicts nothing.
    hidden = model.base_model(input_ids=batch.input_ids[:, :-1], use_cache=False).last_hidden_state
    position = predicting_positions(batch.prompt_lengths, batch.response_ids.shape[1])
    row, column = batch.mask.nonzero(as_tuple=True)
    logits = model.get_output_embeddings()(hidden[row, position[row, column]])
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
