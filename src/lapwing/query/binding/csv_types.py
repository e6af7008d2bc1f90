"""What the texts of a public CSV column are: whole numbers, decimals, dates, truths, or texts.

All values decide together: one that is none of them makes the column a text. (Private columns are never
guessed at: the policy says what they are.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,14})")  # 007 is a text: it would lose its zeros
_DECIMAL = re.compile(r"[+-]?\d{1,15}\.\d{1,12}")
_TRUTHS = {"true": True, "false": False}


def typed(rows: pa.Table) -> pa.Table:
    """The table with each column of texts as what all of its values are."""
    columns = [pa.array(typed_values(rows.column(name).to_pylist())) for name in rows.column_names]
    return pa.table(columns, names=rows.column_names)


def typed_values(values: Sequence[object]) -> list[object]:
    """The values of one column."""
    texts = [None if value is None or value == "" else str(value).strip() for value in values]
    known = [text for text in texts if text is not None]
    for read in (_whole, _decimal, _truth, date.fromisoformat, datetime.fromisoformat):
        if known and all(_reads(read, text) for text in known):
            return [None if text is None else read(text) for text in texts]
    return list(values)


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError
    return int(text)


def _decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text) and not _WHOLE.fullmatch(text):
        raise ValueError
    return Decimal(text)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError
    return _TRUTHS[text.lower()]
