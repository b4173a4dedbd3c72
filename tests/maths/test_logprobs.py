import pytest
import torch

from sage.maths.logprobs import entropy, predicting_positions, tempered_logprobs, token_statistics


def test_logprobs_divide_the_logits_by_the_temperature() -> None:
    """K14: logits (2, 1, 0)."""
    logits = torch.tensor([2.0, 1.0, 0.0])
    # T = 0.6: -log(1 + e^(-1/.6) + e^(-2/.6)) = -log 1.22455 = -0.2026; T = 1: -log(1 + e^-1 + e^-2) = -0.4076.
    assert token_statistics(logits, torch.tensor(0), 0.6).logprobs.item() == pytest.approx(-0.2026, abs=5e-5)
    assert token_statistics(logits, torch.tensor(0), 1.0).logprobs.item() == pytest.approx(-0.4076, abs=5e-5)


def test_a_response_token_is_scored_by_the_logits_before_it() -> None:
    """K15: prompt of 3, response of 2, a model whose logits at position s say "token s + 1 comes next"."""
    sequence = torch.tensor([[0, 1, 2, 3, 4]])
    logits = 50.0 * torch.nn.functional.one_hot(sequence + 1, 6).float()
    positions = predicting_positions(torch.tensor([3]), 2)
    assert positions.tolist() == [[2, 3]]
    chosen = token_statistics(logits[0, positions[0]], sequence[0, 3:], 1.0).logprobs
    torch.testing.assert_close(chosen, torch.zeros(2))


def test_rows_with_prompts_of_different_lengths_have_their_own_positions() -> None:
    assert predicting_positions(torch.tensor([1, 4]), 3).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_half_precision_logits_are_lifted_before_the_log_softmax() -> None:
    """K17: 50,000 logits in bfloat16."""
    logits = (4 * torch.randn(2, 50_000, generator=torch.Generator().manual_seed(0))).bfloat16()
    result = tempered_logprobs(logits, 1.0)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, logits.float().log_softmax(-1), rtol=0, atol=1e-5)
    assert (logits.log_softmax(-1).float() - result).abs().max() > 0.01  # what the lift saves


def test_float64_logits_stay_float64() -> None:
    assert tempered_logprobs(torch.zeros(2, dtype=torch.float64), 1.0).dtype == torch.float64


def test_entropy_is_in_nats_and_counts_impossible_tokens_as_zero() -> None:
    # Two tokens of probability 1/2 and one of 0: log 2.
    logprobs = torch.tensor([0.5, 0.5, 0.0]).log()
    torch.testing.assert_close(entropy(logprobs), torch.tensor(2.0).log())


def test_only_logprobs_carry_a_gradient_and_the_vocabulary_is_optional() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    ids = torch.tensor([0, 2])
    assert token_statistics(logits, ids, 1.0).vocabulary_logprobs is None
    stats = token_statistics(logits, ids, 1.0, vocabulary=True)
    assert stats.logprobs.requires_grad
    assert not stats.entropy.requires_grad
    assert stats.vocabulary_logprobs is not None
    assert torch.equal(stats.vocabulary_logprobs.gather(-1, ids[:, None])[:, 0], stats.logprobs)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature=.* > 0"):
        tempered_logprobs(torch.zeros(3), temperature)
