"""The calendar, and how dates, timestamps and texts become seconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from engines.conftest import Asker

EPOCH = date(1970, 1, 1)
DATES = [
    date(1970, 1, 1), date(1969, 12, 31), date(2000, 2, 29), date(1900, 2, 28), date(1900, 3, 1), date(2100,
    12, 31),
    date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), date(2024, 12, 31), date(2023, 1, 1), date(400, 2,
    29),
    *(EPOCH + timedelta(days=97 * k * (-1) ** k) for k in range(200)),
]  # fmt: skip


def parts_of(day: date) -> dict[str, int]:
    return {
        "year": day.year, "quarter": (day.month + 2) // 3, "month": day.month, "day": day.day,
        "dayofweek": day.isoweekday(), "dayofyear": day.timetuple().tm_yday,
    }  # fmt: skip


def test_parts_of_days(ask: Asker) -> None:
    days = [(day - EPOCH).days for day in DATES]
    names = list(parts_of(EPOCH))
    found = ask.all(
        "int4", [*days, None], ask.dialect.month_of("v"),
        *(ask.dialect.part_of("v", name, in_days=True) for name in names),
        ask.dialect.part_of("v", "hour", in_days=True),
    )  # fmt: skip
    assert found[0] == [*(12 * (day.year - 1970) + day.month - 1 for day in DATES), None]
    for name, column in zip(names, found[1:], strict=False):
        assert column == [*(parts_of(day)[name] for day in DATES), None], name
    assert found[-1] == [*(0 for _ in DATES), None]


def test_days_at_the_ends_of_time(ask: Asker) -> None:
    """Four hundred years are 146,097 days: what is known of one is known of all."""
    far = [-3_650_000, 3_650_000, 3_649_999]
    moved = [EPOCH + timedelta(days=day % 146_097) for day in far]
    cycles = [day // 146_097 for day in far]
    found = ask.all(
        "int4", far, ask.dialect.month_of("v"), ask.dialect.part_of("v", "year", in_days=True),
        ask.dialect.part_of("v", "dayofyear", in_days=True), ask.dialect.part_of("v", "dayofweek",
        in_days=True),
    )  # fmt: skip
    years = [day.year + 400 * cycle for day, cycle in zip(moved, cycles, strict=True)]
    assert found[0] == [12 * (year - 1970) + day.month - 1 for year, day in zip(years, moved, strict=True)]
    assert found[1] == years
    assert found[2] == [parts_of(day)["dayofyear"] for day in moved]
    assert found[3] == [day.isoweekday() for day in moved]


def test_parts_of_seconds(ask: Asker) -> None:
    moments = [
        datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1901, 12, 13, 20, 45, 51, tzinfo=UTC),
    ]  # fmt: skip
    seconds = [(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) for moment in moments]
    expected = [
        {**parts_of(moment.date()), "hour": moment.hour, "minute": moment.minute, "second": moment.second}
        for moment in moments
    ]
    found = ask.all(
        "int8", [*seconds, None], *(ask.dialect.part_of("v", p, in_days=False) for p in expected[0])
    )
    for name, column in zip(expected[0], found, strict=True):
        assert column == [*(one[name] for one in expected), None], name


def make_seconds(spelling: Any, column: str, name: str) -> str:
    seconds: str = spelling.seconds(column, name)
    return seconds


def test_dates_and_timestamps_become_seconds(ask: Asker) -> None:
    assert ask.each("date", [None, "1970-01-02", "1969-12-31", "0001-01-01"], make_seconds) == [
        None, 86_400, -86_400, (date(1, 1, 1) - EPOCH).days * 86_400,
    ]  # fmt: skip
    times = [None, "1970-01-01 00:00:01.9", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59"]
    assert ask.each("timestamp", times, make_seconds) == [None, 1, -1, -1]
    assert ask.each("zoned", ["1970-01-01 02:00:00.5+02:00"], make_seconds) == [0]
    assert ask.each("int4", [None, 5], make_seconds) == [None, None]


@pytest.mark.parametrize("kind", ["date", "timestamp", "zoned"])
def test_infinite_and_far_times_are_null(ask: Asker, kind: str) -> None:
    far = {"duckdb": ["infinity", "-infinity", "200000-01-01"], "postgres": ["infinity", "-infinity",
    "200000-01-01"],
           "spark": ["+200000-01-01"]}[ask.engine.name]  # fmt: skip
    assert ask.each(kind, far, make_seconds) == [None] * len(far)


def test_the_ends_of_each_type_of_time_in_duckdb(ask: Asker) -> None:
    if ask.engine.name != "duckdb":
        pytest.skip("types of DuckDB")
    assert ask.each("date", ["5881580-07-10", "5877642-06-25 (BC)"], make_seconds) == [None, None]
    assert ask.each("timestamp_ns", ["1969-12-31 23:59:59.999999999", "2262-04-11 23:47:16"],
    make_seconds) == [
        -1, 9_223_372_036,
    ]  # fmt: skip
    for kind in ("timestamp_s", "timestamp_ms", "timestamp"):
        values = ["290309-12-22 (BC) 00:00:00", "294246-12-31 00:00:00", "1969-12-31 23:59:59"]
        assert ask.each(kind, values, make_seconds) == [None, None, -1]


def test_texts_in_iso_form_become_seconds(ask: Asker) -> None:
    good = {
        "1970-01-01": 0, "1970-01-02": 86_400, "2000-02-29": 951_782_400, "1969-12-31T23:59:59": -1,
        "1969-12-31 23:59:59.9": -1, " 1970-01-01 ": 0, "1970-01-01T00:01": 60, "1970-01-01 00:00:01Z": 1,
        "1970-01-01T02:00:00+02:00": 0, "1970-01-01T00:00:00.123456789-0130": 5400,
        "0001-01-01": -62_135_596_800,
        "9999-12-31T23:59:59": 253_402_300_799, "0000-01-01": -62_167_219_200, "2400-02-29": 13_574_563_200,
        "1970-01-01T00:00:00+23:59": -86_340,
    }  # fmt: skip
    bad = [
        None, "", "1970", "1970-1-1", "1970-02-30", "1970-02-29", "1900-02-29", "1970-13-01", "1970-00-10",
        "1970-01-00",
        "1970-04-31", "1970-01-01T24:00", "1970-01-01T00:60", "1970-01-01T00:00:60", "1970-01-01T",
        "1970-01-01x",
        "x1970-01-01", "1970-01-01\n", "01.02.1970", "infinity", "now", "1970-01-01T00:00:00.",
        "1970-01-01T00:00Z",
        "1970-01-01T00:00:00+2:00", "1970-01-01T00:00:00.1234567890", "١٩٧٠-01-01", "+1970-01-01", "Alice",
    ]  # fmt: skip
    found = ask.each("text", [*good, *bad], make_seconds)
    assert found[: len(good)] == list(good.values())
    assert found[len(good) :] == [None] * len(bad)
