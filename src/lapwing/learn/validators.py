"""Validators: a model or statistic leaves only if released numbers show that it is good enough.

A validator has a public price, a noisy release, and a verdict that is computed from the release alone.
Statistics have no test half: the statistic itself is released, and its error is bounded from the same
numbers.

Claim    removing a unit takes away its own whole number and changes no other unit's.
Because  a unit's number depends on its own rows alone, clamped one by one, and every row becomes a number:
         no row is refused for its value.
Test     tests/learn/test_validators_rows.py
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import Number, exact, inside_unit, positive, set_fields, whole
from lapwing.core.laplace import Laplace, SummedLaplace
from lapwing.core.losses import Loss, Relation, SequentialComposition, checked_epsilon
from lapwing.core.values import Grid
from lapwing.errors import BadParameter, BadValue
from lapwing.learn import confidence_bounds as bounds
from lapwing.learn.payer import EACH_ROW
from lapwing.learn.table_input import (
    Floats,
    Rounding,
    Values,
    Wholes,
    checked_units,
    in_steps,
    one_row_each,
    read_codes,
    real_rows,
    unit_means,
    value_rows,
)

MOST_STEPS = 1 << 30  # so that sums of 2^32 rows fit 8 bytes
_LARGEST_REAL = 10**300


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClassLosses:
    """The losses of every model of a class: one array per model, all over the same rows.

    `units` is the unit of each row, as in `ValidationRows`.
    """

    losses: Sequence[Values]
    units: ArrayLike | None = field(kw_only=True)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ValidationRows:
    """One value per row: a loss, whether a prediction was right, a number, or a bin.

    A value that cannot be read counts as missing. `units` are whole numbers, the unit of each row; None or
    EACH_ROW says that every row is a unit of its own.
    """

    values: Values
    units: ArrayLike | None = field(kw_only=True)
    of_class: ClassLosses | None = field(kw_only=True, default=None)


def step_count(width: Number, step: Number, name: str) -> int:
    """Return how many steps fill the width.

    It must be a whole number, so that nothing is rounded at the end.
    """
    wide, fine = positive(width, name), positive(step, "step")
    if fine.numerator * _LARGEST_REAL < fine.denominator or wide > _LARGEST_REAL:
        raise BadParameter("step", "and bounds must lie between 1e-300 and 1e300")
    count = wide / fine
    if count.denominator != 1 or count > MOST_STEPS:
        raise BadParameter("step", f"must divide {name}, into at most 2^30 parts")
    return int(count)


def unit_numbers(units: Any, count: int) -> Wholes:
    """Return the unit of each row, as whole numbers from 0."""
    unit_of_row = checked_units(None if units is EACH_ROW else units, count)
    if unit_of_row is None:
        return np.arange(count, dtype=np.int64)
    return np.unique(unit_of_row, return_inverse=True)[1].astype(np.int64)


def checked_bounds(low: Number, high: Number, step: Number) -> tuple[Fraction, Fraction, Fraction]:
    """Return bounds that are multiples of the step, so that a grid begins and ends at them."""
    bottom, top, fine = exact(low, "low"), exact(high, "high"), positive(step, "step")
    if bottom >= top:
        raise BadParameter("low", "must be below high")
    for name, end in (("low", bottom), ("high", top)):
        if (end / fine).denominator != 1:
            raise BadParameter("step", f"must divide {name}")
        if abs(end) > MOST_STEPS * fine:
            raise BadParameter("step", "is too fine: bounds must be within 2^30 steps of 0")
    return bottom, top, fine


class ValidationVerdict(Enum):
    """A verdict: ACCEPT (shown to be good), REJECT (no model of the class is), RETRY (nothing shown)."""

    ACCEPT = "accept"
    RETRY = "retry"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """A verdict, and the bound that it rests on.

    `bound` holds with a probability of at least 1 - η/(i(i+1)) at attempt i. With REJECT it is a lower
    bound for every model of the class. Otherwise it is an upper bound of the loss or the error, or a lower
    bound of the accuracy. None means that nothing was shown.
    """

    verdict: ValidationVerdict
    estimate: float | None
    bound: float | None
    words: str


@dataclass(frozen=True, slots=True)
class ValidationRelease:
    """Noisy whole numbers, with the name of the validator that made them. They are public."""

    numbers: tuple[int, ...]
    made_by: str

    def to_bytes(self) -> bytes:
        """Return the canonical bytes that are stored under the charge."""
        return canonical_json([self.made_by, list(self.numbers)]).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a release that `to_bytes` returned."""
        made_by, numbers = json.loads(content)
        return cls(tuple(whole(number, "number", at_least=-(1 << 63)) for number in numbers), made_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator(ABC):
    """A test that shows that something is good, or says that it could not.

    Claim    whatever is validated: with a probability of at most η, any of the attempts 1, 2, ... of one
             pipeline ends in a wrong ACCEPT; and the same for a wrong REJECT.
    Because  attempt i errs with a probability of at most η/(i(i+1)), and these add up to less than η.
             docs/arguments/validators.md says what must be independent for it.
    Test     tests/learn/test_validators_attempts.py

    Neighbours add or remove one unit. `loss` is the price of one `release`, and must be charged first.
    `judge` looks at released numbers only.
    """

    relation: ClassVar[Relation] = Relation.ADD_REMOVE
    target: Fraction
    eta: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        set_fields(self, target=positive(self.target, "target"), eta=inside_unit(self.eta, "eta"))
        set_fields(self, epsilon=checked_epsilon(self.epsilon))

    @property
    @abstractmethod
    def _l1(self) -> int:
        """The greatest L1 distance by which one unit moves the release."""

    @property
    def _noise(self) -> Laplace:
        return Laplace.for_epsilon(self.epsilon, l1=self._l1)

    @property
    def loss(self) -> Loss:
        """The price of one validation. It is public."""
        return self._noise.loss

    @property
    def parameters(self) -> dict[str, str | int]:
        """The declared numbers, for the receipt."""
        declared = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value if isinstance(value, int) else str(value) for name, value in declared.items()}

    @property
    def mechanism(self) -> str:
        """The name of the validator, for the receipt."""
        return type(self).__name__

    @abstractmethod
    def release(self, rows: ValidationRows) -> ValidationRelease:
        """Return the noisy numbers that a verdict needs.

        Charge the loss first; a second call costs it again.
        """

    @abstractmethod
    def judge(self, released: ValidationRelease, *, attempt: int) -> ValidationResult:
        """Return the verdict of attempt i = 1, 2, ... of a pipeline. It costs nothing."""

    @property
    def _name(self) -> str:
        return canonical_json([self.mechanism, self.parameters], spaces=True)

    def _made(self, *numbers: int) -> ValidationRelease:
        return ValidationRelease(numbers, self._name)

    def _step_sums(self, steps: Wholes) -> tuple[int, int]:
        """Return the sum of the units' steps, and how much larger the sum could have been."""
        total = int(steps.sum())
        return total, self._l1 * len(steps) - total

    def _verdict(self, what: str, bound: Fraction, estimate: float | None) -> ValidationResult:
        """Accept if the bound meets the target, otherwise retry. Only an accuracy must be large."""
        if what == "accuracy":
            is_met, shown = bound >= self.target, bounds.float_down(bound)
            side, beyond = "at least", "below"
        else:
            is_met, shown = bound <= self.target, bounds.float_up(bound)
            side, beyond = "at most", "above"
        if is_met:
            words = f"the {what} is {side} {shown:.6g}, as wanted ({float(self.target):.6g})"
            return ValidationResult(ValidationVerdict.ACCEPT, estimate, shown, words)
        words = f"the {what} was shown to be {side} {shown:.6g}, {beyond} {float(self.target):.6g}"
        return ValidationResult(ValidationVerdict.RETRY, estimate, shown, words)

    def _too_few(self, estimate: float | None = None) -> ValidationResult:
        """Return the verdict for a release in which the noise hides all units."""
        why = "there are too few units for this noise"
        return ValidationResult(ValidationVerdict.RETRY, estimate, None, why)

    def _numbers(self, released: ValidationRelease, count: int) -> tuple[int, ...]:
        """Return the numbers of a release of this validator.

        Raises BadParameter for a release of another validator: its price, target or η would make the
        bounds untrue.
        """
        if released.made_by != self._name:
            raise BadParameter("released", "was made by another validator, or with other parameters")
        if len(released.numbers) != count:
            raise BadValue(f"released must have {count} numbers")
        return released.numbers


def eta_share(eta: Fraction, attempt: int) -> Fraction:
    """Return η/(i(i+1)), the share of attempt i. All shares together are less than η."""
    i = whole(attempt, "attempt", at_least=1)
    return eta / (i * (i + 1))


@lru_cache(maxsize=1024)
def noise_quantile(mechanism: Laplace | SummedLaplace, miss: Fraction) -> int:
    """Return the least w with P[noise > w] <= miss, exactly. By symmetry it holds below, too.

    For a sum of noises, it is the least w or nearly so.
    """
    return mechanism.spread(1 - 2 * miss)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyValidator(Validator):
    """A test of whether the accuracy, on one row drawn per unit, is at least a target.

    Claim    ACCEPT although the accuracy is below the target has a probability of at most η/(i(i+1)) at
             attempt i. Loss: epsilon.
    Because  one row of each unit is drawn, so that units are independent coins. Correct and wrong
             predictions are counted with noise, and a unit is in one of the counts. A third of η each
             covers the noise of either count, and Clopper and Pearson's bound, which falls with the wrong
             and rises with the correct ones.
    Test     tests/learn/test_validators_accuracy.py::test_a_bad_model_is_accepted_with_at_most_eta

    `ValidationRows.values` says whether each prediction was right. A value that is neither True nor False
    counts as wrong.
    """

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        if self.target >= 1:
            raise BadParameter("target", "must lie strictly between 0 and 1")

    @property
    def _l1(self) -> int:
        return 1

    def release(self, rows: ValidationRows) -> ValidationRelease:
        """Count the correct and the wrong predictions, with noise."""
        wanted = "values must say of each row whether it was right: True or False"
        told = value_rows(rows.values, "b", wanted)
        is_right = told if told.dtype == np.bool_ else read_codes(told, {True: 1}) == 1
        if rows.of_class is not None:
            raise BadValue("there is no test of a class by accuracy: use a LossValidator")
        drawn = is_right[one_row_each(unit_numbers(rows.units, len(is_right)), len(is_right))]
        right = int(np.count_nonzero(drawn))
        return self._made(*self._noise.sample([right, len(drawn) - right]).tolist())

    def judge(self, released: ValidationRelease, *, attempt: int) -> ValidationResult:
        """Accept if the lower bound of the accuracy reaches the target."""
        eta = eta_share(self.eta, attempt)
        right, wrong = self._numbers(released, 2)
        reach = noise_quantile(self._noise, eta / 3)
        floor = bounds.share_floor(right - reach, wrong + reach, eta / 3)
        estimate = float(bounds.clamped_share(right, wrong)) if right + wrong > 0 else None
        return self._verdict("accuracy", floor, estimate) if floor > 0 else self._too_few(estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestInClass:
    """An additional test that no model of a finite class meets the target. It costs `epsilon` more.

    The class is fixed before its rows are read. The least sum over the class must be exact, since an
    approximate minimum can move by more than one unit's loss.
    """

    models: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        set_fields(
            self, models=whole(self.models, "models", at_least=1), epsilon=checked_epsilon(self.epsilon)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossValidator(Validator):
    """A test of whether the mean loss is at most a target.

    A loss is clamped to [0, bound]. The mean is taken over a unit's rows, then over units.

    Claim    ACCEPT although the mean is above the target, and REJECT although a model of the class is at or
             below it, each have a probability of at most η/(i(i+1)) at attempt i. Loss: epsilon, and that
             of `best`.
    Because  each unit has k of most = bound / step steps, rounded up, and (Σ k, Σ (most - k)) is released
             with noise: a unit adds k and most - k, exactly `most` in L1. A third of η each covers the
             noise of the first sum, the noise of the second, and the sampling of units.
    Test     tests/learn/test_validators_loss.py::test_a_bad_model_is_accepted_with_at_most_eta

    The model must not depend on the rows' units (see `in_test_half`), which are drawn independently from
    those that the verdict is about. A missing loss counts as `bound`.
    """

    bound: Fraction
    step: Fraction
    best: BestInClass | None = None

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        set_fields(self, bound=positive(self.bound, "bound"), step=positive(self.step, "step"))
        step_count(self.bound, self.step, "bound")
        if self.target >= self.bound:
            raise BadParameter("target", "must lie strictly between 0 and the bound")
        if self.best is not None and not isinstance(self.best, BestInClass):
            raise BadParameter("best", "must be a BestInClass")

    @property
    def _l1(self) -> int:
        return step_count(self.bound, self.step, "bound")

    def _noise_of(self, best: BestInClass) -> Laplace:
        return Laplace.for_epsilon(best.epsilon, l1=self._l1)

    @property
    def loss(self) -> Loss:
        """The price of one validation, the test of the class included."""
        own = self._noise.loss
        return own if self.best is None else SequentialComposition((own, self._noise_of(self.best).loss))

    @property
    def parameters(self) -> dict[str, str | int]:
        """The declared numbers, those of the class included."""
        shown = super(LossValidator, self).parameters  # slots make a new class, which super() does not know
        del shown["best"]
        if self.best is not None:
            shown |= {"class models": self.best.models, "class epsilon": str(self.best.epsilon)}
        return shown

    def release(self, rows: ValidationRows) -> ValidationRelease:
        """Return noisy sums of the steps lost and spared, by the model and by the best of the class."""
        declared, came = self.best and self.best.models, rows.of_class and len(rows.of_class.losses)
        if declared != came:
            raise BadValue("losses of the class are needed for as many models as `best` declares")
        losses = real_rows(rows.values)
        units = unit_numbers(rows.units, len(losses))
        noisy = self._noise.sample(self._sums(losses, units, Rounding.UP)).tolist()
        if self.best is not None and rows.of_class is not None:
            noisy += self._noise_of(self.best).sample(self._least(rows.of_class)).tolist()
        return self._made(*noisy)

    def _sums(self, losses: Floats, units: Wholes, rounding: Rounding) -> tuple[int, int]:
        """Return the sum of the steps that units lose, and of those that they do not."""
        return self._step_sums(unit_means(in_steps(losses, self.step, self._l1, rounding), units, rounding))

    def _least(self, of_class: ClassLosses) -> tuple[int, int]:
        """Return the least sum of steps over the class, and how much the sum could have been beyond it.

        Both are rounded down: a class must not look worse than it is.
        """
        each = [real_rows(losses) for losses in of_class.losses]
        if len({len(losses) for losses in each}) != 1:
            raise BadValue("every model of the class must have a loss for each row")
        units = unit_numbers(of_class.units, len(each[0]))
        return min(self._sums(losses, units, Rounding.DOWN) for losses in each)

    def judge(self, released: ValidationRelease, *, attempt: int) -> ValidationResult:
        """Accept if the upper bound of the loss meets the target; reject if the class cannot."""
        eta = eta_share(self.eta, attempt)
        lost, spared, *of_class = self._numbers(released, 2 if self.best is None else 4)
        reach = noise_quantile(self._noise, eta / 3)
        top = bounds.noisy_mean_ceiling(lost, spared, reach=reach, most=self._l1, risk=eta / 3)
        estimate = self._estimate(lost, spared)
        result = self._verdict("loss", self.bound * top, estimate)
        if result.verdict is ValidationVerdict.ACCEPT:
            return result
        if of_class and self.best is not None:
            # All models of the class lose more than the floor, with a probability of at least 1 - eta.
            reach = noise_quantile(self._noise_of(self.best), eta / 3)
            floor = (
                bounds.noisy_mean_floor(*of_class, reach=reach, most=self._l1, risk=eta / 3) * self.bound
            )
            if floor > self.target:
                least, shown = self._estimate(*of_class), bounds.float_down(floor)
                words = f"no model of the class loses less than {shown:.6g}"
                return ValidationResult(ValidationVerdict.REJECT, least, shown, words)
        return result if top < 1 else self._too_few(estimate)

    def _estimate(self, lost: int, spared: int) -> float | None:
        return float(self.bound * bounds.clamped_share(lost, spared)) if lost + spared > 0 else None


# Half a step by rounding rows, half by rounding a unit's mean, and the error of floats below 2^30 steps.
_ROUNDED = 1 + Fraction(1, 1 << 20)
_MOST_BINS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticValidator(Validator):
    """A test of the absolute error of a released statistic: sampling, noise and rounding together.

    The verdict is never REJECT: more units always help. Release `ValidationResult.estimate` or `shares`.
    """

    def _refuse_class(self, rows: ValidationRows) -> None:
        if rows.of_class is not None:
            raise BadValue("a statistic has no class")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanValidator(StatisticValidator):
    """A test of the mean of a unit's values in [low, high], and then of the mean over units.

    Claim    ACCEPT although `ValidationResult.estimate` is further than the target from the mean of all
             units has a probability of at most η/(i(i+1)) at attempt i. Loss: epsilon.
    Because  the sums of k and of most - k steps are released, as by a LossValidator. Both ends of the mean
             are bounded, with a sixth of η for each tail of each noise, and of sampling.
    Test     tests/learn/test_validators_statistic.py::test_a_mean_is_further_off_with_at_most_eta

    Rows without a value are left out, and so are units without any.
    """

    low: Fraction
    high: Fraction
    step: Fraction

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        low, high, step = checked_bounds(self.low, self.high, self.step)
        set_fields(self, low=low, high=high, step=step)
        step_count(high - low, step, "high - low")

    @property
    def _l1(self) -> int:
        return step_count(self.high - self.low, self.step, "high - low")

    def release(self, rows: ValidationRows) -> ValidationRelease:
        """Return noisy sums of the steps above the low and below the high bound."""
        self._refuse_class(rows)
        values = real_rows(rows.values)
        units = unit_numbers(rows.units, len(values))
        known = ~np.isnan(values)
        placed = Grid(self.low, self.high, self.step).place(values[known], missing=None)
        steps = unit_means(placed - int(self.low / self.step), units[known], Rounding.NEAREST)
        return self._made(*self._noise.sample(self._step_sums(steps)).tolist())

    def judge(self, released: ValidationRelease, *, attempt: int) -> ValidationResult:
        """Accept if the error of the mean is at most the target."""
        eta = eta_share(self.eta, attempt)
        above, below = self._numbers(released, 2)
        if above + below <= 0:
            return self._too_few()
        reach = noise_quantile(self._noise, eta / 6)
        ceiling = bounds.noisy_mean_ceiling(above, below, reach=reach, most=self._l1, risk=eta / 6)
        floor = bounds.noisy_mean_floor(above, below, reach=reach, most=self._l1, risk=eta / 6)
        width = self.high - self.low
        estimate = float(self.low + width * bounds.clamped_share(above, below))
        # From the float that is shown, so that its own rounding is part of the error.
        shown = (Fraction(estimate) - self.low) / width
        error = width * max(ceiling - shown, shown - floor) + _ROUNDED * self.step
        return self._verdict("error", error, estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramValidator(StatisticValidator):
    """A test of the share of units in each of the declared bins, by one row that is drawn from each unit.

    Claim    ACCEPT although any of the `shares` is further than the target from that of all units has a
             probability of at most η/(i(i+1)) at attempt i. Loss: epsilon.
    Because  a unit is in one bin. For each bin, the noise of its count, the noise of all others together
             (by its exact law), and Clopper and Pearson's bounds get a third of η/bins each, half for each
             tail.
    Test     tests/learn/test_validators_statistic.py::test_a_share_is_further_off_with_at_most_eta

    `ValidationRows.values` are the bins, 0 .. bins - 1. Rows in other bins are left out, and so are units
    without any.
    """

    bins: int

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        set_fields(self, bins=whole(self.bins, "bins", at_least=2))
        if self.bins > _MOST_BINS:
            raise BadParameter("bins", "must be at most 1,024")
        if self.target >= 1:
            raise BadParameter("target", "must be below 1: it is the error of a share")

    @property
    def _l1(self) -> int:
        return 1

    def release(self, rows: ValidationRows) -> ValidationRelease:
        """Return the noisy number of units in each bin."""
        self._refuse_class(rows)
        places = value_rows(rows.values, "iu", "values must be bins, as whole numbers, one per row")
        if places.dtype == object:
            places = read_codes(places, {bin_: bin_ for bin_ in range(self.bins)})
        units = unit_numbers(rows.units, len(places))
        inside = (places >= 0) & (places < self.bins)
        kept = one_row_each(units[inside], int(inside.sum()))
        drawn = places[inside][kept].astype(np.int64)
        counts = np.bincount(drawn, minlength=self.bins)
        return self._made(*self._noise.sample(counts).tolist())

    def shares(self, released: ValidationRelease) -> tuple[float, ...] | None:
        """Return the share of units in each bin; None if the noise left no units.

        They need not add up to 1.
        """
        counts = self._numbers(released, self.bins)
        total = sum(counts)
        return (
            tuple(float(bounds.clamped_share(count, total - count)) for count in counts)
            if total > 0
            else None
        )

    def judge(self, released: ValidationRelease, *, attempt: int) -> ValidationResult:
        """Accept if the error of every share is at most the target."""
        eta = eta_share(self.eta, attempt)
        counts, shares = self._numbers(released, self.bins), self.shares(released)
        if shares is None:
            return self._too_few()
        tail = eta / (6 * self.bins)
        own = noise_quantile(self._noise, tail)
        rest = noise_quantile(SummedLaplace(self._noise.scale, 1, self.bins - 1), tail)
        sides: list[tuple[Fraction, int, int, Fraction]] = []
        for count, share in zip(counts, shares, strict=True):
            others, shown = sum(counts) - count, Fraction(share)
            up, down = (count + own, others - rest), (others + rest, count - own)
            sides.append((bounds.mean_ceiling(*up, tail) - shown, *up, shown))
            sides.append((bounds.mean_ceiling(*down, tail) - (1 - shown), *down, 1 - shown))
        # Clopper and Pearson's ends are tighter but slower: only for candidates of the greatest error.
        error = Fraction(0)
        for rough, hits, misses, shown in sorted(sides, reverse=True):
            if rough <= error:
                break
            error = max(error, bounds.share_ceiling(hits, misses, tail) - shown)
        return self._verdict("error", error, None)
