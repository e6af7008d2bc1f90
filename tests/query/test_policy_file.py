"""A policy file: what it says becomes a policy, and every mistake in it is told with its line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapwing.errors import BadFile, BadParameter
from lapwing.query.language.kinds import Choice, Kind, Moment, Number, Text, Truth
from lapwing.query.policies.blocks import period_of
from lapwing.query.policies.check import BLOCKS
from lapwing.query.policies.columns import COLUMN
from lapwing.query.policies.file import ROOT, load, nice_below
from lapwing.query.policies.policy import Blocks, Policy, Source, UnitBy
from lapwing.query.policies.tables import TABLE as TABLE_KEYS
from lapwing.query.policies.tables import UNIT
from lapwing.toml.text import lines_of

HEAD = """\
[dataset]
name = "visits"
[budget]
epsilon = 3.0
delta = 1e-7
"""
TABLE = """\
[tables.visits]
source = "visits.parquet"
unit = "patient_id"
rows_per_unit = 5
"""
GOOD = HEAD + TABLE
PUBLIC = """
[tables.wards]
source = "wards.csv"
public = true
"""
PERIODS = """
[tables.visits.columns.admitted]
low = 2023-11-15
high = 2024-02-01
[blocks]
by = "row"
column = "admitted"
every = "{every}"
"""
PERSON_PERIOD = GOOD.replace('"visits"\n', '"visits"\nprotects = "person-period"\n', 1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sources, as the working directory. Loading reads none of them."""
    for name in ("visits.parquet", "wards.csv", "clinic.duckdb", "parts/a.parquet", "mixed/a.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "mixed/b.csv").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd[1].parquet").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(text: str) -> Policy:
    Path("visits.toml").write_text(text, encoding="utf-8")
    return load("visits.toml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadFile) as caught:
        loaded(text)
    return list(caught.value.mistakes)


def kind(declared: str) -> Kind:
    return loaded(GOOD + f"[tables.visits.columns.c]\n{declared}").tables["visits"].columns["c"].kind


def complaint(declared: str) -> str:
    """The one mistake of a column, without the file."""
    (found,) = mistakes(GOOD + f"[tables.visits.columns.c]\n{declared}")
    return found.removeprefix("visits.toml:")


def source(text: str, table: str = "visits") -> Source:
    return (
        loaded(HEAD + TABLE.replace("visits.parquet", text).replace("visits]", f"{table}]"))
        .tables[table]
        .source
    )


def table(name: str, through: str) -> str:
    unit = f'unit = {{ through = "{through}", by = "a", key = "k" }}'
    return f'[tables.{name}]\nsource = "wards.csv"\nrows_per_unit = 1\n{unit}\n'


def test_the_example_of_the_issue(folder: Path) -> None:
    policy = loaded(
        HEAD + '[blocks]\nby = "unit"\ncohorts = 64\n' + TABLE + "[tables.visits.columns.ward]\n"
        'values = ["A", "B", "C"]\n[tables.visits.columns.stay]\nlow = 0\nhigh = 60\nstep = 1\n' + PUBLIC
    )  # fmt: skip
    visits, wards = policy.tables["visits"], policy.tables["wards"]
    assert policy.path == folder / "visits.toml"
    assert (policy.name, policy.protects, policy.population) == ("visits", "person", "")
    assert (policy.epsilon, policy.delta) == (Fraction(3), Fraction(1, 10**7))
    assert policy.delta_per_query == Fraction(1, 10**10)
    assert policy.blocks == Blocks("unit", cohorts=64)
    assert policy.ledger == str(folder / "visits.ledger")
    assert (policy.quotas, policy.timeout) == ({}, 600)
    assert visits.unit == UnitBy("patient_id")
    assert (visits.rows_per_unit, visits.is_public, visits.rows) == (5, False, None)
    assert visits.source == Source("duckdb", str(folder / "visits.parquet"), "", "parquet")
    assert {name: column.kind for name, column in visits.columns.items()} == {
        "ward": Choice(("A", "B", "C")),
        "stay": Number(Fraction(1), 0, 60),
    }
    assert wards.is_public
    assert wards.columns == {}
    assert wards.source.form == "csv"


def test_everything_that_can_be_said(folder: Path) -> None:
    policy = loaded(
        "\N{BYTE ORDER MARK}" + GOOD.replace('"visits"\n', '"visits"\npopulation = "clinic"\n', 1)
        .replace("1e-7", "1e-7\ndelta_per_query = 1e-9")
        .replace("\n", "\r\n")
        + 'rows = 1000\nprimary_key = ["id", "bed"]\n[tables.visits.columns.name]\nhidden = true\n'
        '[tables.patients]\nsource = "wards.csv"\nrows_per_unit = 1\npublic = false\nprimary_key = "id"\n'
        'unit = { through = "visits", by = "visit", key = "id" }\n'
        '[ledger]\nurl = "books/clinic.ledger"\nkeys = "k"\nanchor = "https://example.org/a"\n'
        '[analysts."ana@example.org"]\nepsilon = 0.1\ndelta = 0\n[engine]\ntimeout = 5\n'
    )  # fmt: skip
    visits = policy.tables["visits"]
    assert (policy.population, policy.delta_per_query, policy.timeout) == ("clinic", Fraction(1, 10**9), 5)
    assert (policy.ledger, policy.ledger_keys) == (str(folder / "books/clinic.ledger"), str(folder / "k"))
    assert policy.ledger_anchor == "https://example.org/a"
    assert policy.quotas == {"ana@example.org": (Fraction(1, 10), Fraction(0))}
    assert (visits.rows, visits.primary_key, visits.columns, visits.hidden) == (
        1000,
        ("id", "bed"),
        {},
        ("name",),
    )
    assert policy.tables["patients"].unit == UnitBy("visit", "visits", "id")
    assert policy.tables["patients"].primary_key == ("id",)


def test_a_ledger_in_postgresql_is_kept_as_it_is_written() -> None:
    assert loaded(GOOD + '[ledger]\nurl = "postgresql://h/d#l"').ledger == "postgresql://h/d#l"


def test_where_rows_are_protected_each_row_is_its_own_unit() -> None:
    rows = HEAD.replace('"visits"\n', '"visits"\nprotects = "row"\n', 1)
    table = loaded(rows + '[tables.visits]\nsource = "visits.parquet"').tables["visits"]
    assert (table.unit, table.rows_per_unit, table.is_public) == (UnitBy(""), 1, False)
    assert loaded(rows + TABLE.replace("5", "1")).tables["visits"].unit == UnitBy("patient_id")
    (found,) = mistakes(rows + TABLE)
    assert "rows_per_unit: must be 1" in found


@pytest.mark.parametrize(
    ("every", "first", "last"),
    [
        ("day", (date(2023, 11, 15) - date(1970, 1, 1)).days, (date(2024, 2, 1) - date(1970, 1, 1)).days),
        ("week", 19676 // 7, 19754 // 7),
        ("month", 53 * 12 + 10, 54 * 12 + 1),
        ("quarter", 53 * 4 + 3, 54 * 4),
        ("year", 53, 54),
    ],
)
def test_blocks_of_rows_are_periods_within_the_bounds(every: str, first: int, last: int) -> None:
    policy = loaded(PERSON_PERIOD + PERIODS.format(every=every))
    assert policy.blocks == Blocks("row", column="admitted", every=every, first=first, last=last)


def test_periods_before_1970_are_counted_downwards() -> None:
    day = (date(1969, 12, 31) - date(1970, 1, 1)).days
    assert [period_of(every, day) for every in ("day", "week", "month", "quarter", "year")] == [-1] * 5


def test_blocks_by_the_month_of_arrival() -> None:
    assert loaded(GOOD + '[blocks]\nby = "unit"\nevery = "month"').blocks == Blocks("unit", every="month")
    named = loaded(GOOD + '[blocks]\nby = "unit"\ncohorts = 2\ncolumn = "slice"').blocks
    assert named == Blocks("unit", cohorts=2, column="slice")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("values = [3, 1]", Choice((3, 1))),
        ("values = [true, false]", Choice((True, False))),
        ("low = -3\nhigh = 2_000", Number(Fraction(1), -3, 2000)),
        ("low = 0\nhigh = 1\nstep = 0.1", Number(Fraction(1, 10), 0, 10)),
        ("low = 0.05\nhigh = 0.99\nstep = 0.1", Number(Fraction(1, 10), 1, 9)),
        ("low = 0.0\nhigh = 1e3\nstep = 5", Number(Fraction(5), 0, 200)),
        ("low = 1970-01-02\nhigh = 1970-02-01", Moment(86400, 1, 31)),
        ('low = 1970-01-02\nhigh = 1970-02-01\nstep = "day"', Moment(86400, 1, 31)),
        ("low = 1970-01-01T00:00:00\nhigh = 1970-01-01 00:01:00", Moment(1, 0, 60)),
        ("low = 1970-01-01T02:00:00+02:00\nhigh = 1970-01-01T01:00:00Z", Moment(1, 0, 3600)),
        ("low = 1969-12-31T23:59:59.5\nhigh = 1970-01-01T00:00:09.9", Moment(1, 0, 9)),
        ('low = 1969-12-31T23:30:00\nhigh = 1970-01-01T05:59:00\nstep = "hour"', Moment(3600, 0, 5)),
        ('type = "text"', Text()),
        ('type = "bool"', Truth()),
    ],
)
def test_what_is_public_about_a_column_becomes_its_kind(declared: str, expected: Kind) -> None:
    assert kind(declared) == expected


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ('values = ["A", "B"]\nmissing = "B"', 1),
        ("values = [1, 0]\nmissing = 0", 1),
        ("low = -1\nhigh = 1\nstep = 0.1\nmissing = 0.3", 3),
        ("low = 1970-01-01\nhigh = 1971-01-01\nmissing = 1970-01-03", 2),
        (
            "low = 1970-01-01T00:00:00\nhigh = 1970-01-02T00:00:00\n"
            'step = "hour"\nmissing = 1970-01-01T05:30:00',
            5,
        ),
        ('type = "bool"\nmissing = false', 0),
    ],
)
def test_what_missing_counts_as_is_a_code(declared: str, code: int) -> None:
    policy = loaded(GOOD + f"[tables.visits.columns.c]\n{declared}")
    assert policy.tables["visits"].columns["c"].missing == code


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("", "10: tables.visits.columns.c: says nothing about its values. Write one of: values"),
        (
            "hihg = 3\nlow = 0\nhigh = 3",
            '11: tables.visits.columns.c.hihg: unknown key. Did you mean "high"?',
        ),
        ("low = 0", "10: tables.visits.columns.c.high: is missing. Write high = … beside low"),
        ("high = 0", "10: tables.visits.columns.c.low: is missing"),
        ("low = 0\nhigh = 1.5", "10: tables.visits.columns.c.step: is missing. Write step = 0.01"),
        ("low = 2\nhigh = 2", "11: tables.visits.columns.c.low: must be below high"),
        ("low = 0\nhigh = 5\nstep = 9", "13: tables.visits.columns.c.step: must be above 0 and at most"),
        ("low = 0\nhigh = 5\nstep = 0", "13: tables.visits.columns.c.step: must be above 0"),
        ("low = 0.1\nhigh = 1.9\nstep = 1", "13: tables.visits.columns.c.step: leaves fewer than two"),
        ("low = 0\nhigh = 4503599627370496", "step: is too fine: bounds must be within 2^52"),
        (
            "low = 0\nhigh = 0x" + "f" * 5000,
            "10: tables.visits.columns.c.step: and bounds must lie between",
        ),
        ("low = 0\nhigh = nan\nstep = 1", "12: tables.visits.columns.c.high: is not a finite number"),
        ("low = -inf\nhigh = 1\nstep = 1", "11: tables.visits.columns.c.low: is not a finite number"),
        ("low = 0\nhigh = 1e99999\nstep = 1", "12: tables.visits.columns.c.high: is too large"),
        (f"low = 0\nhigh = 1e{'9' * 30}\nstep = 1", "12: tables.visits.columns.c.high: is not a finite"),
        ('low = "0"\nhigh = 5', "low: must be a number, not a text. Remove the quotes"),
        ("low = true\nhigh = 5", "low: must be a number, not true or false"),
        (
            "low = 2024-01-01\nhigh = 5",
            "high: must be of the same kind as low: low is a date, high a whole",
        ),
        ("low = 2024-01-01\nhigh = 2024-02-01T00:00:00", "high: must be written like low: both as dates"),
        ("low = 2024-01-01\nhigh = 2023-01-01", "low: must be below high"),
        ('low = 2024-01-01\nhigh = 2025-01-01\nstep = "hour"', 'step: must be "day" for dates'),
        (
            "low = 2024-01-01T00:00:00\nhigh = 2025-01-01T00:00:00\nstep = 5",
            "step: must be a text in quotes",
        ),
        (
            'low = 2024-01-01T00:00:00\nhigh = 2025-01-01T00:00:00\nstep = "minutes"',
            'step: must be "second", "minute", "hour" or "day". Did you mean "minute"?',
        ),
        (
            "low = 0001-01-01T00:00:00+23:00\nhigh = 2025-01-01T00:00:00",
            "low: and high must lie in the years",
        ),
        ("low = 07:30:00\nhigh = 8", "low: must be a number, not a time of day"),
        ("values = []", "values: must list 1 to 1,000,000 values"),
        ('values = "A"', 'values: must be a list such as ["A", "B"], not a text'),
        (
            'values = ["A", 1]',
            "values: must be all texts, all whole numbers, or true and false: see value 2",
        ),
        ("values = [1, true]", "see value 2"),
        ("values = [1.5, 2.5]", "see value 1"),
        ('values = ["A", "B", "A"]', "values: must be distinct: value 3 is value 1 again"),
        ('values = ["A\\u0000"]', "none of them NUL: see value 1"),
        ("values = [9223372036854775808]", "values: must be whole numbers within 2^63 of 0: see value 1"),
        ('values = ["A"]\nlow = 1\nhigh = 2', "low: cannot stand beside values"),
        ('type = "text"\nvalues = ["A"]', "type: cannot stand beside values"),
        ('type = "text"\nstep = 1', "step: belongs to low and high only"),
        ('type = "string"', 'type: must be "text" or "bool". Write type = "text"'),
        ('type = "integer"', "Write low and high, such as"),
        ('type = "txt"', 'Did you mean "text"?'),
        ('hidden = "yes"\ntype = "text"', "hidden: must be true or false, without quotes, not a text"),
        ('type = "text"\nmissing = "A"', "missing: must be left out"),
        ("values = [0, 1]\nmissing = false", "missing: must be one of the declared values"),
        (
            "low = 0\nhigh = 4\nstep = 2\nmissing = 3",
            "missing: must be a multiple of step between low and high",
        ),
        ("low = 0\nhigh = 4\nmissing = 5", "missing: must be a multiple of step between"),
        ('low = 0\nhigh = 4\nmissing = "x"', "missing: must be a number, not a text"),
        (
            "low = 2024-01-01\nhigh = 2025-01-01\nmissing = 2024-05-05T00:00:00",
            "missing: must be a date between",
        ),
        ("low = 2024-01-01\nhigh = 2025-01-01\nmissing = 5", "missing: must be a date between"),
        ('type = "bool"\nmissing = 1', "missing: must be true or false"),
    ],
)
def test_a_wrong_column_is_told_what_to_write(declared: str, expected: str) -> None:
    assert expected in complaint(declared)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('name = "visits"', "", "1: dataset.name: is missing. Write name ="),
        ('name = "visits"', "name = 5", "2: dataset.name: must be a text in quotes, not a whole number"),
        ('name = "visits"', 'name = ""', "2: dataset.name: must not be empty"),
        ('name = "visits"', 'name = "a\\nb"', "2: dataset.name: must be printable, on one line"),
        ('name = "visits"', f'name = "{"a" * 300}"', "2: dataset.name: must have 1 to 200 characters"),
        ('name = "visits"', 'nme = "v"\nname = "v"', '2: dataset.nme: unknown key. Did you mean "name"?'),
        ('name = "visits"', 'name = "v"\nx = 1', "3: dataset.x: unknown key. Known here: name, population"),
        (
            'name = "visits"',
            'name = "v"\nprotects = "persons"',
            'dataset.protects: must be "person", "row" or',
        ),
        (
            'name = "visits"',
            'name = "v"\nprotects = "person-period"',
            "blocks: is missing. Write [blocks] with",
        ),
        ("epsilon = 3.0", "", "3: budget.epsilon: is missing. Write epsilon = 3.0"),
        ("epsilon = 3.0", "epsilon = 0", "4: budget.epsilon: must be above 0"),
        ("epsilon = 3.0", "epsilon = 1001", "4: budget.epsilon: must lie between 1e-9"),
        ("epsilon = 3.0", "epsilon = nan", "4: budget.epsilon: is not a finite number"),
        (
            "epsilon = 3.0",
            'epsilon = "3"',
            "4: budget.epsilon: must be a number, not a text. Remove the quotes",
        ),
        ("epsilon = 3.0", "epsilon = true", "4: budget.epsilon: must be a number, not true or false"),
        ("delta = 1e-7", "delta = 1", "5: budget.delta: must lie in [0, 1)"),
        ("delta = 1e-7", "delta = -1e-9", "5: budget.delta: must lie in [0, 1)"),
        (
            "delta = 1e-7",
            "delta = 1e-7\ndelta_per_query = 1e-8",
            "6: budget.delta_per_query: must be at most 6%",
        ),
        ("[dataset]", "[data]", '1: data: unknown key. Did you mean "dataset"?'),
        ('source = "visits.parquet"', "", "6: tables.visits.source: is missing"),
        ('source = "visits.parquet"', "source = 1", "7: tables.visits.source: must be a text"),
        ('unit = "patient_id"', "", "6: tables.visits.unit: is missing. Write unit ="),
        ('unit = "patient_id"', 'unit = ""', "8: tables.visits.unit: is empty. Write unit ="),
        (
            'unit = "patient_id"',
            'unit = ["a", "b"]',
            "8: tables.visits.unit: must be the name of one column, not a list",
        ),
        (
            'unit = "patient_id"',
            'unit = "a b"',
            "8: tables.visits.unit: must name a column. A name has letters",
        ),
        ('unit = "patient_id"', 'unit = "a"\nunit = "b"', "9: is not TOML here: Cannot overwrite a value"),
        (
            'unit = "patient_id"',
            'unit = "a"\npublic = true\nrows = 5',
            "8: tables.visits.unit: cannot stand in a public",
        ),
        (
            'unit = "patient_id"',
            'unit = { through = "x", by = "a" }',
            "8: tables.visits.unit.key: is missing",
        ),
        (
            'unit = "patient_id"',
            'unit = { through = "x", by = "a", key = "k" }',
            "unit.through: there is no such table",
        ),
        (
            'unit = "patient_id"',
            'unit = { thru = "x" }',
            '8: tables.visits.unit.thru: unknown key. Did you mean "through"?',
        ),
        (
            'unit = "patient_id"',
            'unit = { through = "visits", by = "a", key = "k" }',
            "through: is this table itself",
        ),
        ("rows_per_unit = 5", "", "6: tables.visits.rows_per_unit: is missing. Write rows_per_unit = 5"),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 0",
            "9: tables.visits.rows_per_unit: must lie between 1 and 1,000,000",
        ),
        ("rows_per_unit = 5", "rows_per_unit = 5.0", "must be a whole number, not a decimal number"),
        (
            "rows_per_unit = 5",
            'rows_per_unit = "5"',
            "must be a whole number, not a text. Remove the quotes",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\nrows = -1",
            "10: tables.visits.rows: must lie between 1 and",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\nprimary_key = []",
            "primary_key: must be a column or a list",
        ),
        (
            "rows_per_unit = 5",
            'rows_per_unit = 5\nprimary_key = ["a", "A"]',
            "primary_key: must name each column once",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\ncolumns = 5",
            "tables.visits.columns: must be a table of tables",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\ncolumns.c = 5",
            "tables.visits.columns.c: must be a table, not",
        ),
        (
            "[tables.visits]",
            '[tables."vis its"]',
            '6: tables."vis its": cannot be called so. A name has letters',
        ),
        (
            "[tables.visits]",
            "[tables.lapwing_x]",
            "6: tables.lapwing_x: cannot be called so. A name must not begin",
        ),
        ("[tables.visits]", "[[tables]]", "6: tables: must be a table of tables, not a list"),
        ("[tables.visits]", "[table.visits]", '6: table: unknown key. Did you mean "tables"?'),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_to_write(before: str, after: str, expected: str) -> None:
    assert before in GOOD
    assert expected in "\n".join(mistakes(GOOD.replace(before, after, 1)))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            '[blocks]\nby = "units"\ncohorts = 3',
            '11: blocks.by: must be "unit" or "row". Did you mean "unit"?',
        ),
        ("[blocks]\ncohorts = 3", "10: blocks.by: is missing"),
        ('[blocks]\nby = "unit"', "10: blocks.cohorts: is missing. Write cohorts = 64"),
        ('[blocks]\nby = "unit"\ncohorts = 100_001', "12: blocks.cohorts: must lie between 1 and 100,000"),
        (
            '[blocks]\nby = "unit"\ncohorts = 3\nevery = "month"',
            "13: blocks.every: cannot stand beside cohorts",
        ),
        ('[blocks]\nby = "unit"\nevery = "year"', '12: blocks.every: must be "month"'),
        (
            '[blocks]\nby = "unit"\ncohorts = 3\ncolumn = "Patient_ID"',
            "13: blocks.column: [tables.visits] has such",
        ),
        (
            '[blocks]\nby = "row"\ncolumn = "a"\nevery = "day"',
            '11: blocks.by: "row" protects a person in one period',
        ),
        ('[ledger]\nurl = "sqlite:///x"', "11: ledger.url: must be a path, or begin with postgresql://"),
        ('[ledger]\nurl = "visits.toml"', "11: ledger.url: must be a file of its own"),
        ('[ledger]\nurl = "empty"', "11: ledger.url: must be a file of its own"),
        ('[ledger]\nkeys = "postgresql://x"', "11: ledger.keys: must be the path of a file"),
        ("[analysts.ana]\nepsilon = 1", "10: analysts.ana.delta: is missing"),
        (
            "[analysts.ana]\nepsilon = 4\ndelta = 0",
            "11: analysts.ana.epsilon: must be at most budget.epsilon",
        ),
        ("[analysts]\nana = 4", "11: analysts.ana: must be a table, not a whole number"),
        ("[engine]\ntimeout = 0", "11: engine.timeout: must lie between 1 and 86,400"),
        ('[tables.Visits]\nsource = "wards.csv"\npublic = true', '10: tables.Visits: is "visits" again'),
        ("[tables.visits.columns.Patient_Id]\nhidden = true", "columns.Patient_Id: is the unit"),
        ('[tables.visits.columns]\na.type = "text"\nA.type = "text"', 'columns.A: is "a" again'),
        (table("p", "wards") + PUBLIC, "13: tables.p.unit.through: must be a private table"),
        (table("p", "visit"), '13: tables.p.unit.through: there is no such table. Did you mean "visits"?'),
        (table("p", "visits") + table("q", "p"), "17: tables.q.unit.through: must hold the unit itself"),
        (
            '[tables.p]\nsource = "postgresql://h/d"\nrows_per_unit = 1\nunit = "a"',
            "11: tables.p.source: must lie in the same engine as [tables.visits]",
        ),
        (
            '[tables.p]\nsource = "spark:wards"\npublic = true',
            "same engine as [tables.visits], or be a file",
        ),
    ],
)
def test_a_mistake_between_parts_is_told(more: str, expected: str) -> None:
    assert expected in "\n".join(mistakes(GOOD + more))


def test_blocks_of_rows_need_dates_in_every_private_table() -> None:
    more = '[tables.other]\nsource = "wards.csv"\nunit = "p"\nrows_per_unit = 1\n'
    text = PERSON_PERIOD + PERIODS.format(every="month") + more + PUBLIC
    assert "tables.other.columns.admitted: is missing, but blocks.column" in mistakes(text)[0]
    assert (
        "must have low and high as dates"
        in mistakes(text + '[tables.other.columns.admitted]\ntype = "text"')[0]
    )
    wide = "[tables.other.columns.admitted]\nlow = 1969-12-31\nhigh = 1970-01-31"
    blocks = loaded(text + wide).blocks
    assert blocks is not None
    assert (blocks.first, blocks.last) == (-1, 54 * 12 + 1)


@pytest.mark.parametrize("protects", ["person", "row"])
def test_slices_of_rows_protect_only_a_person_in_a_period(protects: str) -> None:
    text = PERSON_PERIOD.replace("person-period", protects).replace(
        "rows_per_unit = 5", "rows_per_unit = 1"
    )
    (found,) = mistakes(text + PERIODS.format(every="year"))
    assert 'write dataset.protects = "person-period"' in found


def test_too_many_periods_are_too_many_blocks() -> None:
    text = PERSON_PERIOD + PERIODS.format(every="day").replace("2023-11-15", "1000-01-01")
    assert "every: gives more than 100,000 blocks" in mistakes(text)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("visits.parquet", ("duckdb", "{0}/visits.parquet", "", "parquet")),
        ("./wards.csv", ("duckdb", "{0}/wards.csv", "", "csv")),
        ("parts", ("duckdb", "{0}/parts/**/*.parquet", "", "parquet")),
        ("parts/*.parquet", ("duckdb", "{0}/parts/*.parquet", "", "parquet")),
        ("odd[1].parquet", ("duckdb", "{0}/odd[[]1].parquet", "", "parquet")),
        ("clinic.duckdb", ("duckdb", "{0}/clinic.duckdb", "visits", "duckdb")),
        ("clinic.duckdb#main.stays", ("duckdb", "{0}/clinic.duckdb", "main.stays", "duckdb")),
        ("postgresql://me@h/d", ("postgres", "postgresql://me@h/d", "visits", "postgres")),
        ("postgresql://h/d?x=1#s.t", ("postgres", "postgresql://h/d?x=1", "s.t", "postgres")),
        ("spark:visits", ("spark", "", "visits", "spark")),
        ("spark:lake.clinic.visits", ("spark", "", "lake.clinic.visits", "spark")),
        ("spark:parts/*.parquet", ("spark", "", "{0}/parts/*.parquet", "spark-parquet")),
        ("spark:./parts", ("spark", "", "{0}/parts", "spark-parquet")),
        ("spark:s3a://lake/visits", ("spark", "", "s3a://lake/visits", "spark-parquet")),
    ],
)
def test_a_source_is_an_engine_and_a_place(text: str, expected: tuple[str, ...], folder: Path) -> None:
    assert source(text) == Source(*[part.format(folder) for part in expected])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gone.parquet", "7: tables.visits.source: there is no such file. Paths begin at"),
        ("gone/*.parquet", "no file matches this pattern"),
        ("gone.duckdb", "there is no DuckDB file here"),
        ("empty", "is a folder without .parquet or .csv files"),
        ("mixed", "is a folder of Parquet and CSV files: say which"),
        ("visits.xlsx", "is of no known kind. Write a Parquet or CSV file"),
        ("https://h/visits.parquet", "is of no known kind"),
        ("clinic.duckdb#a b", "must end in the name of a table"),
        ("postgresql://h/d#a.b.c", "must end in the name of a table"),
        ("postgresql://me@[h/d", "is no address. Write postgresql://"),
        ("spark:a.b.c.d", "must end in the name of a table"),
        ("spark:gone/*.parquet", "no file matches this pattern"),
        ("x" * 3000 + ".parquet", "there is no such file"),
        ("a" * 300 + "/[!-*?.csv", "no file matches"),
    ],
)
def test_a_wrong_source_is_told_what_to_write(text: str, expected: str) -> None:
    (found,) = mistakes(HEAD + TABLE.replace("visits.parquet", text))
    assert expected in found


def test_an_address_with_a_password_is_not_repeated() -> None:
    text = GOOD + '[ledger]\nurl = "mysql://me:SECRET@h/d"\n'
    assert "SECRET" not in "\n".join(mistakes(text.replace("visits.parquet", "mysql://me:SECRET@h/d")))


def test_spark_sources_know_their_master_and_public_files_may_stand_beside_them() -> None:
    text = (
        HEAD
        + TABLE.replace("visits.parquet", "spark:visits")
        + PUBLIC
        + '[engine]\nspark_master = "local[2]"'
    )
    policy = loaded(text)
    assert policy.tables["visits"].source == Source("spark", "local[2]", "visits", "spark")
    assert policy.tables["wards"].source.engine == "duckdb"


def test_all_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    text = (
        GOOD.replace("3.0", "0").replace("patient_id", "")
        + "[tables.visits.columns.stay]\nlow = 0\nhihg = 3\n"
    )
    found = mistakes(text)
    assert [line.split(":")[1] for line in found] == ["4", "8", "10", "12"]
    assert found[3] == 'visits.toml:12: tables.visits.columns.stay.hihg: unknown key. Did you mean "high"?'
    with pytest.raises(BadParameter) as caught:
        load("visits.toml")
    assert str(caught.value) == "\n".join(found)


def test_an_empty_file_is_told_what_a_policy_needs() -> None:
    assert [line.split(": ")[1] for line in mistakes("")] == ["dataset", "budget", "tables"]


def test_a_policy_without_private_tables_protects_nobody() -> None:
    assert "tables: name no private table" in mistakes(HEAD + PUBLIC)[0]
    assert "tables: name no private table" in mistakes(HEAD + "[tables]")[0]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"[dataset]\nname = \n", "visits.toml:2: is not TOML here: Invalid value"),
        (b"[dataset]\nname = 'a\n", "visits.toml:2: is not TOML here"),
        (b"[dataset\n", "visits.toml:1: is not TOML here"),
        (b"[dataset]\n\n[dataset]\n", "visits.toml:3: is not TOML here"),
        (b"a = 1\nb = " + b"9" * 5000, "visits.toml:2: is not TOML here: Exceeds the limit"),
        (b"a = [1,\n2,\n", "visits.toml:2: is not TOML here"),
        (b"a = 1\nb = '\xff'", "visits.toml:2: is not UTF-8 here"),
        (b"a = " + b"[" * 100_000, "visits.toml: is nested too deeply"),
        (b"#" * ((1 << 20) + 1), "visits.toml: is larger than 1 MiB"),
    ],
)
def test_what_is_not_a_toml_file_is_told_where(raw: bytes, expected: str) -> None:
    Path("visits.toml").write_bytes(raw)
    with pytest.raises(BadFile) as caught:
        load("visits.toml")
    assert caught.value.mistakes[0].startswith(expected)


def test_what_is_no_file_is_told_so(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for path, expected in (
        ("gone.toml", "gone.toml: there is no such file. `lapwing init DATA` drafts one"),
        ("empty", "empty: is a folder. Name the policy file in it"),
        ("pipe", "pipe: is not a file"),
        ("a\0b\n", '"a\\u0000b\\n": there is no such file'),
    ):
        with pytest.raises(BadFile) as caught:
            load(path)
        assert str(caught.value).startswith(expected)


def test_a_policy_has_limits() -> None:
    many = "".join(f'[tables.t{n}]\nsource = "wards.csv"\npublic = true\n' for n in range(500))
    assert any("tables: must be at most 500" in line for line in mistakes(GOOD + many))
    columns = "[tables.visits.columns]\n" + "".join(f'c{n}.type = "text"\n' for n in range(5001))
    assert any("tables: must declare at most 5,000 columns" in line for line in mistakes(GOOD + columns))
    wrong = "[tables.visits.columns]\n" + "".join(f"c{n} = 1\n" for n in range(300))
    assert mistakes(GOOD + wrong)[-1] == "visits.toml: and 200 more mistakes"


@pytest.mark.parametrize(
    ("delta", "expected"),
    [("1e-7", "1e-10"), ("3.333e-7", "3.3e-10"), ("0", "0"), ("1e-16", "0"), ("1.999e-14", "1.9e-17")],
)
def test_the_delta_of_a_query_is_a_thousandth_rounded_down(delta: str, expected: str) -> None:
    assert nice_below(Fraction(delta) / 1000) == Fraction(expected)
    assert loaded(GOOD.replace("1e-7", delta)).delta_per_query == Fraction(expected)


def keys_in(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*above, name)
            yield from keys_in(inner, (*above, name))
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner, above)


def test_every_key_has_the_line_on_which_it_stands() -> None:
    text = (
        'a = """\n=[{"\n\\"""" # [x]\n[b."c.d".e] # = [\n'
        "'f' = [ # ]\n  {g = 1, h = {\"i\" = '}'}},\n  2024-01-01 07:00:00,\n]\n"
        "j.k = 1.5\n[b]\nl = '''\n[m]\n'''\n[[n]]\no = 1\n[[n]]\no = 2\n[n.p]\n"
    )
    assert lines_of(text) == {
        ("a",): 1, ("b",): 10, ("b", "c.d"): 4, ("b", "c.d", "e"): 4, ("b", "c.d", "e", "f"): 5,
        ("b", "c.d", "e", "f", "g"): 6, ("b", "c.d", "e", "f", "h"): 6, ("b", "c.d", "e", "f", "h", "i"): 6,
        ("b", "c.d", "e", "j"): 9, ("b", "c.d", "e", "j", "k"): 9, ("b", "l"): 11,
        ("n",): 14, ("n", "o"): 15, ("n", "p"): 18,
    }  # fmt: skip
    assert set(lines_of(text)) == set(keys_in(tomllib.loads(text)))


WORDS = st.sampled_from(
    [*ROOT, *COLUMN, *TABLE_KEYS, *UNIT, *BLOCKS, "visits", "stay", "name", "epsilon", "delta", "url"]
)
LEAVES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.times(),
    st.sampled_from(
        [
            "visits.parquet",
            "person-period",
            "row",
            "unit",
            "month",
            "text",
            "spark:x",
            "../**",
            "postgresql://[",
        ]
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
)
MANY = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@MANY
@given(
    st.dictionaries(WORDS, VALUES, max_size=7),
    st.lists(st.tuples(st.lists(WORDS, max_size=5), VALUES), max_size=4),
)
def test_whatever_a_file_says_only_its_mistakes_are_raised(
    garbage: dict[str, Any], changes: list[tuple[list[str], Any]]
) -> None:
    good = tomllib.loads(GOOD + PUBLIC + "[tables.visits.columns.stay]\nlow = 0\nhigh = 5\n")
    for path, value in changes:  # a good policy with a few wrong places gets further than garbage
        inside = good
        for name in path[:-1]:
            inside = inside[name] if isinstance(inside.get(name), dict) else inside
        inside[path[-1] if path else "tables"] = value
    for values in (garbage, good):
        try:
            text = tomlkit.dumps(values)
            tomllib.loads(text)
        except (ValueError, TypeError):  # what tomlkit cannot write
            continue
        assert set(lines_of(text)) == set(keys_in(tomllib.loads(text)))
        Path("visits.toml").write_text(text, encoding="utf-8", newline="")
        found: tuple[str, ...] = ()
        try:
            load("visits.toml")
        except BadFile as error:
            found = error.mistakes
        assert all(line.startswith("visits.toml:") and line.isprintable() for line in found)


@MANY
@given(st.binary(max_size=200) | st.text("[]{}=.,\"'#\n ab1-:", max_size=60).map(str.encode))
def test_whatever_bytes_a_file_has_only_its_mistakes_are_raised(raw: bytes) -> None:
    Path("visits.toml").write_bytes(raw)
    with pytest.raises(BadFile):
        load("visits.toml")


def test_a_time_without_an_offset_is_utc() -> None:
    moment = kind("low = 2024-05-01T10:00:00\nhigh = 2024-05-01T12:00:00+01:00")
    assert isinstance(moment, Moment)
    assert moment.value(moment.first) == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert moment.value(moment.last) == datetime(2024, 5, 1, 11, tzinfo=UTC)
