from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sage.guides.branch import BranchGuide
from sage.kl_modes.forward import ForwardKL
from sage.kl_modes.reverse import ReverseKL
from sage.maths.kl import exact_forward
from sage.types import KLInputs, Stat

MODE = ForwardKL(beta=0.05, estimator="exact", weight_max=10.0)
SAMPLED = ForwardKL(beta=0.05, estimator="sampled", weight_max=float("inf"))
Enumerated = Callable[..., KLInputs]


def mean(mode: ForwardKL, inputs: KLInputs) -> Tensor:
    """Expectation of the token loss over tokens drawn from the old policy."""
    return (inputs.old_logprobs.exp() * mode.token_loss(inputs)).sum()


def random_state(seed: int, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of the policy with gradient, log-probs of the old policy and of the reference, and q."""
    draws = torch.randn(4, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    q = 1 + 0.4 * draws[3].tanh()
    return draws[0].clone().requires_grad_(), draws[1].log_softmax(-1), draws[2].log_softmax(-1), q


def test_only_exact_needs_the_vocabulary() -> None:
    assert MODE.needs == {Stat.REFERENCE, Stat.VOCABULARY}
    assert SAMPLED.needs == {Stat.REFERENCE}


def test_the_value_is_the_forward_kl_of_a_normalised_anchor(enumerated: Enumerated) -> None:
    policy, reference = torch.tensor([0.2, 0.3, 0.5]).log(), torch.tensor([0.5, 0.3, 0.2]).log()
    # .5 log(.5/.2) + .3 log(.3/.3) + .2 log(.2/.5) = .3 * log 2.5 = .27489
    torch.testing.assert_close(MODE.token_loss(enumerated(policy, reference)), torch.full((3, 1), 0.274887))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
def test_the_gradient_is_the_anchor_weighted_score(enumerated: Enumerated, seed: int) -> None:
    draws = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    logits, reference, q = draws[0].requires_grad_(), draws[1].log_softmax(-1), 1 + 0.2 * draws[2].tanh()
    logits = logits.detach().requires_grad_()
    policy = logits.log_softmax(-1)
    (found,) = torch.autograd.grad(MODE.token_loss(enumerated(policy, reference, q=q))[0, 0], logits, retain_graph=True)
    score = (q * reference.exp() * policy).sum()
    torch.testing.assert_close(found, -torch.autograd.grad(score, logits)[0])


def test_a_factor_shared_by_the_position_scales_the_pull(enumerated: Enumerated) -> None:
    """K12: q = (1.4, 1.4, 1.4), given for the sampled token only."""
    logits = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    shared = torch.full((3, 1), 1.4, dtype=torch.float64).log()
    inputs = enumerated(logits.log_softmax(-1), reference, log_q=shared)
    (found,) = torch.autograd.grad(MODE.token_loss(inputs)[0, 0], logits)
    expected = torch.tensor([-0.2274, -0.0699, 0.2973], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=5.1e-5)


def test_guides_of_whole_positions_are_accepted() -> None:
    guide = BranchGuide(strength=1.0, q_min=0.6, q_max=1.4, ratio=0.3, threshold=1.2, source="new")
    assert MODE.refusal(guide) is None
    assert SAMPLED.refusal(guide) is None


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), on_policy=st.booleans())
def test_weighted_samples_have_mean_and_gradient_of_the_exact_divergence(
    enumerated: Enumerated, seed: int, on_policy: bool
) -> None:
    """K11: also where the policy has moved away from the one that sampled, and for an anchor of any mass."""
    logits, old, reference, q = random_state(seed, 5)
    policy = logits.log_softmax(-1)
    inputs = enumerated(policy, reference, old=None if on_policy else old, q=q)
    found, exact = mean(SAMPLED, inputs), exact_forward(policy, reference + q.log())
    torch.testing.assert_close(found, exact)
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (found, exact)]
    torch.testing.assert_close(*gradients)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), bound=st.floats(1.0, 3.0))
def test_the_bound_gives_the_divergence_to_an_anchor_cut_at_its_multiple_of_the_old_policy(
    enumerated: Enumerated, seed: int, bound: float
) -> None:
    """The bias that the docstring states, for a policy whose own ratio stays below the bound."""
    logits, _, reference, q = random_state(seed, 5)
    policy = logits.log_softmax(-1)
    inputs = enumerated(policy, reference, q=q)
    cut = torch.minimum(reference + q.log(), policy.detach() + torch.tensor(bound, dtype=torch.float64).log())
    mode = ForwardKL(beta=0.05, estimator="sampled", weight_max=bound)
    found, exact = mean(mode, inputs), exact_forward(policy, cut)
    torch.testing.assert_close(found, exact)
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (found, exact)]
    torch.testing.assert_close(*gradients)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), bound=st.floats(1.0, 20.0))
def test_the_estimate_of_a_token_is_never_negative(enumerated: Enumerated, seed: int, bound: float) -> None:
    logits, old, reference, q = random_state(seed, 5)
    inputs = enumerated(3 * logits.log_softmax(-1), reference, old=old, q=q)
    mode = ForwardKL(beta=0.05, estimator="sampled", weight_max=bound)
    assert (mode.token_loss(inputs) >= -1e-12).all()


def test_on_policy_the_gradient_of_each_token_is_that_of_k3(enumerated: Enumerated) -> None:
    """K09: k3 in the loss and the sampled forward KL are one method while every batch gives one update."""
    logits, _, reference, q = random_state(7, 5)
    inputs = enumerated(logits.log_softmax(-1), reference, q=q)
    k3 = ReverseKL(beta=0.05, estimator="k3", placement="loss", ratio_max=None).token_loss(inputs)
    assert k3 is not None
    for token in range(5):
        gradients = [
            torch.autograd.grad(loss[token, 0], logits, retain_graph=True)[0]
            for loss in (k3, SAMPLED.token_loss(inputs))
        ]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"estimator": "k3"}, r"kl_mode\.estimator=k3: expected exact or sampled"),
        ({"weight_max": 0.5}, r"kl_mode\.weight_max=0\.5: expected a number >= 1"),
        ({"weight_max": float("nan")}, r"kl_mode\.weight_max=nan"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, object], message: str) -> None:
    options: dict[str, object] = {"beta": 0.05, "estimator": "exact", "weight_max": 10.0}
    with pytest.raises(ValueError, match=message):
        ForwardKL(**(options | changes))  # pyright: ignore[reportArgumentType]
