"""Features: numbers made of the bounded rows of a table, with public bounds.

Claim    each row becomes numbers by itself, and every feature lies between -1 and 1, whatever the row
         holds.
Because  a code is first clamped to its declared range, a missing value becomes a declared value or 0, and
         the rest is a public function of that one code.
Test     tests/learn/test_features_feature.py

Claim    everything in the description of the features (names, bounds, classes, lengths) is known before a
         row is read.
Because  it follows from the column types of a bound query and from what the caller declares.
Test     tests/learn/test_features.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import astuple, dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.core.exact import exact
from lapwing.errors import BadParameter
from lapwing.learn.table_input import Cells, Floats, Truths, Wholes
from lapwing.learn.trainers.columns import Category, Column, Real
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Period, Truth, codes_of
from lapwing.sql.policy.policy import EPOCH
from lapwing.sql.row_questions import CodedColumn, PrivateRows, RowQuestion

_START = datetime(EPOCH.year, EPOCH.month, EPOCH.day, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Feature:
    """One column as features. Its declared type decides what it becomes, never its values.

    `missing` is the code that stands for a missing value; None means that missing values become 0. With
    `indicator`, one more feature is 1 where the value is missing.
    """

    name: str
    kind: Kind
    missing: int | None = None
    indicator: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return code_range(self.name, self.kind)

    @property
    def names(self) -> list[str]:
        """The names of the features. Each of several declared values is one, 1 where the column has it."""
        named = [self.name]
        if isinstance(self.kind, Choice):
            named = [f"{self.name} = {value}" for value in self.kind.values]
        return [*named, *([f"{self.name} is missing"] if self.indicator else [])]

    def codes(self, column: CodedColumn) -> tuple[Wholes, Truths]:
        """Clamp codes to the declared range, and tell which are known or replaced by `missing`."""
        first, last = self.ends
        if self.missing is None:
            return np.clip(column.codes, first, last), column.known
        filled = np.where(column.known, column.codes, self.missing)
        return np.clip(filled, first, last), np.ones(len(filled), np.bool_)

    def matrix(self, column: CodedColumn) -> Floats:
        """Return the features, each between -1 and 1, with a length of at most 1 per row."""
        codes, known = self.codes(column)
        first, last = self.ends
        if isinstance(self.kind, Choice):
            placed = (codes[:, None] == np.arange(last + 1)) & known[:, None]
            numbers = placed.astype(np.float64)
        else:
            scaled = (2.0 * (codes - first) - (last - first)) / max(last - first, 1)
            numbers = np.where(known, np.clip(scaled, -1.0, 1.0), 0.0)[:, None]
        return np.hstack([numbers, ~known[:, None]]) if self.indicator else numbers

    # For trainers, which scale by themselves

    @property
    def declared(self) -> tuple[Column, ...]:
        """The declared types of the columns of `table`, for trainers that scale by themselves."""
        first, last = self.ends
        if isinstance(self.kind, Choice | Truth):
            own: Column = Category(tuple(range(first, last + 1)))
        else:
            low, high = (code * kind_step(self.kind) for code in (first, max(last, first + 1)))
            own = Real(low, high)
        return (own, Category((1,))) if self.indicator else (own,)

    def table(self, column: CodedColumn) -> Floats:
        """Return numbers on their own scale, and declared values by position; NaN if unknown."""
        codes, known = self.codes(column)
        numbers = np.where(known, codes * float(kind_step(self.kind)), np.nan)[:, None]
        return np.hstack([numbers, ~known[:, None]]) if self.indicator else numbers

    def coded(self, values: Any) -> CodedColumn:
        """Convert plain Python values to codes. A value that is not declared counts as missing.

        Raises BadParameter if a value has another type than the column.
        """
        if any(not has_kind(self.kind, value) for value in values):
            wanted = _MEANT.get(type(self.kind), "dates or times")
            raise BadParameter("values", f"of {self.name[:60]!r} must be {wanted}, or None")
        codes = [code_of(self.kind, value) for value in values]
        known = np.array([code is not None for code in codes], dtype=np.bool_)
        return CodedColumn(np.array([code or 0 for code in codes], dtype=np.int64), known)


_MEANT: dict[type, str] = {
    Numeric: "numbers (texts are not)",
    Truth: "True or False",
    Choice: "of the type of its declared values",
}


def has_kind(kind: Kind, value: Any) -> bool:
    """Tell whether a plain value has the type of a column. None and NaN have every type."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    match kind:
        case Choice(values):
            return type(value) in {type(declared) for declared in values}
        case Numeric():
            return isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
        case Truth():
            return isinstance(value, bool)
        case _:
            return isinstance(value, date)


def code_range(name: str, kind: Kind) -> tuple[int, int]:
    """Return the least and the greatest code of a column that can be learned from.

    Raises BadParameter if the column has neither bounds nor declared values.
    """
    codes = codes_of(kind)
    if codes is None:
        raise BadParameter(name, "has neither bounds nor declared values")
    return codes[0], codes[-1]


def code_of(kind: Kind, value: Any) -> int | None:  # noqa: PLR0911 (a case for each kind)
    """Return the code of a plain value, clamped to the bounds; None if it is missing or not declared."""
    if isinstance(value, np.generic):
        value = value.item()
    match kind:
        case Choice(values):
            places = {(type(declared) is bool, declared): place for place, declared in enumerate(values)}
            return places.get((type(value) is bool, value)) if isinstance(value, str | int | bool) else None
        case Truth():
            return int(value) if isinstance(value, bool) else None
        case Numeric(step, int(first), int(last)):
            try:
                number = exact(value)
            except BadParameter:
                return {math.inf: last, -math.inf: first}.get(value) if isinstance(value, float) else None
            return min(max(math.floor(number / step + Fraction(1, 2)), first), last)
        case Moment(seconds, first, last, start) if (since := _seconds(value)) is not None:
            return min(max((since - start) // seconds, first), last)
        case Period(months, first, last) if (since := _seconds(value)) is not None:
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
    """The columns to learn from, in order, and the label to be learned.

    `label` is "" if there is none. There is at least one column or a label: a statistic has only a label.
    """

    columns: tuple[Feature, ...]
    label: str = ""
    label_kind: Kind | None = None

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
    ) -> Features:
        """Describe the features of a query's columns.

        `missing` gives, by column, the value that stands for missing ones; None stands for 0, the middle
        of the bounds. Every column that is not named there gets an indicator feature, unless `indicators`
        is False or its declared values become features of their own (then all of them are 0).
        """
        kinds = dict(question.columns)
        declared = dict(missing or {})
        for name in (({label} if label else set()) | set(declared)) - set(kinds):
            raise BadParameter("features", f"the question has no column {name[:60]!r}")
        label_kind = kinds.pop(label) if label else None
        columns = []
        for name, kind in kinds.items():
            shows_missing = indicators and name not in declared and not isinstance(kind, Choice)
            columns.append(Feature(name, kind, _code(name, kind, declared.get(name)), shows_missing))
        return cls(tuple(columns), label or "", label_kind)

    # The matrix: numbers between -1 and 1

    @property
    def names(self) -> list[str]:
        """The names of the features of the matrix."""
        return [name for column in self.columns for name in column.names]

    @property
    def width(self) -> int:
        """The number of features of the matrix."""
        return len(self.names)

    def matrix(self, rows: PrivateRows) -> Floats:
        """Return the features of all rows. The result is private."""
        return np.hstack([column.matrix(rows.columns[column.name]) for column in self.columns])

    # The table: for Lapwing's trainers, with the declarations of its columns

    @property
    def declared(self) -> tuple[Column, ...]:
        """The declared types of the columns of `table`, as trainers expect them in `columns`."""
        return tuple(declared for column in self.columns for declared in column.declared)

    def table(self, rows: PrivateRows) -> Floats:
        """Return the table that trainers learn from. The result is private.

        Numbers are on their own scale; declared values are given by position.
        """
        return np.hstack([column.table(rows.columns[column.name]) for column in self.columns])

    # The label

    @property
    def class_values(self) -> tuple[str | int | bool, ...]:
        """The declared values of the label."""
        if isinstance(self.label_kind, Choice):
            return self.label_kind.values
        if isinstance(self.label_kind, Truth):
            return (False, True)
        raise BadParameter("label", "is a number: it has bounds, and no classes")

    @property
    def has_classes(self) -> bool:
        """True if the label is one of several declared values."""
        return isinstance(self.label_kind, Choice | Truth)

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes as `target` gives them: positions among the declared values."""
        return tuple(range(len(self.class_values)))

    @property
    def target_bounds(self) -> tuple[float, float]:
        """The declared bounds of a numeric label."""
        if self.label_kind is None or self.has_classes:
            raise BadParameter("label", "is no number: it has no bounds")
        low, high = (float(code * kind_step(self.label_kind)) for code in self.label_feature.ends)
        return low, high

    def learnable(self, rows: PrivateRows) -> Truths:
        """Return a mask of the rows whose label is known. The result is private."""
        return rows.columns[self.label_feature.name].known

    def target(self, rows: PrivateRows) -> Cells:
        """Return positions of classes, or numbers; -1 or NaN where the label is unknown.

        The result is private.
        """
        label = self.label_feature
        column = rows.columns[label.name]
        if not self.has_classes:
            return label.table(column)[:, 0]
        codes, known = label.codes(column)
        return np.where(known, codes, -1)

    @property
    def label_feature(self) -> Feature:
        """The label as a column. Raises BadParameter if there is none."""
        if self.label_kind is None:
            raise BadParameter("label", "is missing: there is nothing to learn")
        return Feature(self.label, self.label_kind)

    # Plain values, and the description as text

    def coded(self, values: Mapping[str, Sequence[Any]]) -> PrivateRows:
        """Convert plain values by column to rows, for predictions.

        Each row is a unit; the label is optional.
        """
        kinds = {column.name: column for column in self.columns}
        if self.label and self.label in values:
            kinds[self.label] = self.label_feature
        given = [values.get(name) for name in kinds] if isinstance(values, Mapping) else [None]
        lengths = {
            len(cells) if isinstance(cells, Sized) and not isinstance(cells, str) else None
            for cells in given
        }
        if None in lengths or len(lengths) > 1:
            raise BadParameter("values", "must be one column for each feature (a list), all of one length")
        columns = {name: column.coded(values[name]) for name, column in kinds.items()}
        count = len(next(iter(columns.values())).codes)
        numbers = np.arange(count, dtype=np.int64)
        return PrivateRows(numbers, np.zeros(count, np.int64), columns, numbers, numbers)

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain values. It is public."""
        return {
            "form": _FORM,
            "label": None if self.label_kind is None else [self.label, _kind_to(self.label_kind)],
            "bias": False,  # of earlier descriptions, as is as_code
            "columns": [
                {
                    "name": column.name,
                    "kind": _kind_to(column.kind),
                    "missing": column.missing,
                    "indicator": column.indicator,
                    "as_code": False,
                }
                for column in self.columns
            ],
        }

    @classmethod
    def from_json(cls, fields: Any) -> Features:
        """Read a description that `to_json` returned."""
        try:
            if (
                fields["form"] != _FORM
                or fields["bias"]
                or any(column["as_code"] for column in fields["columns"])
            ):
                raise BadParameter("features", "are of another form")
            columns = tuple(
                Feature(column["name"], _kind_of(column["kind"]), column["missing"], column["indicator"])
                for column in fields["columns"]
            )
            label, kind = fields["label"] or ("", None)
            return cls(columns, label, None if kind is None else _kind_of(kind))
        except BadParameter:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise BadParameter("features", "cannot be read") from None

    def __str__(self) -> str:
        return json.dumps(self.to_json(), ensure_ascii=False)


def kind_step(kind: Kind) -> Fraction:
    """Return the step of a numeric column, and 1 for other columns."""
    return kind.step if isinstance(kind, Numeric) else Fraction(1)


def _code(name: str, kind: Kind, value: Any) -> int | None:
    if value is None:
        return None
    code = code_of(kind, value)
    if code is None:
        raise BadParameter("missing", f"the replacement for {name[:60]!r} is no value of that column")
    return code


_WORDS: dict[type, str] = {
    Numeric: "number", Choice: "choice", Moment: "moment", Period: "period", Truth: "truth",
}  # fmt: skip


def _kind_to(kind: Kind) -> list[Any]:
    if type(kind) not in _WORDS:
        raise BadParameter("features", "have neither bounds nor declared values")
    values = kind.values if isinstance(kind, Choice) else astuple(kind)
    return [_WORDS[type(kind)], *(str(value) if isinstance(value, Fraction) else value for value in values)]


def _kind_of(values: Sequence[Any]) -> Kind:
    word, *rest = values
    if word == "number":
        step = exact(rest[0], "step")
        if step <= 0:
            raise BadParameter("step", "must be above 0")
        return Numeric(step, *_ends(rest[1:]))
    if word == "choice":
        if (
            not rest
            or len(set(rest)) < len(rest)
            or any(not isinstance(value, str | int) for value in rest)
        ):
            raise BadParameter("values", "must be one or more different ones")
        return Choice(tuple(rest))
    if word == "truth":
        return Truth()
    made: dict[str, type[Moment | Period]] = {"moment": Moment, "period": Period}
    size, *others = _wholes(rest)
    if size < 1:
        raise BadParameter("step", "must be above 0")
    return made[word](size, *_ends(others[:2]), *others[2:])


def _ends(values: Sequence[Any]) -> tuple[int, int]:
    first, last = _wholes(values)
    if first > last:
        raise BadParameter("bounds", "must begin with the smaller number")
    return first, last


def _wholes(values: Sequence[Any]) -> list[int]:
    """Check that all values are whole numbers that arrays can hold."""
    if any(
        not isinstance(number, int) or isinstance(number, bool) or abs(number) > _FARTHEST
        for number in values
    ):
        raise BadParameter("bounds", "must be whole numbers below 2^53")
    return list(values)
