"""The supervised stage: what it learns, and when its cached result is the right one."""

import json
from dataclasses import replace

import pytest
import torch

from sage.training.optimiser import LearningRate, adamw, optimizer_step
from sage.training.sft import SftSettings, cached_sft, sft_key, supervised
from sage.types import Demonstration
from tests.fakes import SilentProgress, tiny_model

SETTINGS = SftSettings(
    seed=0,
    steps=60,
    batch_size=8,
    learning_rate=1e-2,
    betas=(0.9, 0.98),
    eps=1e-8,
    weight_decay=0.01,
    warmup_steps=5,
    schedule="hold_linear",
    max_grad_norm=1.0,
)
SHOWN = [
    Demonstration(prompt="1 2 :", completion="1 + 2 = 3 ;"),
    Demonstration(prompt="9 4 5 :", completion="9 - 4 = 5 ;"),
]


def test_the_demonstrations_and_the_end_after_them_are_learnt():
    policy = tiny_model().create()
    progress = SilentProgress()
    losses = supervised(policy, SHOWN, SETTINGS, progress)
    assert len(losses) == 60
    assert progress.stages["sft"].done == 60
    assert losses[-1] < 0.05 < losses[0]
    ids = policy.tokenizer("9 4 5 :", return_tensors="pt")["input_ids"]
    text = policy.tokenizer.decode(policy.causal_lm.generate(ids, max_new_tokens=10, do_sample=False)[0])
    assert text == "9 4 5 : 9 - 4 = 5 ; <end>"


def test_the_prompt_gets_no_loss():
    """The first loss is the mean over the response's 7 tokens (6 and the end) of an almost uniform model: log 109."""
    assert supervised(tiny_model().create(), SHOWN[:1], replace(SETTINGS, steps=1), SilentProgress())[
        0
    ] == pytest.approx(torch.tensor(109.0).log().item(), abs=0.1)


def test_without_demonstrations_it_says_what_to_type():
    with pytest.raises(ValueError, match=r"type sft\.enabled=false"):
        supervised(tiny_model().create(), [], SETTINGS, SilentProgress())


def test_the_stage_runs_once_and_leaves_a_whole_folder_or_none(tmp_path):
    calls = []

    def start():
        calls.append(1)
        return tiny_model().create(), SHOWN

    folder = tmp_path / "sft" / "key"
    short = replace(SETTINGS, steps=2)
    assert cached_sft(folder, start, short, SilentProgress()) == folder
    assert cached_sft(folder, start, short, SilentProgress()) == folder
    assert len(calls) == 1
    assert json.loads((folder / "sft.json").read_text())["demonstrations"] == 2
    assert tiny_model().begin_rl(folder, 0).encode_prompt("9 4 :") == (9, 4, 106)

    def dies():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_sft(tmp_path / "sft" / "other", dies, short, SilentProgress())
    assert [p.name for p in (tmp_path / "sft").iterdir()] == ["key"]


def test_two_runs_that_race_for_one_base_both_get_it(tmp_path):
    """The second finds the folder that the first left while it trained itself."""
    folder = tmp_path / "sft" / "key"
    short = replace(SETTINGS, steps=2)

    def start_and_be_overtaken():
        cached_sft(folder, lambda: (tiny_model().create(), SHOWN), short, SilentProgress())
        return tiny_model().create(), SHOWN

    assert cached_sft(folder, start_and_be_overtaken, short, SilentProgress()) == folder
    assert [p.name for p in (tmp_path / "sft").iterdir()] == ["key"]


def test_the_key_names_every_input():
    model = tiny_model()
    inputs = {"model": model.fingerprint(), "benchmark": "a"}
    keys = {
        sft_key(SETTINGS, inputs, type(model)),
        sft_key(replace(SETTINGS, seed=1), inputs, type(model)),
        sft_key(SETTINGS, inputs | {"benchmark": "b"}, type(model)),
        sft_key(SETTINGS, inputs | {"model": tiny_model(init_seed=1).fingerprint()}, type(model)),
        sft_key(SETTINGS, inputs | {"model": tiny_model(num_layers=2).fingerprint()}, type(model)),
        sft_key(SETTINGS, inputs, SilentProgress),
    }
    assert len(keys) == 6
    # Neither the adapter nor the rate of RL plays a part in SFT.
    assert tiny_model(lora=None, learning_rate=1.0).fingerprint() == model.fingerprint()


def test_the_learning_rate_is_a_pure_function_of_the_step():
    held = LearningRate(peak=4.0, warmup_steps=4, schedule="hold_linear", num_steps=100)
    # warm-up 1/4, 2/4 ...; constant to 50; then linear to 2 % at 100: at 75 half way, 4 * (1 - .98 / 2)
    assert [held.at(s) for s in (0, 1, 4, 49, 75)] == pytest.approx([1.0, 2.0, 4.0, 4.0, 2.04])
    assert held.at(100) == pytest.approx(0.08)
    cosine = LearningRate(peak=2.0, warmup_steps=0, schedule="cosine", num_steps=10)
    assert [cosine.at(s) for s in (0, 5, 10)] == pytest.approx([2.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="expected one of constant"):
        LearningRate(peak=1.0, warmup_steps=0, schedule="cosin", num_steps=10)


def test_a_step_clips_the_gradient_and_reports_its_norm_before():
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = adamw([parameter], (0.0, 0.0), 1e-8, 0.0)
    parameter.grad = torch.tensor([30.0, 40.0])
    assert optimizer_step(optimizer, 0.1, max_grad_norm=1.0) == pytest.approx(50.0)
    assert parameter.grad is None
    torch.testing.assert_close(parameter.detach(), torch.tensor([-0.1, -0.1]))


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = adamw([parameter], (0.9, 0.99), 1e-8, 0.0)
    parameter.grad = torch.tensor([float("nan"), 1.0])
    with pytest.raises(FloatingPointError, match="gradient norm is nan"):
        optimizer_step(optimizer, 0.1, max_grad_norm=1.0)
    assert parameter.eq(1).all()


def test_weights_that_are_not_numbers_are_never_cached(tmp_path):
    wild = replace(SETTINGS, steps=1, learning_rate=1e38, warmup_steps=0)
    with pytest.raises(FloatingPointError, match=r"lower sft\.optimizer\.learning_rate"):
        cached_sft(tmp_path / "sft" / "key", lambda: (tiny_model().create(), SHOWN), wild, SilentProgress())
    assert not (tmp_path / "sft").exists()
