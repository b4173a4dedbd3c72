"""Log-probs of responses: the right tokens, at the right temperature, whatever the padding."""

import pytest
import torch

from sage.training.packing import pack
from tests.fakes import group, tiny_policy


@pytest.fixture
def policy(tmp_path):
    return tiny_policy(tmp_path)


def _by_hand(policy, prompt, response, temperature):
    """Teacher forcing, one sequence, one token at a time: no batch, no padding, no gather."""
    out = []
    for t in range(len(response)):
        ids = torch.tensor([[*prompt, *response[:t]]])
        with torch.no_grad():
            logits = policy.causal_lm(ids).logits[0, -1]
        out.append((logits / temperature).log_softmax(-1)[response[t]].item())
    return torch.tensor(out)


def test_first_and_every_later_token_is_scored_by_the_position_before_it(policy):
    """K15, K14: prompt of 3, completion of 2 tokens, temperature 0.6."""
    batch = pack([group("p", (3, 7, 106), [(12, 100)])])
    stats = policy.token_stats(batch, temperature=0.6)
    torch.testing.assert_close(stats.logprobs[0], _by_hand(policy, (3, 7, 106), (12, 100), 0.6))


def test_a_batch_scores_each_sequence_as_if_it_were_alone(policy):
    """K08: prompts of 3 and 5 tokens, responses of different lengths; the tokenizer's padding side plays no part."""
    policy.tokenizer.padding_side = "left"
    rows = [((3, 7, 106), (12, 100, 4, 107)), ((1, 2, 3, 4, 106), (9,))]
    batch = pack([group(str(i), prompt, [response]) for i, (prompt, response) in enumerate(rows)])
    stats = policy.token_stats(batch, temperature=1.0)
    for row, (prompt, response) in enumerate(rows):
        scored = stats.logprobs[row][: len(response)]
        torch.testing.assert_close(scored, _by_hand(policy, prompt, response, 1.0), atol=1e-5, rtol=0)
        assert stats.logprobs[row][len(response) :].eq(0).all()


def test_more_padding_changes_no_bit(policy):
    """The same row beside a longer one; causal attention never sees what stands to its right."""
    short = group("a", (3, 7, 106), [(12, 100)])
    alone = policy.token_stats(pack([short]), temperature=1.0).logprobs[0, :2]
    beside = policy.token_stats(pack([short, group("b", (3, 7, 106), [(1,) * 20])]), temperature=1.0).logprobs[0, :2]
    torch.testing.assert_close(alone, beside, atol=1e-6, rtol=0)


def test_entropy_and_vocabulary_logprobs_belong_to_the_same_distribution(policy):
    batch = pack([group("p", (3, 7, 106), [(12, 100, 107)])])
    stats = policy.token_stats(batch, temperature=1.3, vocabulary=True)
    full = stats.vocabulary_logprobs
    torch.testing.assert_close(full.exp().sum(-1), torch.ones(1, 3))
    torch.testing.assert_close(full.gather(-1, batch.response_ids[..., None]).squeeze(-1), stats.logprobs)
    torch.testing.assert_close(-(full.exp() * full).sum(-1).detach(), stats.entropy)
    assert not stats.entropy.requires_grad


def test_reference_equals_the_policy_when_rl_begins(policy):
    """K22 for full fine-tuning: KL at step 0 is 0."""
    batch = pack([group("p", (3, 7, 106), [(12, 100, 107)])])
    reference = policy.reference_stats(batch, temperature=1.0)
    assert torch.equal(reference.logprobs, policy.token_stats(batch, temperature=1.0).logprobs)
    assert not reference.logprobs.requires_grad


def test_reference_stays_when_the_policy_moves_and_is_the_same_after_a_release(policy):
    batch = pack([group("p", (3, 7, 106), [(12, 100, 107)])])
    before = policy.reference_stats(batch, temperature=1.0).logprobs
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.1)
    policy.release_reference()
    assert torch.equal(policy.reference_stats(batch, temperature=1.0).logprobs, before)
    assert not torch.equal(policy.token_stats(batch, temperature=1.0).logprobs, before)


def test_with_an_adapter_only_the_adapter_trains_and_the_reference_is_the_model_without_it(tmp_path):
    """K22, K24: B starts at zero, so A gets its first gradient after B has moved; the reference does not move at all."""
    policy = tiny_policy(tmp_path, lora={"rank": 4, "alpha": 8, "dropout": 0.0, "targets": "all-linear"})
    batch = pack([group("p", (3, 7, 106), [(12, 100, 107)])])
    reference = policy.reference_stats(batch, temperature=1.0).logprobs
    assert torch.equal(reference, policy.token_stats(batch, temperature=1.0).logprobs.detach())
    names = [n for n, p in policy.model.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in n for n in names)
    optimizer = torch.optim.SGD(list(policy.trainable_parameters()), lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        policy.token_stats(batch, temperature=1.0).logprobs.sum().backward()
        optimizer.step()
    gradients = {n: p.grad.abs().sum().item() for n, p in policy.model.named_parameters() if p.requires_grad}
    assert all(size > 0 for size in gradients.values()), gradients
    assert torch.equal(policy.reference_stats(batch, temperature=1.0).logprobs, reference)
    assert not torch.equal(policy.token_stats(batch, temperature=1.0).logprobs, reference)


def test_saved_policy_and_tokenizer_load_with_the_auto_classes_and_agree(policy, tmp_path):
    """AutoTokenizer must not swap the word-level tokenizer for a family's byte-level one: 12 stays one token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy.save(tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer("3 7 1 12 20 :")["input_ids"] == [3, 7, 1, 12, 20, 106]
    assert tokenizer.decode([3, 100, 12, 105]) == "3 + 12 ;"
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    ids = torch.tensor([[3, 7, 106, 12]])
    assert torch.equal(model(ids).logits, policy.causal_lm(ids).logits)


def test_a_saved_adapter_loads_with_peft_bit_by_bit(tmp_path):
    """K63: the adapter's config is plain JSON although its targets came as a list."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": ["q_proj", "v_proj"]}
    policy = tiny_policy(tmp_path / "base", lora=lora)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.05)
    policy.save(tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    ids = torch.tensor([[3, 7, 106, 12]])
    assert torch.equal(loaded(ids).logits, policy.model(ids).logits)


def test_an_unknown_word_is_refused(policy):
    with pytest.raises(Exception, match=r"(?i)unk|missing"):
        policy.encode_prompt("3 7 banana :")
