from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.guides.branch import BranchGuide
from sage.guides.none import NoGuide
from sage.guides.token import TokenGuide
from sage.interfaces import Guide
from sage.kl_modes.reverse import ReverseKL
from sage.maths.kl import exact_forward, exact_reverse
from sage.types import KLInputs, Stat

Enumerated = Callable[..., KLInputs]
BOUNDS = {"strength": 1.0, "q_min": 0.6, "q_max": 1.4}
BRANCH = BranchGuide(**BOUNDS, ratio=0.3, threshold=1.2, source="new")
SCHEDULE = {"alpha_max": 0.3, "alpha_min": 0.1, "sigma_max": 0.0, "sigma_min": 0.0, "cycles": 1, "decay": 1.0}
TOKEN = TokenGuide(**BOUNDS, **SCHEDULE, norm="rank", source="new")
NONE = NoGuide(**BOUNDS)


def reverse(**changes: Any) -> ReverseKL:
    options: dict[str, Any] = {"beta": 0.05, "estimator": "k3", "placement": "loss", "ratio_max": 10.0}
    return ReverseKL(**(options | changes))


def three_tokens() -> tuple[Tensor, Tensor]:
    """Logits of the policy with gradient, and log-probs of the reference."""
    logits = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64, requires_grad=True)
    return logits, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()


def mean(mode: ReverseKL, inputs: KLInputs) -> Tensor:
    """Expectation of the token loss over tokens drawn from the old policy."""
    loss = mode.token_loss(inputs)
    assert loss is not None
    return (inputs.old_logprobs.exp() * loss).sum()


@pytest.mark.parametrize(
    ("estimator", "gradient"),
    [
        ("k2", [-0.1732, -0.0756, 0.2488]),
        ("k1_ratio", [-0.1732, -0.0756, 0.2488]),
        ("k3_ratio", [-0.1732, -0.0756, 0.2488]),
        ("exact", [-0.1732, -0.0756, 0.2488]),
        ("k3", [-0.1624, -0.0499, 0.2123]),
    ],
)
def test_the_on_policy_gradient_is_the_one_that_the_sentence_names(
    enumerated: Enumerated, estimator: str, gradient: list[float]
) -> None:
    """K09: all descend the reverse KL but k3, which descends the forward KL and says so."""
    logits, reference = three_tokens()
    mode = reverse(estimator=estimator)
    (found,) = torch.autograd.grad(mean(mode, enumerated(logits.log_softmax(-1), reference)), logits)
    torch.testing.assert_close(found, torch.tensor(gradient, dtype=torch.float64), rtol=0, atol=5.1e-5)
    assert ("forward KL(anchor || policy)" in mode.gradient) == (estimator == "k3")


@pytest.mark.parametrize("estimator", ["k2", "k1_ratio", "k3_ratio", "exact", "k3"])
def test_a_factor_shared_by_all_tokens_acts_under_k3_only(enumerated: Enumerated, estimator: str) -> None:
    """K12: the refusal of a guide is exactly where its gradient would vanish."""
    logits, reference = three_tokens()
    mode = reverse(estimator=estimator)
    plain, shared = (
        torch.autograd.grad(
            mean(mode, enumerated(logits.log_softmax(-1), reference, q=torch.full_like(reference, q))), logits
        )
        for q in (1.0, 1.4)
    )
    unchanged = torch.allclose(plain[0], shared[0])
    assert unchanged == (estimator != "k3")
    assert unchanged == (mode.refusal(BRANCH) is not None)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), estimator=st.sampled_from(["k2", "k1_ratio", "k3_ratio", "exact"]))
def test_a_guide_over_the_vocabulary_moves_the_reverse_kl(enumerated: Enumerated, seed: int, estimator: str) -> None:
    draws = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    logits, reference, q = draws[0].clone().requires_grad_(), draws[1].log_softmax(-1), 1 + 0.4 * draws[2].tanh()
    policy = logits.log_softmax(-1)
    (found,) = torch.autograd.grad(
        mean(reverse(estimator=estimator), enumerated(policy, reference, q=q)), logits, retain_graph=True
    )
    torch.testing.assert_close(found, torch.autograd.grad(exact_reverse(policy, reference + q.log()), logits)[0])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
def test_after_an_update_the_ratio_keeps_estimate_and_gradient_unbiased(enumerated: Enumerated, seed: int) -> None:
    """K11: tokens are drawn from the old policy, the policy has moved a long way."""
    draws = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    logits, old, reference = draws[0].clone().requires_grad_(), draws[1].log_softmax(-1), draws[2].log_softmax(-1)
    policy = logits.log_softmax(-1)
    inputs = enumerated(policy, reference, old=old)
    unbounded = {"ratio_max": float("inf")}
    exact_value = exact_reverse(policy, reference)
    exact_gradient = torch.autograd.grad(exact_value, logits, retain_graph=True)[0]
    forward_gradient = torch.autograd.grad(exact_forward(policy, reference), logits, retain_graph=True)[0]
    for estimator, gradient in (
        ("k3", forward_gradient),
        ("k2", exact_gradient),
        ("k1_ratio", exact_gradient),
        ("k3_ratio", exact_gradient),
    ):
        value = mean(reverse(estimator=estimator, **unbounded), inputs)
        if estimator != "k2":  # k2 is a biased estimate of the value whatever the sampling policy
            torch.testing.assert_close(value, exact_value)
        torch.testing.assert_close(torch.autograd.grad(value, logits, retain_graph=True)[0], gradient)


def test_without_the_ratio_the_estimate_on_stale_samples_is_off(enumerated: Enumerated) -> None:
    """K11: what ratio_max=null means."""
    logits, reference = three_tokens()
    policy = logits.log_softmax(-1)
    inputs = enumerated(policy, reference, old=torch.tensor([0.9, 0.05, 0.05], dtype=torch.float64).log())
    exact = exact_reverse(policy, reference).item()
    assert mean(reverse(ratio_max=20.0), inputs).item() == pytest.approx(exact)
    assert abs(mean(reverse(ratio_max=None), inputs).item() - exact) > 0.02


@pytest.mark.parametrize("estimator", ["k3", "k1_ratio", "k3_ratio"])
def test_two_inner_steps_with_a_large_learning_rate_keep_the_estimate_of_the_kl(
    enumerated: Enumerated, estimator: str
) -> None:
    """K11: one batch, sampled once; after each step the weighted estimate is the exact KL of the policy as it is now."""
    logits, reference = three_tokens()
    old = logits.detach().log_softmax(-1)
    stale = []
    for _ in range(2):
        policy = logits.log_softmax(-1)
        weighted = mean(reverse(estimator=estimator, ratio_max=50.0), enumerated(policy, reference, old=old))
        (step,) = torch.autograd.grad(weighted, logits)
        logits = (logits - 6.0 * step).detach().requires_grad_()
        policy, exact = logits.log_softmax(-1), exact_reverse(logits.log_softmax(-1), reference)
        inputs = enumerated(policy, reference, old=old)
        torch.testing.assert_close(mean(reverse(estimator=estimator, ratio_max=50.0), inputs), exact)
        stale.append(mean(reverse(ratio_max=None), inputs).item() - exact.item())
    assert abs(stale[0]) > 0.1


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_on_policy_the_weight_changes_no_bit(enumerated: Enumerated, estimator: str) -> None:
    logits, reference = three_tokens()
    inputs = enumerated(logits.log_softmax(-1), reference)
    weighted = reverse(estimator=estimator).token_loss(inputs)
    plain = reverse(estimator=estimator, ratio_max=None).token_loss(inputs)
    assert weighted is not None
    assert plain is not None
    assert torch.equal(weighted, plain)
    gradients = [torch.autograd.grad(loss.sum(), logits, retain_graph=True)[0] for loss in (weighted, plain)]
    assert torch.equal(*gradients)


def test_a_token_that_became_far_more_likely_is_weighted_by_the_bound(enumerated: Enumerated) -> None:
    logits, reference = three_tokens()
    policy = logits.log_softmax(-1)
    inputs = enumerated(policy, reference, old=policy.detach() - 5.0)  # e^5 = 148
    bounded, plain = reverse().token_loss(inputs), reverse(ratio_max=None).token_loss(inputs)
    assert bounded is not None
    assert plain is not None
    torch.testing.assert_close(bounded, 10.0 * plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"estimator": "k1"},
            r"gradient of k1 has zero mean.*type kl_mode\.estimator=k3_ratio, or",
        ),
        (
            {"estimator": "k2_ratio"},
            r"kl_mode\.estimator=k2_ratio: expected one of k1, k2, k3, k1_ratio, k3_ratio",
        ),
        ({"placement": "reward"}, r"kl_mode\.estimator=k3 with kl_mode\.placement=reward.*type kl_mode\.estimator=k1"),
        ({"placement": "advantage"}, r"kl_mode\.placement=advantage: expected loss or reward"),
        ({"ratio_max": 0.5}, r"kl_mode\.ratio_max=0\.5: expected a number >= 1"),
        ({"ratio_max": None, "estimator": "k3_ratio"}, r"kl_mode\.ratio_max=null with kl_mode\.estimator=k3_ratio"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    """K10 for the first row."""
    with pytest.raises(ValueError, match=message):
        reverse(**changes)


@pytest.mark.parametrize("estimator", ["k2", "k1_ratio", "k3_ratio", "exact"])
def test_a_guide_of_whole_positions_is_refused_with_the_way_out(estimator: str) -> None:
    refusal = reverse(estimator=estimator).refusal(BRANCH)
    assert refusal is not None
    assert f"BranchGuide gives all tokens of a position one q, and kl_mode.estimator={estimator}" in refusal
    assert "type kl=reverse" in refusal


@pytest.mark.parametrize(
    ("changes", "guide"),
    [
        ({}, BRANCH),
        ({"estimator": "k1", "placement": "reward"}, BRANCH),
        ({"estimator": "exact"}, TOKEN),
        ({"estimator": "k3_ratio"}, TOKEN),
        ({"estimator": "exact"}, NONE),
    ],
)
def test_guides_that_can_act_are_accepted(changes: dict[str, Any], guide: Guide) -> None:
    assert reverse(**changes).refusal(guide) is None


def test_only_exact_needs_the_vocabulary() -> None:
    assert reverse().needs == {Stat.REFERENCE}
    assert reverse(estimator="exact").needs == {Stat.REFERENCE, Stat.VOCABULARY}
