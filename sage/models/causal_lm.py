"""The policy: a transformers causal LM with its tokenizer, its reference, and log-probs of responses.

Every model of transformers fits: the backbone gives hidden states of the right-padded sequences (causal attention never
sees padding on the right, so neither masks nor positions are needed) and the output head is applied to the response
tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sage.maths.logprobs import TokenStatistics, predicting_positions, token_statistics
from sage.models.lora import REFERENCE, TRAINED, merged_weights
from sage.models.prompts import Prompts
from sage.types import Batch, Refusal, TokenStats

_LOGITS_AT_ONCE = 2**26
"""Numbers: 256 MiB in float32."""


class CausalPolicy:
    """A causal LM being trained, and the frozen reference that it started RL from.

    Args:
        model: a ``PreTrainedModel`` with a language-model head, or a ``PeftModel`` around one.
        prompts: its tokenizer and chat template.
        load_reference: gives the weights as RL began, when somebody asks for them (so that ``kl=none`` never loads them).
            ``None`` with an adapter: the reference is the model without it, or with the frozen copy of a tuned adapter, and
            no second copy of the weights exists.
        compute_dtype: of matrix products where it is not that of the weights (``torch.autocast``).
    """

    def __init__(
        self,
        model: Any,
        prompts: Prompts,
        load_reference: Callable[[], Any] | None = None,
        compute_dtype: torch.dtype | None = None,
    ) -> None:
        # No dropout but an adapter's own: the update must see the distribution that was sampled from.
        self.model = model.eval()
        self.prompts = prompts
        self._load_reference = load_reference
        self._compute_dtype = compute_dtype
        self._reference: Any = None
        self._critic: Any = None
        self._value_head: torch.nn.Linear | None = None
        self._trains_otherwise = bool(getattr(self.causal_lm, "is_gradient_checkpointing", False)) or any(
            isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules()
        )

    @property
    def tokenizer(self) -> Any:
        """Of the prompts."""
        return self.prompts.tokenizer

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
        return self.prompts.encode_prompt(prompt)

    def encode_prompts(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """The same for many."""
        return self.prompts.encode_prompts(prompts)

    def encode_completions(self, completions: Sequence[str]) -> list[tuple[int, ...]]:
        """Texts to imitate, each closed by the end token."""
        return self.prompts.encode_completions(completions)

    def token_stats(
        self, batch: Batch, *, temperature: float, vocabulary: bool = False, values: bool = False
    ) -> TokenStats:
        """Log-probs of the response tokens under the policy, with gradient where it is enabled.

        Raises:
            RuntimeError: if ``values`` are asked of a policy without a critic.
        """
        with self._mode(), self.autocast():
            states = self._states(self.causal_lm, batch)
            stats = self._response_stats(self.causal_lm, states, batch, temperature, vocabulary)
            return replace(stats, values=_scatter(self._values(states, batch), batch.mask)) if values else stats

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in the dtype that the model computes in."""
        return torch.autocast(
            self.device.type, self._compute_dtype or torch.bfloat16, enabled=self._compute_dtype is not None
        )

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """Training mode where it means something: gradient checkpointing and an adapter's dropout, in updates alone."""
        if not (self._trains_otherwise and torch.is_grad_enabled()):
            yield
            return
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()

    def _values(self, states: Tensor, batch: Batch) -> Tensor:
        if self._value_head is None:
            raise RuntimeError("this policy has no critic: call add_critic first")
        if self._critic is not None:
            states = _response_hidden(self._critic, batch)
        elif not self._plain_head:
            states = _response_hidden(self.causal_lm, batch)
        return self._value_head(states.to(self._value_head.weight.dtype)).squeeze(-1).float()

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
            raise Refusal("algorithm.critic=separate with an adapter holds a second model: type algorithm.critic=trunk")
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
            with self._adapter_as_rl_began():
                return self._score(self.causal_lm, batch, temperature, vocabulary)
        if self._reference is None:
            if self._load_reference is None:
                raise RuntimeError("this policy was built without a reference: RL has not begun")
            self._reference = self._load_reference().to(self.device).eval().requires_grad_(False)
        return self._score(self._reference, batch, temperature, vocabulary)

    def _adapter_as_rl_began(self) -> AbstractContextManager[Any]:
        return self._tuned_adapter() if REFERENCE in self.model.peft_config else self.model.disable_adapter()

    @contextmanager
    def _tuned_adapter(self) -> Iterator[None]:
        self.model.set_adapter(REFERENCE, inference_mode=True)
        try:
            yield
        finally:
            self.model.set_adapter(TRAINED)

    def release_reference(self) -> None:
        """Forget a reference model that was loaded; it is loaded again when needed."""
        self._reference = None

    @property
    def causal_lm(self) -> Any:
        """The transformers model itself (with the adapter's layers in it, where there is one)."""
        return self.model.get_base_model() if self.has_adapter else self.model

    def trainable_parameters(self) -> Iterator[Tensor]:
        """What the optimiser updates."""
        return (parameter for _, parameter in self._trained())

    def _trained(self) -> Iterator[tuple[str, Tensor]]:
        modules = {"model": self.model, "critic": self._critic, "value_head": self._value_head}
        for part, module in modules.items():
            if module is not None:
                yield from ((f"{part}.{name}", p) for name, p in module.named_parameters() if p.requires_grad)

    def state(self) -> dict[str, Tensor]:
        """What training changes, by name: weights or adapter, critic and value head."""
        return {name: parameter.detach() for name, parameter in self._trained()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a :meth:`state`.

        Raises:
            ValueError: names or shapes are not those of what is trained here.
        """
        trained = dict(self._trained())
        unlike = sorted(trained.keys() ^ state.keys())
        unlike += [name for name in trained.keys() & state.keys() if trained[name].shape != state[name].shape]
        if unlike:
            raise ValueError(f"{len(unlike)} saved weights are not those of this model, e.g. {unlike[0]}")
        for name, parameter in trained.items():
            parameter.copy_(state[name])

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight under its name in a checkpoint, the adapter merged in one matrix at a time."""
        if self.has_adapter:
            yield from merged_weights(self.causal_lm)
        else:
            yield from ((name, tensor.detach()) for name, tensor in self.causal_lm.state_dict().items())

    def save(self, folder: Path, *, merged: bool = False) -> None:
        """Write model (or adapter, unless ``merged``) and tokenizer; ``from_pretrained(folder)`` loads them anywhere."""
        if self.has_adapter and not merged:
            self.model.save_pretrained(folder, selected_adapters=[TRAINED], save_embedding_layers=False)
        elif self.has_adapter:
            self.causal_lm.save_pretrained(folder, state_dict=dict(self.weights()))
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def save_config(self, folder: Path) -> None:
        """Write configuration and tokenizer, without weights."""
        model = self.causal_lm
        model.config.architectures = [type(model).__name__]
        for part in (model.config, model.generation_config, self.tokenizer):
            part.save_pretrained(folder)

    def _score(self, model: Any, batch: Batch, temperature: float, vocabulary: bool) -> TokenStats:
        with self.autocast():
            return self._response_stats(model, self._states(model, batch), batch, temperature, vocabulary)

    def _states(self, model: Any, batch: Batch) -> Tensor:
        """``[N, D]`` what :meth:`_response_stats` makes logits of; the logits themselves where the head is not all there is."""
        return _response_hidden(model, batch) if self._plain_head else _response_logits(model, batch)

    def _response_stats(
        self, model: Any, states: Tensor, batch: Batch, temperature: float, vocabulary: bool
    ) -> TokenStats:
        """Score the response tokens; masked tokens get zeros."""
        ids = batch.response_ids[batch.mask]
        head = model.get_output_embeddings() if self._plain_head else torch.nn.Identity()

        def score(states: Tensor, ids: Tensor) -> TokenStatistics:
            return token_statistics(head(states), ids, temperature, vocabulary=vocabulary)

        rows = max(1, _LOGITS_AT_ONCE // model.config.get_text_config().vocab_size)
        if vocabulary or len(ids) <= rows:
            logprobs, entropy, full = score(states, ids)
        else:  # logits of a piece are made again in the backward pass, so that those of one piece only are ever held
            pieces = [
                checkpoint(score, *piece, use_reentrant=False)
                for piece in zip(states.split(rows), ids.split(rows), strict=True)
            ]
            logprobs, entropy = (torch.cat([piece[i] for piece in pieces]) for i in (0, 1))
            full = None
        return TokenStats(
            logprobs=_scatter(logprobs, batch.mask),
            entropy=_scatter(entropy, batch.mask),
            vocabulary_logprobs=None if full is None else _scatter(full, batch.mask),
        )

    @cached_property
    @torch.no_grad()
    def _plain_head(self) -> bool:
        """Whether logits are nothing but the head's output: some families scale or cap them afterwards."""
        model = self.causal_lm
        ids = torch.tensor([[0, 1, 2]], device=self.device)
        bare = model.get_output_embeddings()(model.base_model(input_ids=ids, use_cache=False).last_hidden_state)
        return torch.allclose(bare.float(), model(input_ids=ids, use_cache=False).logits.float(), rtol=1e-3, atol=1e-3)


def _response_hidden(model: Any, batch: Batch) -> Tensor:
    """``[N, D]`` the hidden states that predict the N unmasked response tokens."""
    # The last token of the longest sequence predicts nothing.
    hidden = model.base_model(input_ids=batch.input_ids[:, :-1], use_cache=False).last_hidden_state
    return hidden[_predicting(batch)]


def _response_logits(model: Any, batch: Batch) -> Tensor:
    """``[N, V]`` from the model's own forward pass, which holds the logits of every position."""
    return model(input_ids=batch.input_ids[:, :-1], use_cache=False).logits[_predicting(batch)]


def _predicting(batch: Batch) -> tuple[Tensor, Tensor]:
    position = predicting_positions(batch.prompt_lengths, batch.response_ids.shape[1])
    row, column = batch.mask.nonzero(as_tuple=True)
    return row, position[row, column]


def _scatter(values: Tensor, mask: Tensor) -> Tensor:
    """``[N, ...]`` values of the unmasked tokens -> ``[B, T, ...]`` with zeros elsewhere."""
    out = values.new_zeros(*mask.shape, *values.shape[1:])
    return out.index_put(mask.nonzero(as_tuple=True), values)
