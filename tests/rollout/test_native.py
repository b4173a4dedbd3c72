"""The embedded sampler draws from the policy's own distribution, and from nothing else."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage.maths.sampling import draw, sampling_logprobs
from sage.maths.streams import stream_key
from sage.rollout.completions import completions
from sage.rollout.native import NativeEngine
from sage.training.packing import pack
from sage.types import Group, Problem, SampleRequest, StopReason
from tests.fakes import SAMPLING, tiny_policy

PROMPTS = [(3, 7, 106), (1, 2, 3, 4, 106), (9, 106)]


@pytest.fixture
def policy(tmp_path):
    policy = tiny_policy(tmp_path)
    with torch.no_grad():  # sharpen the random weights, so that some completions end early
        policy.causal_lm.get_output_embeddings().weight.mul_(20)
    return policy


def _engine(policy, max_rows=4096):
    engine = NativeEngine(max_rows=max_rows)
    engine.load_weights(policy)
    return engine


def _requests(prompts, count, seed=0):
    return [
        SampleRequest(prompt_ids=p, keys=tuple(stream_key(seed, i, g) for g in range(count)))
        for i, p in enumerate(prompts)
    ]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_sampler_logprobs_equal_the_trainers(policy, temperature):
    """K14, K16: prompts of different lengths in one batch, rows that leave it when they end."""
    sampling = replace(SAMPLING, temperature=temperature)
    drawn = _engine(policy).generate(_requests(PROMPTS, 100), sampling)
    groups = [
        Group(problem=Problem(id=str(i), prompt="", answer=""), prompt_ids=p, completions=tuple(c))
        for i, (p, c) in enumerate(zip(PROMPTS, drawn, strict=True))
    ]
    batch = pack(groups)
    with torch.no_grad():
        trainer = policy.token_stats(batch, temperature=temperature).logprobs
    torch.testing.assert_close(batch.sampler_logprobs, trainer, atol=2e-5, rtol=0)
    lengths = {len(c.token_ids) for completions in drawn for c in completions}
    assert len(lengths) > 3, "the test needs completions that end at different times"


def test_a_completion_depends_on_its_prompt_and_key_alone(policy):
    """Neither on the batch's size and order, nor on the other prompts in it."""
    whole = _engine(policy).generate(_requests(PROMPTS, 8), SAMPLING)
    in_fives = _engine(policy, max_rows=5).generate(_requests(PROMPTS, 8), SAMPLING)
    backwards = _engine(policy).generate(_requests(PROMPTS, 8)[::-1], SAMPLING)[::-1]
    ids = [[c.token_ids for c in group] for group in whole]
    assert ids == [[c.token_ids for c in group] for group in in_fives]
    assert ids == [[c.token_ids for c in group] for group in backwards]


def test_runs_with_other_seeds_differ_and_equal_seeds_agree(policy):
    """K28."""
    first, again, other = (_engine(policy).generate(_requests(PROMPTS, 4, seed), SAMPLING) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_end_token_is_kept_and_nothing_after_it(policy):
    """K05: a completion that ended holds the end token once, at its end; one that was cut holds none."""
    completions = [c for group in _engine(policy).generate(_requests(PROMPTS, 200), SAMPLING) for c in group]
    end = policy.tokenizer.eos_token_id
    assert {c.stop_reason for c in completions} == {StopReason.END, StopReason.LENGTH}
    for c in completions:
        if c.stop_reason is StopReason.END:
            assert c.token_ids.index(end) == len(c.token_ids) - 1
        else:
            assert end not in c.token_ids
            assert len(c.token_ids) == SAMPLING.max_tokens
        assert len(c.sampler_logprobs) == len(c.token_ids)
        assert c.text == policy.tokenizer.decode(c.token_ids, skip_special_tokens=True)


# Of the tiny model's texts ("55 17 / 3"): digits, spaces and signs, so that they occur within words and across them.
_STOPS = st.lists(st.text("0123456789 /;", min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stop=_STOPS)
def test_a_completion_ends_where_a_stop_string_first_occurs(policy, stop):
    """The same completions as without stop strings, up to the token that completes the first; none is left in a text."""
    requests, sampling = _requests(PROMPTS, 20), replace(SAMPLING, stop=tuple(stop))
    whole = [c for group in _engine(policy).generate(requests, SAMPLING) for c in group]
    cut = [c for group in _engine(policy).generate(requests, sampling) for c in group]
    for before, after in zip(whole, cut, strict=True):
        places = [before.text.find(text) for text in stop if text in before.text]
        if not places:
            assert (after.token_ids, after.text, after.stop_reason) == (
                before.token_ids,
                before.text,
                before.stop_reason,
            )
            continue
        assert after.stop_reason is StopReason.STOP
        assert after.text == before.text[: min(places)]
        n = len(after.token_ids)
        assert after.token_ids == before.token_ids[:n]
        assert after.sampler_logprobs == pytest.approx(before.sampler_logprobs[:n], abs=1e-4)
        assert any(text in policy.tokenizer.decode(after.token_ids) for text in stop)
        assert not any(text in policy.tokenizer.decode(after.token_ids[:-1]) for text in stop)


def test_decoding_ends_when_every_row_has_stopped(policy, monkeypatch):
    """A stop string saves the tokens behind it; they are not drawn and thrown away."""
    steps = []
    monkeypatch.setattr("sage.rollout.native.draw", lambda *args, **kwargs: steps.append(1) or draw(*args, **kwargs))
    greedy = replace(SAMPLING, temperature=0.0)
    (first,) = _engine(policy).generate(_requests(PROMPTS[:1], 1), greedy)[0]
    stop = " ".join(first.text.split()[2:4])
    steps.clear()
    (cut,) = _engine(policy).generate(_requests(PROMPTS[:1], 1), replace(greedy, stop=(stop,)))[0]
    assert len(steps) == len(cut.token_ids) < len(first.token_ids)


def test_tokens_behind_a_stop_string_are_dropped(policy):
    """What an engine drew too much is no part of the completion: neither its tokens nor its end."""
    ids = (5, 6, 7, 8, policy.tokenizer.eos_token_id)
    (made,) = completions(policy, replace(SAMPLING, stop=("6 7",)), [ids], [(-1.0, -2.0, -3.0, -4.0, -5.0)])
    assert (made.token_ids, made.sampler_logprobs) == ((5, 6, 7), (-1.0, -2.0, -3.0))
    assert (made.text, made.stop_reason) == ("5 ", StopReason.STOP)


def test_new_weights_are_sampled_from_at_once(policy):
    """K27: no cache of older weights survives; a fresh engine agrees."""
    engine = _engine(policy)
    engine.generate(_requests(PROMPTS, 4), SAMPLING)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.mul_(1.5)
    engine.load_weights(policy)
    assert engine.generate(_requests(PROMPTS, 4), SAMPLING) == _engine(policy).generate(_requests(PROMPTS, 4), SAMPLING)


def test_greedy_takes_the_most_probable_token(policy):
    greedy = replace(SAMPLING, temperature=0.0, max_tokens=5)
    a, b = _engine(policy).generate(_requests([PROMPTS[0]], 2), greedy)[0]
    assert a.token_ids == b.token_ids
    with torch.no_grad():
        logits = policy.causal_lm(torch.tensor([PROMPTS[0]])).logits[0, -1]
    assert a.token_ids[0] == logits.argmax()


def test_an_engine_without_weights_says_so():
    with pytest.raises(RuntimeError, match="load_weights"):
        NativeEngine(max_rows=4).generate([], SAMPLING)


def test_max_rows_must_be_positive():
    with pytest.raises(ValueError, match=r"rollout\.max_rows=0"):
        NativeEngine(max_rows=0)


def test_inverse_cdf_draws_each_token_as_often_as_it_is_probable():
    """20,000 evenly spaced uniforms: the count of a token is its probability to within one grid step."""
    logits = torch.tensor([[0.0, 2.0, -1.0, 1.0]])
    grid = (torch.arange(20_000) + 0.5) / 20_000
    tokens, logprobs = draw(logits.expand(20_000, 4), grid, temperature=0.7)
    expected = (logits[0] / 0.7).softmax(-1)
    torch.testing.assert_close(torch.bincount(tokens, minlength=4) / 20_000, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(logprobs, expected.log()[tokens])


def test_a_draw_next_to_one_gives_the_last_possible_token():
    logits = torch.tensor([[0.0, 0.0, -torch.inf]])
    almost = torch.tensor([1 - 2.0**-53], dtype=torch.float64)
    assert draw(logits, almost, temperature=1.0)[0].item() == 1
    assert draw(logits, torch.zeros(1, dtype=torch.float64), temperature=1.0)[0].item() == 0


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        # probabilities .5 .3 .15 .05
        ({"top_k": 2}, [0, 1]),
        ({"min_p": 0.4}, [0, 1]),  # at least .2
        ({"top_p": 0.6}, [0, 1]),  # .5 alone is less than .6
        ({"top_p": 0.45}, [0]),
        ({"top_k": 3, "top_p": 0.9}, [0, 1, 2]),  # among the three, .95: (.526, .316, .158), .842 before the third
        ({}, [0, 1, 2, 3]),
    ],
)
def test_truncation_keeps_the_stated_tokens_and_renormalises(cut, kept):
    probabilities = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    settings = {"top_p": 1.0, "top_k": 0, "min_p": 0.0} | cut
    result = sampling_logprobs(probabilities.log(), 1.0, **settings).exp()[0]
    expected = torch.zeros(4)
    expected[kept] = probabilities[0, kept] / probabilities[0, kept].sum()
    torch.testing.assert_close(result, expected)
