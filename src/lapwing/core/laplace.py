"""The Laplace mechanism, the same noise in shares, and the noise in a sum of shares.

`Laplace` adds discrete Laplace noise to whole numbers. With `LaplaceShares` each member adds one share of
the noise, so that nobody knows the whole noise. `SummedLaplace` is the noise in a sum of shares:

Claim    X, the sum of n shares of which `of` are one discrete Laplace noise at scale t, has
         P[X > w] = 1/π Im ∫ M(z) e^(-z(w + 1)) / (1 - e^(-z)) dz, along any path from a point θ of
         (0, 1/t) to the line Im z = π, where M(z) = ((1 - q)² / ((1 - q e^z)(1 - q e^-z)))^(n / of) is
         X's moment generating function and q = exp(-1/t).
Because  Σ_(k > w) e^(-z(k - w - 1)) is 1 / (1 - e^-z): the integral over one period selects the
         coefficients of M above w. docs/arguments/laplace_shares.md has the rest.
Test     tests/core/test_laplace_shares.py, beside sums of the exact law

The integral is a ball (flint's rigorous integration), so every width that is reported does hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
from flint import acb, arb
from numpy.typing import ArrayLike, NDArray

from lapwing.core.budget import EPSILON_UNIT
from lapwing.core.exact import Number, ball, exact, least_where, precision, round_up, set_fields, whole
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.laplace_sampler import LARGEST_SCALE
from lapwing.core.losses import LARGEST_EPSILON, LaplaceNoise, checked_epsilon
from lapwing.core.noise import discrete_laplace, polya_share
from lapwing.core.observed import observed
from lapwing.core.spread import BITS, checked_confidence, least_width, miss_of_each
from lapwing.core.values import whole_values
from lapwing.errors import BadParameter


def noise_width(scale: Fraction, confidence: Number, *, answers: int) -> int:
    """Return the least w such that `answers` noises all lie within ±w with this confidence."""

    def tail(width: int) -> arb:
        """Return P[|noise| > width] = 2 q^(width + 1) / (1 + q), q = exp(-1 / scale)."""
        with precision(BITS):
            return 2 * ball(-(width + 1) / scale).exp() / (1 + ball(-1 / scale).exp())

    return least_width(tail, miss_of_each(checked_confidence(confidence), answers))


def _checked_scale(value: Fraction) -> Fraction:
    scale = exact(value, "scale")
    if not 0 < scale <= LARGEST_SCALE:
        raise BadParameter("scale", "must lie between 0 and 2^48")
    return scale


@dataclass(frozen=True, slots=True)
class _LaplaceTerms:
    """The scale of the whole noise, and the greatest L1 distance of neighbouring inputs."""

    scale: Fraction
    l1: int

    def __post_init__(self) -> None:
        set_fields(self, scale=_checked_scale(self.scale), l1=whole(self.l1, "l1", at_least=1))
        checked_epsilon(self.l1 / self.scale)

    @property
    def loss(self) -> LaplaceNoise:
        """The loss of one use (of shares: of the opened sum, if at least `of` honest shares are in it)."""
        return LaplaceNoise(self.scale, self.l1)

    @property
    def metric(self) -> InputMetric:
        """The distance of inputs that the loss is about: L1."""
        return InputMetric(Distance.L1, Fraction(self.l1))


@dataclass(frozen=True, slots=True)
class Laplace(_LaplaceTerms):
    """Whole numbers plus independent two-sided geometric noise.

    Claim    inputs at L1 distance at most `l1` give pure loss l1 / scale.
    Because  P[k] is proportional to exp(-|k| / scale), and | |k + d| - |k| | <= |d|.
    Test     claims/test_laplace.py::test_loss_is_distance_over_scale

    Args:
        scale: The scale of the noise, above 0 and at most 2^48.
        l1: The sensitivity: the greatest L1 distance of neighbouring inputs, at least 1.

    Raises:
        BadParameter: If a parameter is out of range, or ε = l1 / scale is not in [1e-9, 1000].

    Example:
        >>> mechanism = Laplace.for_epsilon("0.5", l1=1)
        >>> mechanism.loss.pure
        Fraction(1, 2)
        >>> mechanism.spread("0.95")
        6
        >>> noisy = mechanism.sample([120, 33])  # charge the loss first
    """

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, l1: int | Fraction) -> Laplace:
        """Return the mechanism that is exactly ε-private for inputs at L1 distance at most `l1`."""
        distance = whole(l1, "l1", at_least=1)
        return cls(distance / checked_epsilon(epsilon), distance)

    @classmethod
    def for_width(cls, width: int, *, confidence: Number, l1: int) -> Laplace:
        """Return the mechanism with the least ε (in ledger units) whose noise stays within ±width.

        Raises BadParameter if no ε up to 1000 reaches this width at this confidence.
        """
        within = whole(width, "width")
        level = checked_confidence(confidence)
        if cls.for_epsilon(LARGEST_EPSILON, l1=l1).spread(level) > within:
            raise BadParameter("width", "cannot be reached with any ε up to 1000")

        def stays_within(units: int) -> bool:
            scale = l1 / Fraction(units, EPSILON_UNIT)
            return scale <= LARGEST_SCALE and cls(scale, l1).spread(level) <= within

        units = least_where(stays_within, 0, int(LARGEST_EPSILON * EPSILON_UNIT))
        return cls.for_epsilon(Fraction(units, EPSILON_UNIT), l1=l1)

    @observed
    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the values with fresh noise. Charge the loss first; a second call is a second use."""
        checked = whole_values(values)
        return checked + discrete_laplace(self.scale, len(checked))

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """Return the least w such that all of `answers` noises lie within ±w with this confidence."""
        return noise_width(self.scale, confidence, answers=answers)


@dataclass(frozen=True, slots=True)
class LaplaceShares(_LaplaceTerms):
    """Whole numbers plus one member's share of discrete Laplace noise, to be opened only in a sum.

    Claim    if at least `of` shares that the adversary does not know are in the sum, inputs at L1
             distance at most `l1` give pure loss l1 / scale. One share alone does not.
    Because  a share is the difference of two Polya variables with 1/of. Generating functions
             multiply, so `of` shares are one discrete Laplace noise, and everything that is added on
             top (more shares, other members' values) is post-processing. The adversary can subtract
             the shares that it knows, so these do not count.
    Test     claims/test_noise_shares.py::test_of_shares_are_exactly_one_discrete_laplace_noise

    Args:
        scale: The scale of the whole noise, above 0 and at most 2^48.
        l1: The sensitivity: the greatest L1 distance of neighbouring inputs, at least 1.
        of: The number of shares that make one whole noise, at least 1.

    Raises:
        BadParameter: If a parameter is out of range, or ε = l1 / scale is not in [1e-9, 1000].

    Example:
        >>> shares = LaplaceShares.for_epsilon(1, l1=1, of=3)
        >>> int(sum(shares.sample([40])[0] for member in range(3))) > 0  # 120 plus one whole noise
        True
    """

    of: int

    def __post_init__(self) -> None:
        _LaplaceTerms.__post_init__(self)
        set_fields(self, of=whole(self.of, "of", at_least=1))

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, l1: int, of: int) -> LaplaceShares:
        """Return shares that are exactly ε-private at L1 distance `l1` if `of` honest ones are added."""
        distance = whole(l1, "l1", at_least=1)
        return cls(distance / checked_epsilon(epsilon), distance, of)

    def loss_with(self, present: int) -> Fraction:
        """Return the pure ε of a sum with only `present` honest shares in it, rounded up.

        With r = present / of below 1 the law falls off log-convexly on both sides of 0. So no ratio of
        neighbours is above that of 0 and 1, and l1 steps in as many cells are worst:
        l1 · ln(P[0] / P[1]), P[0] / P[1] = F(r, r; 1; q²) / (r q F(r, r + 1; 2; q²)). With fewer
        than l1 cells it is an upper bound.
        """
        if whole(present, "present", at_least=1) >= self.of:
            return self.l1 / self.scale
        with precision(BITS):
            q, part = ball(-1 / self.scale).exp(), ball(Fraction(present, self.of))
            at_0 = (q * q).hypgeom_2f1(part, part, 1)
            at_1 = part * q * (q * q).hypgeom_2f1(part, part + 1, 2)
            return Fraction(round_up(self.l1 * (at_0 / at_1).log(), EPSILON_UNIT), EPSILON_UNIT)

    @observed
    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the values with one fresh share each. Charge the loss before each call.

        The result is private only inside a sum: no member shows its own to anybody (unless of = 1).
        """
        checked = whole_values(values)
        if self.of == 1:
            return checked + discrete_laplace(self.scale, len(checked))
        return checked + polya_share(self.scale, len(checked), parties=self.of)

    def total(self, contributors: int) -> SummedLaplace:
        """Return the noise in a sum of `contributors` shares, the adversary's included."""
        return SummedLaplace(self.scale, self.of, contributors)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """Return `SummedLaplace.spread` of exactly `of` shares: the least noise that a sum may have."""
        return self.total(self.of).spread(confidence, answers=answers)


_BITS = 160
_RELATIVE = 2.0**-26
# Widths above this may be too large by one part in this number.
_FINE = 1 << 16
# The path ends where e^(-z(w + 1)) has fallen by e^-100 or more; the rest of it is bounded.
_LEFT_AT = 100
_PATIENCE = 8
MOST_WHOLES = 10_000  # more take seconds or minutes to integrate


@dataclass(frozen=True, slots=True)
class SummedLaplace:
    """The noise in a sum of `contributors` shares, of which `of` are one discrete Laplace noise at `scale`.

    Args:
        scale: The scale of one whole noise, above 0 and at most 2^48.
        of: The number of shares that make one whole noise, at least 1.
        contributors: The number of shares in the sum, at least 1 and at most 10,000 · of.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> SummedLaplace(Fraction(10), of=3, contributors=3).spread("0.95")
        30
    """

    scale: Fraction
    of: int
    contributors: int

    def __post_init__(self) -> None:
        set_fields(self, scale=_checked_scale(self.scale), of=whole(self.of, "of", at_least=1))
        set_fields(self, contributors=whole(self.contributors, "contributors", at_least=1))
        if self.contributors > MOST_WHOLES * self.of:
            raise BadParameter("contributors", f"must be at most {MOST_WHOLES:,} whole noises")

    @property
    def wholes(self) -> Fraction:
        """The number of whole noises in the sum, r = contributors / of."""
        return Fraction(self.contributors, self.of)

    @property
    def deviation(self) -> float:
        """The standard deviation, √(2 r q) / (1 - q) with r = contributors / of."""
        with precision(_BITS):
            q = ball(-1 / self.scale).exp()
            return float((2 * ball(self.wholes) * q).sqrt() / -ball(-1 / self.scale).expm1())

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """Return a w such that all of `answers` noises lie within ±w with this confidence.

        Below 2^16 it is the least one; beyond, it is at most one part in 2^16 more than the least.
        """
        level = checked_confidence(confidence)
        if self.contributors == self.of:
            return noise_width(self.scale, level, answers=answers)
        return _summed_width(self.scale, self.wholes, miss_of_each(level, answers))


def upper_tail(scale: Fraction, wholes: Fraction, width: int) -> arb:
    """Return P[X > width], width >= 0, as a ball of about seven digits."""
    beyond = width + 1
    with precision(_BITS):
        rate, r, theta = ball(1 / scale), ball(wholes), _saddle(scale, wholes, beyond)
        start, whole_noise = ball(theta), 2 * (-(-rate).expm1()).log()

        def integrand(z: acb, analytic: bool) -> acb:
            # Relative to e^(-θ beyond), so that tiny tails are as exact as large ones. Both logarithms
            # are of numbers off the negative axis: Im z is in [0, π], and Re z < 1/t where Im z is 0.
            up = (1 - (z - rate).exp()).log(analytic=analytic)
            down = (1 - (-z - rate).exp()).log(analytic=analytic)
            return (r * (whole_noise - up - down) - (z - start) * beyond).exp() / (1 - (-z).exp())

        # Along a ray at 60°, whose real part rises by half of the reach. For many wholes M falls sooner.
        reach = 2 * (_LEFT_AT + math.ceil(2 * wholes)) / Fraction(beyond)
        if wholes > 10:
            reach = min(reach, math.ceil(1.3 * math.exp(_LEFT_AT / wholes)) / scale)
        if reach > 1:
            end, rest = acb(start, arb.pi()), arb(0)
        else:
            real, imaginary = ball(theta + reach / 2), ball(reach * Fraction(433, 500))
            # From there straight up: |1 - q e^z| >= sin(imaginary), |1 - q e^-z| >= 1 - q, and
            # |1 - e^-z| >= 1 - e^-real.
            fallen = r * (whole_noise / 2 - imaginary.sin().log()) - (real - start) * beyond
            most = fallen.exp() / -(-real).expm1()
            end, rest = acb(real, imaginary), (-most).union(most)
        integral = acb.integral(integrand, acb(start, 0), end, rel_tol=arb(_RELATIVE), abs_tol=arb(0))
        return (integral.imag / arb.pi() + rest) * (-start * beyond).exp()


def _saddle(scale: Fraction, wholes: Fraction, beyond: int) -> Fraction:
    """Return a point of (0, 1/t) where the integrand is about least: any point would be right."""
    r, y = float(wholes), float(beyond / scale)
    low, high = 0.0, 1.0
    for _ in range(30):
        x = (low + high) / 2
        low, high = (x, high) if 2 * r * x / (1 - x * x) < y + 1 / x else (low, x)
    return Fraction(min(max((low + high) / 2, 2.0**-20), 1 - 2.0**-20)) / scale


@lru_cache(maxsize=4096)
def _summed_width(scale: Fraction, wholes: Fraction, miss: Fraction) -> int:
    """Find the width by Newton's steps between one that fails and one that holds; balls decide both."""
    low, fine, turns = -1, 1, 0  # all noise is beyond -1
    high: int | None = None
    width, hazard = _guess_width(scale, wholes, miss)
    with precision(_BITS):
        while high is None or high - low > fine:
            tail = 2 * upper_tail(scale, wholes, width)
            low, high = (low, width) if tail <= ball(miss) else (width, high)
            fine, turns = max(1, width // _FINE), turns + 1
            # If the ball of the tail is too wide to be positive, look further out.
            root = width + float((tail / ball(miss)).log()) / hazard if tail > 0 else math.inf
            width = _next_width(low, high, fine, root if turns < _PATIENCE else math.inf)
    return high


def _next_width(low: int, high: int | None, fine: int, root: float) -> int:
    """Return the next width to try: near the root, or in the middle if the root is not plausible."""
    furthest = 2 * low + 1024 if high is None else high
    if not low - fine <= root <= furthest + fine:
        return furthest if high is None else (low + high) // 2
    return min(max(math.ceil(root) + fine // 2, low + fine), furthest if high is None else high - fine)


def _guess_width(scale: Fraction, wholes: Fraction, miss: Fraction) -> tuple[int, float]:
    """Guess the width, and how fast the tail's logarithm falls there: floats, never trusted."""
    t, r = float(scale), float(wholes)
    if t < 1:
        return 0, 1 / t
    spacing = t * (1 - 1 / (24 * t * t))  # √q / (1 - q), about
    goal = math.log(miss / 2) if miss > 1e-300 else -690.0
    low, high = 0.0, 4.0 * r + 800.0
    for _ in range(40):
        y = (low + high) / 2
        low, high = (y, high) if _log_tail(r, y) > goal else (low, y)
    hazard = (_log_tail(r, y) - _log_tail(r, y + 0.01)) / 0.01
    return max(math.ceil(y * spacing - 0.5), 0), max(hazard, 1e-6) / spacing


@cache
def _legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the nodes and weights of Gauss-Legendre integration. They take 30 ms to compute."""
    return np.polynomial.legendre.leggauss(160)


def _log_tail(r: float, y: float) -> float:
    """Return ln P[X > y t] for wide noise: the integral with (1 - (z t)²)^-r for M and 1/z for the sum."""
    low, high = 0.0, 1.0
    for _ in range(30):
        x = (low + high) / 2
        low, high = (x, high) if 2 * r * x / (1 - x * x) < y + 1 / x else (low, x)
    half = min(40 / (y + 1), math.sqrt(math.expm1(min(80 / r, 30))) / 2)
    nodes, weights = _legendre()
    path: NDArray[np.float64] = (nodes + 1) * half
    turn = complex(0.5, math.sqrt(0.75))
    z = x + path * turn
    at_start = math.log(1 - x) + math.log(1 + x)  # relative to this, nothing overflows
    values = np.exp(-r * (np.log(1 - z) + np.log(1 + z) - at_start) - (z - x) * y) / z * turn
    integral = float((values.imag * weights).sum()) * half / math.pi
    return math.log(max(integral, 1e-300)) - r * at_start - x * y
