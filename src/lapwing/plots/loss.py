"""The privacy loss of a count: Laplace noise keeps every outcome within e^ε; Gaussian noise needs δ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, short
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.plots.style import BLUE, GREY, INK, ORANGE, new_figure, note_beside, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The outcomes of a noisy count, most telling first, for neighbours whose counts are 1 and 0.

    Step i has height `ratio[i]`, P[outcome with you] / P[outcome without you], and is as wide as the
    probability of that outcome without you; `share` has the right ends. So the area below the whole curve
    is 1, and the area above e^ε is exactly the δ that the noise needs at ε.
    """

    share: NDArray[np.float64]
    ratio: NDArray[np.float64]

    def mass_above(self, factor: float) -> float:
        """Return the area of the curve above a factor: δ, if the factor is e^ε."""
        widths = np.diff(self.share, prepend=0.0)
        return float((np.maximum(self.ratio - factor, 0.0) * widths).sum())


def laplace_curve(epsilon: float) -> LossCurve:
    """Return the curve of Laplace noise: answers above 0 are e^ε times likelier with you.

    All others are e^ε times less likely. P[k > 0] = q / (1 + q) with q = e^-ε, by summing the geometric
    tail.
    """
    share = np.array([1 / (1 + math.exp(epsilon)), 1.0])
    return LossCurve(share, np.exp(np.array([epsilon, -epsilon])))


def gaussian_curve(sigma: float) -> LossCurve:
    """Return the curve of Gaussian noise. Its ratio at answer k is exp((2k - 1) / 2σ²), without bound.

    Where σ is large, runs of neighbouring answers are one step: finer ones could not be seen.
    """
    run = math.ceil(sigma / 100)
    runs = math.ceil((14 * sigma + 2) / run)  # beyond lie 1e-40 of the outcomes
    answers = np.arange(runs * run, -runs * run, -1, dtype=np.float64).reshape(-1, run)
    without = np.exp(-(answers**2) / (2 * sigma**2)).sum(axis=1)
    with_you = np.exp(-((answers - 1) ** 2) / (2 * sigma**2)).sum(axis=1)
    share = np.cumsum(without)
    return LossCurve(share / share[-1], with_you / without)


def privacy_loss(epsilon: Number, delta: Number) -> Figure:
    """Draw how much likelier each outcome of a noisy count becomes through you, under (ε, δ).

    With δ = 0 there is no Gaussian noise to draw. ε is from 0.001 to 20, and δ is 0 or at least 1e-18:
    beyond these nothing could be read off.
    """
    exact_epsilon, exact_delta = checked_epsilon(epsilon), checked_delta(delta)
    e, d = float(exact_epsilon), float(exact_delta)
    if not 1e-3 <= e <= 20:
        raise BadParameter("epsilon", "must lie between 0.001 and 20 to be drawn")
    if d and not 1e-18 <= d <= 0.5:
        raise BadParameter("delta", "must be 0, or lie between 1e-18 and 0.5, to be drawn")
    with style():
        if not d:
            return _one_panel(e)
        noise = Gaussian.for_budget(exact_epsilon, exact_delta, l2_squared=1, dimension=1)
        return _two_panels(e, d, gaussian_curve(float(noise.sigma)), float(noise.sigma))


def _one_panel(epsilon: float) -> Figure:
    figure, (axes,) = new_figure(
        f"Laplace noise at ε = {short(epsilon)}: whatever is published, you made it at most "
        f"{short(math.exp(epsilon))} times likelier",
        "All outcomes of a noisy count, the most telling first. Height: how much likelier an outcome is "
        "with you in the data than without you.",
        left=1.55,
    )
    _axes(axes, epsilon, floor=1e-6, top=math.exp(1.5 * epsilon))
    _laplace(axes, epsilon, floor=1e-6)
    axes.set_ylabel("times likelier with you: e to the privacy loss")
    return figure


def _two_panels(epsilon: float, delta: float, curve: LossCurve, sigma: float) -> Figure:
    figure, (left, right) = new_figure(
        f"Laplace noise never passes the factor eᵋ = {short(math.exp(epsilon))}; Gaussian noise does, "
        f"in rare outcomes that δ = {short(delta)} pays for",
        "All outcomes of a noisy count, the most telling first. Height: how much likelier an outcome is "
        "with you in the data than without you.",
        panels=2,
        size=(10.5, 5.4),
        left=1.55,
    )
    # Outcomes left of the picture's edge hold less than a thousandth of δ.
    floor = 10.0 ** math.floor(math.log10(delta * math.exp(-epsilon) / 1000))
    first = int(np.searchsorted(curve.share, floor, side="right"))
    top = max(float(curve.ratio[first]) * math.exp(0.1 * epsilon), math.exp(1.93 * epsilon))
    for axes in (left, right):
        _axes(axes, epsilon, floor=floor, top=top)
    _laplace(left, epsilon, floor=floor)
    _gaussian(right, curve, epsilon, delta, floor=floor)
    left.set_title("Laplace noise (δ = 0)", color=BLUE)
    right.set_title(f"Gaussian noise (σ = {short(sigma)})", color=ORANGE)
    left.set_ylabel("times likelier with you: e to the privacy loss")
    return figure


def _axes(axes: Axes, epsilon: float, *, floor: float, top: float) -> None:
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 (an extra)

    bound = math.exp(epsilon)
    axes.set(xscale="log", yscale="log", xlim=(floor, 1), ylim=(math.exp(-1.5 * epsilon), top))
    axes.set_xlabel("share of the outcomes, most telling first")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks([1 / bound, 1.0, bound], [f"1/eᵋ = {short(1 / bound)}", "1", f"eᵋ = {short(bound)}"])
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.axhline(bound, color=INK, linewidth=1, linestyle=(0, (5, 3)), gid="bound")


def _steps(axes: Axes, curve: LossCurve, floor: float, colour: str, name: str) -> None:
    """Draw the curve right of `floor`, as a staircase."""
    first = int(np.searchsorted(curve.share, floor, side="right"))
    edges = np.concatenate([[floor], curve.share[first:]])
    axes.stairs(curve.ratio[first:], edges, baseline=None, color=colour, linewidth=2.2, gid=name)


def _laplace(axes: Axes, epsilon: float, *, floor: float) -> None:
    _steps(axes, laplace_curve(epsilon), floor, BLUE, "laplace")
    middle = math.sqrt(floor)
    top, bottom = (middle, math.exp(epsilon)), (middle, 1)
    note_beside(axes, "up to eᵋ, and never above", top, (0, 9), ha="center", color=BLUE)
    note_beside(axes, "1: nothing is learned about you", bottom, (0, -7), ha="center", va="top", color=GREY)


def _gaussian(axes: Axes, curve: LossCurve, epsilon: float, delta: float, *, floor: float) -> None:
    bound = math.exp(epsilon)
    first = int(np.searchsorted(curve.share, floor, side="right"))
    last = int(np.searchsorted(-curve.ratio, -bound, side="left"))  # the first step within the bound
    edges = np.concatenate([[floor], curve.share[first:last]])
    look: dict[str, Any] = {"fill": True, "color": ORANGE, "alpha": 0.25, "linewidth": 0}
    axes.stairs(curve.ratio[first:last], edges, baseline=bound, gid="delta", **look)
    _steps(axes, curve, floor, ORANGE, "gaussian")
    text = f"shaded: all that lies above eᵋ\n(height × width, added up): δ = {short(delta)}"
    axes.annotate(text, (0.99, 0.98), xycoords="axes fraction", ha="right", va="top", color=ORANGE)
