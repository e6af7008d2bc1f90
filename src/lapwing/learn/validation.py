"""Validation: a model or statistic leaves only if released numbers show that it is good enough.

A validator has a public price, a noisy release, and a verdict that is computed from the release alone.

Claim    removing a unit takes away its own whole number and changes no other unit's.
Because  a unit's number depends on its own rows alone, clamped one by one, and every row becomes a number:
         no row is refused for its value.
Test     tests/learn/test_validation_rows.py
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import Number, exact, inside_unit, positive, set_fields, whole
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Loss, Relation, checked_epsilon
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.confidence_bounds import float_down, float_up
from lapwing.learn.payer import EACH_ROW
from lapwing.learn.table_input import NUMBERS, Floats, Wholes, checked_units, read_column, read_numbers

Values = ArrayLike | Sequence[Any]
MOST_STEPS = 1 << 30  # so that sums of 2^32 rows fit 8 bytes
_LARGEST_REAL = 10**300
_UNSURE = 2.0**-48


class Rounding(Enum):
    """The direction in which a number may be rounded."""

    UP = "up"
    DOWN = "down"
    NEAREST = "either, by at most one half"


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


def value_rows(values: Values, kinds: str, wanted: str) -> NDArray[Any]:
    """Return one cell per row. The type of an array is checked, never its values; lists have no type."""
    cells = read_column(values, wanted)
    if cells.size and cells.dtype.kind not in kinds + "O":
        raise BadValue(wanted)
    return cells if cells.size else np.zeros(0, object)


def real_rows(values: Values) -> Floats:
    """Return one number per row, and NaN for a cell that is no number."""
    return read_numbers(value_rows(values, NUMBERS, "there must be one number per row"))


def unit_numbers(units: Any, count: int) -> Wholes:
    """Return the unit of each row, as whole numbers from 0."""
    unit_of_row = checked_units(None if units is EACH_ROW else units, count)
    if unit_of_row is None:
        return np.arange(count, dtype=np.int64)
    return np.unique(unit_of_row, return_inverse=True)[1].astype(np.int64)


def unit_means(wholes: Wholes, units: Wholes, rounding: Rounding) -> Wholes:
    """Return the mean of each unit's rows, as a whole number."""
    if not len(wholes):
        return wholes
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    sums = np.add.reduceat(wholes[order], starts)
    counts = np.diff(starts, append=len(wholes))
    means: Wholes
    if rounding is Rounding.UP:
        means = -(-sums // counts)
    elif rounding is Rounding.DOWN:
        means = sums // counts
    else:
        means = (2 * sums + counts) // (2 * counts)
    return means


def in_steps(losses: Floats, step: Fraction, most: int, rounding: Rounding) -> Wholes:
    """Convert losses to whole numbers of steps in 0 .. most, rounded to one side exactly.

    A missing loss counts as the worst case: `most` if rounded up, otherwise 0. Where the float quotient
    cannot decide (the loss is near a multiple of the step), the exact quotient does.
    """
    up = rounding is Rounding.UP
    known = np.maximum(np.where(np.isnan(losses), np.inf if up else 0.0, losses), 0.0)
    with np.errstate(over="ignore", under="ignore"):
        quotients = np.minimum(known / float(step), most + 1.0)
    found = (np.ceil(quotients) if up else np.floor(quotients)).astype(np.int64)
    distance = np.abs(quotients - np.rint(quotients))
    unsure = (distance <= quotients * _UNSURE) & (known > 0) & (quotients < most + 0.5)
    if unsure.any():
        distinct, places = np.unique(known[unsure], return_inverse=True)
        exactly = [Fraction(loss) / step for loss in distinct.tolist()]
        settled = [math.ceil(q) if up else math.floor(q) for q in exactly]
        found[unsure] = np.array(settled, dtype=np.int64)[places]
    return np.clip(found, 0, most)


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
        return json.dumps([self.made_by, list(self.numbers)], separators=(",", ":")).encode()

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
    Test     tests/learn/test_validation_attempts.py

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
        return self._shown()

    def _shown(self) -> dict[str, str | int]:
        """Return the declared numbers."""
        declared = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: one if isinstance(one, int) else str(one) for name, one in declared.items()}

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
        return json.dumps([self.mechanism, self.parameters], sort_keys=True)

    def _made(self, *numbers: int) -> ValidationRelease:
        return ValidationRelease(numbers, self._name)

    def _step_sums(self, steps: Wholes) -> tuple[int, int]:
        """Return the sum of the units' steps, and how much larger the sum could have been."""
        total = int(steps.sum())
        return total, self._l1 * len(steps) - total

    def _verdict(self, what: str, bound: Fraction, estimate: float | None) -> ValidationResult:
        """Accept if the bound meets the target, otherwise retry. Only an accuracy must be large."""
        if what == "accuracy":
            is_met, shown, side, beyond = bound >= self.target, float_down(bound), "at least", "below"
        else:
            is_met, shown, side, beyond = bound <= self.target, float_up(bound), "at most", "above"
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
def noise_quantile(mechanism: Laplace, miss: Fraction) -> int:
    """Return the least w with P[noise > w] <= miss, exactly. By symmetry it holds below, too."""
    return mechanism.spread(1 - 2 * miss)
