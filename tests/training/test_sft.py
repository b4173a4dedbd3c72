"""The supervised stage: what it learns, and when its cached result is the right one."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.training.locks import locked
from sage.training.optimiser import LearningRate, adamw, optimizer_step
from sage.training.sft import Row, SftSettings, cached_sft, micro_batches, sft_key, supervised
from sage.types import Demonstration
from tests.fakes import SilentProgress, tiny_model

SETTINGS = SftSettings(
    seed=0,
    steps=60,
    epochs=None,
    batch_size=8,
    micro_batch_tokens=16384,
    lora=None,
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
    result = supervised(policy, SHOWN, SETTINGS, progress, max_length=64)
    losses = result.losses
    assert len(losses) == 60
    assert (result.demonstrations, result.too_long, result.tokens) == (2, 0, 60 * 8 * 7)
    assert progress.stages["sft"].done == 60
    assert losses[-1] < 0.05 < losses[0]
    ids = policy.tokenizer("9 4 5 :", return_tensors="pt")["input_ids"]
    text = policy.tokenizer.decode(policy.causal_lm.generate(ids, max_new_tokens=10, do_sample=False)[0])
    assert text == "9 4 5 : 9 - 4 = 5 ; <end>"


def test_the_prompt_gets_no_loss():
    """The first loss is the mean over the response's 7 tokens (6 and the end) of an almost uniform model: log 109."""
    result = supervised(tiny_model().create(), SHOWN[:1], replace(SETTINGS, steps=1), SilentProgress(), max_length=64)
    assert result.losses[0] == pytest.approx(torch.tensor(109.0).log().item(), abs=0.1)


def test_without_demonstrations_it_says_what_to_type():
    with pytest.raises(ValueError, match=r"type sft\.enabled=false"):
        supervised(tiny_model().create(), [], SETTINGS, SilentProgress(), max_length=64)


def demonstration(*numbers: int) -> Demonstration:
    """One of ``2 * len(numbers) + 2`` tokens, the end token included."""
    return Demonstration(prompt=" ".join(map(str, numbers)) + " :", completion=" ".join(map(str, numbers)))


MIXED = [demonstration(*range(n, n + 1 + n % 5)) for n in range(12)]


def gradients(settings: SftSettings) -> tuple[float, torch.Tensor]:
    """Loss and weights after one step, at a rate that makes a difference of the gradient a difference of the weights."""
    policy = tiny_model().create()
    result = supervised(policy, MIXED, settings, SilentProgress(), max_length=64)
    return result.losses[0], torch.cat([weight.detach().flatten() for weight in policy.trainable_parameters()])


@pytest.mark.parametrize("most_tokens", [1, 20, 45])
def test_the_cut_into_micro_batches_changes_neither_loss_nor_gradient(most_tokens: int):
    # Betas of 0 and a huge eps make AdamW's step the gradient itself, scaled.
    one = replace(SETTINGS, steps=None, epochs=1, batch_size=12, betas=(0.0, 0.0), eps=1e8, learning_rate=1e8)
    one = replace(one, warmup_steps=0, schedule="constant", weight_decay=0.0, max_grad_norm=float("inf"))
    loss, whole = gradients(one)
    cut_loss, cut = gradients(replace(one, micro_batch_tokens=most_tokens))
    start = torch.cat([weight.detach().flatten() for weight in tiny_model().create().trainable_parameters()])
    assert cut_loss == pytest.approx(loss, rel=1e-5)
    assert (whole - start).norm() > 0.5
    torch.testing.assert_close(cut, whole, rtol=0, atol=1e-5)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_micro_batches_hold_every_row_once_and_keep_their_bound(lengths: list[tuple[int, int]], most: int):
    rows: list[Row] = [((n,) * prompt, (n,) * response) for n, (prompt, response) in enumerate(lengths)]
    found = micro_batches(rows, most)
    assert sorted(row for part in found for row in part) == sorted(rows)
    longest = [max(len(prompt) + len(response) for prompt, response in part) for part in found]
    assert longest == sorted(longest)
    assert all(len(part) == 1 or len(part) * length <= most for part, length in zip(found, longest, strict=True))
    # No two neighbours would fit together.
    for part, (prompt, response) in zip(found, (other[0] for other in found[1:]), strict=False):
        assert (len(part) + 1) * (len(prompt) + len(response)) > most


def test_an_epoch_shows_every_demonstration_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch):
    policy, seen = tiny_model().create(), []
    stats = policy.token_stats

    def watch(batch, **options):
        seen.append(batch.input_ids[:, 0].tolist())
        return stats(batch, **options)

    monkeypatch.setattr(policy, "token_stats", watch)
    plan = replace(SETTINGS, steps=None, epochs=2, batch_size=5)
    result = supervised(policy, MIXED, plan, SilentProgress(), max_length=64)
    assert [len(batch) for batch in seen] == [5, 5, 2] * 2
    first, second = [*chain(*seen[:3])], [*chain(*seen[3:])]
    assert sorted(first) == sorted(second) == [*range(12)]
    assert first != second
    assert len(result.losses) == plan.num_steps(12) == 6


def test_steps_or_epochs_and_not_both():
    for steps, epochs in ((None, None), (1, 1)):
        with pytest.raises(ValueError, match=rf"sft.steps={steps}, sft.epochs={epochs}: expected one of them"):
            replace(SETTINGS, steps=steps, epochs=epochs)


def test_demonstrations_longer_than_the_model_are_left_out_and_counted(caplog: pytest.LogCaptureFixture):
    """K30: no row is cut in silence, and none reaches the model that it has no positions for."""
    rows = [demonstration(1), demonstration(*range(7)), demonstration(2)]
    plan = replace(SETTINGS, steps=None, epochs=1)
    result = supervised(tiny_model().create(), rows, plan, SilentProgress(), max_length=4)
    assert (result.demonstrations, result.too_long, result.tokens) == (2, 1, 4)
    assert "1 of 3 demonstrations left out: longer than 4 tokens" in caplog.text
    assert supervised(tiny_model().create(), rows, plan, SilentProgress(), max_length=None).too_long == 0
    with pytest.raises(
        ValueError, match=r"all 3 demonstrations are longer than the 3 tokens .* \(the shortest has 4\)"
    ):
        supervised(tiny_model().create(), rows, plan, SilentProgress(), max_length=3)


SHORT = replace(SETTINGS, steps=2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_the_stage_runs_once_and_leaves_a_whole_folder_or_none(tmp_path):
    calls = []

    def start():
        calls.append(1)
        return tiny_model().create(), SHOWN

    folder = tmp_path / "sft" / "key"
    for _ in range(2):
        assert cached_sft(folder, start, SHORT, SilentProgress(), max_length=64) == folder
    assert len(calls) == 1
    record = json.loads((folder / "sft.json").read_text())
    assert {name: record[name] for name in ("demonstrations", "too_long", "steps", "tokens")} == {
        "demonstrations": 2,
        "too_long": 0,
        "steps": 2,
        "tokens": 2 * 8 * 7,
    }
    assert tiny_model().begin_rl(folder, 0).encode_prompt("9 4 :") == (9, 4, 106)

    def dies():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_sft(tmp_path / "sft" / "other", dies, SHORT, SilentProgress(), max_length=64)
    assert names(tmp_path / "sft") == ["key"]


def test_what_a_killed_run_left_half_written_is_written_anew(tmp_path):
    (tmp_path / ".key.partial").mkdir()
    (tmp_path / ".key.partial" / "model.safetensors").write_text("half")
    start = lambda: (tiny_model().create(), SHOWN)  # noqa: E731
    folder = cached_sft(tmp_path / "key", start, SHORT, SilentProgress(), max_length=64)
    assert names(tmp_path) == ["key"]
    assert tiny_model().begin_rl(folder, 0).encode_prompt("9 4 :") == (9, 4, 106)


def test_two_runs_that_want_one_base_train_it_once(tmp_path):
    folder, calls, inside, go = tmp_path / "sft" / "key", [], threading.Event(), threading.Event()

    def start():
        calls.append(1)
        inside.set()
        go.wait()
        return tiny_model().create(), SHOWN

    def run():
        cached_sft(folder, start, SHORT, SilentProgress(), max_length=64)

    runs = [threading.Thread(target=run) for _ in range(2)]
    runs[0].start()
    inside.wait()
    runs[1].start()
    runs[1].join(0.2)
    assert runs[1].is_alive()  # it waits
    go.set()
    for thread in runs:
        thread.join()
    assert len(calls) == 1
    assert names(tmp_path / "sft") == ["key"]


def test_a_lock_ends_with_the_process_that_held_it(tmp_path, caplog: pytest.LogCaptureFixture):
    code = (
        "import sys\nfrom pathlib import Path\nfrom sage.training.locks import locked\n"
        "with locked(Path(sys.argv[1]), 'x'):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    path = tmp_path / "folder" / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    threading.Timer(0.3, holder.kill).start()
    with locked(path, "the base"):
        assert holder.wait() == -9
    assert "another run makes the base: waiting for it" in caplog.text


def test_an_adapter_is_merged_into_the_base_that_is_saved(tmp_path):
    """K63: its targets come as a list, as a yaml gives them."""
    shape = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": ["q_proj", "v_proj"]}
    plan = replace(SETTINGS, steps=5, lora=shape)
    policy = tiny_model().create(lora=shape, seed=1)
    folder = cached_sft(tmp_path / "key", lambda: (policy, SHOWN), plan, SilentProgress(), max_length=64)
    assert not (folder / "adapter_config.json").exists()
    merged = dict(tiny_model().begin_rl(folder, 0).weights())
    untrained = dict(tiny_model().create().weights())
    changed = {name.split(".")[-2] for name, weight in merged.items() if not torch.equal(weight, untrained[name])}
    assert changed == {"q_proj", "v_proj"}
    for name, weight in policy.weights():
        torch.testing.assert_close(weight, merged[name])
    assert json.loads((folder / "sft.json").read_text())["settings"]["lora"] == shape


def test_the_key_names_every_input():
    model = tiny_model()
    inputs = {"model": model.fingerprint(), "benchmark": "a"}
    keys = {
        sft_key(SETTINGS, inputs, type(model)),
        sft_key(replace(SETTINGS, seed=1), inputs, type(model)),
        sft_key(replace(SETTINGS, steps=None, epochs=1), inputs, type(model)),
        sft_key(replace(SETTINGS, lora={"rank": 8}), inputs, type(model)),
        sft_key(SETTINGS, inputs | {"benchmark": "b"}, type(model)),
        sft_key(SETTINGS, inputs | {"model": tiny_model(init_seed=1).fingerprint()}, type(model)),
        sft_key(SETTINGS, inputs | {"model": tiny_model(num_layers=2).fingerprint()}, type(model)),
        sft_key(SETTINGS, inputs, SilentProgress),
    }
    assert len(keys) == 8
    # The cut into micro-batches changes nothing.
    assert sft_key(replace(SETTINGS, micro_batch_tokens=1), inputs, type(model)) in keys
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
        cached_sft(tmp_path / "key", lambda: (tiny_model().create(), SHOWN), wild, SilentProgress(), max_length=64)
    assert names(tmp_path) == []
