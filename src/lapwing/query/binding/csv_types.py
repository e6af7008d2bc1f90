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

from lapwing.engines.csv_form import PLAIN, CsvForm

_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,14})")  # 007 is a text: it would lose its zeros
_DECIMAL = re.compile(r"[+-]?\d{1,15}\.\d{1,12}")
ISO: tuple[Callable[[str], object], ...] = (date.fromisoformat, datetime.fromisoformat)
_TRUTHS = {"true": True, "false": False}


def typed(rows: pa.Table, form: CsvForm = PLAIN) -> pa.Table:
    """The table with each column of texts as what all of its values are."""
    columns = [pa.array(typed_values(rows.column(name).to_pylist(), form)) for name in rows.column_names]
    return pa.table(columns, names=rows.column_names)


def typed_values(values: Sequence[object], form: CsvForm = PLAIN) -> list[object]:
    """The values of one column."""
    texts = [None if value is None or value == "" else str(value).strip() for value in values]
    known = [text for text in texts if text is not None]
    swapped = str.maketrans(".,", ",.") if form.decimal == "," else {}
    for read in (
        lambda text: _whole(text.translate(swapped)),
        lambda text: _decimal(text.translate(swapped)),
        _truth,
        *((lambda text: _moment(text, form.date_format),) if form.date_format else ISO),
    ):
        if known and all(_reads(read, text) for text in known):
            return [None if text is None else read(text) for text in texts]
    return list(values)


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _moment(text: str, form: str) -> date:
    found = datetime.strptime(text, form)
    return found if any(mark in form for mark in ("%H", "%I")) else found.date()


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
