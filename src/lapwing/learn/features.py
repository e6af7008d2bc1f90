"""One column as features: what it becomes is decided by its declared kind, never by values.

Claim    each row becomes numbers by itself, and every feature lies between -1 and 1, whatever it holds.
Because  a code is moved into its declared range before anything else, what is missing becomes a declared
         value or 0, and all that follows is a public function of that one code.
Test     tests/learn/features/test_feature.py

All features of a training run: a public description, and what it makes of rows.

Claim    everything in the description (names, bounds, classes, lengths) is known before a row is read.
Because  it is made of a bound question's kinds and of what the caller declares.
Test     tests/learn/features/test_features.py

Features: from bounded rows to tables and matrices whose bounds are public.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import exact
from lapwing.errors import BadParameter
from lapwing.learn.column_search import FoundColumn, find_bounds, find_values
from lapwing.learn.trainers.columns import Category, Column, Real
from lapwing.sql.expression import SECONDS, Choice, Kind, Moment, Numeric, Period, Truth
from lapwing.sql.policy import EPOCH
from lapwing.sql.row_questions import CodedColumn, PrivateRows, RowQuestion

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
        return code_range(self.name, self.kind)

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

    def codes(self, column: CodedColumn) -> tuple[Wholes, NDArray[np.bool_]]:
        """Codes within the declared range, and which of them are known or declared."""
        first, last = self.ends
        if self.missing is None:
            return np.clip(column.codes, first, last), column.known
        filled = np.where(column.known, column.codes, self.missing)
        return np.clip(filled, first, last), np.ones(len(filled), np.bool_)

    def matrix(self, column: CodedColumn) -> Floats:
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

    def table(self, column: CodedColumn) -> Floats:
        """Numbers as they are, declared values by their position; NaN where nothing is known."""
        codes, known = self.codes(column)
        found = np.where(known, codes * float(self._step), np.nan)[:, None]
        return np.hstack([found, ~known[:, None]]) if self.indicator else found

    @property
    def _step(self) -> Fraction:
        return self.kind.step if isinstance(self.kind, Numeric) else Fraction(1)

    def coded(self, values: Any) -> CodedColumn:
        """Plain values (as people read them) as codes. What is none of the declared values is missing.

        Raises `BadParameter` where a value is of another type than the column's: it is not missing.
        """
        if any(not has_kind(self.kind, value) for value in values):
            raise BadParameter(
                "values", f"of {self.name[:60]!r} must be {_MEANT[type(self.kind)]}, or None"
            )
        found = [code_of(self.kind, value) for value in values]
        known = np.array([code is not None for code in found], dtype=np.bool_)
        return CodedColumn(np.array([code or 0 for code in found], dtype=np.int64), known)


_MEANT: dict[type, str] = {
    Numeric: "numbers (texts are not)",
    Truth: "True or False",
    Moment: "dates or times",
    Period: "dates or times",
    Choice: "of the type of its declared values",
}


def has_kind(kind: Kind, value: Any) -> bool:
    """Whether a plain value is of the type of a kind; None fits everywhere."""
    if isinstance(value, np.generic):
        value = value.item()
    match kind:
        case _ if value is None:
            return True
        case Choice(values):
            types = {type(one) for one in values}
            return type(value) in types or (isinstance(value, float) and math.isnan(value))
        case Numeric():
            return isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
        case Truth():
            return isinstance(value, bool) or (isinstance(value, float) and math.isnan(value))
        case _:
            return isinstance(value, date) or (isinstance(value, float) and math.isnan(value))


def code_range(name: str, kind: Kind) -> tuple[int, int]:
    """The least and the greatest code of a kind that can be learned from."""
    match kind:
        case Numeric(_, int(first), int(last)) | Moment(_, first, last) | Period(_, first, last):
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
        case Numeric(step, int(first), int(last)):
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


_FORM = "lapwing features 1"
_FARTHEST = 1 << 53


@dataclass(frozen=True, slots=True)
class Features:
    """Columns to learn from, in order, and the one to be learned (none: `label` is "").

    There is at least one of either: a statistic is of its label alone.
    With `bias`, the matrix has one more feature that is always 1.
    """

    columns: tuple[Feature, ...]
    label: str = ""
    label_kind: Kind | None = None
    bias: bool = False

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if (not names and not self.label) or len(set(names)) < len(names):
            raise BadParameter("features", "must be one or more different columns")
        if self.label in names or bool(self.label) is (self.label_kind is None):
            raise BadParameter("label", "must be a column of its own, with its kind")
        if self.label_kind is not None:
            code_range(self.label, self.label_kind)

    @classmethod
    def of(
        cls,
        question: RowQuestion,
        *,
        label: str | None,
        missing: Mapping[str, Any] | None = None,
        indicators: bool = True,
        as_codes: Collection[str] = (),
        bias: bool = False,
    ) -> Features:
        """Features of a question's columns.

        `missing` says, by name, what a missing value counts as; None: 0, the middle. Other numbers get an
        indicator beside them, unless `indicators` is False. (A declared value is missing where none of its
        features is 1.) `as_codes` are columns of declared values in a natural order: one number each.
        """
        kinds = dict(question.columns)
        declared = dict(missing or {})
        unknown = ({label} if label else set()) | set(declared) | set(as_codes)
        for name in unknown - set(kinds):
            raise BadParameter("features", f"the question has no column {name[:60]!r}")
        label_kind = kinds.pop(label) if label else None
        columns = []
        for name, kind in kinds.items():
            as_code = name in as_codes
            one_hot = isinstance(kind, Choice) and not as_code
            columns.append(
                Feature(
                    name,
                    kind,
                    missing=_code(name, kind, declared.get(name)),
                    indicator=indicators and name not in declared and not one_hot,
                    as_code=as_code,
                )
            )
        return cls(tuple(columns), label or "", label_kind, bias)

    # The matrix: numbers between -1 and 1

    @property
    def names(self) -> list[str]:
        """What the features of the matrix are called."""
        named = [name for column in self.columns for name in column.names]
        return [*named, "1"] if self.bias else named

    @property
    def width(self) -> int:
        """How many features the matrix has."""
        return len(self.names)

    @property
    def norm(self) -> float:
        """No row of the matrix is longer (rounded up): each column's features have length at most 1."""
        return math.nextafter(math.sqrt(len(self.columns) + self.bias), math.inf)

    def matrix(self, rows: PrivateRows) -> Floats:
        """The features of all rows. Private."""
        parts = [column.matrix(rows.columns[column.name]) for column in self.columns]
        if self.bias:
            parts.append(np.ones((len(rows), 1)))
        return np.hstack(parts)

    # The table: for trainers of ours, with what they are told about its columns

    @property
    def declared(self) -> tuple[Column, ...]:
        """The trainers' `columns`."""
        return tuple(one for column in self.columns for one in column.declared)

    def table(self, rows: PrivateRows) -> Floats:
        """What trainers learn from: numbers as they are, declared values by position. Private."""
        return np.hstack([column.table(rows.columns[column.name]) for column in self.columns])

    # What is to be learned

    @property
    def class_values(self) -> tuple[str | int | bool, ...]:
        """The classes as people call them."""
        match self.label_kind:
            case Choice(values):
                return values
            case Truth():
                return (False, True)
            case _:
                raise BadParameter("label", "is a number: it has bounds, and no classes")

    @property
    def has_classes(self) -> bool:
        """Whether the label is one of declared values."""
        return isinstance(self.label_kind, Choice | Truth)

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes as `target` gives them: positions among the declared values."""
        return tuple(range(len(self.class_values)))

    @property
    def target_bounds(self) -> tuple[float, float]:
        """Between which a number to be learned lies."""
        if self.label_kind is None or self.has_classes:
            raise BadParameter("label", "is no number: it has no bounds")
        low, high = (
            float(code * _step(self.label_kind)) for code in code_range(self.label, self.label_kind)
        )
        return low, high

    def learnable(self, rows: PrivateRows) -> NDArray[np.bool_]:
        """The rows whose label is known: the others teach nothing. Private."""
        return rows.columns[self._labelled].known

    def target(self, rows: PrivateRows) -> NDArray[Any]:
        """Positions of classes, or numbers. Where it is unknown it is -1, or NaN. Private."""
        column = rows.columns[self._labelled]
        assert self.label_kind is not None
        codes = np.clip(column.codes, *code_range(self.label, self.label_kind))
        if self.has_classes:
            return np.where(column.known, codes, -1)
        return np.where(column.known, codes * float(_step(self.label_kind)), np.nan)

    @property
    def _labelled(self) -> str:
        if not self.label:
            raise BadParameter("label", "is missing: nothing is to be learned")
        return self.label

    # Plain values, and the description as text

    def coded(self, values: Mapping[str, Sequence[Any]]) -> PrivateRows:
        """Rows from plain values by column, to predict for. Each row is a unit; the label may be there."""
        kinds = {column.name: column for column in self.columns}
        if self.label and self.label in values:
            assert self.label_kind is not None
            kinds[self.label] = Feature(self.label, self.label_kind)
        wrong = BadParameter("values", "must be one column for each feature (a list), all of one length")
        if not isinstance(values, Mapping) or any(name not in values for name in kinds):
            raise wrong
        if any(isinstance(values[name], str) or not hasattr(values[name], "__len__") for name in kinds):
            raise wrong
        if len({len(values[name]) for name in kinds}) > 1:
            raise wrong
        columns: dict[str, CodedColumn] = {
            name: column.coded(values[name]) for name, column in kinds.items()
        }
        count = len(next(iter(columns.values())).codes)
        numbers = np.arange(count, dtype=np.int64)
        return PrivateRows(numbers, np.zeros(count, np.int64), columns, numbers, numbers)

    def to_json(self) -> dict[str, Any]:
        """As plain values. It is public."""
        return {
            "form": _FORM,
            "label": None if self.label_kind is None else [self.label, _kind_to(self.label_kind)],
            "bias": self.bias,
            "columns": [
                {
                    "name": column.name,
                    "kind": _kind_to(column.kind),
                    "missing": column.missing,
                    "indicator": column.indicator,
                    "as_code": column.as_code,
                }
                for column in self.columns
            ],
        }

    @classmethod
    def from_json(cls, found: Any) -> Features:
        """What `to_json` gave."""
        try:
            if found["form"] != _FORM:
                raise BadParameter("features", "are of another form")
            columns = tuple(
                Feature(
                    one["name"], _kind_of(one["kind"]), one["missing"], one["indicator"], one["as_code"]
                )
                for one in found["columns"]
            )
            label, kind = found["label"] or ("", None)
            return cls(columns, label, None if kind is None else _kind_of(kind), found["bias"])
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise BadParameter("features", "cannot be read") from None

    def __str__(self) -> str:
        return json.dumps(self.to_json(), ensure_ascii=False)


def _step(kind: Kind) -> Fraction:
    return kind.step if isinstance(kind, Numeric) else Fraction(1)


def _code(name: str, kind: Kind, value: Any) -> int | None:
    if value is None:
        return None
    code = code_of(kind, value)
    if code is None:
        raise BadParameter("missing", f"{name[:60]!r} cannot have the value that is to stand for it")
    return code


def _kind_to(kind: Kind) -> list[Any]:
    match kind:
        case Numeric(step, first, last):
            return ["number", str(step), first, last]
        case Choice(values):
            return ["choice", *values]
        case Moment(seconds, first, last, start):
            return ["moment", seconds, first, last, start]
        case Period(months, first, last):
            return ["period", months, first, last]
        case Truth():
            return ["truth"]
        case _:
            raise BadParameter("features", "have neither bounds nor declared values")


def _kind_of(found: Sequence[Any]) -> Kind:
    word, *rest = found
    if word == "number":
        step = exact(rest[0], "step")
        if step <= 0:
            raise BadParameter("step", "must be above 0")
        return Numeric(step, *_ends(rest[1:]))
    if word == "choice":
        if not rest or len(set(rest)) < len(rest) or any(not isinstance(one, str | int) for one in rest):
            raise BadParameter("values", "must be one or more different ones")
        return Choice(tuple(rest))
    if word == "truth":
        return Truth()
    made: dict[str, type[Moment | Period]] = {"moment": Moment, "period": Period}
    size, *others = _wholes(rest)
    if size < 1:
        raise BadParameter("step", "must be above 0")
    return made[word](size, *_ends(others[:2]), *others[2:])


def _ends(found: Sequence[Any]) -> tuple[int, int]:
    first, last = _wholes(found)
    if first > last:
        raise BadParameter("bounds", "must not begin above where they end")
    return first, last


def _wholes(found: Sequence[Any]) -> list[int]:
    """Whole numbers that arrays can hold."""
    if any(not isinstance(one, int) or isinstance(one, bool) or abs(one) > _FARTHEST for one in found):
        raise BadParameter("bounds", "must be whole numbers below 2^53")
    return list(found)


__all__ = ["Feature", "Features", "FoundColumn", "find_bounds", "find_values"]
