"""Small random models of several transformers families with a word-level tokenizer, as folders on disk."""

from pathlib import Path

import torch
import yaml
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GPT2Config, LlamaConfig, Qwen3Config

from sage.config import conf_dir
from sage.models.hf import HfModel
from tests.fakes import tiny_model

_SIZES = {
    "vocab_size": 110,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 107,
    "pad_token_id": 108,
}
FAMILIES = {
    "llama": lambda: LlamaConfig(**_SIZES),
    "qwen3": lambda: Qwen3Config(**_SIZES),
    "gemma2": lambda: Gemma2Config(**_SIZES, final_logit_softcapping=0.02),  # caps logits after the head
    "cohere": lambda: CohereConfig(**_SIZES, logit_scale=5.0),  # scales them
    "gpt2": lambda: GPT2Config(
        vocab_size=110,
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=64,
        resid_pdrop=0.5,
        bos_token_id=None,
        eos_token_id=107,
    ),
}


def saved_family(folder: Path, family: str) -> Path:
    """A random model of the family in ``folder``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=torch.float32)
    model.save_pretrained(folder)
    tiny_model().prompts().tokenizer.save_pretrained(folder)
    return folder


def hf_model(**changes) -> HfModel:
    """The model of ``conf/model/hf.yaml`` with some values changed; prompts are put as they are."""
    values = yaml.safe_load((conf_dir() / "model" / "hf.yaml").read_text())
    del values["_target_"], values["defaults"]
    return HfModel(**values | {"chat_template": "plain", "dtype": "float32"} | changes)
