"""Any causal language model of transformers: from the hub, from a folder, from a GGUF file, with or without an adapter."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from sage.models.causal_lm import CausalPolicy
from sage.models.lora import REFERENCE, TRAINED, lora_from
from sage.models.prompts import Prompts, prompts_of
from sage.models.source import check_exists, content_digest, located, trouble
from sage.types import ModelFacts, Refusal

log = logging.getLogger(__name__)


class HfModel:
    """A pretrained model.

    Args:
        name: id on the Hugging Face hub, a folder, or ``package:NAME`` for files inside an installed Python package.
        revision: branch, tag or commit on the hub; ``None`` for the newest.
        gguf_file: name of a GGUF file in ``name``, which is dequantised when loaded; ``None`` for safetensors.
        adapter: folder or hub id of a tuned PEFT adapter that RL goes on to train; the reference is the model with it.
        dtype: of the weights in memory; ``auto`` is the checkpoint's. LoRA weights are kept in float32.
        compute_dtype: of matrix products; ``None`` is that of the weights.
        attention: implementation of attention in transformers.
        device: of PyTorch; ``None`` is the GPU where there is one.
        gradient_checkpointing: compute activations again in the backward pass (non-reentrant) instead of keeping them.
        trust_remote_code: run Python code that comes with the model.
        chat_template: see :func:`sage.models.prompts.prompts_of`.
        system_prompt: before every question; ``None`` leaves it to the template.
        template_options: variables of the chat template.
        lora: shape of a fresh adapter, or ``None`` to train every weight (or the ``adapter``).
        learning_rate: what RL takes by default.
    """

    pretrained = True

    def __init__(
        self,
        *,
        name: str,
        revision: str | None,
        gguf_file: str | None,
        adapter: str | None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"],
        compute_dtype: Literal["bfloat16", "float16"] | None,
        attention: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"],
        device: str | None,
        gradient_checkpointing: bool,
        trust_remote_code: bool,
        chat_template: str,
        system_prompt: str | None,
        template_options: Mapping[str, Any],
        lora: Mapping[str, Any] | None,
        learning_rate: float,
    ) -> None:
        check_exists(name, "model.name")
        if adapter is not None:
            check_exists(adapter, "model.adapter")
            if lora is not None:
                raise ValueError(
                    "model.adapter is an adapter of its own shape, and RL trains it: type model.lora=null (or merge it into "
                    "its base first)"
                )
        self.name = name
        self.revision = revision
        self.gguf_file = gguf_file
        self.adapter = adapter
        self.dtype = dtype
        self.compute_dtype = None if compute_dtype is None else getattr(torch, compute_dtype)
        self.attention = attention
        self.device = device
        self.gradient_checkpointing = gradient_checkpointing
        self.trust_remote_code = trust_remote_code
        self.chat_template = chat_template
        self.system_prompt = system_prompt
        self.template_options = template_options
        self.lora = None if lora is None else lora_from(lora)
        if gradient_checkpointing and self.lora is not None and self.lora.dropout > 0:
            raise ValueError(
                f"model.lora.dropout={self.lora.dropout} with model.gradient_checkpointing=true: activations would be computed "
                "again without the dropout; type model.lora.dropout=0.0, or model.gradient_checkpointing=false"
            )
        self.learning_rate = learning_rate

    def facts(self) -> ModelFacts:
        """What the configuration says; a model without memory is built from it to count parameters."""
        from transformers import AutoModelForCausalLM

        config = self._config
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=self.trust_remote_code)
            parameters = sum(p.numel() for p in model.parameters())
            trained = model if self.lora is None else self.lora.attach(model, 0)
            trainable = sum(p.numel() for p in trained.parameters() if p.requires_grad)
        text = config.get_text_config()
        return ModelFacts(
            parameters=parameters,
            trainable=trainable,
            bytes_per_parameter=self._torch_dtype.itemsize,
            max_length=getattr(text, "max_position_embeddings", None),
            hidden_size=text.hidden_size,
            num_layers=text.num_hidden_layers,
            vocabulary=text.vocab_size,
        )

    def prompts(self) -> Prompts:
        """Tokenizer and chat template."""
        return self._prompts

    def create(self, lora: Mapping[str, Any] | None = None, seed: int = 0) -> CausalPolicy:
        """The model as it was downloaded, every weight trainable, or a fresh adapter on it.

        Raises:
            ValueError: for a model with a tuned adapter, which only RL goes on with.
        """
        if self.adapter is not None:
            raise Refusal("model.adapter is what RL starts from: type sft=none")
        model = self._load(None)
        return self._policy(model if lora is None else lora_from(lora).attach(model, seed))

    def begin_rl(self, folder: Path | None, seed: int) -> CausalPolicy:
        """The policy with the weights in ``folder`` (``None``: its own) and the tuned or a fresh adapter; reference: the same."""
        if folder is None and self.adapter is not None:
            return self._policy(self._with_adapter(self._load(None)))
        if self.lora is not None:
            return self._policy(self.lora.attach(self._load(folder), seed))
        return self._policy(self._load(folder), lambda: self._load(folder))

    def _policy(self, model: Any, load_reference: Callable[[], Any] | None = None) -> CausalPolicy:
        return CausalPolicy(model, self._prompts, load_reference, self.compute_dtype)

    def fingerprint(self) -> str:
        """The commit on the hub, or the content of the files, with everything that changes what they mean."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        weights = _identity(self.name) or getattr(self._config, "_commit_hash", None)
        adapter = self.adapter and (_identity(self.adapter) or self.adapter)
        prompts = self._prompts
        return repr(
            (
                weights,
                self.gguf_file,
                self.dtype,
                str(self.compute_dtype),
                adapter,
                prompts.template,
                prompts.system,
                dict(prompts.options),
            )
        )

    def _load(self, folder: Path | None) -> Any:
        from transformers import AutoModelForCausalLM

        source = (
            self._source if folder is None else {"pretrained_model_name_or_path": str(folder), "local_files_only": True}
        )
        config = {} if folder is not None else {"config": self._config}
        try:
            with _quiet_stderr() if self.gguf_file is not None and folder is None else nullcontext():
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    **source,
                    **config,
                    dtype=self._torch_dtype,
                    attn_implementation=self.attention,
                    output_loading_info=True,
                )
        except (OSError, ValueError, ImportError) as error:
            raise Refusal(trouble(self.name, error)) from error
        model, report = loaded
        if report["missing_keys"]:  # transformers would make them up
            lacking = sorted(report["missing_keys"])
            raise Refusal(
                f"model.name={self.name}: {len(lacking)} weights are missing from its files, e.g. {lacking[0]}"
            )
        model = _without_quantisation(model)
        _silence_dropout(model)
        if self.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model.to(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def _with_adapter(self, model: Any) -> Any:
        """The tuned adapter, to be trained, and a frozen copy of it: small, and the base is held once."""
        from peft import PeftModel

        adapter = located(str(self.adapter))
        try:
            tuned = PeftModel.from_pretrained(model, adapter, adapter_name=TRAINED, is_trainable=True)
            tuned.load_adapter(adapter, adapter_name=REFERENCE, is_trainable=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise Refusal(f"model.adapter={self.adapter}: {type(error).__name__}: {error}") from error
        tuned.set_adapter(TRAINED)
        return tuned

    @cached_property
    def _source(self) -> dict[str, Any]:
        """Arguments that say where the files are."""
        source: dict[str, Any] = {
            "pretrained_model_name_or_path": located(self.name),
            "trust_remote_code": self.trust_remote_code,
        }
        if self.revision is not None:
            source["revision"] = self.revision
        if self.gguf_file is not None:
            source["gguf_file"] = self.gguf_file
        return source

    @cached_property
    def _config(self) -> Any:
        from transformers import AutoConfig

        try:
            return AutoConfig.from_pretrained(**self._source)
        except (OSError, ValueError) as error:
            raise Refusal(trouble(self.name, error)) from error

    @cached_property
    def _prompts(self) -> Prompts:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(**self._source)
        except (OSError, ValueError) as error:
            raise Refusal(trouble(self.name, error)) from error
        if len(tokenizer) > (known := self._config.get_text_config().vocab_size):
            raise Refusal(
                f"model.name={self.name}: its tokenizer has {len(tokenizer)} tokens and the model knows {known}: they are of "
                "different models"
            )
        return prompts_of(
            tokenizer,
            self.chat_template,
            system=self.system_prompt,
            options=self.template_options,
            model_name=self.name,
        )

    @property
    def _torch_dtype(self) -> torch.dtype:
        if self.dtype != "auto":
            return getattr(torch, self.dtype)
        stated = self._config.dtype
        return stated if isinstance(stated, torch.dtype) else torch.float32


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Keep a progress bar that has no switch off the screen; what was written goes to the log."""
    kept = io.StringIO()
    with redirect_stderr(kept):
        yield
    log.debug("%s", kept.getvalue())


def _identity(name: str) -> str | None:
    """The content of a folder; ``None`` for what lies on the hub."""
    folder = Path(located(name))
    return content_digest(folder) if folder.is_dir() else None


def _without_quantisation(model: Any) -> Any:
    """A model that was dequantised from GGUF still says that it is quantised, and then refuses to be saved."""
    stated = getattr(model.config, "quantization_config", None)
    if stated is not None and stated.quant_method == "gguf":
        del model.config.quantization_config
        model.hf_quantizer = model.quantization_method = None
        model.is_quantized = False
    return model


def _silence_dropout(model: Any) -> None:
    """Training mode, which gradient checkpointing needs, must not change the distribution."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and "dropout" in name:
                setattr(module, name, 0.0)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
