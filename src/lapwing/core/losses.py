"""Which data sets count as neighbours.

What a release can reveal about one unit, before it is priced for an account.

A loss is δ₀ and a remainder. With probability δ₀ anything may happen; otherwise the remainder's
bounds hold: a pure ε (or none), a Rényi curve (or none), and optionally a pair (ε_b, δ_b) for a run
whose steps are fixed beforehand. docs/arguments/portfolio.md says why they may be added separately.

All parameters are exact rationals; what is irrational is rounded up.

Losses of several releases: added up, the worst of disjoint ones, or one many times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import reduce

from flint import arb

from lapwing.core import renyi_curves
from lapwing.core.exact import Number, ball, exact, exp_up, positive, precision, round_up, set_fields, whole
from lapwing.errors import BadParameter


class Relation(Enum):
    """What one neighbouring step does. All losses charged to one budget must be about the same.

    ADD_REMOVE  one unit's rows are added or removed: curated data, the size is private.
    REPLACE     one unit's rows are replaced by others: the number of units is public.
    """

    ADD_REMOVE = "add or remove one unit"
    REPLACE = "replace one unit"


SMALLEST_EPSILON = Fraction(1, 10**9)
LARGEST_EPSILON = Fraction(1000)
ZERO = Fraction(0)
Pair = tuple[Fraction, Fraction]


def checked_epsilon(value: Number, name: str = "epsilon") -> Fraction:
    """ε as an exact rational in [1e-9, 1000]."""
    epsilon = positive(value, name)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise BadParameter(name, "must lie between 1e-9 (one ledger unit) and 1000")
    return epsilon


def checked_delta(value: Number, name: str = "delta") -> Fraction:
    """δ as an exact rational in [0, 1)."""
    delta = exact(value, name)
    if not 0 <= delta < 1:
        raise BadParameter(name, "must lie in [0, 1)")
    return delta


def not_negative(value: Number, name: str) -> Fraction:
    """`value` as an exact rational that is at least zero."""
    number = exact(value, name)
    if number < 0:
        raise BadParameter(name, "must not be negative")
    return number


class Loss(ABC):
    """An upper bound on what one release reveals, for one neighbouring step."""

    @property
    def delta0(self) -> Fraction:
        """The probability with which anything may happen."""
        return ZERO

    @property
    def pure(self) -> Fraction | None:
        """The remainder's pure ε, if it has one."""
        return None

    @property
    def pair(self) -> Pair | None:
        """(ε_b, δ_b) of the remainder as a black box; (pure, 0) unless something else was priced."""
        pure = self.pure
        return None if pure is None else (pure, ZERO)

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> tuple[int, int] | None:
        """`pair` in whole units, rounded up. Overrides are faster and give the same numbers."""
        pair = self.pair
        return pair and (round_up(pair[0], epsilon_unit), round_up(pair[1], delta_unit))

    @abstractmethod
    def renyi(self, order: Fraction) -> arb | None:
        """An upper bound on the remainder's Rényi divergence, if it has one."""

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int] | None:
        """`renyi` in whole 1/unit, rounded up. Overrides are faster and give the same numbers."""
        values = [self.renyi(Fraction(order)) for order in orders]
        if any(value is None for value in values):
            return None
        with precision(renyi_curves.BITS):
            return [max(round_up(value, unit), 0) for value in values if value is not None]

    @abstractmethod
    def for_group(self, size: int) -> Loss:
        """The loss for `size` neighbouring steps at once."""


@dataclass(frozen=True, slots=True)
class _PureBound(Loss):
    """A remainder that is purely ε-private: at worst randomized response."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        set_fields(self, epsilon=not_negative(self.epsilon, "epsilon"))

    @property
    def pure(self) -> Fraction:
        return self.epsilon

    def renyi(self, order: Fraction) -> arb:
        return renyi_curves.randomized_response(order, self.epsilon)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        return renyi_curves.randomized_response_units(orders, self.epsilon, unit)


@dataclass(frozen=True, slots=True)
class Pure(_PureBound):
    """ε-private, and nothing more is known."""

    def for_group(self, size: int) -> Pure:
        return Pure(whole(size, "size", at_least=1) * self.epsilon)


@dataclass(frozen=True, slots=True)
class Approximate(_PureBound):
    """(ε, δ)-private: with probability δ anything, otherwise at most ε."""

    delta: Fraction

    def __post_init__(self) -> None:
        _PureBound.__post_init__(self)
        set_fields(self, delta=not_negative(self.delta, "delta"))
        if self.delta > 1:
            raise BadParameter("delta", "must lie in [0, 1]")

    @property
    def delta0(self) -> Fraction:
        return self.delta

    def for_group(self, size: int) -> Approximate:
        """(kε, δ (e^{kε} − 1) / (e^ε − 1)): δ + e^ε δ + ... + e^{(k−1)ε} δ."""
        k = whole(size, "size", at_least=1)
        factor = sum((exp_up(i * self.epsilon) for i in range(1, k)), Fraction(1))
        return Approximate(k * self.epsilon, min(self.delta * factor, Fraction(1)))


@dataclass(frozen=True, slots=True)
class Concentrated(Loss):
    """ρ-zCDP: Rényi divergence at most ρ · order, as of Gaussian noise with ρ = Δ² / 2σ²."""

    rho: Fraction

    def __post_init__(self) -> None:
        set_fields(self, rho=not_negative(self.rho, "rho"))

    def renyi(self, order: Fraction) -> arb:
        with precision(renyi_curves.BITS):
            return ball(order * self.rho)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        numerator, denominator = unit * self.rho.numerator, self.rho.denominator
        return [-(-order * numerator // denominator) for order in orders]

    def for_group(self, size: int) -> Concentrated:
        return Concentrated(whole(size, "size", at_least=1) ** 2 * self.rho)


@dataclass(frozen=True, slots=True)
class BoundedRange(_PureBound):
    """Pure ε whose log-ratios span a range of only ε: the exponential mechanism."""

    def renyi(self, order: Fraction) -> arb:
        return renyi_curves.bounded_range(order, self.epsilon)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        as_pure = _PureBound.renyi_units(self, orders, unit)
        as_range = Concentrated(self.epsilon**2 / 8).renyi_units(orders, unit)
        return list(map(min, as_pure, as_range))

    def for_group(self, size: int) -> BoundedRange:
        return BoundedRange(whole(size, "size", at_least=1) * self.epsilon)


@dataclass(frozen=True, slots=True)
class LaplaceNoise(Loss):
    """Discrete Laplace noise at `scale` on integers that differ by at most `distance` in L1."""

    scale: Fraction
    distance: int

    def __post_init__(self) -> None:
        set_fields(self, scale=positive(self.scale, "scale"), distance=whole(self.distance, "distance"))

    @property
    def pure(self) -> Fraction:
        return Fraction(self.distance * self.scale.denominator, self.scale.numerator)

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> tuple[int, int]:
        return -(-self.distance * self.scale.denominator * epsilon_unit // self.scale.numerator), 0

    def renyi(self, order: Fraction) -> arb:
        return renyi_curves.discrete_laplace(order, self.scale, self.distance)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        return renyi_curves.discrete_laplace_units(orders, self.scale, self.distance, unit)

    def for_group(self, size: int) -> LaplaceNoise:
        return LaplaceNoise(self.scale, whole(size, "size", at_least=1) * self.distance)


@dataclass(frozen=True, slots=True)
class GaussianNoise(Loss):
    """Discrete Gaussian noise at `sigma` on integer vectors within L2 distance √l2_squared."""

    sigma: Fraction
    l2_squared: Fraction
    dimension: int

    def __post_init__(self) -> None:
        set_fields(self, sigma=positive(self.sigma, "sigma"))
        set_fields(self, l2_squared=not_negative(self.l2_squared, "l2_squared"))
        set_fields(self, dimension=whole(self.dimension, "dimension", at_least=1))

    @property
    def concentrated(self) -> Concentrated:
        """The same as zCDP: ρ = Δ² / 2σ², whatever the dimension."""
        return Concentrated(self.l2_squared / (2 * self.sigma * self.sigma))

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> None:
        return None

    def renyi(self, order: Fraction) -> arb:
        return self.concentrated.renyi(order)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        squared, top, bottom = self.l2_squared, self.sigma.denominator, self.sigma.numerator
        numerator = unit * squared.numerator * top * top
        denominator = 2 * squared.denominator * bottom * bottom
        return [-(-order * numerator // denominator) for order in orders]

    def for_group(self, size: int) -> GaussianNoise:
        factor = whole(size, "size", at_least=1) ** 2
        return GaussianNoise(self.sigma, factor * self.l2_squared, self.dimension)


@dataclass(frozen=True, slots=True)
class SampledGaussian(Loss):
    """Gaussian noise on a fresh Poisson sample, in which each unit is with probability `rate`.

    One step of training. Neighbours add or remove one unit.
    """

    rate: Fraction
    noise: GaussianNoise

    def __post_init__(self) -> None:
        set_fields(self, rate=positive(self.rate, "rate"))
        if self.rate > 1:
            raise BadParameter("rate", "must lie in (0, 1]")
        if self.noise.l2_squared < 1:
            raise BadParameter("noise", "is on whole numbers, which differ by 1 or more")

    def renyi(self, order: Fraction) -> arb:
        return renyi_curves.sampled_gaussian(order, self.rate, self.noise.concentrated.rho)

    def for_group(self, size: int) -> Loss:
        raise BadParameter("size", "a sampled run has no group bound here: name the group as the unit")


@dataclass(frozen=True, slots=True)
class _Composition(Loss):
    """Losses of which every bound is combined on its own; a bound that one lacks, all lack."""

    parts: tuple[Loss, ...]

    @staticmethod
    @abstractmethod
    def _rationals(values: list[Fraction]) -> Fraction: ...

    @staticmethod
    @abstractmethod
    def _balls(one: arb, other: arb) -> arb: ...

    @property
    def delta0(self) -> Fraction:
        return self._rationals([part.delta0 for part in self.parts])

    @property
    def pure(self) -> Fraction | None:
        known = [pure for part in self.parts if (pure := part.pure) is not None]
        return self._rationals(known) if len(known) == len(self.parts) else None

    @property
    def pair(self) -> Pair | None:
        known = [pair for part in self.parts if (pair := part.pair) is not None]
        if len(known) < len(self.parts):
            return None
        epsilons, deltas = [pair[0] for pair in known], [pair[1] for pair in known]
        return self._rationals(epsilons), self._rationals(deltas)

    def renyi(self, order: Fraction) -> arb | None:
        known = [value for part in self.parts if (value := part.renyi(order)) is not None]
        if len(known) < len(self.parts):
            return None
        with precision(renyi_curves.BITS):
            return reduce(self._balls, known, arb(0))


@dataclass(frozen=True, slots=True)
class SequentialComposition(_Composition):
    """Several releases about the same units: every bound adds up (sequential composition)."""

    @staticmethod
    def _rationals(values: list[Fraction]) -> Fraction:
        return sum(values, Fraction(0))

    @staticmethod
    def _balls(one: arb, other: arb) -> arb:
        return one + other

    def for_group(self, size: int) -> SequentialComposition:
        return SequentialComposition(tuple(part.for_group(size) for part in self.parts))


@dataclass(frozen=True, slots=True)
class ParallelComposition(_Composition):
    """Releases about disjoint sets of units: a unit meets one of them (parallel composition).

    Only where neighbours add or remove a unit. A unit that is replaced may leave one set and join
    another, and then meets both.
    """

    @staticmethod
    def _rationals(values: list[Fraction]) -> Fraction:
        return max(values, default=Fraction(0))

    @staticmethod
    def _balls(one: arb, other: arb) -> arb:
        return one.max(other)

    def for_group(self, size: int) -> SequentialComposition:
        """A group may meet several of the sets, so their losses add up."""
        return SequentialComposition(tuple(part.for_group(size) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Repeated(Loss):
    """The same loss `count` times: a short way to write a long `SequentialComposition`."""

    loss: Loss
    count: int

    def __post_init__(self) -> None:
        whole(self.count, "count", at_least=1)

    @property
    def delta0(self) -> Fraction:
        return self.count * self.loss.delta0

    @property
    def pure(self) -> Fraction | None:
        pure = self.loss.pure
        return None if pure is None else self.count * pure

    @property
    def pair(self) -> Pair | None:
        pair = self.loss.pair
        return None if pair is None else (self.count * pair[0], self.count * pair[1])

    def renyi(self, order: Fraction) -> arb | None:
        value = self.loss.renyi(order)
        with precision(renyi_curves.BITS):
            return None if value is None else self.count * value

    def for_group(self, size: int) -> Repeated:
        return Repeated(self.loss.for_group(size), self.count)
