"""KL(anchor || policy) at the visited states, over the whole vocabulary or on the sampled tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage.interfaces import KLMode
from sage.maths import kl
from sage.maths.anchor import anchor_logprobs, vocabulary_anchor_logprobs
from sage.types import KLInputs, Stat

if TYPE_CHECKING:
    from torch import Tensor

_FORWARD = (
    "of the forward KL to the unnormalised anchor at each visited state, -sum_v q(v) * ref(v) * grad log policy(v), "
    "without credit for effects on later KL"
)
_GRADIENT = {
    "exact": f"Full vocabulary in the loss: the exact gradient {_FORWARD}.",
    "sampled": f"Importance-weighted samples in the loss: the expected gradient is that {_FORWARD}, up to the bound of "
    "the weights; on-policy it is that of k3.",
}


@dataclass(frozen=True, kw_only=True)
class ForwardKL(KLMode):
    """``sum_v a(v) log(a(v) / pi(v)) - a(v) + pi(v)`` in the loss, with ``a = q^strength * pi_ref`` unnormalised.

    Not normalising keeps what a guide says of whole positions: a q that all tokens of a position share scales its pull.
    """

    estimator: str
    """``exact`` sums over the vocabulary; ``sampled`` weights the sampled tokens by anchor / old and needs no ``[B, T, V]``."""
    weight_max: float
    """Bound of anchor / old and of policy / old in ``sampled``, >= 1: an anchor beyond ``weight_max * old`` is felt up to
    that only (bias). ``inf`` for no bound. ``exact`` ignores it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in _GRADIENT:
            raise ValueError(f"kl_mode.estimator={self.estimator}: expected exact or sampled with kl=forward")
        if not self.weight_max >= 1:
            raise ValueError(
                f"kl_mode.weight_max={self.weight_max}: expected a number >= 1, e.g. 10.0, or .inf for no bound"
            )

    @property
    def needs(self) -> frozenset[Stat]:
        """The reference, and for ``exact`` the whole vocabulary."""
        return super().needs | ({Stat.VOCABULARY} if self.estimator == "exact" else frozenset())

    @property
    def gradient(self) -> str:
        """Which gradient the run follows."""
        return _GRADIENT[self.estimator]

    def token_loss(self, inputs: KLInputs) -> Tensor:
        """The divergence at each position or of each sampled token, ``[B, T]``, 0 on padding.

        Raises:
            ValueError: if ``exact`` gets no log-probs of the vocabulary.
        """
        return self._exact(inputs) if self.estimator == "exact" else self._sampled(inputs)

    def _exact(self, inputs: KLInputs) -> Tensor:
        policy, reference = inputs.policy.vocabulary_logprobs, inputs.reference.vocabulary_logprobs
        if policy is None or reference is None:
            raise ValueError("kl_mode=forward needs token statistics with Stat.VOCABULARY of policy and reference")
        anchor = vocabulary_anchor_logprobs(reference, inputs.log_q, inputs.vocabulary_log_q)
        return kl.exact_forward(policy, anchor).masked_fill(~inputs.mask, 0)

    def _sampled(self, inputs: KLInputs) -> Tensor:
        padding = ~inputs.mask
        # Padding is blanked before anything is exponentiated: infinity times a zero gradient would be NaN.
        policy = inputs.policy.logprobs.masked_fill(padding, 0)
        old = inputs.old_logprobs.masked_fill(padding, 0)
        anchor = anchor_logprobs(inputs.reference.logprobs, inputs.log_q).masked_fill(padding, 0)
        return kl.sampled_forward(policy, old, anchor, self.weight_max)
