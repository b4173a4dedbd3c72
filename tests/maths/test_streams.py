"""Random streams: the right generator, uniform, keyed by name alone, and without collisions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.streams import normal, stream_key, uniform, uniform_at

MASK = (1 << 64) - 1
int64 = st.integers(-(1 << 63), (1 << 63) - 1)


def splitmix64(state: int, position: int) -> int:
    """The generator of the paper on unbounded whole numbers."""
    z = (state + (position + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def keys_of(*prefix: int | str, count: int) -> torch.Tensor:
    return torch.tensor([stream_key(*prefix, i) for i in range(count)])


def test_the_reference_generator_gives_the_published_first_outputs():
    # Widely published outputs of SplitMix64 for state 0.
    assert [splitmix64(0, i) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@settings(max_examples=100, deadline=None)
@given(int64, st.integers(0, 1 << 40))
def test_draws_are_those_of_splitmix64_for_every_key_and_position(key: int, position: int):
    # 53 of the 64 bits, as a fraction of 2^53: exact in float64.
    expected = (splitmix64(key & MASK, position) >> 11) / 2**53
    drawn = uniform_at(torch.tensor([key]), position)
    assert drawn.dtype == torch.float64
    assert drawn.item() == expected


def test_keys_are_the_same_on_every_machine():
    # blake2b of "(0, 'rollout', 7)", first 8 bytes, little-endian and signed. Another value orphans every saved sample.
    assert stream_key(0, "rollout", 7) == -3260254831741598203


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), ("1",)),
        (("a", "b"), ("ab",)),
        (("a", "b"), ("b", "a")),
        ((1, 23), (12, 3)),
        ((0, 64), (64, 0)),
        ((0,), (0, 0)),
    ],
)
def test_different_names_give_different_keys(one: tuple, other: tuple):
    assert stream_key(*one) != stream_key(*other)


def test_seeds_0_and_64_share_no_chunk_of_samples():
    """K46: with ``seed + offset`` the second chunk of seed 0 would be the first of seed 64."""
    chunks = [
        keys_of(seed, "evaluation", problem, count=128).reshape(2, 64)
        for seed in (0, 64)
        for problem in ("countdown/test/0000", "countdown/test/0064")
    ]
    keys = torch.cat(chunks).flatten()
    assert len(keys.unique()) == 2 * 2 * 128
    draws = uniform(keys, 4, "tokens").reshape(8, 64, 4)
    assert not any(torch.equal(draws[i], draws[j]) for i in range(8) for j in range(i))
    # No single draw is shared either: 2,048 values on a grid of 2^53.
    assert len(draws.flatten().unique()) == 8 * 64 * 4


@pytest.mark.parametrize("axis", ["positions of one stream", "streams at one position"])
def test_draws_are_uniform_along_both_axes(axis: str):
    if axis == "positions of one stream":
        draws = uniform(torch.tensor([stream_key("one")]), 20_000, "u").flatten()
    else:
        draws = uniform(torch.arange(20_000), 1, "u").flatten()  # neighbouring keys, the worst case
    assert ((draws >= 0) & (draws < 1)).all()
    # 20 bins of 1,000: chi-square with 19 degrees of freedom; 43.8 has a tail probability of 0.001.
    counts = torch.histc(draws, bins=20, min=0, max=1)
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 43.8
    # Neighbours: the correlation of 20,000 independent pairs has a standard error of 0.007.
    assert torch.corrcoef(torch.stack([draws[:-1], draws[1:]]))[0, 1].abs() < 0.03


def test_normal_draws_have_the_moments_and_tails_of_the_standard_normal():
    draws = normal(keys_of("noise", count=200), 100, "q").flatten()
    # n = 20,000. Standard errors: mean 0.007, variance sqrt(2/n) = 0.01, fourth moment sqrt(96/n) = 0.07.
    assert draws.mean().item() == pytest.approx(0, abs=0.03)
    assert draws.var().item() == pytest.approx(1, abs=0.04)
    assert (draws**4).mean().item() == pytest.approx(3, abs=0.3)
    # P(|z| > 1.96) = 0.05, standard error 0.0015.
    assert (draws.abs() > 1.96).double().mean().item() == pytest.approx(0.05, abs=0.006)
    assert draws.isfinite().all()


@pytest.mark.parametrize("draw", [uniform, normal])
def test_a_draw_depends_on_its_key_and_position_alone(draw):
    keys = keys_of("row", count=6)
    full = draw(keys, 9, "q")
    assert full.shape == (6, 9)
    assert torch.equal(draw(keys, 4, "q"), full[:, :4])  # not on the length
    assert torch.equal(draw(keys[2:3], 9, "q"), full[2:3])  # not on the other rows
    assert torch.equal(draw(keys.flip(0), 9, "q"), full.flip(0))  # not on the place in the batch
    assert torch.equal(draw(keys, 9, "q"), full)  # not on what was drawn before


def test_a_length_of_zero_gives_an_empty_draw():
    assert uniform(keys_of("row", count=3), 0, "q").shape == (3, 0)
    assert normal(keys_of("row", count=3), 0, "q").shape == (3, 0)


def test_sub_streams_of_one_key_are_unrelated():
    keys = keys_of("row", count=200)
    one, other = uniform(keys, 50, "token").flatten(), uniform(keys, 50, "branch").flatten()
    assert not (one == other).any()
    # 10,000 pairs: standard error of the correlation 0.01.
    assert torch.corrcoef(torch.stack([one, other]))[0, 1].abs() < 0.04


def test_keys_one_increment_apart_are_not_shifted_copies_of_each_other():
    golden = 0x9E3779B97F4A7C15 - (1 << 64)
    apart = torch.tensor([5, 5 + golden])
    # The bare generator has that weakness: draw 1 of a key is draw 0 of the key one increment on.
    assert uniform_at(apart[:1], 1).item() == uniform_at(apart[1:], 0).item()
    # Keys that are one increment apart once the name is mixed in by exclusive or.
    first, second = uniform(apart ^ stream_key("q"), 50, "q")
    assert set(first.tolist()).isdisjoint(second.tolist())
