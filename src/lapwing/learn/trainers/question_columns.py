"""Columns of a question about a policy's tables, as trainers declare and read them.

Claim    bounds, values and classes of a fit that a data set pays for are those of the policy.
Because  they are made of the kinds of the question's columns, which are known before a row is read.
Test     tests/learn/trainers/test_question_columns.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lapwing.errors import BadParameter
from lapwing.learn.table_input import Cells
from lapwing.learn.trainers.columns import Binned, Category, Column, Real
from lapwing.sql.policy.kinds import Choice, Kind, Numeric, Truth

if TYPE_CHECKING:
    from lapwing.sql.row_questions import CodedColumn

BINS = 16


def declared_column(name: str, kind: Kind) -> Column:
    """Return the declaration of a column. Predictions take plain values: numbers, texts, True or False."""
    match kind:
        case Choice(values):
            return Category(values)
        case Truth():
            return Category((False, True))
        case Numeric(step, int(first), int(last)):
            return Real(first * step, max(last, first + 1) * step)
        case _:
            raise BadParameter(
                "question",
                f"has {name[:60]!r}, which is neither a number nor one of declared values. Make a number "
                "of it, such as EXTRACT(MONTH FROM day), or leave it out",
            )


def binned_column(column: Column, bins: int = BINS) -> Column:
    """Return the column cut into equal intervals, if it is a number between bounds."""
    if not isinstance(column, Real):
        return column
    low, width = column.low, column.high - column.low
    return Binned([float(low + width * k / bins) for k in range(1, bins)])


def plain_cells(kind: Kind, column: CodedColumn) -> Cells:
    """Return the plain values of a column; NaN or None where they are missing. Private."""
    if isinstance(kind, Numeric):
        return np.where(column.known, column.codes * float(kind.step), np.nan)
    values = (*kind.values, None) if isinstance(kind, Choice) else (False, True, None)
    plain = np.fromiter(values, object, len(values))
    last = len(values) - 1
    return plain[np.where(column.known & (column.codes >= 0) & (column.codes < last), column.codes, last)]


def split_label(columns: Mapping[str, Kind], label: str | None) -> tuple[dict[str, Kind], str]:
    """Return the columns to learn from, and the name of the label: the last column, unless it is named."""
    named = label if label is not None else list(columns)[-1]
    if named not in columns:
        raise BadParameter("label", f"the question has no column {named[:60]!r}")
    features = {name: kind for name, kind in columns.items() if name != named}
    if not features:
        raise BadParameter("question", "has only the label: select what it is predicted from")
    return features, named
