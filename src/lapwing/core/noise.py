"""The only door to randomness: exact samplers on a keyed stream.

Each function checks its parameters before it draws, and follows its law exactly: floats are used
only where a proven margin shows that they decide correctly. There is no seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core import exact_sampling, gaussian_sampler, laplace_sampler, random_stream
from lapwing.core.exact import Number, Real, exact, positive, whole
from lapwing.core.exact_sampling import ExponentialChoice, exp_neg
from lapwing.core.gaussian_sampler import LOT, SLOT_BITS, Lookup
from lapwing.core.random_stream import SYSTEM
from lapwing.errors import BadParameter, BadValue

__all__ = [
    "LARGEST_SCALE",
    "LOT",
    "SLOT_BITS",
    "Lookup",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_near",
    "discrete_gaussian",
    "discrete_gaussian_lookup",
    "discrete_gaussian_lots",
    "discrete_laplace",
    "exp_neg",
    "exponential_choice",
    "geometric",
    "permutation",
    "polya_share",
    "random_bytes",
    "uniform_int",
]

Scores = Sequence[Number] | NDArray[np.int64]
LARGEST_SCALE = laplace_sampler.LARGEST_SCALE
_MOST_DRAWS = 1 << 40
_MOST_GAP = 1 << 62


def _scale(value: Number, name: str) -> Fraction:
    scale = positive(value, name)
    if scale > LARGEST_SCALE:
        raise BadParameter(name, "must be at most 2^48, so that noise fits 64-bit integers")
    return scale


def random_bytes(size: int) -> bytes:
    """Fresh random bytes for keys, salts and ids: the same door, the same failing closed."""
    return SYSTEM.take(_size(size))


def _size(size: int) -> int:
    if whole(size, "size") > _MOST_DRAWS:
        raise BadParameter("size", "must be at most 2^40")
    return int(size)


def discrete_laplace(scale: Number, size: int) -> NDArray[np.int64]:
    """Integers x with probability proportional to exp(-|x| / scale)."""
    t = _scale(scale, "scale")
    return laplace_sampler.digit_sampler(t, signed=True).draw(SYSTEM, _size(size))


def geometric(scale: Number, size: int) -> NDArray[np.int64]:
    """Integers x >= 0 with probability proportional to exp(-x / scale)."""
    t = _scale(scale, "scale")
    return laplace_sampler.digit_sampler(t, signed=False).draw(SYSTEM, _size(size))


def discrete_gaussian(sigma: Number, size: int) -> NDArray[np.int64]:
    """Integers x with probability proportional to exp(-x^2 / (2 sigma^2))."""
    return gaussian_sampler.discrete_gaussian(SYSTEM, _scale(sigma, "sigma"), _size(size))


def discrete_gaussian_lots(sigma: Number, size: int) -> Iterator[NDArray[np.float64]]:
    """The same as exact floats, `LOT` at a time: for sums of floats. Each lot overwrites the last."""
    return gaussian_sampler.gaussian_lots(SYSTEM, _scale(sigma, "sigma"), _size(size))


def discrete_gaussian_lookup(sigma: Number, size: int) -> Lookup | None:
    """The same for whoever looks them up on another device; None where lots must be asked for."""
    return gaussian_sampler.gaussian_lookup(SYSTEM, _scale(sigma, "sigma"), _size(size))


def polya_share(scale: Number, size: int, *, parties: int) -> NDArray[np.int64]:
    """One party's part of discrete Laplace noise: `parties` of them add up to it."""
    t = _scale(scale, "scale")
    shares = laplace_sampler.polya_sampler(Fraction(1, whole(parties, "parties", at_least=1)), t)
    count = _size(size)
    return shares.draw(SYSTEM, count) - shares.draw(SYSTEM, count)


def bernoulli(probability: Number | Real, size: int) -> NDArray[np.bool_]:
    """Coins that are true with exactly this probability: a rational, or a real in [0, 1]."""
    if callable(probability):
        return exact_sampling.coins(SYSTEM, probability, _size(size))
    p = exact(probability, "probability")
    if not 0 <= p <= 1:
        raise BadParameter("probability", "must lie in [0, 1]")
    return exact_sampling.coins(SYSTEM, exact_sampling.rational(p), _size(size))


def bernoulli_near(
    approximate: NDArray[np.float64], error: float, exactly: Callable[[int], Real]
) -> NDArray[np.bool_]:
    """One coin per element, true with probability exactly `exactly(i)`.

    `approximate` is known to be within `error` of it, and decides where that is enough.
    """
    return exact_sampling.coins_near(SYSTEM, approximate, error, exactly)


def bernoulli_exp(x: Scores, *, rate: Number = 1) -> NDArray[np.bool_]:
    """One coin per element, true with probability exactly exp(-rate * x), for rational x >= 0."""
    wholes, denominator = _rational_scores(x, "x")
    if wholes.min() < 0:
        raise BadParameter("x", "must not be negative")
    return exact_sampling.bernoulli_exp(SYSTEM, wholes, positive(rate, "rate") / denominator)


def exponential_choice(
    scores: Scores, rate: Number, size: int = 1, *, counts: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Indexes with probability exactly proportional to counts * exp(rate * scores)."""
    wholes, denominator = _rational_scores(scores)
    if int(wholes.max()) - int(wholes.min()) >= _MOST_GAP:
        raise BadValue("scores must lie within 2^62 of one another")
    if counts is not None:
        whole_numbers = isinstance(counts, np.ndarray) and counts.dtype.kind in "iu"
        if not whole_numbers or counts.shape != wholes.shape or counts.min() < 1:
            raise BadValue("counts must be an array of whole numbers above 0, one per score")
    rate_of_wholes = positive(rate, "rate") / denominator
    return ExponentialChoice(wholes.max() - wholes, rate_of_wholes, counts).draw(SYSTEM, _size(size))


def uniform_int(low: int, high: int, size: int) -> NDArray[np.int64]:
    """Whole numbers low <= x < high, all equally likely; both ends fit 64-bit integers."""
    for name, end in (("low", low), ("high", high)):
        if not -(1 << 63) <= whole(end, name, at_least=-(1 << 64)) <= 1 << 63:
            raise BadParameter(name, "must fit 64-bit integers")
    low, high = int(low), int(high)  # numpy's integers would wrap round in high - low
    if low >= high:
        raise BadParameter("high", "must be above low")
    drawn = random_stream.uniform_below(SYSTEM, high - low, _size(size))
    return (drawn + np.uint64(low % (1 << 64))).astype(np.int64)


def permutation(count: int) -> NDArray[np.int64]:
    """0 .. count - 1 in a uniformly random order."""
    return random_stream.permutation(SYSTEM, _size(count))


def _rational_scores(values: Scores, name: str = "scores") -> tuple[NDArray[np.int64], int]:
    """Rational values as whole multiples of 1/denominator."""
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise BadValue(f"{name} must be one-dimensional")
    if not len(values):
        raise BadValue(f"{name}: at least one is needed")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        if values.dtype == np.uint64 and values.max() >= 1 << 63:
            raise BadValue(f"{name} must fit 64-bit integers")
        return values.astype(np.int64), 1
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        raise BadValue(f"{name} must be whole or rational: put real values on a public grid first")
    if isinstance(values, str | bytes):
        raise BadValue(f"{name} must be a sequence of numbers")
    rationals = [exact(value, name) for value in values]
    denominator = math.lcm(*(value.denominator for value in rationals))
    wholes = [int(value * denominator) for value in rationals]
    if max(map(abs, wholes)) >= 1 << 62:
        raise BadValue(f"{name} must fit 64-bit integers on one denominator")
    return np.array(wholes, dtype=np.int64), denominator
