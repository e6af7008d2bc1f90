"""The estimate of each aggregate from noisy parts, with its interval, for all groups at once.

A ratio's interval is that of a pivot (see `intervals`): total A - θ size N, whose noise is known. Means
inside a pivot are replaced by their estimates. Values are clamped to the range that the declared bounds
allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.sql.answering import intervals
from lapwing.sql.answering.intervals import Width
from lapwing.sql.pricing.noise_shares import PartNoise
from lapwing.sql.pricing.noise_widths import Floats, NoiseFamily, half_width, noise_scale
from lapwing.sql.question.bound_query import CodeScale, NoisyAggregate, scale_of, step_of

MANY_GROUPS = 2000  # from here on a table of widths is worth its cost
NOISE_ONLY = "interval: noise only"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The values of a column and their intervals; None if there are none."""

    values: NDArray[Any]
    low: NDArray[Any] | None = None
    high: NDArray[Any] | None = None
    note: str = ""
    rank_error: float | None = None


@dataclass(frozen=True, slots=True)
class NoisyParts:
    """Noisy parts of one grouping, as in `Noisy`, and their noises.

    With `sampling`, rows are a sample of a population.
    """

    values: tuple[NDArray[np.int64], ...]
    mechanisms: tuple[PartNoise, ...]
    confidence: Fraction
    sampling: bool = False

    @property
    def noises(self) -> NoiseFamily:
        """The family of their noises."""
        return NoiseFamily.of(self.mechanisms[0], self.confidence)

    def __getitem__(self, part: int) -> Floats:
        return self.values[part].astype(np.float64)

    def width(self, part: int) -> float:
        """Return the scale of a part's noise."""
        return noise_scale(self.mechanisms[part])

    def scales(self, terms: list[tuple[int, Floats]]) -> list[Floats]:
        """Return the scales of noises times their factors. A part that occurs twice has one noise."""
        factors: dict[int, Floats] = {}
        for part, factor in terms:
            factors[part] = factors[part] + factor if part in factors else factor
        return [np.abs(factor) * self.width(part) for part, factor in factors.items()]


def estimate_statistic(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    """Estimate a statistic in every group. Quantiles, MIN and MAX are not made of parts."""
    if statistic.function not in _ESTIMATES:
        raise BadParameter("function", f"{statistic.function} is not made of parts")
    return _ESTIMATES[statistic.function](statistic, parts)


def in_steps(values: NDArray[np.int64], step: Fraction) -> NDArray[Any]:
    """Convert steps to values: to whole numbers where that is exact."""
    if step == 1:
        return values
    if step.denominator == 1 and (not len(values) or int(np.abs(values).max()) < (1 << 62) // step):
        return values * int(step)
    return np.asarray(values.astype(np.float64) * step.numerator / step.denominator)


def _additive(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    (part,) = statistic.parts
    values, half = parts.values[part], half_width(parts.mechanisms[part], parts.confidence)
    if statistic.function == "count":
        return Estimate(np.maximum(values, 0), *count_ends(values, half, parts))
    step, note = step_of(statistic), NOISE_ONLY if parts.sampling else ""
    low, high = in_steps(values - half, step), in_steps(values + half, step)
    return Estimate(in_steps(values, step), low, high, note)


def count_ends(values: NDArray[Any], half: float, parts: NoisyParts) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the interval of a count, never below 0. A sample's count has a Poisson distribution."""
    width: Any = half
    if parts.sampling:
        normal = NoiseFamily(True, parts.confidence).in_deviations
        width = np.sqrt(half**2 + normal**2 * np.maximum(values, 0))
    return np.maximum(values - width, 0), np.maximum(values + width, 0)


def _quotient(total: Floats, size: Floats, low: float, high: float, otherwise: float) -> Floats:
    """Return total / size clamped to low..high, or `otherwise` where there seem to be no rows."""
    some = size > 0
    return np.where(some, np.clip(total / np.where(some, size, 1.0), low, high), otherwise)


def _means(total: Floats, size: Floats, scale: CodeScale) -> Floats:
    return _quotient(total, size, scale.low, scale.high, scale.middle)


def _average(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    t, n = statistic.parts
    reach = scale_of(statistic.number, statistic.centre).reach
    width = intervals.table_width(parts.noises, parts.width(t), parts.width(n), reach)
    return _mean(statistic, parts, parts[t], parts[n], width)


def _average_of_pair(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    """Estimate a mean from its low end: a is the total, and (a + b) / range the number of rows."""
    (pair,) = statistic.parts
    above, below = np.split(parts[pair], 2)
    reach = scale_of(statistic.number, statistic.centre).high
    width = intervals.pair_width(parts.noises, parts.width(pair), reach)
    return _mean(statistic, parts, above, (above + below) / reach, width)


def _mean(
    statistic: NoisyAggregate, parts: NoisyParts, total: Floats, size: Floats, width: Width
) -> Estimate:
    scale = scale_of(statistic.number, statistic.centre)
    if parts.sampling:  # no values in a range with this mean have a larger variance than those at its ends
        width = intervals.with_sampling(
            width, parts.noises, size, lambda x: (x - scale.low) * (scale.high - x)
        )
    low, high = intervals.ratio_bounds(total, size, scale.low, scale.high, width)
    mean = _means(total, size, scale)
    return round_outward(*((statistic.centre + x) * float(scale.step) for x in (mean, low, high)))


def _variance(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    t, n, s = statistic.parts
    scale, noises = scale_of(statistic.number, statistic.centre), parts.noises
    total, size, squares = parts[t], parts[n], parts[s]
    mean, most = _means(total, size, scale), scale.half**2
    about = squares - 2 * mean * total + mean**2 * size
    of_mean = 2 * np.abs(mean) * parts.width(t)
    if len(size) > MANY_GROUPS and not noises.is_gaussian:
        reach = max(float(scale.reach) ** 2, most)
        scales = (parts.width(s), of_mean, parts.width(n))
        width = intervals.plane_width(noises, scales, mean**2, reach)
    else:
        fixed = [np.full_like(size, parts.width(s)), of_mean]
        width = intervals.mixed_width(noises, fixed, mean**2, parts.width(n))
    if parts.sampling:  # (x - mean)² lies within the range's square
        width = intervals.with_sampling(width, noises, size, lambda v: v * (4 * most - v))
    low, high = intervals.ratio_bounds(about, size, 0.0, most, width)
    value = _quotient(about, size, 0.0, most, most / 2)
    results = [x * _correction(statistic, size) * float(scale.step) ** 2 for x in (value, low, high)]
    if statistic.function.startswith("stddev"):
        results = [np.sqrt(x) for x in results]
    return round_outward(*results)


def _correction(statistic: NoisyAggregate, size: Floats) -> Floats:
    """Return n / (n - 1) for a sample, and at most 2."""
    if not statistic.function.endswith("samp"):
        return np.ones_like(size)
    return np.where(size >= 2, size / np.maximum(size - 1, 1.0), 2.0)


def _both_scales(statistic: NoisyAggregate) -> tuple[CodeScale, CodeScale]:
    own = scale_of(statistic.number, statistic.centre)
    return own, scale_of(statistic.second, statistic.second_centre)


def _covariance(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    x, n, y, c = statistic.parts
    x_scale, y_scale = _both_scales(statistic)
    size, most = parts[n], x_scale.half * y_scale.half
    mx, my = _means(parts[x], size, x_scale), _means(parts[y], size, y_scale)
    about = parts[c] - my * parts[x] - mx * parts[y] + mx * my * size
    fixed = parts.scales([(c, np.ones_like(size)), (x, my), (y, mx)])
    width = intervals.mixed_width(parts.noises, fixed, mx * my, parts.width(n))
    low, high = intervals.ratio_bounds(about, size, -most, most, width)
    value = _quotient(about, size, -most, most, 0.0)
    unit = float(x_scale.step * y_scale.step) * _correction(statistic, size)
    return round_outward(value * unit, low * unit, high * unit, note=NOISE_ONLY if parts.sampling else "")


def _correlation(statistic: NoisyAggregate, parts: NoisyParts) -> Estimate:
    """Estimate a correlation by the delta method: the noise of c - r √(sx sy) to first order."""
    x, n, y, c, sx, sy = statistic.parts
    x_scale, y_scale = _both_scales(statistic)
    size = parts[n]
    mx, my = _means(parts[x], size, x_scale), _means(parts[y], size, y_scale)
    both = parts[c] - my * parts[x] - mx * parts[y] + mx * my * size
    vx = parts[sx] - 2 * mx * parts[x] + mx**2 * size
    vy = parts[sy] - 2 * my * parts[y] + my**2 * size
    known = (size > 0) & (vx > 0) & (vy > 0)
    vx, vy = np.where(known, vx, 1.0), np.where(known, vy, 1.0)
    root, k = np.sqrt(vx * vy), np.sqrt(vy / vx)
    r = np.where(known, np.clip(both / root, -1, 1), 0.0)
    terms = [
        (c, np.ones_like(size)),
        (x, r * k * mx - my),
        (y, r / k * my - mx),
        (n, mx * my - r / 2 * (k * mx**2 + my**2 / k)),
        (sx, -r / 2 * k),
        (sy, -r / 2 / k),
    ]
    half = np.where(known, parts.noises.width([*parts.scales(terms)]) / root, 2.0)
    low, high = np.clip(r - half, -1, 1), np.clip(r + half, -1, 1)
    return round_outward(r, low, high, note=NOISE_ONLY if parts.sampling else "")


_ESTIMATES: dict[str, Callable[[NoisyAggregate, NoisyParts], Estimate]] = {
    **dict.fromkeys(("count", "sum"), _additive),
    "avg": _average,
    "avg_of_pair": _average_of_pair,
    **dict.fromkeys(("var_pop", "var_samp", "stddev_pop", "stddev_samp"), _variance),
    **dict.fromkeys(("covar_pop", "covar_samp"), _covariance),
    "corr": _correlation,
}


def round_outward(value: Floats, low: Floats, high: Floats, *, note: str = "") -> Estimate:
    """Round to about four digits of the narrowest interval. Intervals become no narrower.

    Where there seem to be no rows, the middle of the bounds may be outside the interval: then the value is
    the nearest end.
    """
    widths = high - low
    least = float(np.min(widths[widths > 0], initial=np.inf))
    digits = 12 if not np.isfinite(least) else int(np.clip(4 - np.floor(np.log10(least)), 0, 15))
    value = np.clip(np.round(value, digits), low, high) + 0.0
    return Estimate(value, -_up(-low, digits) + 0.0, _up(high, digits) + 0.0, note)


def _up(values: Floats, digits: int) -> Floats:
    """Round up to this many digits; a float with fewer digits stays."""
    near = np.round(values, digits)
    return np.maximum(np.where(near < values, np.round(near + 10.0**-digits, digits), near), values)
