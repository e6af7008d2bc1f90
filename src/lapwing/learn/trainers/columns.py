"""Declared columns of a table: bounds, categories and edges never come from data.

Claim    a row becomes whole numbers by itself: no other row, and no order of rows, can change them.
Because  cells are read one by one (`learn.table_input`), and every step is one rounded operation on one
         element, or a look-up in a public table.
Test     tests/learn/trainers/test_columns.py
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from lapwing.core.exact import Number, exact, positive, set_fields
from lapwing.errors import BadParameter, BadValue
from lapwing.learn import table_input
from lapwing.learn.table_input import Cells, Floats, Wholes

ONE = 1 << 12  # steps from 0 to 1
UNKNOWN = table_input.UNKNOWN
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Real:
    """A number between declared bounds. Values outside are clamped; NaN becomes the middle.

    Args:
        low: The lower bound.
        high: The upper bound.

    Raises:
        BadParameter: If the lower bound is not below the upper one.

    Example:
        >>> from lapwing.learn import Real
        >>> float(Real(18, 90).high)
        90.0
    """

    low: Fraction
    high: Fraction

    def __init__(self, low: Number, high: Number) -> None:
        set_fields(self, low=exact(low, "low"), high=exact(high, "high"))
        if not self.low < self.high or not math.isfinite(float(self.high) - float(self.low)):
            raise BadParameter("low", "must be below high")

    @property
    def width(self) -> int:
        """The number of features of the column."""
        return 1

    def features(self, values: Cells) -> Wholes:
        """Scale to -1 … 1, in steps of 1 / ONE."""
        low, high = float(self.low), float(self.high)
        middle, half = (low + high) / 2, (high - low) / 2
        at = (np.clip(table_input.read_numbers(values), low, high) - middle) / half
        placed = np.rint(np.where(np.isnan(at), 0.0, at) * ONE).astype(np.int64)
        bounded: Wholes = np.clip(placed, -ONE, ONE)
        return bounded[:, None]

    def labels(self, name: str) -> list[str]:
        """Return the name of the feature, for a column of this name."""
        return [name]

    def value(self, feature: Floats) -> Floats:
        """Scale from -1 … 1 back to the column's own scale."""
        low, high = float(self.low), float(self.high)
        return (low + high) / 2 + feature * ((high - low) / 2)


class _Coded:
    """A column with finitely many values: one feature for each, of which one is 1."""

    __slots__ = ()
    width: int

    def codes(self, values: Cells) -> Wholes:
        """Return the number of each value, or `UNKNOWN` if it was not declared."""
        raise NotImplementedError

    def features(self, values: Cells) -> Wholes:
        """Return one column for each value, in steps of 1 / ONE. An unknown value is 0 in all of them."""
        codes = self.codes(values)
        return np.where(codes[:, None] == np.arange(self.width), ONE, 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Category(_Coded):
    """One of the declared values (texts or numbers). Any other value counts as missing.

    Args:
        values: The values, as the rows have them.

    Raises:
        BadParameter: If there is no value, or one of them twice.

    Example:
        >>> from lapwing.learn import Category
        >>> Category(["Oslo", "Bergen"]).width
        2
    """

    values: tuple[Hashable, ...]

    def __init__(self, values: Sequence[Hashable]) -> None:
        if isinstance(values, str) or not 1 <= len(tuple(values)) <= _MOST_VALUES:
            raise BadParameter("values", f"must be 1 to {_MOST_VALUES} values")
        plain = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
        if len(set(plain)) < len(plain):
            raise BadParameter("values", "must name each value once")
        object.__setattr__(self, "values", plain)

    @property
    def width(self) -> int:  # type: ignore[override]
        """The number of features of the column."""
        return len(self.values)

    def labels(self, name: str) -> list[str]:
        """Return the names of the features, for a column of this name."""
        return [f"{name} = {value}" for value in self.values]

    def codes(self, values: Cells) -> Wholes:
        """Return the position of each value among the declared ones."""
        return table_input.read_codes(values, {value: at for at, value in enumerate(self.values)})


@dataclass(frozen=True, slots=True)
class Binned(_Coded):
    """A number by the interval that it lies in: below the first edge, from there to the second, ...

    Args:
        edges: The edges, which rise.

    Raises:
        BadParameter: If they do not rise.

    Example:
        >>> from lapwing.learn import Binned
        >>> Binned([18, 65]).width
        3
    """

    edges: tuple[float, ...]

    def __init__(self, edges: Sequence[float]) -> None:
        rising = tuple(float(exact(edge, "edges")) for edge in edges)
        if not rising or len(rising) >= _MOST_VALUES or any(a >= b for a, b in pairwise(rising)):
            raise BadParameter("edges", "must rise: one or more numbers, each above the one before")
        object.__setattr__(self, "edges", rising)

    @property
    def width(self) -> int:  # type: ignore[override]
        """The number of features of the column."""
        return len(self.edges) + 1

    def labels(self, name: str) -> list[str]:
        """Return the names of the features, for a column of this name."""
        inner = [f"{low:g} <= {name} < {high:g}" for low, high in pairwise(self.edges)]
        return [f"{name} < {self.edges[0]:g}", *inner, f"{name} >= {self.edges[-1]:g}"]

    def codes(self, values: Cells) -> Wholes:
        """Return the number of the interval."""
        numbers = table_input.read_numbers(values)
        placed = np.searchsorted(np.array(self.edges), numbers, side="right").astype(np.int64)
        return np.where(np.isnan(numbers), UNKNOWN, placed)


Column = Real | Category | Binned
Columns = Column | Sequence[Column] | Mapping[str, Column]  # one for all, in order, or by name


def checked_table(X: Any) -> Cells:  # noqa: N803 (scikit-learn's name)
    """Return a table with one row for each record. Only its form is checked."""
    if hasattr(X, "toarray"):
        raise TypeError("sparse input is not supported: give a dense table")
    table = table_input.read_table(X, "X must have two dimensions, rows and columns. Reshape your data")
    if table.dtype.kind == "c":
        raise BadValue("Complex data not supported: X must hold numbers or texts")
    return table


def checked_columns(columns: Columns | None, count: int) -> tuple[Column, ...]:
    """Return one declaration for each column; a single one stands for all."""
    if columns is None:
        raise BadParameter(
            "columns",
            "must be declared, such as Real(0, 100) or Category([...]): bounds taken from data are not "
            "private",
        )
    named = list(columns.values()) if isinstance(columns, Mapping) else columns
    given = (named,) * count if isinstance(named, Column) else tuple(named)
    if not given or not all(isinstance(column, Column) for column in given):
        raise BadParameter("columns", "must be Real, Category or Binned, one for each column of X")
    if len(given) != count:
        raise BadParameter("columns", f"X has {count} features, but {len(given)} are described as input")
    return given


def checked_coded_columns(columns: Columns | None, count: int) -> tuple[Category | Binned, ...]:
    """Return the declarations, if every column has finitely many values."""
    given = checked_columns(columns, count)
    coded = tuple(column for column in given if not isinstance(column, Real))
    if len(coded) < len(given):
        raise BadParameter("columns", "must be Category or Binned here: give edges for a Real column")
    return coded


def feature_matrix(columns: Columns | None, table: Cells) -> Wholes:
    """Return all features of all rows. A column adds at most ONE² to a row's squared length."""
    declared = checked_columns(columns, table.shape[1])
    if not len(table):
        return np.zeros((0, sum(column.width for column in declared)), dtype=np.int64)
    return np.hstack([column.features(table[:, at]) for at, column in enumerate(declared)])


def code_matrix(columns: Sequence[Category | Binned], table: Cells) -> Wholes:
    """Return the codes of all rows, one for each column."""
    if not len(table):
        return np.zeros((0, len(columns)), dtype=np.int64)
    return np.column_stack([column.codes(table[:, at]) for at, column in enumerate(columns)])


def radius_in_steps(radius: Number) -> int:
    """Convert a length, for columns scaled to -1 … 1, to whole steps."""
    return max(1, math.floor(positive(radius, "radius") * ONE))


def checked_classes(classes: Sequence[Hashable] | None) -> Cells:
    """Return the declared classes."""
    if classes is None:
        raise BadParameter("classes", "must be declared: which classes the data has is private")
    if isinstance(classes, str) or len(classes) < 2 or len(set(classes)) < len(classes):
        raise BadParameter("classes", "must be two or more different values")
    alike = np.array(list(classes))
    # Texts and numbers together would all become texts, which the numbers of the data are not.
    return alike if alike.tolist() == list(classes) else np.fromiter(classes, object, len(classes))


def checked_target(y: Any, rows: int) -> Cells:
    """Return the target, one value for each row. Only its form is checked."""
    if y is None:
        raise BadParameter("y", "requires y to be passed, but the target y is None")
    wanted = "y must have one value for each row of X"
    given = table_input.read_column(y, wanted)
    if given.shape != (rows,):
        raise BadValue(wanted)
    return given


def class_codes(classes: Cells, target: Cells) -> Wholes:
    """Return the number of each row's class. Undeclared classes are `UNKNOWN`, and teach nothing."""
    return Category(classes.tolist()).codes(target)
