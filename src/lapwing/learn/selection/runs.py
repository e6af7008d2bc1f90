"""How many times to try: laws for which telling only the best of the tries costs little.

Claim    let A be the best, in a fixed order of outputs, of K runs of a mechanism Q that has no δ₀. `renyi`
         bounds the Rényi divergence of A for neighbours, `pure` its pure loss.
Because  P[A = y] is an average of f'(X) over X between Q(< y) and Q(<= y), times Q(y), where f is K's
         generating function; f' changes slowly for these laws. docs/arguments/selection.md has the proof
         (Papernot and Steinke 2022, after Liu and Talwar 2019).
Test     tests/learn/selection/test_runs.py: against the exact law of the best of K
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, count, islice

from flint import arb

from lapwing.errors import BadParameter
from lapwing.exact import Number, Real, ball, exact, lower, positive, precision, settle, upper
from lapwing.learn.selection.profile import profile
from lapwing.noise import random_bytes
from lapwing.noise.inversion import Inversion
from lapwing.noise.refine import Uniform, rational
from lapwing.noise.stream import Stream
from lapwing.privacy import Loss

BITS = 256
MOST_MEAN = 1000
_MOST_RUNS = (1 << 12) - 1  # more than anybody would train, and within what a table holds
_HELPERS = [Fraction(1 + 1.25**k / 20).limit_denominator(10**6) for k in range(100)]
_RISEN = 8


class Runs(ABC):
    """A law of the number of runs."""

    @abstractmethod
    def law(self) -> Iterator[arb]:
        """P[K = 0], P[K = 1], ... at the current precision."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """About how many runs to expect."""

    @abstractmethod
    def renyi(self, base: Loss, order: Fraction) -> arb | None:
        """An upper bound on the divergence of the best of K runs of `base`, which has no δ₀."""

    @abstractmethod
    def pure(self, base: Loss) -> Fraction | None:
        """Its pure loss, if it has one."""

    def most(self, miss: Fraction) -> int:
        """The least number that is exceeded with a probability of at most `miss`."""
        with precision(BITS):
            left, allowed = arb(1), ball(miss)
            for number, probability in enumerate(self.law()):
                left -= probability
                if left <= allowed:
                    return number
                if number >= _MOST_RUNS:
                    break
        raise BadParameter("runs", f"may be more than {_MOST_RUNS:,}: use Poisson runs or a smaller mean")

    def draw(self, *, most: int | None = None) -> int:
        """One number of runs, exactly; `most` instead of what is above it. It is as private as a row.

        With `most`, the work is the same for every number: one word, looked up in one table.
        """
        if most is not None:
            return int(_table(self, most).draw(_Bits(), 1)[0])
        uniform, high = Uniform(_Bits()), 1
        while not uniform.below(_at_most(self, high)):
            high *= 2
        return bisect_left(range(high), True, key=lambda number: uniform.below(_at_most(self, number)))


class _Bits(Stream):
    """Random bits for the table, by the one door."""

    def take(self, size: int) -> bytes:
        return random_bytes(size)


def _at_most(runs: Runs, number: int) -> Real:
    """P[K <= number]. A sum of positive numbers: it loses less than a bit for each."""

    def at(bits: int) -> arb:
        with precision(bits + number.bit_length() + 32):
            return sum(islice(runs.law(), number + 1), arb(0))

    return at


@lru_cache(maxsize=64)
def _table(runs: Runs, most: int) -> Inversion:
    """The law of min(K, most), tabulated at once."""
    with precision(BITS + 64):
        sums = list(accumulate(islice(runs.law(), most)))

    def at_most(number: int) -> Real:
        if number >= most:
            return rational(Fraction(1))
        return lambda bits: sums[number] if bits <= BITS else _at_most(runs, number)(bits)

    return Inversion(at_most, most + 1)


@dataclass(frozen=True, slots=True)
class NegativeBinomialRuns(Runs):
    """Truncated at 1: P[K = k] ~ (1-γ)^k Π (l + η)/(l + 1), l = 0 .. k-1 (for η = 0: (1-γ)^k / k).

    η = 1 is geometric. A smaller η costs less privacy at the same mean, and is less even.
    """

    eta: Fraction
    gamma: Fraction

    def __post_init__(self) -> None:
        settle(self, eta=exact(self.eta, "eta"), gamma=exact(self.gamma, "gamma"))
        if not -1 < self.eta <= 64:
            raise BadParameter("eta", "must lie above -1 and be at most 64")
        if not 0 < self.gamma < 1:
            raise BadParameter("gamma", "must lie strictly between 0 and 1")

    @classmethod
    def with_mean(cls, mean: Number, *, eta: Number) -> NegativeBinomialRuns:
        """The law with about this mean, above 1."""
        wanted, shape = positive(mean, "mean"), exact(eta, "eta")
        if not 1 < wanted <= MOST_MEAN:
            raise BadParameter("mean", f"must be above 1 and at most {MOST_MEAN}")
        low, high = -60.0, -1e-9  # ln γ: the mean falls in γ
        for _ in range(80):
            middle = (low + high) / 2
            if _mean(float(shape), math.exp(middle)) > wanted:
                low = middle
            else:
                high = middle
        return cls(shape, Fraction(math.exp(high)).limit_denominator(10**12))

    @property
    def mean(self) -> float:
        return float(self._mean_up)

    @property
    def _mean_up(self) -> Fraction:
        with precision(BITS):
            return upper(self._norm * ball((1 - self.gamma) / self.gamma) / self._power)

    @property
    def _power(self) -> arb:
        """γ^η."""
        return ball(self.gamma) ** ball(self.eta)

    @property
    def _norm(self) -> arb:
        """What P[K = 1] is, over 1 - γ: η / (γ^-η - 1), or its limit 1 / ln(1/γ) at 0."""
        if not self.eta:
            return -1 / ball(self.gamma).log()
        return ball(self.eta) / (1 / self._power - 1)

    def law(self) -> Iterator[arb]:
        yield arb(0)
        kept = ball(1 - self.gamma)
        term = self._norm * kept
        for k in count(1):
            yield term
            term *= kept * ball((k + self.eta) / (k + 1))

    def renyi(self, base: Loss, order: Fraction) -> arb | None:
        of_base, factor = base.renyi(order), _growth(self, base)
        if of_base is None or factor is None:
            return None
        with precision(BITS):
            more = ball((1 + self.eta) * factor) + ball(self._mean_up).log() / ball(order - 1)
            value: arb = of_base + more
            pure = self.pure(base)
            return value if pure is None else value.min(ball(pure))

    def pure(self, base: Loss) -> Fraction | None:
        return None if base.pure is None else (2 + self.eta) * base.pure


@lru_cache(maxsize=64)
def _growth(runs: NegativeBinomialRuns, base: Loss) -> Fraction | None:
    """A bound on ln of (γ + (1-γ)p') / (γ + (1-γ)p) over all events: by an order, the pair, or pure ε."""
    found: list[Fraction] = []
    with precision(BITS):
        rest = -ball(runs.gamma).log()
        for order in _HELPERS:
            value = base.renyi(order)
            if value is None or not value.is_finite():
                break
            found.append(upper((1 - 1 / ball(order)) * value + rest / ball(order)))
            if len(found) > _RISEN and min(found[-_RISEN:]) > min(found):
                break  # it has risen for a while: high orders may be dear to evaluate
        if base.pair is not None:
            epsilon, delta = base.pair
            found.append(upper((ball(epsilon).exp() + ball((1 - runs.gamma) / runs.gamma * delta)).log()))
    return min(found, default=None)


def _mean(eta: float, gamma: float) -> float:
    """E[K]."""
    if not eta:
        return (1 / gamma - 1) / -math.log(gamma)
    return eta * (1 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))


@dataclass(frozen=True, slots=True)
class PoissonRuns(Runs):
    """Poisson: never far from its mean. With probability e^-mean there is no run, and nothing is found.

    Only for bases whose δ is known at small ε: Gaussian noise, and fixed runs.
    """

    rate: Fraction

    def __post_init__(self) -> None:
        settle(self, rate=positive(self.rate, "rate"))
        if self.rate > MOST_MEAN:
            raise BadParameter("rate", f"must be at most {MOST_MEAN}")

    @property
    def mean(self) -> float:
        return float(self.rate)

    def law(self) -> Iterator[arb]:
        rate = ball(self.rate)
        term = (-rate).exp()
        for k in count(1):
            yield term
            term *= rate / k

    def renyi(self, base: Loss, order: Fraction) -> arb | None:
        of_base = base.renyi(order)
        if of_base is None:
            return None
        with precision(BITS):
            less = ball(order - 1)
            # Any ε up to here makes (order-1) p' - order p at most (order-1) δ.
            delta = profile(base, lower(ball(order / (order - 1)).log()))
            rate = ball(self.rate)
            some = rate * (less * (of_base + rate * ball(delta))).exp()
            value: arb = (some + (-rate).exp()).log() / less
            return value

    def pure(self, base: Loss) -> Fraction | None:
        return None
