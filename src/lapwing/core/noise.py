"""Exact random draws: the only way to randomness, public as `lapwing.noise`.

Each function checks its parameters before it draws, and follows its law exactly: floats are used
only where a proven margin shows that they decide correctly. There is no seed.
docs/arguments/noise.md has the argument.

Example:
    >>> from lapwing import noise
    >>> noise.discrete_laplace(scale=10, size=3).shape
    (3,)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core import exact_sampling, gaussian_sampler, random_stream
from lapwing.core.exact import Number, Real, exact, positive, whole
from lapwing.core.exact_sampling import ExponentialChoice, exp_neg
from lapwing.core.gaussian_sampler import LOT, SLOT_BITS, Lookup
from lapwing.core.laplace_sampler import LARGEST_SCALE, digit_sampler, polya_sampler
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
_MOST_DRAWS = 1 << 40
_MOST_GAP = 1 << 62


def _scale(value: Number, name: str) -> Fraction:
    scale = positive(value, name)
    if scale > LARGEST_SCALE:
        raise BadParameter(name, "must be at most 2^48, so that noise fits 64-bit integers")
    return scale


def _size(size: int) -> int:
    if whole(size, "size") > _MOST_DRAWS:
        raise BadParameter("size", "must be at most 2^40")
    return int(size)


def random_bytes(size: int) -> bytes:
    """Return fresh random bytes, for keys, salts and ids.

    Args:
        size: The number of bytes, at most 2^40.

    Returns:
        `size` bytes from the same stream as all noise.

    Raises:
        BadParameter: If `size` is not a whole number from 0 to 2^40.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> len(random_bytes(16))
        16
    """
    return SYSTEM.take(_size(size))


def discrete_laplace(scale: Number, size: int) -> NDArray[np.int64]:
    """Draw integers x with probability proportional to exp(-|x| / scale).

    Args:
        scale: The scale, above 0 and at most 2^48. Adding this noise to whole numbers that differ by
            at most d is (d / scale)-private.
        size: The number of draws, at most 2^40.

    Returns:
        `size` independent draws.

    Raises:
        BadParameter: If `scale` or `size` is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> len(discrete_laplace("2.5", 4))
        4
    """
    return digit_sampler(_scale(scale, "scale"), signed=True).draw(SYSTEM, _size(size))


def geometric(scale: Number, size: int) -> NDArray[np.int64]:
    """Draw integers x >= 0 with probability proportional to exp(-x / scale).

    Args:
        scale: The scale, above 0 and at most 2^48.
        size: The number of draws, at most 2^40.

    Returns:
        `size` independent draws.

    Raises:
        BadParameter: If `scale` or `size` is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> int(geometric(10, 5).min()) >= 0
        True
    """
    return digit_sampler(_scale(scale, "scale"), signed=False).draw(SYSTEM, _size(size))


def discrete_gaussian(sigma: Number, size: int) -> NDArray[np.int64]:
    """Draw integers x with probability proportional to exp(-x^2 / (2 sigma^2)).

    Args:
        sigma: The parameter sigma, above 0 and at most 2^48. From sigma = 1 on it is the standard
            deviation, to seven digits.
        size: The number of draws, at most 2^40.

    Returns:
        `size` independent draws.

    Raises:
        BadParameter: If `sigma` or `size` is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> len(discrete_gaussian(100, 4))
        4
    """
    return gaussian_sampler.discrete_gaussian(SYSTEM, _scale(sigma, "sigma"), _size(size))


def discrete_gaussian_lots(sigma: Number, size: int) -> Iterator[NDArray[np.float64]]:
    """Draw discrete Gaussian numbers as exact floats, `LOT` at a time, to be added to floats.

    Args:
        sigma: The parameter sigma, above 0 and at most 2^48.
        size: The number of draws in all, at most 2^40.

    Returns:
        An iterator over arrays of up to `LOT` draws. Each array overwrites the one before.

    Raises:
        BadParameter: If `sigma` or `size` is out of range.
        NoEntropy: If the operating system gives no fresh key, or a forked child continues to iterate.

    Example:
        >>> sum(len(lot) for lot in discrete_gaussian_lots(100, 50_000))
        50000
    """
    return gaussian_sampler.gaussian_lots(SYSTEM, _scale(sigma, "sigma"), _size(size))


def discrete_gaussian_lookup(sigma: Number, size: int) -> Lookup | None:
    """Draw discrete Gaussian numbers that the caller looks up on another device, such as a GPU.

    Args:
        sigma: The parameter sigma, above 0 and at most 2^48.
        size: The number of draws, at most 2^40.

    Returns:
        The words and the table of the draws. None if no table is in use for this sigma: then call
        `discrete_gaussian_lots`.

    Raises:
        BadParameter: If `sigma` or `size` is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> discrete_gaussian_lookup(3, 1000) is None
        True
    """
    return gaussian_sampler.gaussian_lookup(SYSTEM, _scale(sigma, "sigma"), _size(size))


def polya_share(scale: Number, size: int, *, parties: int) -> NDArray[np.int64]:
    """Draw one party's shares of discrete Laplace noise.

    Args:
        scale: The scale of the whole noise, above 0 and at most 2^48.
        size: The number of shares, at most 2^40.
        parties: The number of shares that add up to one whole noise, at least 1.

    Returns:
        `size` independent shares.

    Raises:
        BadParameter: If a parameter is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> len(polya_share(10, 4, parties=3))
        4
    """
    t = _scale(scale, "scale")
    shares = polya_sampler(Fraction(1, whole(parties, "parties", at_least=1)), t)
    count = _size(size)
    return shares.draw(SYSTEM, count) - shares.draw(SYSTEM, count)


def bernoulli(probability: Number | Real, size: int) -> NDArray[np.bool_]:
    """Draw coins that are true with exactly this probability.

    Args:
        probability: A rational in [0, 1], or a real in [0, 1] that is known to any precision.
        size: The number of coins, at most 2^40.

    Returns:
        `size` independent coins.

    Raises:
        BadParameter: If a parameter is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> bool(bernoulli(1, 5).all())
        True
    """
    if not callable(probability):
        p = exact(probability, "probability")
        if not 0 <= p <= 1:
            raise BadParameter("probability", "must lie in [0, 1]")
        probability = exact_sampling.rational(p)
    return exact_sampling.coins(SYSTEM, probability, _size(size))


def bernoulli_near(
    approximate: NDArray[np.float64], error: float, exactly: Callable[[int], Real]
) -> NDArray[np.bool_]:
    """Draw one coin per element, true with probability exactly `exactly(i)`.

    Args:
        approximate: The probabilities in floats. They decide where the error allows it.
        error: An upper bound on the error of each float, at least 2^-50.
        exactly: A function that returns the exact probability of element i, as a real.

    Returns:
        Independent coins, one per element of `approximate`.

    Raises:
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> from lapwing.core.exact_sampling import rational
        >>> half = rational(Fraction(1, 2))
        >>> len(bernoulli_near(np.array([0.5, 0.5]), 2.0**-50, lambda i: half))
        2
    """
    return exact_sampling.coins_near(SYSTEM, approximate, error, exactly)


def bernoulli_exp(x: Scores, *, rate: Number = 1) -> NDArray[np.bool_]:
    """Draw one coin per element, true with probability exactly exp(-rate * x).

    Args:
        x: Whole or rational numbers, not negative.
        rate: The rate, above 0.

    Returns:
        Independent coins, one per element of `x`.

    Raises:
        BadParameter: If an element of `x` is negative or `rate` is not above 0.
        BadValue: If `x` is empty, not one-dimensional, or does not fit 64-bit integers.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> bool(bernoulli_exp([0])[0])
        True
    """
    wholes, denominator = _rational_scores(x, "x")
    if wholes.min() < 0:
        raise BadParameter("x", "must not be negative")
    return exact_sampling.bernoulli_exp(SYSTEM, wholes, positive(rate, "rate") / denominator)


def exponential_choice(
    scores: Scores, rate: Number, size: int = 1, *, counts: Sequence[int] | NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Draw indexes with probability exactly proportional to counts * exp(rate * scores).

    Args:
        scores: Whole or rational numbers within 2^62 of one another.
        rate: The rate, above 0.
        size: The number of draws, at most 2^40.
        counts: A whole number above 0 for each score: the multiplicity of that index. None means 1.

    Returns:
        `size` independent indexes into `scores`.

    Raises:
        BadParameter: If `rate` or `size` is out of range.
        BadValue: If `scores` or `counts` are not as described.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> int(exponential_choice([0, 1000], rate=1)[0])
        1
        >>> int(exponential_choice([0, 0], rate=1, counts=[1, 10**18])[0])
        1
    """
    wholes, denominator = _rational_scores(scores)
    if int(wholes.max()) - int(wholes.min()) >= _MOST_GAP:
        raise BadValue("scores must lie within 2^62 of one another")
    times = None if counts is None else _multiplicities(counts, len(wholes))
    rate_of_wholes = positive(rate, "rate") / denominator
    return ExponentialChoice(wholes.max() - wholes, rate_of_wholes, times).draw(SYSTEM, _size(size))


def _multiplicities(counts: Sequence[int] | NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return counts as an array of 64-bit integers, or raise BadValue."""
    wholes, denominator = np.zeros(1, dtype=np.int64), 1
    if isinstance(counts, Sequence | np.ndarray):  # a set has no order
        with suppress(BadParameter, BadValue):
            wholes, denominator = _rational_scores(counts, "counts")
    if denominator != 1 or len(wholes) != length or int(wholes.min()) < 1:
        raise BadValue("counts must be whole numbers above 0 that fit 64-bit integers, one per score")
    return wholes


def uniform_int(low: int, high: int, size: int) -> NDArray[np.int64]:
    """Draw whole numbers low <= x < high, all equally likely.

    Args:
        low: The least number, which fits 64-bit integers.
        high: One more than the greatest number, at most 2^63.
        size: The number of draws, at most 2^40.

    Returns:
        `size` independent draws.

    Raises:
        BadParameter: If a parameter is out of range, or `high` is not above `low`.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> uniform_int(5, 6, 3).tolist()
        [5, 5, 5]
    """
    for name, end in (("low", low), ("high", high)):
        if not -(1 << 63) <= whole(end, name, at_least=-(1 << 64)) <= 1 << 63:
            raise BadParameter(name, "must fit 64-bit integers")
    low, high = int(low), int(high)  # numpy's integers could overflow in high - low
    if low >= high:
        raise BadParameter("high", "must be above low")
    drawn = random_stream.uniform_below(SYSTEM, high - low, _size(size))
    return (drawn + np.uint64(low % (1 << 64))).astype(np.int64)


def permutation(count: int) -> NDArray[np.int64]:
    """Return 0 .. count - 1 in a uniformly random order.

    Args:
        count: The number of items, at most 2^40.

    Returns:
        Each of 0 .. count - 1 once.

    Raises:
        BadParameter: If `count` is out of range.
        NoEntropy: If the operating system gives no fresh key.

    Example:
        >>> sorted(permutation(3).tolist())
        [0, 1, 2]
    """
    return random_stream.permutation(SYSTEM, _size(count))


def _rational_scores(values: Scores, name: str = "scores") -> tuple[NDArray[np.int64], int]:
    """Return rational values as whole numerators, and their common denominator."""
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
