"""The price of one run whose steps are all fixed beforehand, by its privacy loss distribution.

Adding up distributions and stopping when they are full is *not* valid if an analyst chooses the next
release by earlier answers. Inside one charge with fixed steps it is valid, and the tightest price.

dp-accounting (extra `pld`) composes. Its estimates are pessimistic on their grid, and its floating
point error is covered by `FLOAT_DELTA` (measured, not proved). Its accountant miscounts repeated
randomized response (version 0.6), so distributions are composed directly here.
Test: tests/core/test_fixed_run.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from flint import arb

from lapwing.core import losses
from lapwing.core.conversions import SCALAR_UP_TO, rounded_gaussian
from lapwing.core.exact import Number, exact, round_up, set_fields, upper, whole
from lapwing.core.losses import Loss, Pair
from lapwing.errors import BadParameter, MissingExtra

GRID = 1e-4
# The error of convolving float probabilities was measured at up to 1e-16 a step (see the tests); this
# is ten times as much.
FLOAT_DELTA = Fraction(1, 10**12)
FLOAT_DELTA_A_STEP = Fraction(1, 10**15)
SMALLEST_DELTA = Fraction(1, 10**10)
# Beyond this distance the exact distribution is long; its worst case (any ε-private step) is not.
LONGEST_DISTANCE = 1000


def _library() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("pld", "Pricing a fixed run by its privacy loss distribution") from None
    return privacy_loss_distribution


def _distribution(loss: Loss) -> Any:
    """Return the library's distribution of one step's remainder, never better than the truth."""
    library = _library()
    grid = {"value_discretization_interval": GRID, "use_connect_dots": True}
    if loss.pure == 0 or (isinstance(loss, losses.GaussianNoise) and loss.l2_squared < 1):
        return library.identity(GRID)  # whole numbers that differ by less than 1 are equal
    match loss:
        case losses.LaplaceNoise(scale, distance) if 0 < distance <= LONGEST_DISTANCE:
            return library.from_discrete_laplace_mechanism(float(1 / scale), distance, **grid)
        case losses.Pure() | losses.Approximate() | losses.BoundedRange() | losses.LaplaceNoise():
            # Discrete Laplace noise at distance 1 is randomized response, the worst case of ε.
            assert loss.pure is not None
            return library.from_discrete_laplace_mechanism(float(loss.pure), 1, **grid)
        case losses.GaussianNoise():
            return _gaussian(library, loss, 1.0, grid)
        case losses.SampledGaussian(rate, noise):
            return _gaussian(library, noise, float(rate), grid)
    raise BadParameter("steps", f"{type(loss).__name__} has no privacy loss distribution")


def _is_summed(noise: losses.GaussianNoise) -> bool:
    """Return whether the library gets the discrete law itself, term by term."""
    return noise.dimension == 1 and noise.sigma <= SCALAR_UP_TO


def _gaussian(library: Any, noise: losses.GaussianNoise, rate: float, grid: dict[str, Any]) -> Any:
    if _is_summed(noise):
        sigma, distance = float(noise.sigma), math.isqrt(int(noise.l2_squared))
        return library.from_discrete_gaussian_mechanism(sigma, distance, sampling_prob=rate, **grid)
    ratio = rounded_gaussian(noise.sigma, noise.l2_squared, noise.dimension).ratio
    if not ratio.is_finite():
        raise BadParameter("sigma", "is too small for several dimensions")
    return library.from_gaussian_mechanism(1 / float(ratio.upper()), sampling_prob=rate, **grid)


def _paid_for_rounding(loss: Loss) -> Fraction:
    """Return the ε that the step pays because its noise is on integers (a sample pays the same)."""
    noise = loss.noise if isinstance(loss, losses.SampledGaussian) else loss
    if isinstance(noise, losses.GaussianNoise) and not _is_summed(noise):
        return upper(rounded_gaussian(noise.sigma, noise.l2_squared, noise.dimension).paid)
    return Fraction(0)


@lru_cache(maxsize=4)
def _composed(steps: tuple[tuple[Loss, int], ...]) -> Any:
    """Return the distribution of all steps together. It is large: the last few are kept, for other δ."""
    parts = [_distribution(loss).self_compose(count) for loss, count in steps]
    return reduce(lambda composed, part: composed.compose(part), parts)


@lru_cache(maxsize=1024)
def _epsilon_at(steps: tuple[tuple[Loss, int], ...], delta: Fraction) -> Fraction:
    """Return the ε of all steps together. Trainers and auditors ask for the same runs again and again."""
    total = _composed(steps)
    paid = sum((count * _paid_for_rounding(loss) for loss, count in steps), Fraction(0))
    off = FLOAT_DELTA + sum(count for _, count in steps) * FLOAT_DELTA_A_STEP
    if 2 * off > delta:
        raise BadParameter("delta", "is too small for this number of steps: float errors reach it")
    # Rounding to integers multiplies probabilities by at most e^paid, δ included.
    target = float(delta - off) * (1 - 1e-9) * math.exp(-float(paid))
    epsilon = float(total.get_epsilon_for_delta(target))
    if not math.isfinite(epsilon):
        raise BadParameter("delta", "is too small for these steps: no finite ε follows")
    bound = Fraction(epsilon) * (1 + Fraction(1, 10**9)) + paid
    return Fraction(round_up(bound, 10**9) + 1, 10**9)


@dataclass(frozen=True, slots=True)
class FixedRun(Loss):
    """The loss of `count` repetitions of each step, in an order fixed before the first: one charge.

    `delta` is spent on the run as a whole and determines ε_b. The run is spent whole at its first step.
    """

    steps: tuple[tuple[Loss, int], ...]
    delta: Fraction
    _pair: Pair = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.steps:
            raise BadParameter("steps", "must name at least one loss")
        for _, count in self.steps:
            whole(count, "count", at_least=1)
        if not SMALLEST_DELTA <= self.delta < 1:
            raise BadParameter("delta", "must lie in [1e-10, 1): float distributions end there")
        _library()  # the same without the extra, whatever is known already
        units = _epsilon_at(tuple((loss, count) for loss, count in self.steps), self.delta)
        set_fields(self, _pair=(units, self.delta))

    @classmethod
    def of(cls, *steps: tuple[Loss, int], delta: Number) -> FixedRun:
        """Return a run of the given (loss, count) steps, priced at `delta`."""
        return cls(steps, exact(delta, "delta"))

    @property
    def _added(self) -> losses.SequentialComposition:
        """The steps one after another, without the run's distribution."""
        return losses.SequentialComposition(tuple(losses.Repeated(*step) for step in self.steps))

    @property
    def delta0(self) -> Fraction:
        """The probability δ₀ with which anything may happen, over all steps."""
        return self._added.delta0

    @property
    def pure(self) -> Fraction | None:
        """The pure ε of all steps together; None if a step has none."""
        return self._added.pure

    @property
    def pair(self) -> Pair:
        """The pair (ε_b, δ) of the run's distribution, or (pure, 0) if that ε is not larger."""
        pure = self.pure
        if pure is not None and pure <= self._pair[0]:
            return pure, Fraction(0)
        return self._pair

    def renyi(self, order: Fraction) -> arb | None:
        """Return the Rényi divergence of all steps together; None if a step has none."""
        return self._added.renyi(order)

    @property
    def largest_order(self) -> int:
        """The largest order at which `renyi` is worth its time."""
        return self._added.largest_order

    def for_group(self, size: int) -> FixedRun:
        """Return the run for `size` neighbouring steps at once, priced at the same δ."""
        return FixedRun(tuple((loss.for_group(size), count) for loss, count in self.steps), self.delta)
