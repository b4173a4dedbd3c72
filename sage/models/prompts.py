"""Prompt text to token ids: chat template, begin token, end token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """A tokenizer with the model's way to put a question."""

    tokenizer: Any
    template: str | None = None
    """A chat template (Jinja); ``None`` puts the prompt as it is."""
    system: str | None = None
    """System message before every question; only with a template."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Variables of the template, e.g. ``enable_thinking`` of Qwen3's."""

    def encode_prompt(self, prompt: str) -> tuple[int, ...]:
        """Token ids of one prompt, with one begin token where the model has one."""
        return self.encode_prompts([prompt])[0]

    def encode_prompts(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """The same for many."""
        texts = [self.chat(prompt) for prompt in prompts]
        # A template writes the special tokens itself.
        return [self._bounded(ids) for ids in _encode(self.tokenizer, texts, special=self.template is None)]

    def encode_completions(self, completions: Sequence[str]) -> list[tuple[int, ...]]:
        """Texts to imitate, each closed by the end token."""
        end = self.tokenizer.eos_token_id
        return [(*ids, end) for ids in _encode(self.tokenizer, list(completions), special=False)]

    def chat(self, prompt: str) -> str:
        """The text that the model sees."""
        if self.template is None:
            return prompt
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return self.tokenizer.apply_chat_template(
            [*system, {"role": "user", "content": prompt}],
            chat_template=self.template,
            add_generation_prompt=True,
            tokenize=False,
            **self.options,
        )

    def _bounded(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Tokenizers add a begin token to one that the text has already, and an end token to what is to be continued."""
        begin, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        first = 1 if begin is not None and list(ids[:2]) == [begin, begin] else 0
        ended = self.template is None and end is not None and end != begin and len(ids) > 1 and ids[-1] == end
        return tuple(ids[first : -1 if ended else None])


def prompts_of(
    tokenizer: Any, template: str, *, system: str | None, options: Mapping[str, Any], model_name: str
) -> Prompts:
    """The prompts of a ``model.chat_template`` option.

    Args:
        tokenizer: gets a padding token (its end token) where it has none, so that other tools can pad with it; here masks
            come from lengths.
        template: ``tokenizer`` for the tokenizer's own, ``plain`` for none, else a file of Jinja or its text.
        system: see :class:`Prompts`.
        options: see :class:`Prompts`.
        model_name: for messages.

    Raises:
        ValueError: the tokenizer has no template or no end token, the file does not exist, or the template fails.
    """
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"the tokenizer of {model_name} has no end token, so no completion could end: choose another model"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    text = _template(tokenizer, template, model_name)
    if text is None and (system is not None or options):
        raise ValueError(
            "model.system_prompt and model.template_options need a chat template: model.chat_template=plain has none"
        )
    made = Prompts(tokenizer=tokenizer, template=text, system=system, options=options)
    try:
        made.chat("1")
    except Exception as error:  # Jinja's own, and whatever a template raises
        raise ValueError(f"model.chat_template of {model_name} fails: {type(error).__name__}: {error}") from error
    return made


def _template(tokenizer: Any, template: str, model_name: str) -> str | None:
    if template == "plain":
        return None
    if template == "tokenizer":
        if tokenizer.chat_template is None:
            raise ValueError(
                f"{model_name} has no chat template (a base model?): type model.chat_template=plain to put prompts as they "
                "are, or model.chat_template=FILE with a Jinja template"
            )
        return tokenizer.get_chat_template()
    if "{" in template:
        return template
    path = Path(template).expanduser()
    if not path.is_file():
        raise ValueError(f"model.chat_template={template}: expected tokenizer, plain, or a file with a Jinja template")
    return path.read_text(encoding="utf-8")


def _encode(tokenizer: Any, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    if not tokenizer.is_fast:
        return tokenizer(list(texts), add_special_tokens=special)["input_ids"]
    # Three times as fast as the wrapper, which also makes masks; an SFT stage has hundreds of thousands of texts.
    return [e.ids for e in tokenizer.backend_tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)]
