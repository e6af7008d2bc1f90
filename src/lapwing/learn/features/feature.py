"""One column as features: what it becomes is decided by its declared kind, never by values.

Claim    each row becomes numbers by itself, and every feature lies between -1 and 1, whatever it holds.
Because  a code is moved into its declared range before anything else, what is missing becomes a declared
         value or 0, and all that follows is a public function of that one code.
Test     tests/learn/features/test_feature.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import exact
from lapwing.learn.trainers.columns import Category, Column, Real
from lapwing.query.language.kinds import SECONDS, Choice, Kind, Moment, Number, Period, Truth
from lapwing.query.policies.blocks import EPOCH
from lapwing.query.rows import Coded

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]
_START = datetime(EPOCH.year, EPOCH.month, EPOCH.day, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Feature:
    """A column. `missing` is the code that a missing value counts as; without one it is 0, and with an
    `indicator` one more feature is 1 then. `as_code`: a declared value is its position, one number.
    """

    name: str
    kind: Kind
    missing: int | None = None
    indicator: bool = False
    as_code: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return ends_of(self.name, self.kind)

    @property
    def is_one_hot(self) -> bool:
        """Whether each declared value is a feature of its own, which is 1 where it is the value."""
        return isinstance(self.kind, Choice) and not self.as_code

    @property
    def names(self) -> list[str]:
        """What its features are called."""
        if self.is_one_hot:
            assert isinstance(self.kind, Choice)
            named = [f"{self.name} = {value}" for value in self.kind.values]
        else:
            named = [self.name]
        return [*named, *([f"{self.name} is missing"] if self.indicator else [])]

    def codes(self, column: Coded) -> tuple[Wholes, NDArray[np.bool_]]:
        """Codes within the declared range, and which of them are known or declared."""
        first, last = self.ends
        if self.missing is None:
            return np.clip(column.codes, first, last), column.known
        filled = np.where(column.known, column.codes, self.missing)
        return np.clip(filled, first, last), np.ones(len(filled), np.bool_)

    def matrix(self, column: Coded) -> Floats:
        """Its features, each between -1 and 1; together they have length at most 1."""
        codes, known = self.codes(column)
        first, last = self.ends
        if self.is_one_hot:
            placed = (codes[:, None] == np.arange(last + 1)) & known[:, None]
            found = placed.astype(np.float64)
        else:
            scaled = (2.0 * (codes - first) - (last - first)) / max(last - first, 1)
            found = np.where(known, np.clip(scaled, -1.0, 1.0), 0.0)[:, None]
        return np.hstack([found, ~known[:, None]]) if self.indicator else found

    # For trainers, which scale by themselves

    @property
    def declared(self) -> tuple[Column, ...]:
        """What trainers are told about the columns of `table`."""
        first, last = self.ends
        if isinstance(self.kind, Choice | Truth) and not self.as_code:
            own: Column = Category(tuple(range(first, last + 1)))
        else:
            low, high = (code * self._step for code in (first, max(last, first + 1)))
            own = Real(low, high)
        return (own, Category((1,))) if self.indicator else (own,)

    def table(self, column: Coded) -> Floats:
        """Numbers as they are, declared values by their position; NaN where nothing is known."""
        codes, known = self.codes(column)
        found = np.where(known, codes * float(self._step), np.nan)[:, None]
        return np.hstack([found, ~known[:, None]]) if self.indicator else found

    @property
    def _step(self) -> Fraction:
        return self.kind.step if isinstance(self.kind, Number) else Fraction(1)

    def coded(self, values: Any) -> Coded:
        """Plain values (as people read them) as codes. What is none of the declared values is missing.

        Raises `BadParameter` where a value is of another type than the column's: it is not missing.
        """
        if any(not fits(self.kind, value) for value in values):
            raise BadParameter(
                "values", f"of {self.name[:60]!r} must be {_MEANT[type(self.kind)]}, or None"
            )
        found = [code_of(self.kind, value) for value in values]
        known = np.array([code is not None for code in found], dtype=np.bool_)
        return Coded(np.array([code or 0 for code in found], dtype=np.int64), known)


_MEANT: dict[type, str] = {
    Number: "numbers (texts are not)",
    Truth: "True or False",
    Moment: "dates or times",
    Period: "dates or times",
    Choice: "of the type of its declared values",
}


def fits(kind: Kind, value: Any) -> bool:
    """Whether a plain value is of the type of a kind; None fits everywhere."""
    if isinstance(value, np.generic):
        value = value.item()
    match kind:
        case _ if value is None:
            return True
        case Choice(values):
            types = {type(one) for one in values}
            return type(value) in types or (isinstance(value, float) and math.isnan(value))
        case Number():
            return isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
        case Truth():
            return isinstance(value, bool) or (isinstance(value, float) and math.isnan(value))
        case _:
            return isinstance(value, date) or (isinstance(value, float) and math.isnan(value))


def ends_of(name: str, kind: Kind) -> tuple[int, int]:
    """The least and the greatest code of a kind that can be learned from."""
    match kind:
        case Number(_, int(first), int(last)) | Moment(_, first, last) | Period(_, first, last):
            return first, last
        case Choice(values):
            return 0, len(values) - 1
        case Truth():
            return 0, 1
        case _:
            raise BadParameter(name, "has neither bounds nor declared values")


def code_of(kind: Kind, value: Any) -> int | None:  # noqa: PLR0911 (a case for each kind)
    """The code of a plain value, moved into the bounds; None if it is missing or none of the declared."""
    if isinstance(value, np.generic):
        value = value.item()
    match kind:
        case Choice(values):
            places = {(type(one) is bool, one): place for place, one in enumerate(values)}
            return places.get((type(value) is bool, value)) if isinstance(value, str | int | bool) else None
        case Truth():
            return int(value) if isinstance(value, bool) else None
        case Number(step, int(first), int(last)):
            try:
                number = exact(value)
            except BadParameter:
                return {math.inf: last, -math.inf: first}.get(value) if isinstance(value, float) else None
            return min(max(math.floor(number / step + Fraction(1, 2)), first), last)
        case Moment(seconds, first, last, start):
            since = _seconds(value)
            return None if since is None else min(max((since - start) // seconds, first), last)
        case Period(months, first, last):
            since = _seconds(value)
            if since is None:
                return None
            day = date.fromordinal(EPOCH.toordinal() + since // SECONDS["day"])
            return min(max(((day.year - EPOCH.year) * 12 + day.month - 1) // months, first), last)
        case _:
            return None


def _seconds(value: Any) -> int | None:
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int((at - _START).total_seconds() // 1)
    return (value - EPOCH).days * SECONDS["day"] if isinstance(value, date) else None
