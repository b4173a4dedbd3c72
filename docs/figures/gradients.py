"""Which gradient each KL choice really gives, by exact enumeration: the tables and the figure of docs/gradients.md.

    python docs/figures/gradients.py    # prints the tables, writes docs/figures/gradients.png

One state with a few tokens, on-policy: the mean over sampled tokens is a sum weighted by the policy's probabilities, so
nothing here is an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sage.maths.kl import exact_forward, exact_reverse, k1, k2, k3, score_ratio

PAIRS, TOKENS, SPREAD = 200, 6, 1.5
"""Pairs of a policy and a reference, tokens of the vocabulary, standard deviation of all logits."""
Divergence = Callable[[Tensor, Tensor], Tensor]
"""``[V]`` log-probs of policy and anchor -> the mean loss."""


def _sampled(estimator: Callable[[Tensor], Tensor], *, ratio: bool = False) -> Divergence:
    def mean(policy: Tensor, anchor: Tensor) -> Tensor:
        weight = score_ratio(policy, policy.detach(), 10.0) if ratio else 1.0
        return (policy.detach().exp() * weight * estimator(anchor - policy)).sum()

    return mean


def _in_the_reward(policy: Tensor, anchor: Tensor) -> Tensor:
    """Policy gradient of the reward ``-k1``, with the mean as baseline."""
    reward = -k1(anchor - policy).detach()
    chance = policy.detach().exp()
    return -(chance * (reward - (chance * reward).sum()) * policy).sum()


CHOICES: dict[str, Divergence] = {
    "k1, loss": _sampled(k1),
    "k2, loss": _sampled(k2),
    "k3, loss": _sampled(k3),
    "k1_ratio, loss": _sampled(k1, ratio=True),
    "k3_ratio, loss": _sampled(k3, ratio=True),
    "exact, loss": exact_reverse,
    "k1, reward": _in_the_reward,
    "k2 times the ratio": _sampled(k2, ratio=True),
}


def gradient(divergence: Divergence, logits: Tensor, anchor: Tensor) -> Tensor:
    """``[V]`` with respect to the policy's logits."""
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(divergence(logits.log_softmax(-1), anchor), logits)[0]


def pairs() -> list[tuple[Tensor, Tensor]]:
    """Logits of a policy and log-probs of a reference, all logits normal."""
    draws = SPREAD * torch.randn(PAIRS, 2, TOKENS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return [(policy, reference.log_softmax(-1)) for policy, reference in draws]


def gradients(divergence: Divergence) -> Tensor:
    """``[PAIRS, TOKENS]``."""
    return torch.stack([gradient(divergence, policy, reference) for policy, reference in pairs()])


def error_table() -> str:
    """Markdown: how far each choice is from the gradient of KL(policy || reference)."""
    exact = gradients(exact_reverse)
    rows = [
        "| choice | median relative error | median cosine | worst cosine |",
        "|---|---|---|---|",
    ]
    for name, divergence in CHOICES.items():
        found = gradients(divergence)
        error = ((found - exact).norm(dim=-1) / exact.norm(dim=-1)).median().item()
        if found.norm(dim=-1).max() < 1e-9:
            rows.append(f"| {name} | {error:.2f} | gradient 0 | gradient 0 |")
            continue
        cosine = torch.cosine_similarity(found, exact, dim=-1)
        rows.append(f"| {name} | {error:.2f} | {cosine.median().item():.2f} | {cosine.min().item():.2f} |")
    return "\n".join(rows)


def _numbers(values: Tensor) -> str:
    # + 0.0 turns a rounded -0.0 into 0.0.
    return "(" + ", ".join(f"{round(value, 4) + 0.0:.4f}" for value in values.tolist()) + ")"


def three_token_table() -> str:
    """Markdown: policy softmax(.2, -.1, .4) and reference (.5, .3, .2), without a guide and with q = 1.4 everywhere."""
    logits = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64)
    reference = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    rows = ["| choice | q = (1, 1, 1) | q = (1.4, 1.4, 1.4) |", "|---|---|---|"]
    for name, divergence in {**CHOICES, "forward, exact": exact_forward}.items():
        if name != "k2 times the ratio":
            plain, shared = (_numbers(gradient(divergence, logits, (q * reference).log())) for q in (1.0, 1.4))
            rows.append(f"| {name} | {plain} | {shared} |")
    return "\n".join(rows)


def plot(path: Path) -> None:
    """Each component of each gradient against that of the reverse KL, 2000 x 576 pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Okabe and Ito 2008: told apart under every common colour blindness.
    panels = (
        ("k1 in the loss", "no gradient at all: refused", "k1, loss", "#D55E00"),
        ("k2, k1_ratio, k3_ratio, exact in the loss,", "k1 in the reward: the reverse KL", "k3_ratio, loss", "#009E73"),
        ("k3 in the loss", "the forward KL", "k3, loss", "#0072B2"),
        ("k2 times the ratio", "biased: refused", "k2 times the ratio", "#CC79A7"),
    )
    figure = Figure(figsize=(12.5, 3.6), dpi=160, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    exact = gradients(exact_reverse).flatten()
    limit = 1.05 * exact.abs().max().item()
    for axes, (title, meaning, name, colour) in zip(figure.subplots(1, 4, sharey=True), panels, strict=True):
        axes.plot([-limit, limit], [-limit, limit], color="#999999", lw=1, zorder=0)
        found = gradients(CHOICES[name]).flatten()
        axes.scatter(exact, found, s=5, color=colour, alpha=0.5, lw=0)
        if outside := int((found.abs() > limit).sum()):
            note = f"{outside} of {found.numel()} points lie outside"
            axes.text(0.98, 0.02, note, transform=axes.transAxes, ha="right", fontsize=7.5, color="#666666")
        axes.set_title(f"{title}\n{meaning}", fontsize=9.5, loc="left")
        axes.set_xlim(-limit, limit)
        axes.set_ylim(-limit, limit)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.supxlabel("gradient of KL(policy || reference), one point a token", fontsize=9)
    figure.supylabel("gradient that the choice gives", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.print_png(str(path))


if __name__ == "__main__":
    print(error_table(), three_token_table(), sep="\n\n")
    plot(Path(__file__).with_suffix(".png"))
