"""Losses of several releases: added up, the worst of disjoint ones, or one many times."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from flint import arb

from lapwing.exact import precision, whole
from lapwing.privacy import curves
from lapwing.privacy.loss import Loss, Pair


@dataclass(frozen=True, slots=True)
class _Several(Loss):
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
        with precision(curves.BITS):
            return reduce(self._balls, known, arb(0))


@dataclass(frozen=True, slots=True)
class Sum(_Several):
    """Several releases about the same units: every bound adds up (sequential composition)."""

    @staticmethod
    def _rationals(values: list[Fraction]) -> Fraction:
        return sum(values, Fraction(0))

    @staticmethod
    def _balls(one: arb, other: arb) -> arb:
        return one + other

    def for_group(self, size: int) -> Sum:
        return Sum(tuple(part.for_group(size) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Worst(_Several):
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

    def for_group(self, size: int) -> Sum:
        """A group may meet several of the sets, so their losses add up."""
        return Sum(tuple(part.for_group(size) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Repeated(Loss):
    """The same loss `count` times: a short way to write a long `Sum`."""

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
        with precision(curves.BITS):
            return None if value is None else self.count * value

    def for_group(self, size: int) -> Repeated:
        return Repeated(self.loss.for_group(size), self.count)
