"""A published column: the cells that its values are counted in. Cells follow from declarations alone.

Claim    the cell of a value depends on that value and on public declarations only, and every value has one.
Because  declared kinds have finitely many codes, fixed by the policy; bins are cut from the declared
         bounds; a missing value has a cell of its own, or its row is left out.
Test     tests/publish/measured/test_published_column.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter
from lapwing.publish.models.domain import Domain
from lapwing.sql.expression import Choice, Kind, Truth, codes_of
from lapwing.sql.row_questions import CodedColumn, PrivateRows

Wholes = NDArray[np.int64]
PublishedValue = str | int | float | bool | date | datetime | None
MOST_CELLS = 1024  # of one column
USUAL_BINS = 32  # of a number or date with more values than `BINNED_BEYOND`
BINNED_BEYOND = 128
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column, the first code of its kind, the codes in a bin, and whether missing values are published.

    Without `has_unknown`, rows in which the value is missing are left out.
    """

    name: str
    kind: Kind
    first: int
    last: int
    width: int
    has_unknown: bool = True

    @property
    def bins(self) -> int:
        """The number of cells of known values."""
        return (self.last - self.first) // self.width + 1

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.bins + self.has_unknown

    def cells(self, column: CodedColumn) -> Wholes:
        """Return the cell of each value. Values are clamped to the declared bounds."""
        inside = np.clip(column.codes, self.first, self.last)
        return np.where(column.known, (inside - self.first) // self.width, self.bins)

    def label(self, cell: int) -> str:
        """Return the value or the bin of a cell, as it is shown."""
        low, high = self.ends(cell)
        return shown_value(low) if low == high else f"{shown_value(low)} to {shown_value(high)}"

    def values(self, cells: Wholes) -> list[PublishedValue]:
        """Return a value for each cell; within a bin, each value has the same chance."""
        low = self.first + np.minimum(cells, self.bins - 1) * self.width
        wide = np.minimum(low + self.width - 1, self.last) - low + 1
        codes = low + (uniform_int(0, 1 << 53, len(cells)) % wide if self.width > 1 and len(cells) else 0)
        distinct = {int(code): self._value(int(code)) for code in np.unique(codes)}
        return [
            None if cell >= self.bins else distinct[int(code)]
            for cell, code in zip(cells.tolist(), codes.tolist(), strict=True)
        ]

    def ends(self, cell: int) -> tuple[PublishedValue, PublishedValue]:
        """Return the first and the last value of a cell; None of missing values."""
        if cell >= self.bins:
            return None, None
        low = self.first + cell * self.width
        return self._value(low), self._value(min(low + self.width - 1, self.last))

    def _value(self, code: int) -> PublishedValue:
        if isinstance(self.kind, Truth):
            return bool(code)
        assert not isinstance(self.kind, str)
        return self.kind.value(code)  # type: ignore[union-attr]  # kinds without values are refused before


def shown_value(value: PublishedValue) -> str:
    """Return a value as it stands in tables."""
    if value is None:
        return UNKNOWN
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def published_column(name: str, kind: Kind, *, bins: int | None, has_unknown: bool) -> PublishedColumn:
    """Return a published column of a declared kind.

    `bins` is the number of equal bins; None: one cell for each value, or the usual number for a long
    column.
    """
    codes = codes_of(kind)
    if codes is None:
        raise BadParameter(
            name, "has no declared values or bounds. Declare them in the policy, or leave it out"
        )
    if bins is not None and isinstance(kind, Choice | Truth):
        raise BadParameter(name, "has declared values, which are not cut into bins")
    if bins is None:
        bins = USUAL_BINS if len(codes) > BINNED_BEYOND and not isinstance(kind, Choice) else len(codes)
    if not 1 <= bins <= len(codes):
        raise BadParameter(name, f"bins must lie between 1 and {len(codes):,}, the number of its values")
    width = -(-len(codes) // bins)
    column = PublishedColumn(name, kind, codes[0], codes[-1], width, has_unknown)
    if column.size > MOST_CELLS:
        raise BadParameter(
            name, f"has {column.size:,} cells, and at most {MOST_CELLS:,} are possible. Use bins"
        )
    if has_unknown and UNKNOWN in map(column.label, range(column.bins)):
        raise BadParameter(
            name,
            f'has the declared value "{UNKNOWN}", which is the name of missing values. Set unknown = false '
            f"under [columns.{name}], or rename the value",
        )
    return column


def domain_of(columns: Sequence[PublishedColumn]) -> Domain:
    """Return the domain of published columns."""
    return Domain(tuple(column.name for column in columns), tuple(column.size for column in columns))


def coded_rows(columns: Sequence[PublishedColumn], rows: PrivateRows) -> Wholes:
    """Return the cells of each row, without rows that miss a value that must be known. Private."""
    kept = np.ones(len(rows), np.bool_)
    for column in columns:
        if not column.has_unknown:
            kept &= rows.columns[column.name].known
    by_column = [column.cells(rows.columns[column.name])[kept] for column in columns]
    return np.column_stack(by_column) if by_column else np.zeros((int(kept.sum()), 0), np.int64)
