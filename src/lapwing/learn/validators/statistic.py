"""Is a released mean or histogram as near to the truth about everybody as wanted?

There is no test half here: what is released is the statistic itself, and its error is bounded from the same
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import settle, whole
from lapwing.learn.cells import places_of
from lapwing.learn.validators.bounds import mean_ceiling, mean_floor, share_ceiling
from lapwing.learn.validators.rows import (
    Rounding,
    Rows,
    checked_bounds,
    one_row_each,
    real_rows,
    step_count,
    unit_means,
    unit_rows,
    value_rows,
)
from lapwing.learn.validators.validator import (
    Judged,
    Released,
    Validator,
    Verdict,
    eta_of,
    float_up,
    noise_reach,
)
from lapwing.mechanisms import Grid, SummedLaplace

# Half a step by rounding rows, half by rounding a unit's mean, and what floats lose below 2^30 steps.
_ROUNDED = 1 + Fraction(1, 1 << 20)
_MOST_BINS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticValidator(Validator):
    """The absolute error of a released statistic: sampling, noise and rounding together.

    Never REJECT: more units always help. What must be released is `Judged.estimate` or `shares`.
    """

    def _verdict(self, estimate: float | None, error: Fraction) -> Judged:
        shown = float_up(error)
        if error <= self.target:
            words = f"the error is at most {shown:.6g}, as wanted ({float(self.target):.6g})"
            return Judged(Verdict.ACCEPT, estimate, shown, words)
        words = f"the error was shown to be at most {shown:.6g}, above {float(self.target):.6g}"
        return Judged(Verdict.RETRY, estimate, shown, words)

    def _refuse_class(self, rows: Rows) -> None:
        if rows.of_class is not None:
            raise BadValue("a statistic has no class")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanValidator(StatisticValidator):
    """The mean of a unit's values in [low, high], then over units.

    Claim    ACCEPT where `Judged.estimate` is further than the target from the mean of all units has a
             probability of at most η/(i(i+1)) at attempt i. Loss: epsilon.
    Because  the sums of k and of most - k steps are released, as by a LossValidator; both ends of the mean
             are bounded, with a sixth of η for each tail of each noise, and of sampling.
    Test     tests/learn/validators/test_statistic.py::test_a_mean_is_further_off_with_at_most_eta

    Rows without a value are left out, and units without any.
    """

    low: Fraction
    high: Fraction
    step: Fraction

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        low, high, step = checked_bounds(self.low, self.high, self.step)
        settle(self, low=low, high=high, step=step)
        step_count(high - low, step, "high - low")

    @property
    def _l1(self) -> int:
        return step_count(self.high - self.low, self.step, "high - low")

    def release(self, rows: Rows) -> Released:
        self._refuse_class(rows)
        values = real_rows(rows.values)
        units = unit_rows(rows.units, len(values))
        known = ~np.isnan(values)
        placed = Grid(self.low, self.high, self.step).place(values[known], missing=None)
        steps = unit_means(placed - int(self.low / self.step), units[known], Rounding.NEAREST)
        above = int(steps.sum())
        return self._made(*self._noise.sample([above, self._l1 * len(steps) - above]).tolist())

    def judge(self, released: Released, *, attempt: int) -> Judged:
        eta = eta_of(self.eta, attempt)
        above, below = self._numbers(released, 2)
        if above + below <= 0:
            return Judged(Verdict.RETRY, None, None, "there are too few units for this noise")
        reach = noise_reach(self._noise, eta / 6)
        most = self._l1
        ceiling = mean_ceiling(Fraction(above + reach, most), Fraction(below - reach, most), eta / 6)
        floor = mean_floor(Fraction(above - reach, most), Fraction(below + reach, most), eta / 6)
        middle = min(max(Fraction(above, above + below), Fraction(0)), Fraction(1))
        width = self.high - self.low
        estimate = float(self.low + width * middle)
        # From the float that is shown, so that its own rounding is part of the error.
        shown = (Fraction(estimate) - self.low) / width
        error = width * max(ceiling - shown, shown - floor) + _ROUNDED * self.step
        return self._verdict(estimate, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramValidator(StatisticValidator):
    """The share of units in each of the declared bins, by a row that is drawn from each unit.

    Claim    ACCEPT where any of the `shares` is further than the target from that of all units has a
             probability of at most η/(i(i+1)) at attempt i. Loss: epsilon.
    Because  a unit is in one bin. Of each bin, the noise of its count, that of all others together (by its
             exact law), and Clopper and Pearson's bounds get a third of η/bins each, half for each tail.
    Test     tests/learn/validators/test_statistic.py::test_a_share_is_further_off_with_at_most_eta

    `Rows.values` are the bins, 0 .. bins - 1. Rows in other bins are left out, and units without any.
    """

    bins: int

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        settle(self, bins=whole(self.bins, "bins", at_least=2))
        if self.bins > _MOST_BINS:
            raise BadParameter("bins", "must be at most 1,024")
        if self.target >= 1:
            raise BadParameter("target", "must be below 1: it is the error of a share")

    @property
    def _l1(self) -> int:
        return 1

    def release(self, rows: Rows) -> Released:
        self._refuse_class(rows)
        places = value_rows(rows.values, "iu", "values must be bins, as whole numbers, one per row")
        if places.dtype == object:
            places = places_of(places, {bin_: bin_ for bin_ in range(self.bins)})
        units = unit_rows(rows.units, len(places))
        inside = (places >= 0) & (places < self.bins)
        drawn = places[inside][one_row_each(units[inside])].astype(np.int64)
        counts = np.bincount(drawn, minlength=self.bins)
        return self._made(*self._noise.sample(counts).tolist())

    def shares(self, released: Released) -> tuple[float, ...] | None:
        """The histogram, as shares of units. They need not add up to 1. None if noise left no units."""
        counts = self._numbers(released, self.bins)
        total = sum(counts)
        return tuple(min(max(count / total, 0.0), 1.0) for count in counts) if total > 0 else None

    def judge(self, released: Released, *, attempt: int) -> Judged:
        eta = eta_of(self.eta, attempt)
        counts, shares = self._numbers(released, self.bins), self.shares(released)
        if shares is None:
            return Judged(Verdict.RETRY, None, None, "there are too few units for this noise")
        tail = eta / (6 * self.bins)
        own = noise_reach(self._noise, tail)
        rest = _reach_of_sum(self._noise.scale, self.bins - 1, tail)
        sides: list[tuple[Fraction, int, int, Fraction]] = []
        for count, share in zip(counts, shares, strict=True):
            others, shown = sum(counts) - count, Fraction(share)
            up, down = (count + own, others - rest), (others + rest, count - own)
            sides.append((mean_ceiling(*up, tail) - shown, *up, shown))
            sides.append((mean_ceiling(*down, tail) - (1 - shown), *down, 1 - shown))
        # Clopper and Pearson's ends are nearer, but take longer: only of what could be the greatest error.
        error = Fraction(0)
        for rough, hits, misses, shown in sorted(sides, reverse=True):
            if rough <= error:
                break
            error = max(error, share_ceiling(hits, misses, tail) - shown)
        return self._verdict(None, error)


@lru_cache(maxsize=1024)
def _reach_of_sum(scale: Fraction, noises: int, miss: Fraction) -> int:
    """A w with P[sum of noises > w] <= miss, the least one or nearly so. By symmetry the same below."""
    return SummedLaplace(scale, 1, noises).spread(1 - 2 * miss)
