"""The price of releasing the best of a random number of runs: one charge, made before the first run.

Claim    the best of K runs is (ε, δ)-private with the ε of `loss`, however many runs there were, if only
         the best run's output is ever seen.
Because  `runs` bounds its Rényi divergence, from which (ε, δ) follows. Where the number of runs is cut off
         at `most`, both neighbours' laws move by at most P[K > most] = t in total variation, which adds (1
         + e^ε) t to δ.
Test     tests/learn/test_repetition.py

It is charged as (ε, δ): with probability δ anything, otherwise pure ε. An account has 6 % of its δ for
such charges, so δ here is chosen far below the account's.

Claim    let A be the best, in a fixed order of outputs, of K runs of a mechanism Q that has no δ₀. `renyi`
         bounds the Rényi divergence of A for neighbours, `pure` its pure loss.
Because  P[A = y] is an average of f'(X) over X between Q(< y) and Q(<= y), times Q(y), where f is K's
         generating function; f' changes slowly for these laws. docs/arguments/selection.md has the proof
         (Papernot and Steinke 2022, after Liu and Talwar 2019).
Test     tests/learn/test_repetition_runs.py: against the exact law of the best of K

Claim    `delta_at` is at least the true δ at ε, in either direction.
Because  *Gaussian*: each noise is a rounded continuous one up to a factor e^paid (`rounded_gaussian`);
         continuous ones compose to one whose squared ratio is the sum. *Other fixed runs*: δ is convex
         in e^ε, so it lies below the line between two points at which the run was priced.
Test     tests/learn/test_repetition_profile.py
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, count, islice

from flint import arb

from lapwing.core import conversions, losses
from lapwing.core.budget import EPSILON_UNIT
from lapwing.core.exact import (
    Number,
    Real,
    ball,
    exact,
    exp_up,
    halve,
    lower,
    positive,
    precision,
    round_up,
    set_fields,
    upper,
)
from lapwing.core.exact_sampling import Inversion, LazyUniform, rational
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import GaussianNoise, Loss
from lapwing.core.noise import random_bytes
from lapwing.core.random_stream import RandomStream
from lapwing.errors import BadParameter

# A run's distribution is slow to compute, so its ε is found at these δ only.
_DELTAS = [Fraction(1, 2**k) for k in range(1, 9)]


def delta_at(loss: Loss, epsilon: Fraction) -> Fraction:
    """Return δ at ε, rounded up."""
    if isinstance(loss, losses.ParallelComposition):
        return max((delta_at(part, epsilon) for part in loss.parts), default=Fraction(0))
    if isinstance(loss, FixedRun) and not all(isinstance(step, GaussianNoise) for step, _ in loss.steps):
        return _between(loss, epsilon)
    return gaussian_delta_at(loss, epsilon)


def _between(run: FixedRun, epsilon: Fraction) -> Fraction:
    """Return δ at ε by the line between two known points.

    δ is convex in e^ε: it is the greatest of P[S] - e^ε P'[S] over all events S.
    """
    known = _points(run)
    with precision(conversions.BITS):
        at = ball(epsilon).exp()
        below = [point for point in known if point[0] <= epsilon]
        above = [point for point in known if point[0] > epsilon]
        if not below or not above:
            return below[-1][1] if below else Fraction(1)
        (low, more), (high, less) = below[-1], above[0]
        left, right = ball(low).exp(), ball(high).exp()
        chance = ball(more) + (ball(less) - ball(more)) * (at - left) / (right - left)
        return conversions.probability_up(chance)


@lru_cache(maxsize=64)
def _points(run: FixedRun) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return (ε, δ) in the order of rising ε and falling δ."""
    points = {FixedRun(run.steps, delta).pair[0]: delta for delta in _DELTAS}
    return tuple(sorted(points.items()))


def gaussian_delta_at(loss: Loss, epsilon: Fraction) -> Fraction:
    """Return δ at ε of Gaussian noise, rounded up."""
    with precision(conversions.BITS):
        squared, paid = _added(loss)
        left = ball(epsilon) - paid
        if not squared.is_finite() or not left > 0:
            return Fraction(1)
        if squared.is_zero():
            return Fraction(0)
        return conversions.probability_up(paid.exp() * conversions.continuous_delta(left, squared.sqrt()))


def _added(loss: Loss) -> tuple[arb, arb]:
    """Return (sensitivity / σ)², and the ε that rounding to whole numbers costs."""
    match loss:
        case GaussianNoise(sigma, l2_squared, dimension):
            law = conversions.rounded_gaussian(sigma, l2_squared, dimension)
            return law.ratio**2, law.paid
        case losses.Repeated(each, count):
            added = _added(each)
            return count * added[0], count * added[1]
        case FixedRun():
            several = [_added(losses.Repeated(step, count)) for step, count in loss.steps]
        case losses.SequentialComposition():
            several = [_added(part) for part in loss.parts]
        case _:
            raise BadParameter(
                "base",
                "must be a fixed run, or Gaussian noise, for Poisson runs: use negative binomial ones",
            )
    return sum((part[0] for part in several), arb(0)), sum((part[1] for part in several), arb(0))


LAW_BITS = 256
MOST_MEAN = 1000
_MOST_RUNS = (1 << 12) - 1  # more than anybody would train, and few enough for a table
_HELPERS = [Fraction(1 + 1.25**k / 20).limit_denominator(10**6) for k in range(100)]
_RISEN = 8


class RunCountLaw(ABC):
    """A probability law of the number of runs K."""

    @abstractmethod
    def law(self) -> Iterator[arb]:
        """Yield P[K = 0], P[K = 1], ... at the current precision."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """The approximate mean number of runs."""

    @abstractmethod
    def renyi(self, base: Loss, order: Fraction) -> arb | None:
        """Return an upper bound on the divergence of the best of K runs of `base`, which has no δ₀."""

    @abstractmethod
    def pure(self, base: Loss) -> Fraction | None:
        """Return the pure loss of the best of K runs, or None."""

    def most(self, miss: Fraction) -> int:
        """Return the least number that K exceeds with a probability of at most `miss`."""
        with precision(LAW_BITS):
            left, allowed = arb(1), ball(miss)
            for number, probability in enumerate(self.law()):
                left -= probability
                if left <= allowed:
                    return number
                if number >= _MOST_RUNS:
                    break
        raise BadParameter("runs", f"may be more than {_MOST_RUNS:,}: use Poisson runs or a smaller mean")

    def draw(self, *, most: int | None = None) -> int:
        """Draw one number of runs exactly; a number above `most` becomes `most`. It is as private as a row.

        With `most`, the work is the same for every number: one word, looked up in one table.
        """
        if most is not None:
            return int(_table(self, most).draw(_Bits(), 1)[0])
        uniform, high = LazyUniform(_Bits()), 1
        while not uniform.below(_at_most(self, high)):
            high *= 2
        return bisect_left(range(high), True, key=lambda number: uniform.below(_at_most(self, number)))


class _Bits(RandomStream):
    """Random bits for the table, from `lapwing.core.noise`."""

    def take(self, size: int) -> bytes:
        return random_bytes(size)


def _at_most(runs: RunCountLaw, number: int) -> Real:
    """Return P[K <= number] as a function of the precision.

    A sum of positive numbers loses less than a bit each.
    """

    def at(bits: int) -> arb:
        with precision(bits + number.bit_length() + 32):
            return sum(islice(runs.law(), number + 1), arb(0))

    return at


@lru_cache(maxsize=64)
def _table(runs: RunCountLaw, most: int) -> Inversion:
    """Tabulate the law of min(K, most)."""
    with precision(LAW_BITS + 64):
        sums = list(accumulate(islice(runs.law(), most)))

    def at_most(number: int) -> Real:
        if number >= most:
            return rational(Fraction(1))
        return lambda bits: sums[number] if bits <= LAW_BITS else _at_most(runs, number)(bits)

    return Inversion(at_most, most + 1)


@dataclass(frozen=True, slots=True)
class NegativeBinomialRuns(RunCountLaw):
    """The negative binomial law truncated at 1.

    P[K = k] ~ (1-γ)^k Π (l + η)/(l + 1), l = 0 .. k-1 (for η = 0: (1-γ)^k / k). η = 1 is geometric. A
    smaller η costs less privacy at the same mean, and varies more.
    """

    eta: Fraction
    gamma: Fraction

    def __post_init__(self) -> None:
        set_fields(self, eta=exact(self.eta, "eta"), gamma=exact(self.gamma, "gamma"))
        if not -1 < self.eta <= 64:
            raise BadParameter("eta", "must lie above -1 and be at most 64")
        if not 0 < self.gamma < 1:
            raise BadParameter("gamma", "must lie strictly between 0 and 1")

    @classmethod
    def with_mean(cls, mean: Number, *, eta: Number) -> NegativeBinomialRuns:
        """Return the law with about this mean, which must be above 1."""
        wanted, shape = positive(mean, "mean"), exact(eta, "eta")
        if not 1 < wanted <= MOST_MEAN:
            raise BadParameter("mean", f"must be above 1 and at most {MOST_MEAN}")

        def is_few(log_gamma: float) -> bool:  # the mean falls in γ
            return not _mean(float(shape), math.exp(log_gamma)) > wanted

        _, high = halve(is_few, -60.0, -1e-9, times=80)
        return cls(shape, Fraction(math.exp(high)).limit_denominator(10**12))

    @property
    def mean(self) -> float:
        """The mean number of runs."""
        return float(self._mean_up)

    @property
    def _mean_up(self) -> Fraction:
        with precision(LAW_BITS):
            return upper(self._norm * ball((1 - self.gamma) / self.gamma) / self._power)

    @property
    def _power(self) -> arb:
        """The number γ^η."""
        return ball(self.gamma) ** ball(self.eta)

    @property
    def _norm(self) -> arb:
        """The number P[K = 1] / (1 - γ): η / (γ^-η - 1), or its limit 1 / ln(1/γ) at 0."""
        if not self.eta:
            return -1 / ball(self.gamma).log()
        return ball(self.eta) / (1 / self._power - 1)

    def law(self) -> Iterator[arb]:
        """Yield P[K = 0], P[K = 1], ... at the current precision."""
        yield arb(0)
        kept = ball(1 - self.gamma)
        term = self._norm * kept
        for k in count(1):
            yield term
            term *= kept * ball((k + self.eta) / (k + 1))

    def renyi(self, base: Loss, order: Fraction) -> arb | None:
        """Return an upper bound on the divergence of the best of K runs of `base`."""
        of_base, factor = base.renyi(order), _growth(self, base)
        if of_base is None or factor is None:
            return None
        with precision(LAW_BITS):
            more = ball((1 + self.eta) * factor) + ball(self._mean_up).log() / ball(order - 1)
            value: arb = of_base + more
            pure = self.pure(base)
            return value if pure is None else value.min(ball(pure))

    def pure(self, base: Loss) -> Fraction | None:
        """Return (2 + η) times the pure loss of `base`, or None."""
        return None if base.pure is None else (2 + self.eta) * base.pure


@lru_cache(maxsize=64)
def _growth(runs: NegativeBinomialRuns, base: Loss) -> Fraction | None:
    """Bound ln of (γ + (1-γ)p') / (γ + (1-γ)p) over all events: by an order, the pair, or pure ε."""
    bounds: list[Fraction] = []
    with precision(LAW_BITS):
        rest = -ball(runs.gamma).log()
        for order in _HELPERS:
            value = base.renyi(order)
            if value is None or not value.is_finite():
                break
            bounds.append(upper((1 - 1 / ball(order)) * value + rest / ball(order)))
            if len(bounds) > _RISEN and min(bounds[-_RISEN:]) > min(bounds):
                break  # it has risen for a while, and high orders are slow to evaluate
        if base.pair is not None:
            epsilon, delta = base.pair
            bounds.append(upper((ball(epsilon).exp() + ball((1 - runs.gamma) / runs.gamma * delta)).log()))
    return min(bounds, default=None)


def _mean(eta: float, gamma: float) -> float:
    """Return E[K]."""
    if not eta:
        return (1 / gamma - 1) / -math.log(gamma)
    return eta * (1 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))


@dataclass(frozen=True, slots=True)
class PoissonRuns(RunCountLaw):
    """The Poisson law: never far from its mean. With probability e^-mean there is no run, and no result.

    Its base must have a known δ at small ε: Gaussian noise, and fixed runs.
    """

    rate: Fraction

    def __post_init__(self) -> None:
        set_fields(self, rate=positive(self.rate, "rate"))
        if self.rate > MOST_MEAN:
            raise BadParameter("rate", f"must be at most {MOST_MEAN}")

    @property
    def mean(self) -> float:
        """The mean number of runs."""
        return float(self.rate)

    def law(self) -> Iterator[arb]:
        """Yield P[K = 0], P[K = 1], ... at the current precision."""
        rate = ball(self.rate)
        term = (-rate).exp()
        for k in count(1):
            yield term
            term *= rate / k

    def renyi(self, base: Loss, order: Fraction) -> arb | None:
        """Return an upper bound on the divergence of the best of K runs of `base`."""
        of_base = base.renyi(order)
        if of_base is None:
            return None
        with precision(LAW_BITS):
            less = ball(order - 1)
            # Any ε up to here makes (order-1) p' - order p at most (order-1) δ.
            delta = delta_at(base, lower(ball(order / (order - 1)).log()))
            rate = ball(self.rate)
            some = rate * (less * (of_base + rate * ball(delta))).exp()
            value: arb = (some + (-rate).exp()).log() / less
            return value

    def pure(self, base: Loss) -> Fraction | None:
        """Return None: there is no pure loss."""
        return None


CUT_SHARE = Fraction(1, 16)  # of δ, for cutting off the number of runs


@dataclass(frozen=True, slots=True)
class _Best(Loss):
    """The Rényi curve of the best of K runs, in which the best order is searched."""

    base: Loss
    runs: RunCountLaw

    def renyi(self, order: Fraction) -> arb | None:
        return self.runs.renyi(self.base, order)

    def for_group(self, size: int) -> Loss:
        return _Best(self.base.for_group(size), self.runs)


@dataclass(frozen=True, slots=True)
class Repetition:
    """K runs of a base mechanism, of which only the best output is released.

    With `padded`, `most` runs are done whatever K is, and those beyond K are discarded, so that the time
    reveals nothing about K. Without it, everybody who can measure the time must be trusted. A ledger
    records times, so a search that is charged to one must be padded.
    """

    base: Loss
    runs: RunCountLaw
    delta: Fraction
    padded: bool
    loss: losses.Approximate = field(init=False)
    most: int | None = field(init=False)

    def __post_init__(self) -> None:
        set_fields(self, delta=losses.checked_delta(self.delta))
        if self.base.delta0:
            raise BadParameter(
                "base", "must have no δ₀ (no partition selection): repetition would repeat it"
            )
        if not isinstance(self.padded, bool):
            raise BadParameter("padded", "must be True or False")
        pure = self.runs.pure(self.base)
        cut = self.delta * CUT_SHARE if self.padded else Fraction(0)
        if self.padded and not self.delta:
            raise BadParameter("delta", "must be above 0 if the number of runs is cut off")
        charges: list[losses.Approximate] = []
        if self.delta:
            units = round_up(_epsilon(self.base, self.runs, self.delta - cut), EPSILON_UNIT)
            charges.append(losses.Approximate(Fraction(units, EPSILON_UNIT), self.delta))
        if pure is not None:
            charges.append(losses.Approximate(pure, cut))
        if not charges:
            raise BadParameter("delta", "must be above 0: this base is not purely private")
        loss = min(charges, key=lambda charge: charge.epsilon)
        most = self.runs.most(cut / (1 + exp_up(loss.epsilon))) if cut else None
        set_fields(self, loss=loss, most=most)

    def draw(self) -> int:
        """Draw a number of runs. It is private."""
        return self.runs.draw(most=self.most)


@lru_cache(maxsize=64)
def _epsilon(base: Loss, runs: RunCountLaw, delta: Fraction) -> Fraction:
    if runs.renyi(base, Fraction(2)) is None:
        raise BadParameter("base", "must have Rényi values, or a pure loss with δ = 0")
    return conversions.best_renyi_epsilon(_Best(base, runs), delta)
