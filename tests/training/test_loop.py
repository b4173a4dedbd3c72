"""The loop on stand-ins: what it calls, in which order, and what it logs."""

import math

import pytest
import torch

from sage.interfaces import Reward
from sage.rollout.native import NativeEngine
from sage.training.beta import AdaptiveBeta
from sage.training.collect import Collected
from sage.training.estimate import measure_speed
from sage.training.loop import Position, Stopwatch, Training, train
from sage.training.metrics import rollout_metrics
from sage.types import Problem, StopReason, Verdict, VerdictReason
from tests.fakes import SAMPLING, MemoryLogger, SilentProgress, completion, group, tiny_policy
from tests.training.test_update import make_learner, plugin

BEGINNING = Position(step=0, samples=0, tokens=0)
PROBLEMS = [Problem(id=str(i), prompt=f"{i} 7 :", answer="") for i in range(6)]


class PaysSeven(Reward):
    """Right when the first token is even."""

    def score(self, problem, completion):
        good = completion.token_ids[0] % 2 == 0
        return Verdict(reward=float(good), reason=VerdictReason.CORRECT if good else VerdictReason.WRONG)


def run(tmp_path, seed=0, steps=3, after_step=lambda position: None, start=BEGINNING, **changes):
    policy = tiny_policy(tmp_path)
    engine = NativeEngine(max_rows=64)
    engine.load_weights(policy)
    logger = MemoryLogger()
    learner = make_learner(policy, guide="token", **changes)
    train(
        Training(
            learner=learner,
            engine=engine,
            reward=PaysSeven(),
            problems=PROBLEMS,
            sampling=SAMPLING,
            steps=steps,
            problems_per_step=3,
            completions_per_problem=4,
            seed=seed,
            logger=logger,
            progress=SilentProgress(),
            after_step=after_step,
            start=start,
        )
    )
    return policy, logger


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.trainable_parameters()])


def test_each_step_is_logged_once_counted_from_one_and_reported_after_it(tmp_path):
    done = []
    _, logger = run(tmp_path, after_step=lambda position: done.append(position.step))
    assert [step for step, _ in logger.rows] == [1, 2, 3] == done
    for number, (_, metrics) in enumerate(logger.rows, 1):
        assert metrics["progress/samples"] == 12 * number
        assert all(math.isfinite(value) for value in metrics.values())
        assert metrics["time/step"] == pytest.approx(
            sum(metrics[f"time/{stage}"] for stage in ("sync", "rollout", "verdict", "prepare", "update"))
        )


def test_equal_seeds_train_equal_weights_and_others_do_not(tmp_path):
    first, again, other = (weights(run(tmp_path / name, seed)[0]) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dynamic_sampling_counts_what_it_discards(tmp_path):
    _, logger = run(tmp_path, steps=1, algorithm="dapo")
    (_, metrics) = logger.rows[0]
    assert metrics["progress/samples"] == 4 * (3 + metrics["rollout/discarded_groups"])
    assert metrics["rollout/refills"] <= plugin("algorithm", "dapo").max_refills


def test_an_adaptive_beta_is_logged_and_follows_the_kl(tmp_path):
    policy = tiny_policy(tmp_path / "x")
    learner = make_learner(policy)
    assert learner.current_kl_mode.beta == learner.kl_mode.beta
    learner.beta.observe(1.0)
    assert learner.current_kl_mode.beta == learner.kl_mode.beta, "constant without a target"
    moving = AdaptiveBeta(0.05, target=0.01)
    moving.observe(1.0)
    assert moving.value > 0.05
    _, logger = run(tmp_path / "y")
    assert [metrics["kl/beta"] for _, metrics in logger.rows] == [0.05] * 3


def test_rollout_metrics_by_hand():
    """Two groups of two: rewards 1 0 | 1 1, one abstained of a third; lengths 1 2 | 3 3."""
    groups = [
        group("a", (1,), [(5,), (5, 6)], [1, 0]),
        group("b", (1,), [(5, 6, 7), (5, 6, 7)], [1, 1]),
        group("c", (1,), [(5,), (6,)], [1, None]),
    ]
    metrics = rollout_metrics(Collected(groups=groups, discarded=[], refills=0))
    assert metrics["reward/mean"] == pytest.approx(4 / 5)
    assert metrics["reward/zero_spread_share"] == pytest.approx(2 / 3), "K01: b and c have no spread"
    assert metrics["reward/abstained_share"] == pytest.approx(1 / 6), "K03"
    assert metrics["completion/error_share"] == pytest.approx(1 / 6), "K39"
    assert metrics["completion/correct_share"] == pytest.approx(4 / 6)
    # right: 1, 3, 3, 1; wrong: 2, 1 (K21: lengths of right and wrong answers apart)
    assert metrics["completion/tokens_correct_mean"] == pytest.approx(2.0)
    assert metrics["completion/tokens_wrong_mean"] == pytest.approx(1.5)
    assert metrics["completion/truncated_share"] == 0


def test_cut_completions_are_counted():
    """K07."""
    cut = group("a", (1,), [(5,), (6,)], [0, 0])
    cut = cut.__class__(
        problem=cut.problem,
        prompt_ids=cut.prompt_ids,
        completions=(completion((5,), stop=StopReason.LENGTH), completion((6,))),
        verdicts=cut.verdicts,
    )
    assert rollout_metrics(Collected(groups=[cut], discarded=[], refills=0))["completion/truncated_share"] == 0.5


def test_a_lap_has_the_seconds_of_each_stage_and_starts_anew():
    watch = Stopwatch()
    with watch("a"), watch("b"):
        pass
    lap = watch.lap()
    assert set(lap) == {"time/a", "time/b", "time/step"}
    assert watch.lap() == {"time/step": 0}


def test_measuring_the_speed_changes_nothing(tmp_path):
    policy = tiny_policy(tmp_path)
    before = weights(policy)
    speed = measure_speed(policy, NativeEngine(max_rows=64), "3 7 :", SAMPLING, 16)
    assert min(speed.forward, speed.update, speed.sample) > 0
    assert torch.equal(before, weights(policy))
    assert all(p.grad is None for p in policy.trainable_parameters())
