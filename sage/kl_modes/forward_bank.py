"""Forward KL to an anchor of whole responses: a bank of graded samples of the reference, drawn once before training."""

from __future__ import annotations

from dataclasses import dataclass

from sage.interfaces import Guide, KLMode
from sage.maths.bank import hardness
from sage.types import BankSettings, Stat

_WEIGHTINGS = ("uniform", "hardness")


@dataclass(frozen=True, kw_only=True)
class ForwardBankKL(KLMode):
    """``beta * mean_x w(x) * E_{y ~ anchor(.|x)}[-(1/|y|) log pi(y|x)]`` over the problems x of a step (beyond the SAGE paper).

    The anchor is the bank's samples, re-weighted by a guide of whole responses. A problem without a sample that the anchor
    could hold contributes nothing, and counts in the mean. Close to RL with replay of verified reference samples.
    """

    samples: int
    """Responses of the reference in the bank, per problem; their sampling is part of the compute of the run."""
    draws: int
    """Responses drawn from the anchor per problem and step."""
    weighting: str
    """w: ``uniform`` is 1, ``hardness`` is 2 * (1 - p) with p the bank's pass rate on the problem."""
    seed: int
    """Of the bank's samples; the seed of the run draws from the bank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("samples", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"kl_mode.{name}={getattr(self, name)}: expected a whole number >= 1")
        if self.weighting not in _WEIGHTINGS:
            raise ValueError(f"kl_mode.weighting={self.weighting}: expected one of {', '.join(_WEIGHTINGS)}")

    @property
    def needs(self) -> frozenset[Stat]:
        """Nothing: the reference speaks through the bank, and no forward pass of it is made during training."""
        return frozenset()

    @property
    def gradient(self) -> str:
        """Which gradient the run follows."""
        return (
            "Forward KL of whole responses: beta * the gradient of the anchor's cross entropy, nats per token, on reference "
            "samples drawn once before training; the policy's own rollouts feel no KL."
        )

    @property
    def bank(self) -> BankSettings:
        """What to draw before training."""
        return BankSettings(samples=self.samples, draws=self.draws, seed=self.seed)

    def problem_weight(self, pass_rate: float) -> float:
        """w(x)."""
        return hardness(pass_rate) if self.weighting == "hardness" else 1.0

    def refusal(self, guide: Guide) -> str | None:
        """A guide of sampled tokens says nothing about the responses of a bank."""
        if guide.identity or guide.of_responses:
            return None
        return (
            f"{type(guide).__name__} gives q of the tokens that the policy samples, and the anchor of kl=forward_bank is made "
            "of whole responses of the reference, so the guide cannot act: type guide=verdict, guide=verdict_flat or "
            "guide=none with kl=forward_bank, or kl=reverse to use the guide"
        )
