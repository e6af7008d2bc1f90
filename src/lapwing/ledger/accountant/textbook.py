"""A second opinion on prices and caps, by textbook formulas in floats.

A price must not be lower than the textbook says, and a cap not higher than (ε, δ) allows. Each cost is
checked on its own, because a filter may look at one of them alone. A price may be too high.

The code shares no formula with `lapwing.core`, so it is unlikely that both make the same mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

LARGEST_SUMMED_ORDER = 1_000_000
LONGEST_RUN = 1_000_000
LONGEST_DISTANCE = 1_000
DEEPEST = 50
GRID = 1e-4
FLOAT_ERROR = 1e-14

Pair = tuple[Fraction, Fraction]
Orders = tuple[int, ...]


class NotPriced(Exception):
    """There is no second opinion on this loss."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """The least that a loss costs. A bound of None means that the loss has no such bound.

    `kinds` are the names of the losses inside. `is_partial` means that the pair of a fixed run was not
    priced.
    """

    kinds: frozenset[str]
    delta0: Fraction = Fraction(0)
    pair: Pair | None = None
    renyi: tuple[float, ...] | None = None
    is_partial: bool = False


def log_of(value: Fraction) -> float:
    """Return ln of a positive rational, however small."""
    return math.log(value.numerator) - math.log(value.denominator)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _at_least(value: float, size: float = 1) -> float:
    """Return a divergence less the float error of logarithms of this size."""
    return max(value - FLOAT_ERROR * size, 0.0)


def _rational(value: Any) -> Fraction:
    """Return a parameter that is not negative."""
    if not isinstance(value, str) or len(value) > 10_000 or "e" in value.lower():
        raise ValueError  # also for 1e-999999999: it is short, and would be computed for hours
    number = Fraction(value)
    if number < 0:
        raise ValueError
    return number


def _whole(value: Any, at_least: int = 0) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError
    return value


def opinion_on(record: Any, orders: Orders, depth: int = 0) -> Opinion:
    """Return the least that a described loss costs.

    Raises NotPriced, or a built-in error if this is not the description of a loss.
    """
    if not isinstance(record, dict) or depth > DEEPEST:
        raise ValueError
    fields, price = _KINDS[record["loss"]]
    if set(record) != {"loss", *fields}:
        raise ValueError
    return price(record, orders, depth)


# One release


def _pure(record: dict[str, Any], orders: Orders, _: int) -> Opinion:
    epsilon = _rational(record["epsilon"])
    delta = _rational(record["delta"]) if record["loss"] == "Approximate" else Fraction(0)
    renyi = tuple([_response(order, _float(epsilon)) for order in orders])
    if record["loss"] == "BoundedRange":
        square = _float(epsilon * epsilon)
        renyi = tuple([min(value, order * square / 8) for value, order in zip(renyi, orders, strict=True)])
    return Opinion(_only(record), delta, (epsilon, Fraction(0)), renyi)


def _response(order: int, epsilon: float) -> float:
    """Return the Rényi divergence of randomized response: ln(p^a q^(1-a) + q^a p^(1-a)) / (a - 1)."""
    if math.isinf(epsilon):
        return math.inf
    truth = -math.log1p(math.exp(-epsilon))  # ln p, and ln q below
    lie = truth - epsilon
    true_term, false_term = order * truth + (1 - order) * lie, order * lie + (1 - order) * truth
    return _at_least(float(np.logaddexp(true_term, false_term)) / (order - 1))


def _laplace(record: dict[str, Any], orders: Orders, _: int) -> Opinion:
    scale, distance = _rational(record["scale"]), _whole(record["distance"])
    if not scale:
        raise ValueError
    renyi = tuple([_shifted(order, _float(1 / scale), distance) for order in orders])
    return Opinion(_only(record), pair=(distance / scale, Fraction(0)), renyi=renyi)


def _shifted(order: int, rate: float, distance: int) -> float:
    """Return ln Σ P(k)^a P(k - d)^(1-a) / (a - 1), with P(k) = e^(-r|k|) (1 - e^-r) / (1 + e^-r).

    Left of 0 and right of d the terms fall by e^-r each, between by e^-(2a-1)r: three geometric sums.
    """
    if not distance or not rate:
        return 0.0
    if math.isinf(rate) or math.isinf(distance * rate):
        return math.inf
    scaled = -math.log1p(math.exp(-rate))  # the normaliser times the sum of one side
    parts = [scaled + (order - 1) * distance * rate, scaled - order * distance * rate]
    if distance > 1:
        fall = (2 * order - 1) * rate
        between = math.log(-math.expm1(-fall * (distance - 1))) - math.log(-math.expm1(-fall)) - fall
        normaliser = math.log(-math.expm1(-rate)) + scaled
        parts.append(normaliser + (order - 1) * distance * rate + between)
    return _at_least(float(np.logaddexp.reduce(parts)) / (order - 1), 1 + abs(math.log(rate)))


def _concentrated(record: dict[str, Any], orders: Orders, _: int) -> Opinion:
    rho = _float(_rho(record))
    return Opinion(_only(record), renyi=tuple([order * rho for order in orders]))


def _rho(record: dict[str, Any]) -> Fraction:
    if record["loss"] == "Concentrated":
        return _rational(record["rho"])
    sigma = _rational(record["sigma"])
    _whole(record["dimension"], 1)
    return _rational(record["l2_squared"]) / (2 * sigma * sigma)


def _sampled(record: dict[str, Any], orders: Orders, _: int) -> Opinion:
    rate, noise = _rational(record["rate"]), record["noise"]
    if not 0 < rate <= 1 or noise["loss"] != "GaussianNoise":
        raise ValueError
    if max(orders) > LARGEST_SUMMED_ORDER:
        raise NotPriced
    rho = _float(_rho(noise))
    if rate == 1:
        return Opinion(_only(record), renyi=tuple([order * rho for order in orders]))
    return Opinion(_only(record), renyi=tuple([_mixture(order, rate, rho) for order in orders]))


def _mixture(order: int, rate: Fraction, rho: float) -> float:
    """Return ln Σ binomial(a, k) (1-q)^(a-k) q^k e^(k(k-1)ρ) / (a - 1)."""
    k = np.arange(1, order + 1, dtype=float)
    binomial = np.cumsum(np.log((order - k + 1) / k))
    stay, join = log_of(1 - rate), log_of(rate)
    terms = binomial + (order - k) * stay + k * join + k * (k - 1) * rho
    none, top = order * stay, float(terms.max())
    if top > 100:
        return (float(np.log(np.exp(terms - top).sum())) + top) / (order - 1)
    return _at_least(math.log1p(math.expm1(none) + float(np.exp(terms).sum())) / (order - 1))


# Several releases


def _several(record: dict[str, Any], orders: Orders, depth: int) -> Opinion:
    parts = record["parts"]
    if not isinstance(parts, list):
        raise ValueError
    opinions = [opinion_on(part, orders, depth + 1) for part in parts]
    join = sum if record["loss"] == "Sum" else lambda many: max(many, default=0)
    return _together(record, opinions, join, orders)


def _together(
    record: dict[str, Any], opinions: list[Opinion], join: Callable[[list[Any]], Any], orders: Orders
) -> Opinion:
    pairs = [opinion.pair for opinion in opinions if opinion.pair is not None]
    curves = [opinion.renyi for opinion in opinions if opinion.renyi is not None]
    pair = (Fraction(join([e for e, _ in pairs])), Fraction(join([d for _, d in pairs])))
    renyi = tuple([float(join([curve[k] for curve in curves])) for k in range(len(orders))])
    return Opinion(
        _only(record).union(*[opinion.kinds for opinion in opinions]),
        Fraction(join([opinion.delta0 for opinion in opinions])),
        pair if len(pairs) == len(opinions) else None,
        renyi if len(curves) == len(opinions) else None,
        any(opinion.is_partial for opinion in opinions),
    )


def _repeated(record: dict[str, Any], orders: Orders, depth: int) -> Opinion:
    return _times(record, opinion_on(record["each"], orders, depth + 1), _whole(record["count"], 1))


def _times(record: dict[str, Any], opinion: Opinion, count: int) -> Opinion:
    pair = opinion.pair and (count * opinion.pair[0], count * opinion.pair[1])
    renyi = opinion.renyi and tuple([count * value for value in opinion.renyi])
    return Opinion(opinion.kinds | _only(record), opinion.delta0 * count, pair, renyi, opinion.is_partial)


def _fixed_run(record: dict[str, Any], orders: Orders, depth: int) -> Opinion:
    steps, delta = record["steps"], _rational(record["delta"])
    if not isinstance(steps, list) or not steps or not 0 < delta < 1:
        raise ValueError
    opinions = [
        _times(record, opinion_on(loss, orders, depth + 1), _whole(count, 1)) for loss, count in steps
    ]
    added = _together(record, opinions, sum, orders)
    epsilon = None
    if sum(count for _, count in steps) <= LONGEST_RUN:
        epsilon = _run_epsilon(steps, delta)
    if epsilon is None:
        return replace(added, pair=None, is_partial=True)
    if added.pair is not None and added.pair[0] <= epsilon:
        return added
    return replace(added, pair=(epsilon, delta))


def _run_epsilon(steps: list[Any], delta: Fraction) -> Fraction | None:
    """Return ε at δ by loss distributions rounded down.

    No true price is below it. None without the library.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution as library  # noqa: PLC0415 (an extra)
    except ImportError:
        return None
    total: Any = library.identity(GRID, pessimistic_estimate=False)
    for loss, count in steps:
        step = _distribution(library, loss)
        if step is None:
            return None
        total = total.compose(step.self_compose(count))
    epsilon = float(total.get_epsilon_for_delta(float(delta)))
    # Float errors of long convolutions, and the rounding of several dimensions, stay within this.
    return Fraction(max(epsilon * (1 - 1e-6) - 1e-6, 0.0)) if math.isfinite(epsilon) else None


def _distribution(library: Any, record: dict[str, Any]) -> Any:
    grid = {"value_discretization_interval": GRID, "pessimistic_estimate": False, "use_connect_dots": False}
    match record["loss"]:
        case "LaplaceNoise" if 0 < record["distance"] <= LONGEST_DISTANCE:
            rate = _float(1 / _rational(record["scale"]))
            return library.from_discrete_laplace_mechanism(rate, record["distance"], **grid)
        case "Pure" | "Approximate" | "BoundedRange" if _rational(record["epsilon"]):
            return library.from_discrete_laplace_mechanism(_float(_rational(record["epsilon"])), 1, **grid)
        case "GaussianNoise":
            return _normal(library, record, 1.0, grid)
        case "SampledGaussian":
            return _normal(library, record["noise"], _float(_rational(record["rate"])), grid)
    return None


def _normal(library: Any, noise: dict[str, Any], rate: float, grid: dict[str, Any]) -> Any:
    sigma, squared = _rational(noise["sigma"]), _rational(noise["l2_squared"])
    if squared < 1:
        return None
    if noise["dimension"] == 1 and sigma <= 64:
        distance = math.isqrt(int(squared))
        return library.from_discrete_gaussian_mechanism(_float(sigma), distance, sampling_prob=rate, **grid)
    ratio = _float(sigma) / math.sqrt(_float(squared))
    return library.from_gaussian_mechanism(ratio, sampling_prob=rate, **grid)


def _only(record: dict[str, Any]) -> frozenset[str]:
    return frozenset([record["loss"]])


_KINDS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any], Orders, int], Opinion]]] = {
    "Pure": (("epsilon",), _pure),
    "Approximate": (("epsilon", "delta"), _pure),
    "BoundedRange": (("epsilon",), _pure),
    "LaplaceNoise": (("scale", "distance"), _laplace),
    "Concentrated": (("rho",), _concentrated),
    "GaussianNoise": (("sigma", "l2_squared", "dimension"), _concentrated),
    "SampledGaussian": (("rate", "noise"), _sampled),
    "Sum": (("parts",), _several),
    "Worst": (("parts",), _several),
    "Repeated": (("each", "count"), _repeated),
    "FixedRun": (("steps", "delta"), _fixed_run),
}


EPSILON_UNIT, DELTA_UNIT = 10**9, 10**18
# How far floats may be off, in parts and in ledger units.
RELATIVE, ABSOLUTE = 1e-9, 1e-3
SHARES = (Fraction(9, 100), Fraction(27, 100), Fraction(36, 100), Fraction(9, 100), Fraction(9, 100))


class Unreadable(Exception):
    """The record is not the description of a loss."""


def opinion(description: Any, orders: Sequence[int]) -> Opinion | None:
    """Return the least that a described loss costs, at these orders; None if there is no second opinion."""
    try:
        return opinion_on(description, tuple(orders))
    except NotPriced:
        return None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise Unreadable from None


def first_cost_too_low(least: Opinion, costs: Sequence[int], caps: Sequence[int]) -> int | None:
    """Return the index of the first cost that is too low, or None.

    A cost above its cap is never too low.
    """
    wanted: list[float | int | None] = [math.ceil(least.delta0 * DELTA_UNIT)]
    if least.is_partial:
        wanted += [0, 0]
    elif least.pair is None:
        wanted += [None, None]
    else:
        wanted += [math.ceil(least.pair[0] * EPSILON_UNIT), math.ceil(least.pair[1] * DELTA_UNIT)]
    if least.renyi is None:
        wanted += [None] * len(SHARES)
    else:
        wanted += [value * EPSILON_UNIT * (1 - RELATIVE) - ABSOLUTE for value in least.renyi]
    for k, (cost, low, cap) in enumerate(zip(costs, wanted, caps, strict=True)):
        if cost <= cap and (low is None or not cost >= low):
            return k
    return None


def first_wrong_cap(
    epsilon: Fraction, delta: Fraction, orders: Sequence[int], caps: Sequence[int]
) -> int | None:
    """Return the index of the first cap that does not follow from (ε, δ), or None."""
    shares = (delta * 6 / 100 * DELTA_UNIT, epsilon * EPSILON_UNIT, delta * 4 / 100 * DELTA_UNIT)
    for k, exactly in enumerate(shares):
        if caps[k] != math.floor(exactly):
            return k
    for k, (order, share, cap) in enumerate(zip(orders, SHARES, caps[3:], strict=True), 3):
        own = -1.0
        if delta:
            # From ε = r + ln((a-1)/a) - (ln δ + ln a) / (a - 1), solved for r.
            paid = (log_of(delta * share) + math.log(order)) / (order - 1)
            own = max((float(epsilon) - math.log1p(-1 / order) + paid) * EPSILON_UNIT, -1.0)
        if not -1 - ABSOLUTE - abs(own) * RELATIVE <= cap - own <= ABSOLUTE:  # caps are rounded down
            return k
    return None
