"""What a policy file says becomes a policy."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.engines.engine import EngineLimits
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.policy.policy import BlockRule, Source, UnitBy, period_of
from lapwing.sql.policy.policy_file import two_digits_below
from support.policy_files import (
    GOOD,
    HEAD,
    PERIODS,
    PERSON_PERIOD,
    PUBLIC,
    TABLE,
    kind,
    loaded,
    mistakes,
)


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
    assert (policy.least_epsilon, policy.steps_per_unit, policy.text_per_unit) == (
        policy.epsilon / 1000, 100_000, 200_000,
    )  # fmt: skip
    assert policy.blocks == BlockRule("unit", cohorts=64)
    assert policy.ledger == str(folder / "lapwing.ledger")
    assert (policy.quotas, policy.timeout) == ({}, 600)
    assert visits.unit == UnitBy("patient_id")
    assert (visits.rows_per_unit, visits.is_public, visits.rows) == (5, False, None)
    assert visits.source == Source("duckdb", str(folder / "visits.parquet"), "", "parquet")
    assert {name: column.kind for name, column in visits.columns.items()} == {
        "ward": Choice(("A", "B", "C")),
        "stay": Numeric(Fraction(1), 0, 60),
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
    assert policy.blocks == BlockRule("row", column="admitted", every=every, first=first, last=last)


def test_periods_before_1970_are_counted_downwards() -> None:
    day = (date(1969, 12, 31) - date(1970, 1, 1)).days
    assert [period_of(every, day) for every in ("day", "week", "month", "quarter", "year")] == [-1] * 5


def test_blocks_by_the_month_of_arrival() -> None:
    assert loaded(GOOD + '[blocks]\nby = "unit"\nevery = "month"').blocks == BlockRule(
        "unit", every="month"
    )
    named = loaded(GOOD + '[blocks]\nby = "unit"\ncohorts = 2\ncolumn = "slice"').blocks
    assert named == BlockRule("unit", cohorts=2, column="slice")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("values = [3, 1]", Choice((3, 1))),
        ("values = [true, false]", Choice((True, False))),
        ("low = -3\nhigh = 2_000", Numeric(Fraction(1), -3, 2000)),
        ("low = 0\nhigh = 1\nstep = 0.1", Numeric(Fraction(1, 10), 0, 10)),
        ("low = 0.05\nhigh = 0.99\nstep = 0.1", Numeric(Fraction(1, 10), 1, 9)),
        ("low = 0.0\nhigh = 1e3\nstep = 5", Numeric(Fraction(5), 0, 200)),
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
    ("delta", "expected"),
    [("1e-7", "1e-10"), ("3.333e-7", "3.3e-10"), ("0", "0"), ("1e-16", "0"), ("1.999e-14", "1.9e-17")],
)
def test_the_delta_of_a_query_is_a_thousandth_rounded_down(delta: str, expected: str) -> None:
    assert two_digits_below(Fraction(delta) / 1000) == Fraction(expected)
    assert loaded(GOOD.replace("1e-7", delta)).delta_per_query == Fraction(expected)


def test_a_time_without_an_offset_is_utc() -> None:
    moment = kind("low = 2024-05-01T10:00:00\nhigh = 2024-05-01T12:00:00+01:00")
    assert isinstance(moment, Moment)
    assert moment.value(moment.first) == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert moment.value(moment.last) == datetime(2024, 5, 1, 11, tzinfo=UTC)


def test_a_least_coalition_may_be_demanded(folder: Path) -> None:
    assert loaded(GOOD).least_coalition == 0
    assert loaded(GOOD + "[parties]\nleast_coalition = 2\n").least_coalition == 2
    for wrong in ("least_coalition = 0", "least_coalition = true", "coalition = 1"):
        [mistake] = mistakes(GOOD + f"[parties]\n{wrong}\n")
        assert "parties" in mistake


def test_the_engine_has_limits_of_its_own_or_those_of_the_file(folder: Path) -> None:
    assert loaded(GOOD).limits == EngineLimits()
    said = loaded(GOOD + "[engine]\nmemory = 4000\ntemporary = 1\nthreads = 3\n").limits
    assert said == EngineLimits(memory=4 * 10**9, temporary=10**6, threads=3)
    [mistake] = mistakes(GOOD + "[engine]\nmemory = 1\n")
    assert "engine.memory: must lie between 500" in mistake


def test_a_text_may_have_a_greatest_length(folder: Path) -> None:
    column = '[tables.visits.columns.a]\ntype = "text"\nlongest = 200\n'
    assert loaded(GOOD + column).tables["visits"].columns["a"].longest == 200
    [mistake] = mistakes(GOOD + column.replace("text", "bool"))
    assert 'longest: belongs to type = "text" only' in mistake
    [mistake] = mistakes(GOOD + column.replace("200", "0"))
    assert "longest: must lie between 1 and 262,144" in mistake
