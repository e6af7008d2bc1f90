"""Privacy losses: an upper bound on what releases reveal about one privacy unit.

A loss is δ₀ and a remainder. With probability δ₀ anything may happen. Otherwise the remainder's
bounds hold: a pure ε (or none), a Rényi curve (or none), and optionally a pair (ε_b, δ_b) for a run
whose steps are fixed beforehand. docs/arguments/portfolio.md says why they may be added separately.

Constructors take numbers as people write them, and keep exact rationals; irrational values are rounded up.
`lapwing.core.budget` prices a loss for an account.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, Self, TypeVar

from flint import arb

from lapwing.core import renyi_curves
from lapwing.core.exact import (
    Number,
    ball,
    exact,
    exp_up,
    positive,
    precision,
    round_up,
    set_fields,
    upper,
    whole,
)
from lapwing.errors import BadParameter


class Relation(Enum):
    """The neighbour relation: how two neighbouring data sets differ.

    All losses that are charged to one budget must be about the same relation.

    ADD_REMOVE  one unit's rows are added or removed: curated data, the size is private.
    REPLACE     one unit's rows are replaced by others: the number of units is public.

    Example:
        >>> Relation.REPLACE.value
        'replace one unit'
    """

    ADD_REMOVE = "add or remove one unit"
    REPLACE = "replace one unit"


SMALLEST_EPSILON = Fraction(1, 10**9)
LARGEST_EPSILON = Fraction(1000)
LARGEST_ORDER = 10**12
LARGEST_SAMPLED_ORDER = 10_000  # the sums of the sampled Gaussian have as many terms
LARGEST_GROUP_EPSILON = 10_000  # beyond it, a δ of a group counts as 1
MOST_SUMMED = 1000  # terms of the δ of a group; longer sums have a closed form
ZERO = Fraction(0)
Pair = tuple[Fraction, Fraction]
Bound = TypeVar("Bound", Fraction, arb)


def checked_epsilon(value: Number, name: str = "epsilon") -> Fraction:
    """Return ε as an exact rational, or raise BadParameter if it is not in [1e-9, 1000]."""
    epsilon = positive(value, name)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise BadParameter(name, "must lie between 1e-9 (one ledger unit) and 1000")
    return epsilon


def checked_delta(value: Number, name: str = "delta") -> Fraction:
    """Return δ as an exact rational, or raise BadParameter if it is not in [0, 1)."""
    delta = exact(value, name)
    if not 0 <= delta < 1:
        raise BadParameter(name, "must lie in [0, 1)")
    return delta


def not_negative(value: Number, name: str) -> Fraction:
    """Return `value` as an exact rational, or raise BadParameter if it is below 0."""
    number = exact(value, name)
    if number < 0:
        raise BadParameter(name, "must not be negative")
    return number


class Loss(ABC):
    """An upper bound on what one release reveals, for one neighbouring step."""

    @property
    def delta0(self) -> Fraction:
        """The probability δ₀ with which anything may happen."""
        return ZERO

    @property
    def pure(self) -> Fraction | None:
        """The pure ε of the remainder; None if it has none."""
        return None

    @property
    def pair(self) -> Pair | None:
        """The pair (ε_b, δ_b) of the remainder: (pure, 0) unless a subclass knows a better one."""
        pure = self.pure
        return None if pure is None else (pure, ZERO)

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> tuple[int, int] | None:
        """Return `pair` in whole units, rounded up. Overrides are faster and give the same numbers."""
        pair = self.pair
        return pair and (round_up(pair[0], epsilon_unit), round_up(pair[1], delta_unit))

    @abstractmethod
    def renyi(self, order: Fraction) -> arb | None:
        """Return an upper bound on the remainder's Rényi divergence; None if it has none."""

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int] | None:
        """Return `renyi` in whole 1/unit, rounded up. Overrides are faster and give the same numbers."""
        values = [self.renyi(Fraction(order)) for order in orders]
        if any(value is None for value in values):
            return None
        with precision(renyi_curves.BITS):
            return [max(round_up(value, unit), 0) for value in values if value is not None]

    @property
    def largest_order(self) -> int:
        """The largest order at which `renyi` is worth its time: a search for the best one ends there."""
        return LARGEST_ORDER

    @abstractmethod
    def for_group(self, size: int) -> Loss:
        """Return the loss for `size` neighbouring steps at once."""


@dataclass(frozen=True, slots=True)
class _PureBound(Loss):
    """A loss whose remainder is purely ε-private: at worst randomized response."""

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

    def for_group(self, size: int) -> Self:
        return replace(self, epsilon=whole(size, "size", at_least=1) * self.epsilon)


@dataclass(frozen=True, slots=True)
class Pure(_PureBound):
    """A loss that is ε-private, and nothing more is known.

    Args:
        epsilon: The pure loss ε, at least 0.

    Raises:
        BadParameter: If ε is below 0 or no finite number.

    Example:
        >>> Pure("0.5").pure
        Fraction(1, 2)
    """

    if TYPE_CHECKING:

        def __init__(self, epsilon: Number) -> None: ...


@dataclass(frozen=True, slots=True)
class Approximate(_PureBound):
    """A loss that is (ε, δ)-private: with probability δ anything, otherwise at most ε.

    Args:
        epsilon: The loss ε, at least 0.
        delta: The probability δ, in [0, 1].

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> Approximate("0.5", "1e-6").delta0
        Fraction(1, 1000000)
    """

    if TYPE_CHECKING:

        def __init__(self, epsilon: Number, delta: Number) -> None: ...

    delta: Fraction

    def __post_init__(self) -> None:
        _PureBound.__post_init__(self)
        set_fields(self, delta=not_negative(self.delta, "delta"))
        if self.delta > 1:
            raise BadParameter("delta", "must lie in [0, 1]")

    @property
    def delta0(self) -> Fraction:
        """The probability δ₀ with which anything may happen: δ."""
        return self.delta

    def for_group(self, size: int) -> Approximate:
        """Return (kε, δ (e^{kε} − 1) / (e^ε − 1)): δ + e^ε δ + ... + e^{(k−1)ε} δ."""
        k = whole(size, "size", at_least=1)
        return Approximate(k * self.epsilon, min(self._group_delta(k), Fraction(1)))

    def _group_delta(self, k: int) -> Fraction:
        if not self.delta or not self.epsilon:
            return k * self.delta
        if k * self.epsilon > LARGEST_GROUP_EPSILON:
            return Fraction(1)
        if k <= MOST_SUMMED:
            return self.delta * sum((exp_up(i * self.epsilon) for i in range(1, k)), Fraction(1))
        with precision(renyi_curves.BITS):
            return upper(ball(self.delta) * ball(k * self.epsilon).expm1() / ball(self.epsilon).expm1())


@dataclass(frozen=True, slots=True)
class Concentrated(Loss):
    """A loss of ρ-zCDP: Rényi divergence at most ρ · order, as of Gaussian noise with ρ = Δ² / 2σ².

    Args:
        rho: The loss ρ, at least 0.

    Raises:
        BadParameter: If ρ is below 0 or no finite number.

    Example:
        >>> Concentrated("0.1").for_group(2).rho
        Fraction(2, 5)
    """

    if TYPE_CHECKING:

        def __init__(self, rho: Number) -> None: ...

    rho: Fraction

    def __post_init__(self) -> None:
        set_fields(self, rho=not_negative(self.rho, "rho"))

    def renyi(self, order: Fraction) -> arb:
        """Return ρ · order."""
        with precision(renyi_curves.BITS):
            return ball(order * self.rho)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        """Return ρ · order in whole 1/unit, rounded up."""
        numerator, denominator = unit * self.rho.numerator, self.rho.denominator
        return [-(-order * numerator // denominator) for order in orders]

    def for_group(self, size: int) -> Concentrated:
        """Return the loss for `size` neighbouring steps at once: size² ρ."""
        return Concentrated(whole(size, "size", at_least=1) ** 2 * self.rho)


@dataclass(frozen=True, slots=True)
class BoundedRange(_PureBound):
    """A pure ε whose log-ratios span a range of only ε: the loss of the exponential mechanism.

    Args:
        epsilon: The pure loss ε, at least 0.

    Raises:
        BadParameter: If ε is below 0 or no finite number.

    Example:
        >>> BoundedRange(1).pure
        Fraction(1, 1)
    """

    if TYPE_CHECKING:

        def __init__(self, epsilon: Number) -> None: ...

    def renyi(self, order: Fraction) -> arb:
        """Return the Rényi divergence of bounded range, which is below that of any ε-private mechanism."""
        return renyi_curves.bounded_range(order, self.epsilon)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        """Return `renyi` in whole 1/unit, rounded up."""
        as_pure = _PureBound.renyi_units(self, orders, unit)
        as_range = Concentrated(self.epsilon**2 / 8).renyi_units(orders, unit)
        return list(map(min, as_pure, as_range))


@dataclass(frozen=True, slots=True)
class LaplaceNoise(Loss):
    """The loss of discrete Laplace noise at `scale`, on integers within L1 distance `distance`.

    Args:
        scale: The scale of the noise, above 0.
        distance: The largest L1 distance of neighbouring inputs: a whole number.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> LaplaceNoise(10, 1).pure
        Fraction(1, 10)
    """

    if TYPE_CHECKING:

        def __init__(self, scale: Number, distance: int) -> None: ...

    scale: Fraction
    distance: int

    def __post_init__(self) -> None:
        set_fields(self, scale=positive(self.scale, "scale"), distance=whole(self.distance, "distance"))

    @property
    def pure(self) -> Fraction:
        """The pure ε: distance / scale."""
        return Fraction(self.distance * self.scale.denominator, self.scale.numerator)

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> tuple[int, int]:
        """Return (pure, 0) in whole units, rounded up."""
        return -(-self.distance * self.scale.denominator * epsilon_unit // self.scale.numerator), 0

    def renyi(self, order: Fraction) -> arb:
        """Return the Rényi divergence of discrete Laplace noise."""
        return renyi_curves.discrete_laplace(order, self.scale, self.distance)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        """Return `renyi` in whole 1/unit, rounded up."""
        return renyi_curves.discrete_laplace_units(orders, self.scale, self.distance, unit)

    def for_group(self, size: int) -> LaplaceNoise:
        """Return the loss for `size` neighbouring steps at once: `size` times the distance."""
        return LaplaceNoise(self.scale, whole(size, "size", at_least=1) * self.distance)


@dataclass(frozen=True, slots=True)
class GaussianNoise(Loss):
    """The loss of discrete Gaussian noise at `sigma`, on integer vectors within L2 distance √l2_squared.

    Args:
        sigma: The σ of the noise, above 0.
        l2_squared: The largest squared L2 distance of neighbouring inputs, at least 0.
        dimension: The number of coordinates, at least 1.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> GaussianNoise(10, 1, 1).concentrated.rho
        Fraction(1, 200)
    """

    if TYPE_CHECKING:

        def __init__(self, sigma: Number, l2_squared: Number, dimension: int) -> None: ...

    sigma: Fraction
    l2_squared: Fraction
    dimension: int

    def __post_init__(self) -> None:
        set_fields(self, sigma=positive(self.sigma, "sigma"))
        set_fields(self, l2_squared=not_negative(self.l2_squared, "l2_squared"))
        set_fields(self, dimension=whole(self.dimension, "dimension", at_least=1))

    @property
    def concentrated(self) -> Concentrated:
        """The same loss as zCDP: ρ = Δ² / 2σ², whatever the dimension."""
        return Concentrated(self.l2_squared / (2 * self.sigma * self.sigma))

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> None:
        """Return None: Gaussian noise is never purely private."""

    def renyi(self, order: Fraction) -> arb:
        """Return ρ · order."""
        return self.concentrated.renyi(order)

    def renyi_units(self, orders: tuple[int, ...], unit: int) -> list[int]:
        """Return ρ · order in whole 1/unit, rounded up."""
        squared, top, bottom = self.l2_squared, self.sigma.denominator, self.sigma.numerator
        numerator = unit * squared.numerator * top * top
        denominator = 2 * squared.denominator * bottom * bottom
        return [-(-order * numerator // denominator) for order in orders]

    def for_group(self, size: int) -> GaussianNoise:
        """Return the loss for `size` neighbouring steps at once: `size` times the distance."""
        factor = whole(size, "size", at_least=1) ** 2
        return GaussianNoise(self.sigma, factor * self.l2_squared, self.dimension)


@dataclass(frozen=True, slots=True)
class SampledGaussian(Loss):
    """The loss of Gaussian noise on a fresh Poisson sample, which has each unit with probability `rate`.

    One step of training. Neighbours add or remove one unit.
    """

    rate: Fraction
    noise: GaussianNoise

    def __post_init__(self) -> None:
        set_fields(self, rate=positive(self.rate, "rate"))
        if self.rate > 1:
            raise BadParameter("rate", "must lie in (0, 1]")
        if not isinstance(self.noise, GaussianNoise):
            raise BadParameter("noise", "must be Gaussian noise")
        if self.noise.l2_squared < 1:
            raise BadParameter("noise", "is on whole numbers, which differ by 1 or more")

    def renyi(self, order: Fraction) -> arb:
        """Return the Rényi divergence of the sampled Gaussian."""
        return renyi_curves.sampled_gaussian(order, self.rate, self.noise.concentrated.rho)

    @property
    def largest_order(self) -> int:
        """The largest order at which `renyi` is worth its time."""
        return LARGEST_SAMPLED_ORDER

    def for_group(self, size: int) -> Loss:
        """Raise BadParameter: no group bound is known here."""
        raise BadParameter("size", "a sampled run has no group bound here: name the group as the unit")


@dataclass(frozen=True, slots=True)
class _Composition(Loss):
    """Several losses, each bound of which is combined separately; a bound that one lacks, all lack."""

    parts: tuple[Loss, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not all(isinstance(part, Loss) for part in parts):
            raise BadParameter("parts", "must be losses")
        set_fields(self, parts=parts)

    @staticmethod
    @abstractmethod
    def _combined(bounds: list[Bound], zero: Bound) -> Bound: ...

    @property
    def delta0(self) -> Fraction:
        return self._combined([part.delta0 for part in self.parts], ZERO)

    @property
    def pure(self) -> Fraction | None:
        bounds = [pure for part in self.parts if (pure := part.pure) is not None]
        return self._combined(bounds, ZERO) if len(bounds) == len(self.parts) else None

    @property
    def pair(self) -> Pair | None:
        pairs = [pair for part in self.parts if (pair := part.pair) is not None]
        if len(pairs) < len(self.parts):
            return None
        epsilons, deltas = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return self._combined(epsilons, ZERO), self._combined(deltas, ZERO)

    def renyi(self, order: Fraction) -> arb | None:
        values = [value for part in self.parts if (value := part.renyi(order)) is not None]
        if len(values) < len(self.parts):
            return None
        with precision(renyi_curves.BITS):
            return self._combined(values, arb(0))

    @property
    def largest_order(self) -> int:
        return min((part.largest_order for part in self.parts), default=LARGEST_ORDER)

    def for_group(self, size: int) -> _Composition:
        # Also for disjoint sets: a group may meet several of them, so their losses add up.
        return SequentialComposition(tuple(part.for_group(size) for part in self.parts))


@dataclass(frozen=True, slots=True)
class SequentialComposition(_Composition):
    """The loss of several releases about the same units: every bound adds up."""

    @staticmethod
    def _combined(bounds: list[Bound], zero: Bound) -> Bound:
        return sum(bounds, zero)


def _larger(left: Any, right: Any) -> Any:
    return left.max(right) if isinstance(left, arb) else max(left, right)


@dataclass(frozen=True, slots=True)
class ParallelComposition(_Composition):
    """The loss of releases about disjoint sets of units: a unit meets one of them, at worst the largest.

    Only where neighbours add or remove a unit. A unit that is replaced may leave one set and join
    another, and then meets both.
    """

    @staticmethod
    def _combined(bounds: list[Bound], zero: Bound) -> Bound:
        return reduce(_larger, bounds, zero)

    def for_group(self, size: int) -> _Composition:
        """Return the sum for a group; for one unit, the loss itself, which is marked as of ADD_REMOVE."""
        return self if whole(size, "size", at_least=1) == 1 else _Composition.for_group(self, size)


@dataclass(frozen=True, slots=True)
class Repeated(Loss):
    """The same loss `count` times: a short form of a long `SequentialComposition`."""

    loss: Loss
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise BadParameter("loss", "must be a loss")
        set_fields(self, count=whole(self.count, "count", at_least=1))

    @property
    def delta0(self) -> Fraction:
        """The probability δ₀ with which anything may happen: `count` times that of the loss."""
        return self.count * self.loss.delta0

    @property
    def pure(self) -> Fraction | None:
        """The pure ε: `count` times that of the loss; None if it has none."""
        pure = self.loss.pure
        return None if pure is None else self.count * pure

    @property
    def pair(self) -> Pair | None:
        """The pair (ε_b, δ_b): `count` times that of the loss; None if it has none."""
        pair = self.loss.pair
        return None if pair is None else (self.count * pair[0], self.count * pair[1])

    def renyi(self, order: Fraction) -> arb | None:
        """Return `count` times the Rényi divergence of the loss; None if it has none."""
        value = self.loss.renyi(order)
        with precision(renyi_curves.BITS):
            return None if value is None else self.count * value

    @property
    def largest_order(self) -> int:
        """The largest order at which `renyi` is worth its time."""
        return self.loss.largest_order

    def for_group(self, size: int) -> Repeated:
        """Return the loss for `size` neighbouring steps at once."""
        return Repeated(self.loss.for_group(size), self.count)
