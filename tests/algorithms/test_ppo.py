"""PPO: where rewards stand, what the critic is fitted to, and that it learns."""

from dataclasses import replace

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from sage.config import conf_dir
from sage.training.packing import pack
from sage.types import TokenStats
from tests.fakes import group


def ppo(**changes):
    return instantiate(OmegaConf.load(conf_dir() / "algorithm" / "ppo.yaml"), **changes, _convert_="all")


def scored(responses, rewards, values):
    batch = pack([group("p", (1,), [r], [reward]) for r, reward in zip(responses, rewards, strict=True)])
    table = torch.tensor(values)
    return batch.replace(old=TokenStats(logprobs=table * 0, entropy=table * 0, values=table))


def test_the_verdict_pays_on_the_last_token_and_the_kl_on_every_token():
    """Lengths 3 and 1, verdicts 1 and 0, token rewards -0.1; discount 1, trace 1: the advantage is return minus value.

    Row 0 returns: -.1*3 + 1 = .7, -.2 + 1 = .8, -.1 + 1 = .9, less values .5 .5 .5: .2 .3 .4.
    Row 1 returns: -.1 + 0, less value .3: -.4.
    """
    batch = scored([(5, 6, 7), (5,)], [1, 0], [[0.5, 0.5, 0.5], [0.3, 9.0, 9.0]])
    algorithm = ppo(trace=1.0, whiten=False)
    rewards = torch.full((2, 3), -0.1)
    torch.testing.assert_close(
        algorithm.advantages(batch, rewards), torch.tensor([[0.2, 0.3, 0.4], [-0.4, 0.0, 0.0]]), atol=1e-6, rtol=0
    )
    returns = algorithm.returns(batch, rewards)
    torch.testing.assert_close(returns, torch.tensor([[0.7, 0.8, 0.9], [-0.1, 0.0, 0.0]]), atol=1e-6, rtol=0)
    assert rewards.eq(-0.1).all(), "the input is left alone"


def test_trace_zero_gives_the_one_step_error():
    """Values .5 .25, reward 1 on the second token: .25 - .5 = -.25 and 1 - .25 = .75."""
    batch = scored([(5, 6)], [1], [[0.5, 0.25]])
    torch.testing.assert_close(ppo(trace=0.0, whiten=False).advantages(batch, None), torch.tensor([[-0.25, 0.75]]))


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_the_trained_tokens():
    batch = scored([(5, 6, 7), (5,), (8, 9)], [1, 0, 1], [[0.5, 0.1, 0.2], [0.3, 0.0, 0.0], [0.4, 0.6, 0.0]])
    advantages = ppo().advantages(batch, None)
    trained = advantages[batch.mask]
    assert trained.mean().item() == pytest.approx(0, abs=1e-6)
    assert trained.std().item() == pytest.approx(1, abs=1e-5)
    assert advantages[~batch.mask].eq(0).all()


def test_an_abstained_verdict_leaves_no_advantage_and_no_nan():
    """K03."""
    batch = scored([(5, 6), (5,)], [1, None], [[0.5, 0.25], [0.3, 0.0]])
    advantages = ppo().advantages(batch, None)
    assert torch.isfinite(advantages).all()
    assert advantages[1].eq(0).all()


def test_the_value_loss_is_the_larger_error_with_its_coefficient():
    """Value 1.0, before 0.5, clip .2 -> .7; return 1.0: errors 0 and .3, half the square of the larger is .045."""
    loss = ppo(value_coefficient=2.0).value_loss(torch.tensor([[1.0]]), torch.tensor([[0.5]]), torch.tensor([[1.0]]))
    assert loss.item() == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("critic", "none", "expected one of trunk, separate"),
        ("discount", 1.5, "expected a number in [0, 1]"),
        ("value_clip", 0.0, "expected a number > 0"),
        ("value_coefficient", -1.0, "expected a number >= 0"),
        ("overlong_share", 2.0, "expected a number in [0, 1]"),
    ],
)
def test_a_bad_value_is_refused(option, value, expected):
    with pytest.raises(Exception, match="algorithm") as caught:
        ppo(**{option: value})
    assert expected in str(caught.value.__cause__ or caught.value)


def test_without_values_it_says_what_is_missing():
    batch = pack([group("p", (1,), [(5,)], [1])])
    with pytest.raises(ValueError, match="Stat\\.VALUES"):
        ppo().advantages(batch, None)


def test_too_long_a_response_costs_reward():
    """DAPO's overlong punishment in the last half of 4 tokens: lengths 2, 3, 4 lose 0, 0.5 and 1."""
    algorithm = ppo(overlong_share=0.5)
    batch = replace(scored([(1, 2), (1, 2, 3), (1, 2, 3, 4)], [1, 1, 1], [[0.0] * 4] * 3), max_completion_tokens=4)
    assert algorithm.shaped_rewards(batch).tolist() == [1.0, 0.5, 0.0]
