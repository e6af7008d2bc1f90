"""Public tables: Lapwing reads and codes their rows, and sends them to the engine as whole numbers.

So a plan is priced with the multiplicities of the very rows that are joined.

The type of a public CSV column is found from all of its values: one value of another type makes it a text.
(The types of private columns are never guessed: the policy declares them.)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import pyarrow as pa

from lapwing.engines.csv_files import DEFAULT_CSV, CsvForm
from lapwing.engines.dialect import TEXT_BYTES
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Person, Text, Truth
from lapwing.sql.question.relation import PublicScan
from lapwing.sql.question.typed_expressions import LARGEST

MOST_ROWS = 5_000_000
_DECIMALS = 6  # decimals that floats without declared steps are rounded to


@dataclass(frozen=True)
class PublicTable:
    """The rows of a public table, and the kinds of its columns: declared, or found from all values."""

    name: str
    values: dict[str, list[object]]
    declared: dict[str, Kind] = field(default_factory=dict)
    _lengths: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, name: str, rows: pa.Table, declared: dict[str, Kind], *, csv: CsvForm | None = None
    ) -> PublicTable:
        """Make a public table from rows that an engine read. The texts of a CSV file get their types.

        Columns whose names are no identifiers are left out.
        """
        if rows.num_rows > MOST_ROWS:
            raise BadParameter(name, f"a public table has at most {MOST_ROWS:,} rows")
        names = [column for column in rows.column_names if column.isidentifier()]
        values = {column: rows.column(column).to_pylist() for column in names}
        if csv is not None:
            values = {column: typed_csv_values(texts, csv) for column, texts in values.items()}
        return cls(name, values, declared)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each column."""
        columns = self.values.items()
        return {name: self.declared.get(name) or inferred_kind(values) for name, values in columns}

    @property
    def size(self) -> int:
        """The number of rows."""
        return max((len(values) for values in self.values.values()), default=0)

    def codes(self, column: str, kind: Kind) -> list[int | str | None]:
        """Return the codes of a column. A value that the kind does not contain is None."""
        return [code_of(value, kind) for value in self.values[column]]

    def most(self, keys: Sequence[tuple[str, Kind]]) -> int:
        """Return the greatest number of rows with the same key. Keys with NULL do not count."""
        columns = [self.codes(column, kind) for column, kind in keys]
        counts = Counter(key for key in zip(*columns, strict=True) if None not in key)
        return max(counts.values(), default=0)

    def most_bytes(self, column: str) -> int:
        """Return the bytes of the longest value of a column, written as a text."""
        if column not in self._lengths:
            texts = (code_of(value, Text()) for value in self.values[column])
            self._lengths[column] = max(
                (len(str(text).encode()) for text in texts if text is not None), default=0
            )
        return self._lengths[column]

    def coded(self, scan: PublicScan) -> dict[str, list[int | str | None]]:
        """Return the coded rows of a scan, by column. Planning needs no Arrow arrays."""
        columns = {}
        for (name, kind), source in zip(scan.columns, scan.sources, strict=True):
            codes = self.codes(source, kind)
            is_truth = isinstance(kind, Truth)
            columns[name] = [bool(c) if is_truth and c is not None else c for c in codes]
        return columns

    def shipped(self, scan: PublicScan) -> pa.Table:
        """Return the coded rows that the engine gets for a scan."""
        types = [_arrow_type(kind) for _, kind in scan.columns]
        columns = self.coded(scan)
        arrays = [pa.array(codes, type_) for codes, type_ in zip(columns.values(), types, strict=True)]
        return pa.table(arrays, names=list(columns))


def _arrow_type(kind: Kind) -> pa.DataType:
    if isinstance(kind, Text):
        return pa.string()
    return pa.bool_() if isinstance(kind, Truth) else pa.int64()


def inferred_kind(values: Sequence[object]) -> Kind:
    """Return the kind that contains all of these public values."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return Truth()
    if known and all(isinstance(value, int | float | Decimal) for value in known):
        return _number_of([value for value in known if isinstance(value, int | float | Decimal)])
    if known and all(isinstance(value, date) for value in known):
        times = [_seconds(value) for value in known if isinstance(value, date)]
        every = next(s for s in (86400, 3600, 60, 1) if all(time % s == 0 for time in times))
        return Moment(every, min(times) // every, max(times) // every)
    return Choice(tuple(sorted({str(value) for value in known})) or ("",))


def _number_of(values: Sequence[int | float | Decimal]) -> Numeric:
    exact = [number for value in values if (number := _exact(value)) is not None]
    whole = math.lcm(*{value.denominator for value in exact})
    step = Fraction(1, min(whole, 10**_DECIMALS))
    ends = [round(value / step) for value in (min(exact, default=0), max(exact, default=0))]
    if max(map(abs, ends)) >= LARGEST:
        return Numeric(Fraction(1), None, None)
    return Numeric(step, *ends)


def _exact(value: object) -> Fraction | None:
    """Return the exact value of a finite number, or None."""
    if isinstance(value, int):
        return Fraction(int(value))
    written = Decimal(str(value)) if isinstance(value, float | Decimal) else None
    return Fraction(written) if written is not None and written.is_finite() else None


def _seconds(value: date) -> int:
    at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return math.floor((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def code_of(value: object, kind: Kind) -> int | str | None:  # noqa: PLR0911 (a case for each kind)
    """Return the code of a public value, or None if the kind does not contain it."""
    if value is None:
        return None
    match kind:
        case Choice(values):
            return _position(values).get(_key(value))
        case Text():
            text = str(value)  # it is cut as private texts are
            return text if len(text.encode()) <= TEXT_BYTES else text[: TEXT_BYTES // 4]
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
    """Return a key that is equal for equal values of one type: True is not 1, and '1' is not 1."""
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
    """Return whether a public column of kind `own` may be joined to a private one of kind `wanted`."""
    texts = (Text, Choice)
    if isinstance(own, texts) and isinstance(wanted, texts):
        return not isinstance(wanted, Choice) or all(isinstance(value, str) for value in wanted.values)
    if isinstance(own, Numeric) and isinstance(wanted, Choice):
        return all(isinstance(value, int) for value in wanted.values)
    if isinstance(own, Numeric) and isinstance(wanted, Numeric):
        return (own.step / wanted.step).denominator == 1  # else a key would be rounded to another one
    if isinstance(own, Moment) and isinstance(wanted, Moment | Period):
        return True
    return type(own) is type(wanted)


_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,14})")  # 007 is a text: as a number it would lose its zeros
_DECIMAL = re.compile(rf"[+-]?\d{{1,15}}\.\d{{1,12}}|{_WHOLE.pattern}")
_TRUTH = re.compile(r"true|false", re.IGNORECASE)


def typed_csv_values(values: Sequence[object], form: CsvForm = DEFAULT_CSV) -> list[object]:
    """Return the values of one column, converted to their type."""
    texts = [None if value is None or value == "" else str(value).strip() for value in values]
    known = [text for text in texts if text is not None]
    points = str.maketrans(".,", ",.") if form.decimal == "," else {}
    readers: list[tuple[re.Pattern[str] | None, Callable[[str], object]]] = [
        (_WHOLE, lambda text: int(text.translate(points))),
        (_DECIMAL, lambda text: Decimal(text.translate(points))),
        (_TRUTH, lambda text: text.lower() == "true"),
        *[(None, read) for read in _time_readers(form)],
    ]
    for pattern, read in readers:
        if known and (pattern is None or all(pattern.fullmatch(text.translate(points)) for text in known)):
            with suppress(ValueError):  # another type is tried
                return _uniform([None if text is None else read(text) for text in texts])
    return list(values)


def _uniform(values: list[object]) -> list[object]:
    """Give all decimals of a column the same number of digits, and all times the zone of the first.

    Arrow does this, too, but making Arrow arrays of Python values imports pandas, which is slow.
    """
    decimals = [value for value in values if isinstance(value, Decimal)]
    if decimals:
        finest = min(decimals, key=lambda value: value.as_tuple().exponent)
        return [value.quantize(finest) if isinstance(value, Decimal) else value for value in values]
    times = [value for value in values if isinstance(value, datetime)]
    if not any(time.tzinfo for time in times):
        return values
    zone = times[0].tzinfo

    def in_zone(time: datetime) -> datetime:
        return time.replace(tzinfo=time.tzinfo or UTC).astimezone(zone or UTC).replace(tzinfo=zone)

    return [in_zone(value) if isinstance(value, datetime) else value for value in values]


def _time_readers(form: CsvForm) -> Sequence[Callable[[str], object]]:
    if not form.date_format:
        return date.fromisoformat, datetime.fromisoformat
    has_time = any(mark in form.date_format for mark in ("%H", "%I"))

    def read(text: str) -> date:
        moment = datetime.strptime(text, form.date_format)
        return moment if has_time else moment.date()

    return (read,)
