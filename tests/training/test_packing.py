"""Masks come from lengths; abstained completions drop out."""

import pytest
import torch

from sage.training.packing import pack
from tests.fakes import group

END = 2


def test_every_sampled_token_is_trained_the_end_token_too_and_no_padding():
    """K05: [5,7,E] beside a longer response -> mask [1,1,1,0,0]."""
    batch = pack([group("p", (1,), [(5, 7, END), (5, 6, 7, 8, END)], [1, 0])])
    assert batch.mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.response_ids.tolist() == [[5, 7, END, 0, 0], [5, 6, 7, 8, END]]


def test_a_pad_token_that_is_the_end_token_hides_no_real_end():
    """K06: pad = end = 2, responses [5,6,2] and [5,6,7,8,2]: masks [1,1,1,0,0] and [1,1,1,1,1].

    End tokens in the middle of a response count as well, as nothing looks at ids.
    """
    batch = pack([group("p", (1,), [(5, 6, 2), (5, 6, 7, 8, 2)], [1, 0]), group("r", (1,), [(2,), (2, 2)], [1, 0])])
    assert batch.mask.sum(1).tolist() == [3, 5, 1, 2]


def test_sequences_are_prompt_then_response_padded_on_the_right():
    """K08: no padding ever stands between prompt and response."""
    batch = pack([group("a", (3, 4, 5), [(6,)], [1]), group("b", (7,), [(8, 9)], [0])])
    assert batch.input_ids.tolist() == [[3, 4, 5, 6], [7, 8, 9, 0]]
    assert batch.prompt_lengths.tolist() == [3, 1]


def test_an_abstained_completion_is_masked_whole_and_its_reward_is_nan():
    """K03: rewards [1, None, 0, 1]: three rows train, the second has weight 0."""
    batch = pack([group("p", (1,), [(5,), (6, 7), (8,), (9,)], [1, None, 0, 1])])
    assert batch.mask.any(1).tolist() == [True, False, True, True]
    assert torch.isnan(batch.rewards).tolist() == [False, True, False, False]


def test_groups_without_verdicts_train_every_token():
    batch = pack([group("p", (1,), [(5,), (6, 7)])])
    assert batch.mask.sum().item() == 3
    assert batch.rewards.tolist() == [0, 0]


def test_groups_of_unequal_size_are_refused():
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        pack([group("a", (1,), [(5,)]), group("b", (1,), [(5,), (6,)])])


def test_noise_streams_depend_on_seed_step_and_row():
    groups = [group("p", (1,), [(5,), (6,)])]
    keys = {
        key
        for seed in (0, 1)
        for step in (0, 1)
        for key in pack(groups, noise_seed=(seed, "guide", step)).noise_keys.tolist()
    }
    assert len(keys) == 8


def test_a_micro_batch_takes_its_rows_of_every_tensor():
    batch = pack([group("p", (1,), [(5,), (6, 7), (8,), (9,)], [1, 0, 0, 1])])
    part = batch.rows(slice(1, 3))
    assert len(part) == 2
    assert part.response_ids.tolist() == [[6, 7], [8, 0]]
    assert part.rewards.tolist() == [0, 0]
    assert part.noise_keys.tolist() == batch.noise_keys[1:3].tolist()
    assert part.group_size == 4
