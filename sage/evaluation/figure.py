"""Last stage of an evaluation: curves -> ``pass_at_k.png``."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from sage.evaluation.curves import Curve
from sage.maths.pass_at_k import powers_of_two

# Okabe and Ito 2008, told apart under every common colour blindness; grey for the first curve, the base of the others.
_COLOURS = ("#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h", "<", ">")
_TITLE_WIDTH = 62
_INK = "#222222"
_MUTED = "#666666"


def plot_pass_at_k(curves: Mapping[str, Curve], path: Path, title: str) -> None:
    """Draw pass@k against k, 1200 x 800 pixels.

    Bands are the bootstrap intervals over problems. Each curve is named at its right end, beside its value there; its
    value at k = 1 stands at the left.

    Args:
        curves: name -> curve, the base first.
        path: the PNG.
        title: above the axes.
    """
    if not curves:
        raise ValueError("a figure needs at least one curve, got 0")
    figure = Figure(figsize=(6.0, 4.0), dpi=200, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = list(curves.values())
    for i, curve in enumerate(shown):
        _draw(axes, curve, i, band=0.15 if len(shown) <= 3 else 0.07)
    _set_axes(axes, shown)
    _label_first(axes, shown)
    _label_last(axes, curves)
    axes.set_title(textwrap.fill(title, _TITLE_WIDTH), loc="left", fontsize=10.5, color=_INK, pad=18)
    caption = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 7.5, "color": _MUTED}
    axes.annotate(_caption(shown), (0, 1), xytext=(0, 6), **caption)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.print_png(str(path))


def _draw(axes: Axes, curve: Curve, i: int, *, band: float) -> None:
    colour = _COLOURS[i % len(_COLOURS)]
    estimates = list(curve.pass_at_k.values())
    axes.fill_between(curve.ks, [e.low for e in estimates], [e.high for e in estimates], color=colour, alpha=band, lw=0)
    axes.plot(
        curve.ks,
        [e.value for e in estimates],
        color=colour,
        marker=_MARKERS[i % len(_MARKERS)],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linewidth=1.6,
        linestyle="solid" if i else (0, (5, 1.5)),
    )


def _set_axes(axes: Axes, curves: Sequence[Curve]) -> None:
    largest = max(curve.n for curve in curves)
    width = max(1.0, math.log2(largest))
    axes.set_xscale("log", base=2)
    axes.set_xlim(2 ** (-0.13 * width), largest * 2 ** (0.03 * width))  # the values at k = 1 stand left of the curves
    ticks = powers_of_two(largest)
    if len(ticks) > 2 and ticks[-1] / ticks[-2] < 1.5:  # n and the power of two before it would overlap
        del ticks[-2]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(k) for k in ticks])
    low, high = value_limits(curves)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter("{x:.1f}" if high - low > 0.3 else "{x:.2f}")  # ticks stand closer than a tenth
    axes.set_xlabel("k (samples per problem)", fontsize=9.5, color=_INK)
    axes.set_ylabel("pass@k (mean over problems)", fontsize=9.5, color=_INK)
    axes.tick_params(labelsize=8.5, colors=_INK, length=3)
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")


def value_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Lower and upper end of the y axis: tenths around all intervals, within [0, 1] but for a marker's width."""
    estimates = [estimate for curve in curves for estimate in curve.pass_at_k.values()]
    low = max(0.0, math.floor(min(e.low for e in estimates) * 10 - 0.2) / 10)
    high = min(1.0, math.ceil(max(e.high for e in estimates) * 10 + 0.2) / 10)
    margin = 0.015 * (high - low)
    return low - margin if low == 0 else low, high + margin


def spread(heights: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move labels apart to ``gap`` within [low, high]: least squares, order kept.

    With the gaps subtracted it is an isotonic regression, solved by pooling adjacent violators. The gap shrinks where
    the labels do not fit.
    """
    gap = min(gap, (high - low) / max(1, len(heights) - 1))
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    pools: list[tuple[float, int]] = []  # mean, size
    for rank, i in enumerate(order):
        mean, size = heights[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    pooled = [mean for mean, size in pools for _ in range(size)]
    top = high - (len(heights) - 1) * gap
    placed = {i: min(max(pooled[rank], low), top) + rank * gap for rank, i in enumerate(order)}
    return [placed[i] for i in range(len(heights))]


def _label_first(axes: Axes, curves: Sequence[Curve]) -> None:
    low, high = axes.get_ylim()
    values = [curve.pass_at_k[1].value for curve in curves]
    for i, height in enumerate(spread(values, gap=0.042 * (high - low), low=low, high=high)):
        style = {"color": _COLOURS[i % len(_COLOURS)], "fontsize": 8, "ha": "right", "va": "center"}
        axes.annotate(f"{values[i]:.3f}", (1, height), xytext=(-5, 0), textcoords="offset points", **style)


def _label_last(axes: Axes, curves: Mapping[str, Curve]) -> None:
    low, high = axes.get_ylim()
    values = [curve.pass_at_k[curve.n].value for curve in curves.values()]
    heights = spread(values, gap=0.055 * (high - low), low=low, high=high)
    edge = axes.get_xlim()[1]
    for i, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        axes.annotate(
            f"{values[i]:.3f}  {name}",
            (curve.n, values[i]),
            xytext=(edge * 1.06, heights[i]),
            textcoords="data",
            color=colour,
            fontsize=8.5,
            fontweight="bold",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "lw": 0.6,
                "alpha": 0.7,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )


def _caption(curves: Sequence[Curve]) -> str:
    problems = sorted({curve.num_problems for curve in curves})
    samples = sorted({curve.n for curve in curves})
    confidences = sorted({curve.confidence for curve in curves})
    return (
        f"{' and '.join(map(str, problems))} problems, {' and '.join(map(str, samples))} samples each; bands: "
        f"{' and '.join(f'{c:.0%}' for c in confidences)} bootstrap intervals over problems"
    )
