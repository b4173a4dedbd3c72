"""KL(policy || anchor), estimated on the sampled tokens or exactly over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import Guide, KLMode
from sage.maths import kl
from sage.maths.anchor import anchor_logprobs, vocabulary_anchor_logprobs
from sage.types import KLInputs, Stat

if TYPE_CHECKING:
    from torch import Tensor

_VALUE = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3, "k1_ratio": kl.k1, "k3_ratio": kl.k3}
_ESTIMATORS = (*_VALUE, "exact")
_RATIO = ("k1_ratio", "k3_ratio")

_REVERSE = "of KL(policy || anchor) at each visited state, without credit for an action's effect on later KL"
_GRADIENT = {
    "k2": f"k2 in the loss: on-policy the expected gradient is that {_REVERSE}.",
    "k3": "k3 in the loss: on-policy the expected gradient is that of the forward KL(anchor || policy) at each visited "
    "state, (1 - q * ref / policy) * grad log policy a token, and not that of the reverse KL.",
    "k1_ratio": f"k1 times the importance ratio in the loss: the expected gradient is that {_REVERSE}.",
    "k3_ratio": f"k3 times the importance ratio in the loss: the expected gradient is that {_REVERSE}.",
    "exact": f"Full vocabulary in the loss: the exact gradient {_REVERSE}.",
}
_REWARD_GRADIENT = (
    "k1 in the reward: the policy gradient of reward - beta * log(policy / anchor) over whole sequences, which is "
    "KL(policy || anchor) with full credit; algorithm.scale_by_std scales the verdicts beside it, never the KL."
)


@dataclass(frozen=True, kw_only=True)
class ReverseKL(KLMode):
    """Reverse KL to the anchor: the divergence that is estimated; :attr:`gradient` says which one is descended.

    Raises:
        ValueError: for a combination of estimator and placement that cannot hold the policy near the anchor.
    """

    estimator: str
    """``k1``, ``k2``, ``k3``, ``k1_ratio``, ``k3_ratio`` or ``exact``."""
    placement: str
    """``loss`` adds it to the token losses, ``reward`` takes it off the token rewards (k1 only)."""
    ratio_max: float | None
    """Bound of policy / old, which weights a sampled token after the first update on a batch; exactly 1 before.
    ``None`` leaves the term unweighted, hence biased after the first update. ``exact`` and the reward ignore it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in _ESTIMATORS:
            raise ValueError(f"kl_mode.estimator={self.estimator}: expected one of {', '.join(_ESTIMATORS)}")
        if self.placement not in ("loss", "reward"):
            raise ValueError(f"kl_mode.placement={self.placement}: expected loss or reward")
        if self.placement == "loss" and self.estimator == "k1":
            raise ValueError(
                "kl_mode.estimator=k1 with kl_mode.placement=loss: the gradient of k1 has zero mean, so no beta would "
                "hold the policy; type kl_mode.estimator=k3_ratio, or kl_mode.placement=reward"
            )
        if self.placement == "reward" and self.estimator != "k1":
            raise ValueError(
                f"kl_mode.estimator={self.estimator} with kl_mode.placement=reward: only k1 gives the objective's "
                "gradient there; type kl_mode.estimator=k1, or kl_mode.placement=loss"
            )
        if self.ratio_max is not None and self.ratio_max < 1:
            raise ValueError(f"kl_mode.ratio_max={self.ratio_max}: expected a number >= 1, e.g. 10.0, or null")
        if self.ratio_max is None and self.estimator in _RATIO:
            raise ValueError(
                f"kl_mode.ratio_max=null with kl_mode.estimator={self.estimator}: the ratio defines this estimator; "
                "type kl_mode.ratio_max=10.0, or kl_mode.ratio_max=.inf for no bound"
            )

    @property
    def needs(self) -> frozenset[Stat]:
        """The reference, and for ``exact`` the whole vocabulary."""
        return super().needs | ({Stat.VOCABULARY} if self.estimator == "exact" else frozenset())

    @property
    def gradient(self) -> str:
        """Which gradient the run follows."""
        return _REWARD_GRADIENT if self.placement == "reward" else _GRADIENT[self.estimator]

    @property
    def in_reward(self) -> bool:
        """Whether the placement is ``reward``."""
        return self.placement == "reward"

    def refusal(self, guide: Guide) -> str | None:
        """A factor that all tokens of a position share cancels in the gradient of the reverse KL at that position."""
        if guide.identity or guide.over_vocabulary or self.placement == "reward" or self.estimator == "k3":
            return None
        return (
            f"{type(guide).__name__} gives all tokens of a position one q, and kl_mode.estimator={self.estimator} in "
            "the loss follows the reverse KL of each position, where such a factor cancels, so the guide cannot act: "
            "type kl=reverse (k3) or kl=reverse_exact (KL in the reward), or guide=token, which differs between tokens"
        )

    def token_reward(self, inputs: KLInputs) -> Tensor | None:
        """``-beta * (log old - log anchor)`` of each token, ``[B, T]``, 0 on padding."""
        if self.placement == "loss":
            return None
        d = anchor_logprobs(inputs.reference.logprobs, inputs.log_q) - inputs.old_logprobs.detach()
        return -self.beta * kl.k1(d).masked_fill(~inputs.mask, 0)

    def token_loss(self, inputs: KLInputs) -> Tensor | None:
        """The estimate of each token, ``[B, T]``, 0 on padding."""
        if self.placement == "reward":
            return None
        if self.estimator == "exact":
            return _exact(inputs)
        padding = ~inputs.mask
        # Padding is blanked before anything is exponentiated: infinity times a zero gradient would be NaN.
        policy = inputs.policy.logprobs.masked_fill(padding, 0)
        anchor = anchor_logprobs(inputs.reference.logprobs, inputs.log_q).masked_fill(padding, 0)
        value = _VALUE[self.estimator](anchor - policy)
        if self.ratio_max is None:
            return value
        weigh = kl.score_ratio if self.estimator in _RATIO else kl.bounded_ratio
        return weigh(policy, inputs.old_logprobs.masked_fill(padding, 0), self.ratio_max) * value


def _exact(inputs: KLInputs) -> Tensor:
    policy, reference = inputs.policy.vocabulary_logprobs, inputs.reference.vocabulary_logprobs
    if policy is None or reference is None:
        raise ValueError("kl_mode.estimator=exact needs token statistics with Stat.VOCABULARY of policy and reference")
    anchor = vocabulary_anchor_logprobs(reference, inputs.log_q, inputs.vocabulary_log_q)
    return kl.exact_reverse(policy, anchor).masked_fill(~inputs.mask, 0)
