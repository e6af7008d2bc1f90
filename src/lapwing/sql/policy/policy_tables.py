"""Reading the tables of a policy: their sources, privacy units, columns and CSV forms.

The public facts about a column's values become its kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from lapwing.config.file_table import ColumnName, FileTable, Flag, Text, exact_number, fits, needed, one_of
from lapwing.config.toml_text import quoted
from lapwing.config.values import (
    checked_choice,
    kind_of,
    quoted_choices,
    repeated_names,
    similar_name,
    why_bad_name,
)
from lapwing.core.values import Grid
from lapwing.engines.csv_files import DEFAULT_CSV, ENCODINGS, SEPARATORS, CsvForm
from lapwing.engines.dialect import TEXT_BYTES
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Truth, codes_of
from lapwing.sql.policy.kinds import Text as TextKind
from lapwing.sql.policy.policy import CheckedTable, Column, Source, UnitBy
from lapwing.sql.policy.source_location import parse_source

SOURCE_AT_MOST = 1000  # characters of a column's name in the source
VALUES_AT_MOST = 1_000_000
LETTERS_AT_MOST = 10_000
EPOCH = date(1970, 1, 1)
LARGEST_WHOLE = (1 << 63) - 1
TODO = "TODO"  # where a draft leaves something to be written
STEPS = ("second", "minute", "hour", "day")
TYPES = ("text", "bool")
HOW = 'values = […], low and high, type = "text", type = "bool" or hidden = true'
OTHER_TYPES = {
    **dict.fromkeys(("string", "str", "varchar", "char"), 'Write type = "text"'),
    **dict.fromkeys(("boolean", "truth"), 'Write type = "bool"'),
    **dict.fromkeys(
        ("int", "integer", "bigint", "whole"), "Write low and high, such as low = 0, high = 60"
    ),
    **dict.fromkeys(("float", "double", "number", "decimal"), "Write low, high and step"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "Write low and high as dates, such as 2024-01-31"),
    **dict.fromkeys(("enum", "category", "choice"), 'Write values = ["A", "B"]'),
}


SourceName = Annotated[  # a column's name in the source can be any text: engines get it in quotes
    str,
    fits(
        lambda name: 0 < len(name) <= SOURCE_AT_MOST and "\0" not in name,
        f"must be what the source calls the column: 1 to {SOURCE_AT_MOST:,} characters",
    ),
]


# Columns


class ColumnTable(FileTable):
    """The table of a column. The kinds of its values depend on one another."""

    values: Any = None
    low: Any = None
    high: Any = None
    step: Any = None
    type: Any = None
    hidden: Flag = False
    missing_: Any = Field(default=None, alias="missing")
    longest: int | None = Field(default=None, ge=1, le=TEXT_BYTES // 4)
    source: SourceName | None = None

    def column(self, name: str) -> Column | None:
        """Return the declared column; None if it is hidden or wrong, which is noted."""
        forms = [form for form in ("values", "low", "type") if self.has(form)]
        if self.has("high") and "low" not in forms:
            forms.append("high")
        if len(forms) > 1:
            self.wrong(forms[1], f"cannot stand beside {forms[0]}. Write one of: {HOW}")
            return None
        if not forms:
            if not self.hidden:
                self.note(f"says nothing about its values. Write one of: {HOW}")
            return None
        if self.has("step") and forms[0] not in ("low", "high"):
            self.wrong("step", "belongs to low and high only. Remove it")
        readers = {"values": self._choice, "type": self._type}
        kind = self.attempt(readers.get(forms[0], self._bounded))
        missing = self._missing(kind) if kind is not None and self.has("missing_") else None
        if self.has("longest") and not isinstance(kind, TextKind):
            self.wrong("longest", 'belongs to type = "text" only. Remove it')
        if kind is None or self.hidden:
            return None
        return Column(name, kind, missing, self.longest, self.source or "")

    def _type(self) -> Kind:
        word = self.type
        if not isinstance(word, str):
            raise BadParameter("type", f"must be a text in quotes, not {kind_of(word)}")
        if word.lower() in OTHER_TYPES:
            raise BadParameter("type", f"must be {quoted_choices(TYPES)}. {OTHER_TYPES[word.lower()]}")
        return TextKind() if checked_choice(word, TYPES, "type") == "text" else Truth()

    def _choice(self) -> Choice:
        values = self.values
        if not isinstance(values, list):
            raise BadParameter("values", f'must be a list such as ["A", "B"], not {kind_of(values)}')
        _require_written("values", *values)
        if not 0 < len(values) <= VALUES_AT_MOST:
            raise BadParameter("values", f"must list 1 to {VALUES_AT_MOST:,} values")
        odd = next((n for n, value in enumerate(values, 1) if type(value) is not type(values[0])), None)
        if odd is not None or type(values[0]) not in {str, int, bool}:  # for Python, true is an int
            raise BadParameter(
                "values", f"must be all texts, all whole numbers, or true and false: see value {odd or 1}"
            )
        if why := _why_no_values(values):
            raise BadParameter("values", why)
        return Choice(tuple(values))

    def _bounded(self) -> Kind | None:
        for name, other in (("low", "high"), ("high", "low")):
            if not self.has(name):
                self.missing(name, f"{name} = … beside {other}: the bounds that values are clamped to")
                return None
        for name in ("low", "high", "step"):
            _require_written(name, getattr(self, name))
        # A datetime is a date, too.
        are_times = [isinstance(bound, date) for bound in (self.low, self.high)]
        if all(are_times):
            return self._moment()
        if any(are_times):
            raise BadParameter(
                "high",
                f"must be of the same kind as low: low is {kind_of(self.low)}, high {kind_of(self.high)}",
            )
        return self._numeric()

    def _number(self, name: str) -> Fraction | None:
        return self.attempt(lambda: exact_number(getattr(self, name)), name)

    def _numeric(self) -> Numeric | None:
        low, high = self._number("low"), self._number("high")
        if low is None or high is None:
            return None
        if not self.has("step") and not (isinstance(self.low, int) and isinstance(self.high, int)):
            self.missing(
                "step", "step = 0.01, or how fine the values are: sums are computed in whole steps"
            )
            return None
        step = self._number("step") if self.has("step") else Fraction(1)
        if step is None:
            return None
        grid = Grid.of(low=low, high=high, step=step)
        return Numeric(grid.step, grid.first, grid.last)

    def _moment(self) -> Moment:
        are_dates = [not isinstance(bound, datetime) for bound in (self.low, self.high)]
        if are_dates[0] != are_dates[1]:
            raise BadParameter("high", "must be written like low: both as dates, or both with a time")
        step = self.step if self.has("step") else "day" if are_dates[0] else "second"
        if are_dates[0] and step != "day":
            raise BadParameter(
                "step", 'must be "day" for dates. Remove it, or write the bounds with a time'
            )
        if not isinstance(step, str):
            raise BadParameter("step", f"must be a text in quotes, not {kind_of(step)}")
        seconds = SECONDS[checked_choice(step, STEPS, "step")]
        first, last = -(-_since_1970(self.low) // seconds), _since_1970(self.high) // seconds
        if first >= last:
            raise BadParameter("low", "must be below high, by at least one step")
        moment = Moment(int(seconds), int(first), int(last))
        try:
            moment.value(moment.first), moment.value(moment.last)
        except (OverflowError, ValueError):  # an offset can lead out of the years 1 to 9999
            raise BadParameter("low", "and high must lie in the years 1 to 9999, in UTC") from None
        return moment

    def _missing(self, kind: Kind) -> int | None:
        """Return the code that missing values count as, or None if the given value is wrong."""
        value, code = self.missing_, None
        match kind:
            case Choice(values):
                what = "one of the declared values"
                code = next((n for n, known in enumerate(values) if _same(known, value)), None)
            case Truth():
                what = "true or false, without quotes"
                code = int(value) if isinstance(value, bool) else None
            case Numeric(step):
                what = "a multiple of step between low and high"
                number = self.attempt(lambda: exact_number(value), "missing")
                if number is None:
                    return None
                code = int(number / step) if (number / step).denominator == 1 else None
            case Moment(seconds):
                is_date = not isinstance(self.low, datetime)
                what = f"a date {'' if is_date else 'with a time '}between low and high"
                if isinstance(value, date) and isinstance(value, datetime) is not is_date:
                    code = int(_since_1970(value) // seconds)
            case _:
                what = "left out: text has no public values. Remove it"
        if code is None or code not in (codes_of(kind) or ()):
            self.wrong("missing", f"must be {what}")
            return None
        return code


def _require_written(name: str, *values: object) -> None:
    """Raise BadParameter if a value is still the TODO that `lapwing init` drafted."""
    if TODO in [value for value in values if isinstance(value, str)]:
        raise BadParameter(name, f"is still {TODO}, as drafted. Write what you know, not from the data")


def _why_no_values(values: list[str | int]) -> str | None:
    known: dict[str | int, int] = {}
    for number, value in enumerate(values, 1):
        if isinstance(value, str) and ("\0" in value or len(value) > LETTERS_AT_MOST):
            return f"must have at most {LETTERS_AT_MOST:,} characters each, and no NUL: see value {number}"
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            return f"must be whole numbers within 2^63 of 0: see value {number}"
        if value in known:
            return f"must be distinct: value {number} is value {known[value]} again. Remove one"
        known[value] = number
    return None


def _since_1970(moment: object) -> Fraction:
    """Return the seconds since 1970. A time without an offset is in UTC."""
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        gone = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return Fraction(gone.days * SECONDS["day"] + gone.seconds) + Fraction(gone.microseconds, 10**6)
    assert isinstance(moment, date)
    return Fraction((moment - EPOCH).days * SECONDS["day"])


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right  # for Python, true is 1


# CSV files

NULLS_AT_MOST, NULL_AT_MOST = 20, 100
_FORM = re.compile(r"(?:[^%]|%[dmYyHMSIpbB%])*")  # the part of strptime that all engines share
_SAME = {"utf8": "utf-8", "latin1": "latin-1", "iso-8859-1": "latin-1", "cp1252": "windows-1252"}


def _encoding(name: str) -> str:
    return checked_choice(_SAME.get(name.lower(), name.lower()), ENCODINGS)


def _letter(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[\t -~]", value):
        return value
    raise ValueError('must be one ASCII character in quotes, such as ";" or "\\t"')


def _nulls(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ValueError(f'must be a list of texts such as ["", "NA"], not {kind_of(value)}')
    if not 0 < len(given) <= NULLS_AT_MOST or any(len(text) > NULL_AT_MOST for text in given):
        raise ValueError(f"must be 1 to {NULLS_AT_MOST} texts of at most {NULL_AT_MOST} characters")
    return tuple(dict.fromkeys(given))


_DATES = fits(
    lambda form: "%" in form and bool(_FORM.fullmatch(form)),
    'must be such as "%d.%m.%Y" or "%m/%d/%Y %H:%M": of %d %m %b %B %Y %y %H %I %p %M %S',
)


class CsvTable(FileTable):
    """The table csv of a table: properties that CSV files do not state themselves."""

    encoding: Annotated[Text, AfterValidator(_encoding)] | None = DEFAULT_CSV.encoding
    delimiter: Annotated[str, PlainValidator(_letter)] | None = DEFAULT_CSV.delimiter
    quote: Annotated[str, PlainValidator(_letter)] | None = DEFAULT_CSV.quote
    null: Annotated[tuple[str, ...], PlainValidator(_nulls)] | None = DEFAULT_CSV.null
    decimal: Annotated[Text, one_of((".", ","))] | None = DEFAULT_CSV.decimal
    date_format: Annotated[Text, _DATES] | None = DEFAULT_CSV.date_format

    def form(self) -> CsvForm:
        """Return the form of the files."""
        refused = (self.delimiter or SEPARATORS) + (self.quote or DEFAULT_CSV.quote)
        if any(letter in text for text in self.null or () for letter in f"{refused}\r\n\0"):
            self.wrong("null", "must have no delimiter, quote or line break in it")
        if self.delimiter and self.delimiter == self.quote:
            self.wrong("quote", "must differ from delimiter")
        return CsvForm(**dict(self))


# Tables

TABLES_AT_MOST = 500
COLUMNS_AT_MOST = 5_000
ROWS_PER_UNIT_AT_MOST = 1_000_000
ROWS_AT_MOST = 10**15
WHICH_UNIT = 'unit = "patient_id": the column that says which person a row belongs to'
EACH_ROW = UnitBy(column="")


def _primary_key(names: object) -> tuple[str, ...]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError('must be a column or a list of columns, such as "id" or ["ward", "bed"]')
    if not all(0 < len(name) <= SOURCE_AT_MOST and "\0" not in name for name in names):
        raise ValueError("must name columns, as the source calls them")
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("must name each column once")
    return tuple(names)


class UnitTable(FileTable):
    """A unit that is not one column of the same name: a key into another table, or a renamed column."""

    through: Text | None = None
    by: SourceName | None = None
    key: SourceName | None = None
    name: ColumnName | None = None
    source: SourceName | None = None

    def renamed(self) -> UnitBy | None:
        """Return a unit column whose name in the source differs from its name in SQL."""
        for other in ("through", "by", "key"):
            if self.has(other):
                self.wrong(
                    other, "cannot stand beside name and source. Write through, by and key, or those"
                )
                return None
        self.require(
            name='name = "customer": how queries call the column',
            source='source = "Customer ID": what the source calls it',
        )
        return UnitBy(self.name, source=self.source) if self.name and self.source else None

    def in_other_table(self) -> UnitBy | None:
        """Return a unit that another private table holds."""
        self.require(
            through='through = "patients": the private table that holds the unit',
            by='by = "patient_key": the column of this table that refers to it',
            key='key = "key": the column of the other table that is referred to',
        )
        through, by, key = self.through, self.by, self.key
        return UnitBy(by, through, key) if through and by and key else None


class DataTable(FileTable):
    """One of the tables [tables.NAME]."""

    source: Text | None = needed('source = "visits.parquet", or where the table lies')
    unit: Any = None
    rows_per_unit: int | None = Field(default=None, ge=1, le=ROWS_PER_UNIT_AT_MOST)
    public: Flag = False
    primary_key: Annotated[tuple[str, ...], PlainValidator(_primary_key)] | None = ()
    rows: int | None = Field(default=None, ge=1, le=ROWS_AT_MOST)
    columns: dict[str, ColumnTable] = Field(default_factory=dict)
    csv: CsvTable | None = None

    def table(
        self, name: str, folder: Path, protects: str | None, spark_master: str, *, rows_follow: bool = False
    ) -> CheckedTable | None:
        """Return the table, checked by itself; None if it is wrong, which is noted."""
        source = self._source(name, folder, spark_master, rows_follow)
        is_public = bool(self.public)
        unit = None if is_public else self._unit(protects)
        if is_public:
            for key in ("unit", "rows_per_unit"):
                if self.has(key):
                    why = "cannot stand in a public table: its rows belong to nobody. Remove it, or public"
                    self.wrong(key, why)
        rows_per_unit = 0 if is_public else self._rows_per_unit(protects)
        columns, hidden = self._columns(unit)
        if source is None or rows_per_unit is None or (unit is None and not is_public):
            return None
        return CheckedTable(
            name, source, columns, unit, rows_per_unit, self.primary_key or (), self.rows, hidden
        )

    def _source(self, name: str, folder: Path, spark_master: str, rows_follow: bool) -> Source | None:
        text = self.source
        if text is None:
            return None
        source = self.attempt(
            lambda: parse_source(
                text, folder=folder, table=name, spark_master=spark_master, rows_follow=rows_follow
            ),
            "source",
        )
        if source is not None and source.form == "csv" and self.csv is not None:
            return replace(source, csv=self.csv.form())
        if source is not None and self.csv is not None:
            self.wrong("csv", "is for CSV files only. Remove it")
        return source

    def _unit(self, protects: str | None) -> UnitBy | None:
        unit = self.unit
        if unit is None:
            if protects == "row":
                return EACH_ROW
            if protects is not None:  # else that mistake is noted already
                self.missing("unit", f"{WHICH_UNIT}; or public = true if the rows belong to nobody")
            return None
        if isinstance(unit, dict):
            inner = self.inner(UnitTable, "unit")
            if inner.has("name") or inner.has("source"):
                return inner.renamed()
            if protects != "row":
                return inner.in_other_table()
            self.wrong("unit", 'must be one column, or left out, where dataset.protects is "row"')
        elif not isinstance(unit, str):
            self.wrong("unit", f"must be the name of one column, not {kind_of(unit)}. Write {WHICH_UNIT}")
        elif not unit.strip():
            self.wrong("unit", f"is empty. Write {WHICH_UNIT}")
        elif why := why_bad_name(unit):
            name = similar_name(unit) or "person"
            renamed = f"unit = {{ name = {quoted(name)}, source = {quoted(unit, at_most=80)} }}"
            self.wrong("unit", f"must name a column. A name {why}. Give it a name: {renamed}")
        else:
            return UnitBy(unit)
        return None

    def _rows_per_unit(self, protects: str | None) -> int | None:
        if protects == "row":
            if self.has("rows_per_unit") and self.rows_per_unit not in (1, None):
                self.wrong("rows_per_unit", 'must be 1 where dataset.protects is "row". Remove it')
            return 1
        if protects is not None:
            self.require(
                rows_per_unit="rows_per_unit = 5: how many rows of one unit may count. "
                "The others are left out"
            )
        return self.rows_per_unit

    def _columns(self, unit: UnitBy | None) -> tuple[dict[str, Column], tuple[str, ...]]:
        """Return the declared columns, and the names of the hidden ones."""
        check_names(self.columns, renamed=True)
        columns, hidden = {}, []
        own = unit is not None and not unit.through
        of_unit = {unit.column.lower(), unit.in_source.lower()} - {""} if unit and own else set()
        for name, table in self.columns.items():
            if of_unit & {name.lower(), (table.source or name).lower()}:
                table.note("is the unit: it can be counted, never shown. Remove it here")
            column = table.column(name)
            if column is not None:
                columns[name] = column
            elif table.hidden:
                hidden += [name, *([table.source] if table.source else [])]
        closed = {name.lower() for name in hidden}
        for name, column in columns.items():
            if column.in_source.lower() in closed:
                self.columns[name].note("reads a column that is declared as hidden. Remove one")
        return columns, tuple(hidden)


def check_names(tables: Mapping[str, FileTable], *, renamed: bool = False) -> None:
    """Note names that a table or column cannot have, and names that SQL cannot tell apart.

    With `renamed` the source may know them under other names.
    """
    for name, table in tables.items():
        if why := why_bad_name(name):
            advice = f". Choose a name for queries, and add source = {quoted(name, at_most=80)}"
            table.note(f"is not a valid name. A name {why}{advice if renamed else ''}")
    for name, before in repeated_names(tables):
        tables[name].note(f"is {quoted(before, at_most=80)} again: SQL ignores case")
