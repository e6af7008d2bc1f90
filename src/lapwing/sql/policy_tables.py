"""Reading the tables of a policy: their sources, privacy units, columns and CSV forms.

The public facts about a column's values become its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

from lapwing.config.section import Section, kind_of, quoted_choices, repeated_names, why_bad_name
from lapwing.config.toml_text import FileMistakes, Key, quoted
from lapwing.core.values import Grid
from lapwing.engines.csv_files import DEFAULT_CSV, ENCODINGS, SEPARATORS, CsvForm
from lapwing.engines.dialect import TEXT_BYTES
from lapwing.errors import BadParameter
from lapwing.sql.expression import SECONDS, Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.policy import Column, Source, Table, UnitBy
from lapwing.sql.source_location import parse_source

COLUMN_KEYS = ("values", "low", "high", "step", "type", "hidden", "missing", "longest", "source")
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


def read_column(mistakes: FileMistakes, key: Key, found: object) -> Column | None:
    """Return a declared column, or None if it is hidden or wrong."""
    section = Section.of(mistakes, key, found, COLUMN_KEYS)
    if section is None:
        return None
    forms = [form for form in ("values", "low", "type") if section.has(form)]
    if section.has("high") and "low" not in forms:
        forms.append("high")
    hidden = section.flag("hidden")
    source = read_source_name(section, "source")
    if len(forms) > 1:
        section.wrong(forms[1], f"cannot stand beside {forms[0]}. Write one of: {HOW}")
        return None
    if not forms:
        if not hidden:
            mistakes.add(key, f"says nothing about its values. Write one of: {HOW}")
        return None
    if section.has("step") and forms[0] not in ("low", "high"):
        section.wrong("step", "belongs to low and high only. Remove it")
    kind = _read_kind(section, forms[0])
    missing = _missing(section, kind) if kind is not None and section.has("missing") else None
    longest = section.whole("longest", least=1, most=TEXT_BYTES // 4)
    if section.has("longest") and not isinstance(kind, Text):
        section.wrong("longest", 'belongs to type = "text" only. Remove it')
    return None if kind is None or hidden else Column(key[-1], kind, missing, longest, source or "")


def read_source_name(section: Section, name: str) -> str | None:
    """Return a column's name in the source, or None. It can be any text: engines get it in quotes."""
    value = section.values.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        section.wrong(name, f"must be a text in quotes, not {kind_of(value)}")
    elif not 0 < len(value) <= SOURCE_AT_MOST or "\0" in value:
        section.wrong(name, f"must be what the source calls the column: 1 to {SOURCE_AT_MOST:,} characters")
    else:
        return value
    return None


def _read_kind(section: Section, form: str) -> Kind | None:
    """Return the kind that a column declares, or None if it is wrong. Mistakes are noted."""
    readers: dict[str, Callable[[Section], Kind | None]] = {"values": _choice, "type": _type}
    try:
        return readers.get(form, _bounded)(section)
    except BadParameter as error:
        section.wrong(error.name, error.why)
        return None


def _type(section: Section) -> Kind | None:
    word = section.values["type"]
    if isinstance(word, str) and word.lower() in OTHER_TYPES:
        raise BadParameter("type", f"must be {quoted_choices(TYPES)}. {OTHER_TYPES[word.lower()]}")
    kinds: dict[str | None, Kind] = {"text": Text(), "bool": Truth()}
    return kinds.get(section.one_of("type", TYPES))


def _choice(section: Section) -> Choice:
    values = section.values["values"]
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


def _bounded(section: Section) -> Kind | None:
    for name, other in (("low", "high"), ("high", "low")):
        if not section.has(name):
            section.missing(name, f"{name} = … beside {other}: the bounds that values are clamped to")
            return None
    for name in ("low", "high", "step"):
        _require_written(name, section.values.get(name))
    low, high = section.values["low"], section.values["high"]
    are_times = [isinstance(bound, date) for bound in (low, high)]  # a datetime is a date, too
    if all(are_times):
        return _moment(section, low, high)
    if any(are_times):
        raise BadParameter(
            "high", f"must be of the same kind as low: low is {kind_of(low)}, high {kind_of(high)}"
        )
    return _number(section)


def _number(section: Section) -> Numeric | None:
    low, high = section.number("low"), section.number("high")
    if low is None or high is None:
        return None
    if section.has("step"):
        step = section.number("step")
    elif all(isinstance(section.values[name], int) for name in ("low", "high")):
        step = Fraction(1)
    else:
        section.missing("step", "step = 0.01, or how fine the values are: sums are computed in whole steps")
        return None
    if step is None:
        return None
    grid = Grid.of(low=low, high=high, step=step)
    return Numeric(grid.step, grid.first, grid.last)


def _moment(section: Section, low: object, high: object) -> Moment | None:
    is_date = [not isinstance(bound, datetime) for bound in (low, high)]
    if is_date[0] != is_date[1]:
        raise BadParameter("high", "must be written like low: both as dates, or both with a time")
    if is_date[0] and section.values.get("step", "day") != "day":
        raise BadParameter("step", 'must be "day" for dates. Remove it, or write the bounds with a time')
    default = "day" if is_date[0] else "second"
    step = section.one_of("step", STEPS) if section.has("step") else default
    if step is None:
        return None
    seconds = SECONDS[step]
    first, last = -(-_since_1970(low) // seconds), _since_1970(high) // seconds
    if first >= last:
        raise BadParameter("low", "must be below high, by at least one step")
    moment = Moment(int(seconds), int(first), int(last))
    try:
        moment.value(moment.first), moment.value(moment.last)
    except (OverflowError, ValueError):  # an offset can lead out of the years 1 to 9999
        raise BadParameter("low", "and high must lie in the years 1 to 9999, in UTC") from None
    return moment


def _since_1970(moment: object) -> Fraction:
    """Return the seconds since 1970. A time without an offset is in UTC."""
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        gone = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return Fraction(gone.days * SECONDS["day"] + gone.seconds) + Fraction(gone.microseconds, 10**6)
    assert isinstance(moment, date)
    return Fraction((moment - EPOCH).days * SECONDS["day"])


def _missing(section: Section, kind: Kind) -> int | None:
    """Return the code that missing values count as, or None if the given value is wrong."""
    value = section.values["missing"]
    code: int | None = None
    match kind:
        case Choice(values):
            what = "one of the declared values"
            code = next((n for n, known in enumerate(values) if _same(known, value)), None)
        case Truth():
            what = "true or false, without quotes"
            code = int(value) if isinstance(value, bool) else None
        case Numeric(step, int(first), int(last)):
            what = "a multiple of step between low and high"
            number = section.number("missing")
            if number is None:
                return None
            code = int(number / step) if (number / step).denominator == 1 else None
            code = code if code is not None and first <= code <= last else None
        case Moment(seconds, first, last):
            is_date = isinstance(section.values["low"], date) and not isinstance(
                section.values["low"], datetime
            )
            what = "a date between low and high" if is_date else "a date with a time between low and high"
            if isinstance(value, date) and isinstance(value, datetime) is not is_date:
                code = int(_since_1970(value) // seconds)
            code = code if code is not None and first <= code <= last else None
        case _:
            what = "left out: text has no public values. Remove it"
    if code is None:
        section.wrong("missing", f"must be {what}")
    return code


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other  # for Python, true is 1


CSV_KEYS = ("encoding", "delimiter", "quote", "null", "decimal", "date_format")
NULLS_AT_MOST, NULL_AT_MOST = 20, 100
_FORM = re.compile(r"(?:[^%]|%[dmYyHMSIpbB%])*")  # the part of strptime that all engines share
_SAME = {"utf8": "utf-8", "latin1": "latin-1", "iso-8859-1": "latin-1", "cp1252": "windows-1252"}


def read_csv_form(section: Section, source: Source) -> Source:
    """Return the source with the CSV form that the policy gives."""
    inner = section.below("csv", CSV_KEYS)
    if inner is None:
        return source
    if source.form != "csv":
        section.wrong("csv", "is for CSV files only. Remove it")
        return source
    delimiter, quote = _letter(inner, "delimiter"), _letter(inner, "quote")
    form = CsvForm(
        _encoding(inner) or DEFAULT_CSV.encoding,
        delimiter or DEFAULT_CSV.delimiter,
        quote or DEFAULT_CSV.quote,
        _nulls(inner, (delimiter or SEPARATORS) + (quote or DEFAULT_CSV.quote)),
        (inner.one_of("decimal", (".", ",")) if inner.has("decimal") else None) or DEFAULT_CSV.decimal,
        _date_format(inner) or DEFAULT_CSV.date_format,
    )
    if form.delimiter and form.delimiter == form.quote:
        inner.wrong("quote", "must differ from delimiter")
    return replace(source, csv=form)


def _encoding(section: Section) -> str | None:
    value = section.values.get("encoding")
    if isinstance(value, str) and value.lower() in (*_SAME, *ENCODINGS):
        return _SAME.get(value.lower(), value.lower())
    return section.one_of("encoding", ENCODINGS)


def _letter(section: Section, name: str) -> str | None:
    value = section.values.get(name)
    if value is None or (isinstance(value, str) and re.fullmatch(r"[\t -~]", value)):
        return value
    section.wrong(name, 'must be one ASCII character in quotes, such as ";" or "\\t"')
    return None


def _nulls(section: Section, refused: str) -> tuple[str, ...]:
    value = section.values.get("null")
    if value is None:
        return DEFAULT_CSV.null
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        section.wrong("null", f'must be a list of texts such as ["", "NA"], not {kind_of(value)}')
    elif not 0 < len(given) <= NULLS_AT_MOST or any(len(one) > NULL_AT_MOST for one in given):
        section.wrong("null", f"must be 1 to {NULLS_AT_MOST} texts of at most {NULL_AT_MOST} characters")
    elif any(letter in one for one in given for letter in f"{refused}\r\n\0"):
        section.wrong("null", "must have no delimiter, quote or line break in it")
    else:
        return tuple(dict.fromkeys(given))
    return DEFAULT_CSV.null


def _date_format(section: Section) -> str | None:
    value = section.text("date_format")
    if value is not None and ("%" not in value or not _FORM.fullmatch(value)):
        section.wrong(
            "date_format",
            'must be such as "%d.%m.%Y" or "%m/%d/%Y %H:%M": of %d %m %b %B %Y %y %H %I %p %M %S',
        )
        return None
    return value


TABLE_KEYS = ("source", "unit", "rows_per_unit", "public", "primary_key", "rows", "columns", "csv")
UNIT_KEYS = ("through", "by", "key", "name", "source")
TABLES_AT_MOST = 500
COLUMNS_AT_MOST = 5_000
ROWS_PER_UNIT_AT_MOST = 1_000_000
ROWS_AT_MOST = 10**15
WHICH_UNIT = 'unit = "patient_id": the column that says which person a row belongs to'
EACH_ROW = UnitBy(column="")


@dataclass(frozen=True, slots=True)
class TableContext:
    """The settings of the file that the reading of tables depends on."""

    folder: Path
    protects: str | None
    spark_master: str


def require_keys(section: Section, hints: Mapping[str, str]) -> None:
    """Note each key that the section does not have as missing, with the hint what to write."""
    for name, hint in hints.items():
        if not section.has(name):
            section.missing(name, hint)


def read_tables(root: Section, context: TableContext) -> dict[str, Table]:
    """Return the tables, each checked by itself.

    Mistakes are noted, and tables with mistakes are left out.
    """
    found = root.tables("tables")
    if len(found) > TABLES_AT_MOST:
        root.wrong("tables", f"must be at most {TABLES_AT_MOST}")
        return {}
    if sum(_columns_in(raw) for raw in found.values()) > COLUMNS_AT_MOST:
        root.wrong("tables", f"must declare at most {COLUMNS_AT_MOST:,} columns in all")
        return {}
    _check_names(root.mistakes, ("tables",), found)
    tables = {}
    for name, raw in found.items():
        section = Section.of(root.mistakes, ("tables", name), raw, TABLE_KEYS)
        table = None if section is None else _table(section, name, context)
        if table is not None:
            tables[name] = table
    return tables


def _columns_in(raw: object) -> int:
    columns = raw.get("columns") if isinstance(raw, dict) else None
    return len(columns) if isinstance(columns, dict) else 0


def _check_names(mistakes: FileMistakes, key: tuple[str, ...], names: Iterable[str]) -> None:
    names = list(names)
    for name in names:
        if why := why_bad_name(name):
            mistakes.add((*key, name), f"is not a valid name. A name {why}")
    for name, before in repeated_names(names):
        mistakes.add((*key, name), f"is {quoted(before, at_most=80)} again: SQL ignores case")


def _table(section: Section, name: str, context: TableContext) -> Table | None:
    source = _source(section, name, context)
    is_public = section.flag("public")
    unit = None if is_public else _unit(section, context.protects)
    if is_public:
        _check_no_unit(section)
    rows_per_unit = 0 if is_public else _rows_per_unit(section, context.protects)
    columns, hidden = _columns(section, unit)
    primary_key = _primary_key(section)
    rows = section.whole("rows", least=1, most=ROWS_AT_MOST)
    if source is None or rows_per_unit is None or (unit is None and not is_public):
        return None
    return Table(name, source, columns, unit, rows_per_unit, primary_key, rows, hidden)


def _source(section: Section, name: str, context: TableContext) -> Source | None:
    require_keys(section, {"source": 'source = "visits.parquet", or where the table lies'})
    text = section.text("source")
    if text is None:
        return None
    try:
        source = parse_source(text, folder=context.folder, table=name, spark_master=context.spark_master)
        return read_csv_form(section, source)
    except BadParameter as error:
        section.wrong("source", error.why)
        return None


def _check_no_unit(section: Section) -> None:
    for name in ("unit", "rows_per_unit"):
        if section.has(name):
            section.wrong(
                name, "cannot stand in a public table: its rows belong to nobody. Remove it, or public"
            )


def _unit(section: Section, protects: str | None) -> UnitBy | None:
    found = section.values.get("unit")
    if found is None:
        if protects == "row":
            return EACH_ROW
        if protects is not None:  # else that mistake is noted already
            section.missing("unit", f"{WHICH_UNIT}; or public = true if the rows belong to nobody")
        return None
    if isinstance(found, dict):
        return _through(section, protects)
    if not isinstance(found, str):
        section.wrong("unit", f"must be the name of one column, not {kind_of(found)}. Write {WHICH_UNIT}")
    elif not found.strip():
        section.wrong("unit", f"is empty. Write {WHICH_UNIT}")
    name = section.name("unit") if isinstance(found, str) and found.strip() else None
    return None if name is None else UnitBy(name)


def _through(section: Section, protects: str | None) -> UnitBy | None:
    inner = section.below("unit", UNIT_KEYS)
    assert inner is not None
    if inner.has("name") or inner.has("source"):
        return _renamed(inner)
    if protects == "row":
        section.wrong("unit", 'must be one column, or left out, where dataset.protects is "row"')
        return None
    hints = {
        "through": 'through = "patients": the private table that holds the unit',
        "by": 'by = "patient_key": the column of this table that refers to it',
        "key": 'key = "key": the column of the other table that is referred to',
    }
    require_keys(inner, hints)
    through, by, key = inner.text("through"), read_source_name(inner, "by"), read_source_name(inner, "key")
    return UnitBy(by, through, key) if through and by and key else None


def _renamed(section: Section) -> UnitBy | None:
    """Return a unit column whose name in the source differs from its name in SQL."""
    for other in ("through", "by", "key"):
        if section.has(other):
            section.wrong(other, "cannot stand beside name and source. Write through, by and key, or those")
            return None
    hints = {
        "name": 'name = "customer": how queries call the column',
        "source": 'source = "Customer ID": what the source calls it',
    }
    require_keys(section, hints)
    name, source = section.name("name"), read_source_name(section, "source")
    return UnitBy(name, source=source) if name and source else None


def _rows_per_unit(section: Section, protects: str | None) -> int | None:
    name = "rows_per_unit"
    if protects == "row":
        if section.has(name) and section.values[name] != 1:
            section.wrong(name, 'must be 1 where dataset.protects is "row". Remove it')
        return 1
    if not section.has(name) and protects is not None:
        section.missing(name, f"{name} = 5: how many rows of one unit may count. The others are left out")
    return section.whole(name, least=1, most=ROWS_PER_UNIT_AT_MOST)


def _columns(section: Section, unit: UnitBy | None) -> tuple[dict[str, Column], tuple[str, ...]]:
    """Return the declared columns, and the names of the hidden ones."""
    given = section.tables("columns")
    key = (*section.key, "columns")
    _check_names(section.mistakes, key, given)
    columns, hidden = {}, []
    of_unit = (
        set() if unit is None or unit.through else {unit.column.lower(), unit.in_source.lower()} - {""}
    )
    for name, raw in given.items():
        source = raw.get("source") if isinstance(raw, dict) else None
        in_source = source.lower() if isinstance(source, str) else name.lower()
        if of_unit & {name.lower(), in_source}:
            section.mistakes.add(
                (*key, name), "is the unit: it can be counted, never shown. Remove it here"
            )
        column = read_column(section.mistakes, (*key, name), raw)
        if column is not None:
            columns[name] = column
        elif isinstance(raw, dict) and raw.get("hidden") is True:
            hidden += [name, *([source] if isinstance(source, str) else [])]
    closed = {name.lower() for name in hidden}
    for name, column in columns.items():
        if column.in_source.lower() in closed:
            section.mistakes.add((*key, name), "reads a column that is declared as hidden. Remove one")
    return columns, tuple(hidden)


def _primary_key(section: Section) -> tuple[str, ...]:
    names = section.values.get("primary_key", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        names = []
    if not section.has("primary_key"):
        return ()
    if not names:
        section.wrong(
            "primary_key", 'must be a column or a list of columns, such as "id" or ["ward", "bed"]'
        )
    elif not all(0 < len(name) <= SOURCE_AT_MOST and "\0" not in name for name in names):
        section.wrong("primary_key", "must name columns, as the source calls them")
    elif len({name.lower() for name in names}) < len(names):
        section.wrong("primary_key", "must name each column once")
    else:
        return tuple(names)
    return ()
