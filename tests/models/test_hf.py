"""Any model of transformers, loaded, trained and saved."""

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from sage.models import causal_lm
from sage.training.packing import pack
from sage.types import Refusal
from tests.fakes import group, tiny_model
from tests.models.families import FAMILIES, hf_model, saved_family

LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "targets": "all-linear"}
BATCH = pack(
    [
        group("a", (3, 7, 106), [(12, 100, 4, 107), (9, 107)], [1, 0]),
        group("b", (1, 2, 3, 4, 106), [(5,), (6, 7, 8)], [1, 0]),
    ]
)


def move(policy, by=0.05):
    """Change what is trained, B of an adapter included, which starts at zero."""
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))


def logprobs(policy, temperature=1.0):
    with torch.no_grad():
        return policy.token_stats(BATCH, temperature=temperature).logprobs


def by_hand(model, temperature=1.0):
    """Log-probs from the model's own logits, one sequence at a time."""
    rows = torch.zeros(BATCH.response_ids.shape)
    for row, (prompt, mask) in enumerate(zip(BATCH.prompt_lengths.tolist(), BATCH.mask, strict=True)):
        length = int(mask.sum())
        ids = BATCH.input_ids[row : row + 1, : prompt + length]
        with torch.no_grad():
            scored = (model(input_ids=ids).logits[0, prompt - 1 : -1].float() / temperature).log_softmax(-1)
        rows[row, :length] = scored.gather(-1, ids[0, prompt:, None])[:, 0]
    return rows


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_scored_as_its_own_forward_pass_says(tmp_path, family):
    """Also families that cap or scale logits after the head, which the head alone would get wrong."""
    policy = hf_model(name=str(saved_family(tmp_path, family))).begin_rl(None, 0)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logprobs(policy, 0.7), by_hand(plain, 0.7), atol=1e-5, rtol=0)
    assert torch.equal(policy.reference_stats(BATCH, temperature=0.7).logprobs, logprobs(policy, 0.7))
    policy.add_critic(separate=False, seed=0)
    assert policy.token_stats(BATCH, temperature=1.0, values=True).values.shape == BATCH.mask.shape


def gradients(policy):
    policy.model.zero_grad()
    policy.token_stats(BATCH, temperature=1.0).logprobs.sum().backward()
    return {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}


def assert_equal_gradients(found, expected):
    assert found.keys() == expected.keys() != set()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_gradient_checkpointing_changes_no_gradient(tmp_path, family, lora):
    """K24: both matrices of an adapter have a gradient once B has moved; GPT-2's own dropout stays silent in training mode."""
    folder = str(saved_family(tmp_path, family))
    plain, recomputing = (
        hf_model(name=folder, lora=lora, gradient_checkpointing=on).begin_rl(None, 0) for on in (False, True)
    )
    for policy in (plain, recomputing):
        move(policy)
    expected = gradients(plain)
    assert_equal_gradients(gradients(recomputing), expected)
    assert recomputing.causal_lm.is_gradient_checkpointing
    if lora is not None:
        assert {"lora_A", "lora_B"} <= {part for name in expected for part in name.split(".")}
        assert all(gradient.abs().max() > 0 for gradient in expected.values())


def test_checkpointing_holds_fewer_activations(tmp_path):
    """The switch does something: fewer tensors are kept for the backward pass."""
    folder, kept = str(saved_family(tmp_path, "llama")), []
    for on in (False, True):
        policy, sizes = hf_model(name=folder, gradient_checkpointing=on).begin_rl(None, 0), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            policy.token_stats(BATCH, temperature=1.0)
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2


def test_logits_in_pieces_give_the_same_numbers_and_gradients(tmp_path, monkeypatch):
    """K66, K67: 10 tokens at once, and 3 at a time."""
    policy = hf_model(name=str(saved_family(tmp_path, "llama"))).begin_rl(None, 0)
    whole, expected = policy.token_stats(BATCH, temperature=0.9), gradients(policy)
    monkeypatch.setattr(causal_lm, "_LOGITS_AT_ONCE", 3 * 110)
    pieces = policy.token_stats(BATCH, temperature=0.9)
    torch.testing.assert_close(pieces.logprobs, whole.logprobs, atol=1e-6, rtol=0)
    torch.testing.assert_close(pieces.entropy, whole.entropy, atol=1e-6, rtol=0)
    assert_equal_gradients(gradients(policy), expected)


def test_rl_from_a_tuned_adapter_is_anchored_to_it_and_goes_on_with_it(tmp_path):
    """K22: an adapter with weights other than zero; KL at step 0 is 0, and not the distance to the bare base."""
    base = str(saved_family(tmp_path / "base", "llama"))
    first = hf_model(name=base, lora=LORA).begin_rl(None, 0)
    start = logprobs(first)
    move(first)
    first.save(tmp_path / "adapter")
    policy = hf_model(name=base, adapter=str(tmp_path / "adapter")).begin_rl(None, 0)
    assert not torch.allclose(logprobs(policy), start, atol=1e-2)
    assert torch.equal(logprobs(policy), logprobs(first))
    assert torch.equal(policy.reference_stats(BATCH, temperature=1.0).logprobs, logprobs(policy))
    move(policy)
    torch.testing.assert_close(policy.reference_stats(BATCH, temperature=1.0).logprobs, logprobs(first))
    assert not torch.allclose(logprobs(policy), logprobs(first), atol=1e-2)
    assert all(p.requires_grad for p in policy.trainable_parameters())
    policy.save(tmp_path / "again")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "again").eval()
    torch.testing.assert_close(by_hand(loaded), logprobs(policy), atol=1e-5, rtol=0)


def test_an_adapter_holds_the_base_once_and_is_merged_into_what_engines_get(tmp_path):
    """K22, K23: no second copy of the base; the weights pushed to an engine are those of the policy, adapter included."""
    base = saved_family(tmp_path / "base", "llama")
    policy = hf_model(name=str(base), lora=LORA).begin_rl(None, 0)
    assert policy._load_reference is None
    before = logprobs(policy)
    assert torch.equal(policy.reference_stats(BATCH, temperature=1.0).logprobs, before)
    move(policy)
    pushed = AutoModelForCausalLM.from_pretrained(base)
    pushed.load_state_dict(dict(policy.weights()))
    torch.testing.assert_close(by_hand(pushed.eval()), logprobs(policy), atol=1e-5, rtol=0)
    untouched = AutoModelForCausalLM.from_pretrained(base).state_dict()
    assert torch.equal(
        policy.causal_lm.state_dict()["model.embed_tokens.weight"], untouched["model.embed_tokens.weight"]
    )
    policy.save(tmp_path / "merged", merged=True)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(by_hand(merged), logprobs(policy), atol=1e-5, rtol=0)


def test_the_adapter_config_is_plain_json_also_from_lists_in_a_yaml(tmp_path):
    """K63: targets given as a list."""
    base = str(saved_family(tmp_path / "base", "llama"))
    policy = hf_model(name=base, lora=LORA | {"targets": ["q_proj", "v_proj"]}).begin_rl(None, 0)
    policy.save(tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter")
    assert sorted(loaded.peft_config["default"].target_modules) == ["q_proj", "v_proj"]


def test_dropout_of_an_adapter_acts_in_updates_alone(tmp_path):
    base = str(saved_family(tmp_path, "llama"))
    policy = hf_model(name=base, lora=LORA | {"dropout": 0.5}).begin_rl(None, 0)
    move(policy)
    assert torch.equal(logprobs(policy), logprobs(policy))
    torch.manual_seed(0)
    first, second = (policy.token_stats(BATCH, temperature=1.0).logprobs.detach() for _ in range(2))
    assert not torch.equal(first, second)
    assert not policy.model.training


@pytest.mark.parametrize("lora", [None, LORA])
def test_saved_models_load_anywhere_and_generate(tmp_path, lora):
    base = str(saved_family(tmp_path / "base", "qwen3"))
    policy = hf_model(name=base, lora=lora).begin_rl(None, 0)
    move(policy)
    policy.save(tmp_path / "out")
    if lora is None:
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    else:
        loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "out")
    torch.testing.assert_close(by_hand(loaded.eval()), logprobs(policy), atol=1e-5, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer("3 7 :", return_tensors="pt")["input_ids"]
    assert loaded.generate(input_ids=ids, max_new_tokens=4, do_sample=False).shape[1] > ids.shape[1]


def test_facts_are_counted_without_weights(tmp_path):
    base = saved_family(tmp_path, "llama")
    loaded = AutoModelForCausalLM.from_pretrained(base)
    full, lora = hf_model(name=str(base)).facts(), hf_model(name=str(base), lora=LORA).facts()
    assert full.parameters == full.trainable == sum(p.numel() for p in loaded.parameters())
    policy = hf_model(name=str(base), lora=LORA).begin_rl(None, 0)
    assert lora.trainable == sum(p.numel() for p in policy.trainable_parameters()) < lora.parameters == full.parameters
    assert (full.max_length, full.bytes_per_parameter, full.vocabulary) == (64, 4, 110)
    assert hf_model(name=str(base), dtype="bfloat16").facts().bytes_per_parameter == 2


def test_equal_files_have_equal_fingerprints_wherever_they_lie(tmp_path):
    first, second = (str(saved_family(tmp_path / name, "llama")) for name in "ab")
    assert hf_model(name=first).fingerprint() == hf_model(name=second).fingerprint()
    assert hf_model(name=first, dtype="bfloat16").fingerprint() != hf_model(name=second).fingerprint()
    assert hf_model(name=first, compute_dtype="bfloat16").fingerprint() != hf_model(name=second).fingerprint()
    (tmp_path / "b" / "config.json").write_text((tmp_path / "b" / "config.json").read_text() + " ")
    assert hf_model(name=first).fingerprint() != hf_model(name=second).fingerprint()


def test_half_precision_weights_are_scored_in_float32(tmp_path):
    """K17."""
    policy = hf_model(name=str(saved_family(tmp_path, "llama")), dtype="bfloat16").begin_rl(None, 0)
    assert next(policy.trainable_parameters()).dtype == torch.bfloat16
    assert policy.token_stats(BATCH, temperature=1.0).logprobs.dtype == torch.float32


def test_products_may_be_computed_in_half_precision_while_weights_and_gradients_stay_in_float32(tmp_path):
    folder = str(saved_family(tmp_path, "llama"))
    exact, fast = (
        hf_model(name=folder).begin_rl(None, 0),
        hf_model(name=folder, compute_dtype="bfloat16").begin_rl(None, 0),
    )
    gap = (logprobs(exact) - logprobs(fast)).abs().max()
    assert 0 < gap < 0.05
    assert torch.equal(fast.reference_stats(BATCH, temperature=1.0).logprobs, logprobs(fast))
    assert (
        {g.dtype for g in gradients(fast).values()} == {torch.float32} == {p.dtype for p in fast.trainable_parameters()}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "/no/such/folder"}, "no such folder"),
        ({"name": "./nowhere"}, "no such folder"),
        ({"adapter": "./nowhere"}, "model.adapter=./nowhere: no such folder"),
        ({"adapter": "some/adapter", "lora": LORA}, "type model.lora=null"),
        ({"lora": LORA | {"rank": 0}}, "model.lora.rank=0"),
        ({"lora": LORA | {"dropout": 1.5}}, "model.lora.dropout=1.5"),
        ({"lora": LORA | {"dropout": 0.1}, "gradient_checkpointing": True}, "computed again without the dropout"),
        ({"lora": {"rank": 8}}, "expected exactly rank, alpha, dropout, targets"),
    ],
)
def test_what_cannot_work_is_refused_by_the_constructor(changes, message):
    with pytest.raises(ValueError, match=message):
        hf_model(**{"name": "some/model"} | changes)


def test_a_model_that_cannot_be_had_says_what_to_do(tmp_path, monkeypatch):
    """K52: no hub in reach and nothing in the cache; an installed package that is not; a folder without a model."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ValueError, match=r"not in the local cache, and the Hugging Face hub cannot be reached.*model\.name=FOLDER"
    ):
        hf_model(name="sage-tests/absent").facts()
    with pytest.raises(ValueError, match="package no_such_package_here is not installed"):
        hf_model(name="package:no_such_package_here").facts()
    with pytest.raises(ValueError, match=f"model.name={tmp_path}"):
        hf_model(name=str(tmp_path)).facts()


def test_a_tokenizer_of_another_model_is_refused_before_anything_is_loaded(tmp_path):
    folder = saved_family(tmp_path, "llama")
    tiny_model(numbers=200).prompts().tokenizer.save_pretrained(folder)
    with pytest.raises(Refusal, match="its tokenizer has 209 tokens and the model knows 110"):
        hf_model(name=str(folder)).prompts()


def test_an_adapter_on_an_embedding_that_is_the_head_too_is_not_merged_into_both(tmp_path):
    folder = saved_family(tmp_path, "gemma2")  # tied
    policy = hf_model(name=str(folder), lora=LORA | {"targets": ["embed_tokens", "q_proj"]}).begin_rl(None, 0)
    with pytest.raises(Refusal, match="an embedding that is also the output head"):
        list(policy.weights())


def test_weights_that_are_missing_are_not_made_up(tmp_path):
    folder = saved_family(tmp_path, "llama")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        Refusal, match=r"1 weights are missing from its files, e\.g\. model\.layers\.1\.mlp\.up_proj\.weight"
    ):
        hf_model(name=str(folder)).begin_rl(None, 0)
