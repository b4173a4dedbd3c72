"""The embedded model: a word-level Llama of 162,624 parameters with random weights, for laptops and tests.

It is a plain transformers model with a saved ``PreTrainedTokenizerFast``, so that transformers, PEFT and vLLM load it. Llama,
because ``AutoTokenizer`` insists on the byte-level tokenizer of some other families (Qwen2 among them) whatever was saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sage.models.causal_lm import CausalPolicy
from sage.models.lora import lora_from
from sage.models.prompts import Prompts
from sage.types import ModelFacts

_END, _PAD = "<end>", "<pad>"


class TinyModel:
    """A small Llama over the words ``0 .. numbers - 1`` and ``symbols``.

    Args:
        numbers: how many numbers have a token.
        symbols: one token per character.
        hidden_size: width; a multiple of ``head_size``.
        intermediate_size: width of the gated feed-forward layer.
        num_layers: transformer layers.
        head_size: width of an attention head.
        max_length: prompt and completion, in tokens.
        init_seed: of the random weights.
        lora: adapter shape, or ``None`` to train every weight.
        learning_rate: what RL takes by default.
    """

    pretrained = False

    def __init__(
        self,
        *,
        numbers: int,
        symbols: str,
        hidden_size: int,
        intermediate_size: int,
        num_layers: int,
        head_size: int,
        max_length: int,
        init_seed: int,
        lora: Mapping[str, Any] | None,
        learning_rate: float,
    ) -> None:
        if hidden_size % head_size:
            raise ValueError(f"model.hidden_size={hidden_size}: expected a multiple of model.head_size={head_size}")
        self.vocabulary = [*map(str, range(numbers)), *symbols, _END, _PAD]
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_layers = num_layers
        self.num_heads = hidden_size // head_size
        self.max_length = max_length
        self.init_seed = init_seed
        self.lora = None if lora is None else lora_from(lora)
        self.learning_rate = learning_rate

    def facts(self) -> ModelFacts:
        """Counted on a model without memory."""
        from transformers import LlamaForCausalLM

        with torch.device("meta"):
            model = LlamaForCausalLM(self._config())
            parameters = sum(p.numel() for p in model.parameters())
            trained = model if self.lora is None else self.lora.attach(model, 0)
            trainable = sum(p.numel() for p in trained.parameters() if p.requires_grad)
        return ModelFacts(
            parameters=parameters,
            trainable=trainable,
            bytes_per_parameter=4,
            max_length=self.max_length,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            vocabulary=len(self.vocabulary),
        )

    def prompts(self) -> Prompts:
        """Words to ids, as they are."""
        return self._prompts

    def create(self, lora: Mapping[str, Any] | None = None, seed: int = 0) -> CausalPolicy:
        """The untrained model."""
        from transformers import LlamaForCausalLM

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.init_seed)
            model = LlamaForCausalLM(self._config())
        return CausalPolicy(model if lora is None else lora_from(lora).attach(model, seed), self._prompts)

    def _config(self) -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=len(self.vocabulary),
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_heads,
            max_position_embeddings=self.max_length,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=self.vocabulary.index(_END),
            pad_token_id=self.vocabulary.index(_PAD),
            dtype="float32",
        )

    def begin_rl(self, folder: Path | None, seed: int) -> CausalPolicy:
        """The policy and its reference, both from the weights in ``folder``; ``seed`` draws a fresh adapter."""
        from transformers import AutoModelForCausalLM

        def load() -> Any:
            if folder is None:
                return self.create().model
            return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)

        if self.lora is not None:
            return CausalPolicy(self.lora.attach(load(), seed), self._prompts)
        return CausalPolicy(load(), self._prompts, load_reference=load)

    def fingerprint(self) -> str:
        """Identifies the untrained model: two equal fingerprints give the same weights and tokens."""
        shape = (self.hidden_size, self.intermediate_size, self.num_layers, self.num_heads, self.max_length)
        return repr((self.vocabulary, shape, self.init_seed))

    @cached_property
    def _prompts(self) -> Prompts:
        return Prompts(tokenizer=self._tokenizer())

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import WhitespaceSplit
        from transformers import PreTrainedTokenizerFast

        # An unknown word is refused by the tokenizer (there is no unknown token), not mapped to something in silence.
        backend = Tokenizer(WordLevel({word: i for i, word in enumerate(self.vocabulary)}))
        backend.pre_tokenizer = WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, eos_token=_END, pad_token=_PAD, model_max_length=self.max_length
        )
