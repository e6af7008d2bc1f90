"""Public tables: read once by us, coded by us, and sent to the engine as whole numbers.

So the multiplicity of a join's key that a plan was priced with is that of the very rows that are joined.

What the texts of a public CSV column are: whole numbers, decimals, dates, truths, or texts.

All values decide together: one that is none of them makes the column a text. (Private columns are never
guessed at: the policy says what they are.)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import pyarrow as pa

from lapwing.engines.csv_files import DEFAULT_CSV, CsvForm
from lapwing.engines.dialect import TEXT_BYTES
from lapwing.errors import BadParameter
from lapwing.sql.binding.typed_expressions import LARGEST
from lapwing.sql.expression import Choice, Kind, Moment, Numeric, Period, Person, Text, Truth
from lapwing.sql.relation import PublicScan

MOST_ROWS = 5_000_000
_DECIMALS = 6  # floats without declared steps are rounded to so many


@dataclass(frozen=True)
class PublicTable:
    """A public table's rows, and what its columns are: declared, or found from all of its values."""

    name: str
    values: dict[str, list[object]]
    declared: dict[str, Kind] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, rows: pa.Table, declared: dict[str, Kind]) -> PublicTable:
        """From rows as an engine gave them. Names are in lower case; strange ones are left out."""
        if rows.num_rows > MOST_ROWS:
            raise BadParameter(name, f"a public table has at most {MOST_ROWS:,} rows")
        names = [column for column in rows.column_names if column.isidentifier()]
        return cls(name, {column: rows.column(column).to_pylist() for column in names}, declared)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """What each column is."""
        return {
            name: self.declared.get(name) or inferred_kind(values) for name, values in self.values.items()
        }

    @property
    def size(self) -> int:
        """How many rows there are."""
        return max((len(values) for values in self.values.values()), default=0)

    def codes(self, column: str, kind: Kind) -> list[int | str | None]:
        """The codes of a column. What does not fit the kind is unknown."""
        return [code_of(value, kind) for value in self.values[column]]

    def most(self, keys: Sequence[tuple[str, Kind]]) -> int:
        """How often the same known key stands in it at most."""
        columns = [self.codes(column, kind) for column, kind in keys]
        counts = Counter(key for key in zip(*columns, strict=True) if None not in key)
        return max(counts.values(), default=0)

    def shipped(self, scan: PublicScan) -> pa.Table:
        """What the engine gets for a scan."""
        arrays = [
            pa.array(self.codes(source, kind), pa.string() if isinstance(kind, Text) else pa.int64())
            if not isinstance(kind, Truth)
            else pa.array([None if c is None else bool(c) for c in self.codes(source, kind)], pa.bool_())
            for (_, kind), source in zip(scan.columns, scan.sources, strict=True)
        ]
        return pa.table(arrays, names=[name for name, _ in scan.columns])


def inferred_kind(values: Sequence[object]) -> Kind:
    """The kind that holds all of these public values."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return Truth()
    if known and all(isinstance(value, int | float | Decimal) for value in known):
        return _number_of([value for value in known if isinstance(value, int | float | Decimal)])
    if known and all(isinstance(value, date) for value in known):
        times = [_seconds(value) for value in known if isinstance(value, date)]
        every = next(s for s in (86400, 3600, 60, 1) if all(time % s == 0 for time in times))
        return Moment(every, min(times) // every, max(times) // every)
    texts = sorted({str(value) for value in known})
    return Choice(tuple(texts)) if texts else Choice(("",))


def _number_of(values: Sequence[int | float | Decimal]) -> Numeric:
    exact = [one for value in values if (one := _exact(value)) is not None]
    whole = math.lcm(*{value.denominator for value in exact})
    step = Fraction(1, min(whole, 10**_DECIMALS))
    ends = [round(value / step) for value in (min(exact, default=0), max(exact, default=0))]
    if max(map(abs, ends)) >= LARGEST:
        return Numeric(Fraction(1), None, None)
    return Numeric(step, *ends)


def _exact(value: object) -> Fraction | None:
    """A number, unless it is none, such as NaN."""
    if isinstance(value, int):
        return Fraction(int(value))
    written = Decimal(str(value)) if isinstance(value, float | Decimal) else None
    return Fraction(written) if written is not None and written.is_finite() else None


def _seconds(value: date) -> int:
    at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return math.floor((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def code_of(value: object, kind: Kind) -> int | str | None:  # noqa: PLR0911 (a case for each kind)
    """The code of a public value, or None if the kind has none for it."""
    if value is None:
        return None
    match kind:
        case Choice(values):
            return _position(values).get(_key(value))
        case Text():
            text = str(value)
            return text if len(text.encode()) <= TEXT_BYTES else text[: TEXT_BYTES // 4]  # as private ones
        case Truth():
            return int(value) if isinstance(value, bool | int) and value in (0, 1) else None
        case Numeric(step, first, last):
            return _steps(value, step, first, last)
        case Moment(seconds, first, last, start) if isinstance(value, date):
            code, over = divmod(_seconds(value) - start, seconds)
            return code if not over and first <= code <= last else None
        case Period(months, first, last) if isinstance(value, date):
            code, over = divmod((value.year - 1970) * 12 + value.month - 1, months)
            begins = _seconds(value) == _seconds(date(value.year, value.month, 1))
            return code if not over and begins and first <= code <= last else None
        case Person():
            raise AssertionError("a public table has no units")
        case _:
            return None


def _key(value: object) -> object:
    """Texts are texts and numbers are numbers: True is not 1, and '1' is not 1. All else is its text."""
    plain = value.is_finite() if isinstance(value, Decimal) else isinstance(value, str | int | float)
    value = value if plain else str(value)
    return (type(value) is bool, isinstance(value, str), value)


_positions: dict[int, tuple[tuple[object, ...], dict[object, int]]] = {}


def _position(values: tuple[str | int | bool, ...]) -> dict[object, int]:
    kept = _positions.get(id(values))
    if kept is None or kept[0] is not values:
        kept = _positions[id(values)] = values, {_key(value): code for code, value in enumerate(values)}
    return kept[1]


def _steps(value: object, step: Fraction, first: int | None, last: int | None) -> int | None:
    number = _exact(value)
    if number is None:
        return None
    code = round(number / step)
    inside = (first is None or first <= code) and (last is None or code <= last)
    return code if inside and abs(code) < LARGEST else None


def can_join(own: Kind, wanted: Kind) -> bool:
    """Whether a public column of one kind may be joined to a private one of another."""
    texts = (Text, Choice)
    if isinstance(own, texts) and isinstance(wanted, texts):
        return not isinstance(wanted, Choice) or all(isinstance(value, str) for value in wanted.values)
    if isinstance(own, Numeric) and isinstance(wanted, Choice):
        return all(isinstance(value, int) for value in wanted.values)
    if isinstance(own, Numeric) and isinstance(wanted, Numeric):
        return (own.step / wanted.step).denominator == 1  # else it would be rounded to another key
    if isinstance(own, Moment) and isinstance(wanted, Moment | Period):
        return True
    return type(own) is type(wanted)


_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,14})")  # 007 is a text: it would lose its zeros
_DECIMAL = re.compile(r"[+-]?\d{1,15}\.\d{1,12}")
ISO: tuple[Callable[[str], object], ...] = (date.fromisoformat, datetime.fromisoformat)
_TRUTHS = {"true": True, "false": False}


def typed_csv(rows: pa.Table, form: CsvForm = DEFAULT_CSV) -> pa.Table:
    """The table with each column of texts as what all of its values are."""
    columns = [
        pa.array(typed_csv_values(rows.column(name).to_pylist(), form)) for name in rows.column_names
    ]
    return pa.table(columns, names=rows.column_names)


def typed_csv_values(values: Sequence[object], form: CsvForm = DEFAULT_CSV) -> list[object]:
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
