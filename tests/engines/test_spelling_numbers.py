"""Whole numbers, and how a source's numbers become them: alike on all engines, and nothing raises."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from engines.conftest import Asker

BIG = (1 << 63) - 1
FAR = 1 << 52
CASES = [
    (Fraction(1), 0, 60), (Fraction(1), -FAR, FAR), (Fraction(1, 100), -1000, 1000), (Fraction(1, 8), 5, 6),
    (Fraction(5), 0, 60), (Fraction(5), -7, -7), (Fraction(3, 10), -FAR, FAR), (Fraction(3, 10), 5, 6),
    (Fraction(7, 2), -1000, 1000), (Fraction(1, 100), -FAR, FAR), (Fraction(7, 2), -FAR, FAR),
]  # fmt: skip
FLOATS = [
    None, "NaN", "Infinity", "-Infinity", 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 0.15, 0.25, 0.35, 59.5,
    60.0, 60.49, 1e308, -1e308, 5e-324, -5e-324, 2.0**52 + 0.5, 9007199254740993.0, -1e17, 123456.789,
    2.675,
    0.49999999999999994, 4503599627370497.5,
]  # fmt: skip


def clamped(value: Fraction, step: Fraction, first: int, last: int) -> int:
    return min(max(math.floor(value / step + Fraction(1, 2)), first), last)


def float_steps(value: Any, step: Fraction, first: int, last: int) -> int | None:
    if value is None or math.isnan(float(value)):
        return None
    steps = float(value) / float(step) + 0.5
    return first if steps < first else last if steps >= last else math.floor(steps)


@pytest.mark.parametrize(("kind", "bits"), [("int1", 8), ("int2", 16), ("int4", 32), ("int8", 64)], ids=str)
def test_whole_numbers_become_exact_steps(ask: Asker, kind: str, bits: int) -> None:
    if ask.engine.name == "postgres" and bits == 8:
        bits = 16  # the smallest that it has
    most = (1 << bits - 1) - 1
    values = [None, 0, 1, -1, 2, 3, 7, -7, 17, 52, 60, 61, 100, -100, most, -most - 1, most - 1]
    for case, column in zip(CASES, ask.steps(kind, values, CASES), strict=True):
        assert column == [None if v is None else clamped(Fraction(v), *case) for v in values], case


@pytest.mark.parametrize("kind", ["utinyint", "ubigint", "hugeint", "uhugeint"])
def test_whole_numbers_that_only_duckdb_has(ask: Asker, kind: str) -> None:
    if ask.engine.name != "duckdb":
        pytest.skip("no such type")
    most = {
        "utinyint": 255,
        "ubigint": (1 << 64) - 1,
        "hugeint": (1 << 127) - 1,
        "uhugeint": (1 << 128) - 1,
    }[kind]
    values = [None, 0, 1, 61, most, most - 1, *([-1, -most] if kind == "hugeint" else [])]
    for case, column in zip(CASES, ask.steps(kind, values, CASES), strict=True):
        assert column == [None if v is None else clamped(Fraction(v), *case) for v in values], case
    assert ask.each(kind, values, lambda spelling, column, name: spelling.truth(column, name)) == [
        None if v is None else v != 0 for v in values
    ]


@pytest.mark.parametrize("width", [(4, 2), (18, 2), (18, 0), (38, 0), (38, 10), (38, 30), (38, 38), (3, 3)])
def test_decimals_become_exact_steps(ask: Asker, width: tuple[int, int]) -> None:
    digits, scale = width
    most = 10**digits - 1
    some = (
        "0",
        "0.5",
        "-0.5",
        "1.5",
        "-1.5",
        "0.15",
        "0.25",
        "59.5",
        "0.005",
        "-0.015",
        "4503599627370495.5",
    )
    units = [Fraction(text) * 10**scale for text in some]
    fitting = [int(one) for one in units if one.denominator == 1 and abs(one) <= most]
    values = [
        None if one is None else Fraction(one, 10**scale) for one in (None, most, -most, 1, -1, *fitting)
    ]
    written = [None if v is None else _decimal_text(v, scale) for v in values]
    found = ask.steps(f"decimal({digits}, {scale})", written, CASES)
    for case, column in zip(CASES, found, strict=True):
        assert column == [None if v is None else clamped(v, *case) for v in values], case


def _decimal_text(value: Fraction, scale: int) -> str:
    digits = f"{abs(int(value * 10**scale)):0{scale + 1}d}"
    return f"{'-' if value < 0 else ''}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}"


def test_numerics_without_a_scale(ask: Asker) -> None:
    if ask.engine.name != "postgres":
        pytest.skip("only PostgreSQL has them")
    huge, fine = "9" * 1000, "0.5" + "0" * 999 + "1"
    values = [
        None,
        "NaN",
        "Infinity",
        "-Infinity",
        huge,
        f"-{huge}",
        fine,
        "0.49",
        "-0.5",
        "-0.50001",
        "2.5",
    ]
    [found] = ask.steps("numeric", values, [(Fraction(1), -5, 60)])
    assert found == [None, None, 60, -5, 60, -5, 1, 0, 0, -1, 3]
    truths = ask.each("numeric", values, lambda spelling, column, name: spelling.truth(column, name))
    assert truths == [None, None, *[True] * 9]


def test_floats_become_the_same_steps_everywhere(ask: Asker) -> None:
    for case, column in zip(CASES, ask.steps("float8", FLOATS, CASES), strict=True):
        assert column == [float_steps(v, *case) for v in FLOATS], case


def test_steps_of_extreme_width(ask: Asker) -> None:
    cases = [(step, -(10**15), 10**15) for step in (Fraction(1, 10**12), Fraction(10**12))]
    for case, column in zip(cases, ask.steps("float8", FLOATS, cases), strict=True):
        assert column == [float_steps(v, *case) for v in FLOATS], case


def test_small_floats_are_read_as_they_are(ask: Asker) -> None:
    values = [None, "NaN", "Infinity", 0.1, 1e-45, 3.4028235e38, -2.5]
    [found] = ask.steps("float4", values, [(Fraction(1, 10), -100, 100)])
    assert found == [None, None, 100, 1, 0, 100, -25]


def test_texts_become_steps_if_they_are_numbers(ask: Asker) -> None:
    numbers = [
        "1", "-2.5", "+3.", ".5", "1e2", "1E-2", "007", " 12 ", "9" * 200, "-" + "9" * 150 + "e99",
        "0." + "0" * 190 + "1", "1e-99", "0.15", "2.675",
    ]  # fmt: skip
    others = [
        None, "", " ", "nan", "inf", "Infinity", "1_000", "0x10", "1e", "e5", ".", "+", "1 2", "1,5", "1d",
        "1f",
        "\t1", "1\n", "\uff11", "1e100", "9" * 201, "--1", "1.2.3", "Alice", "'; --", "İ",
    ]  # fmt: skip
    cases = [(Fraction(1), -10, 60), (Fraction(1, 100), 0, 10**9)]
    for case, column in zip(cases, ask.steps("text", [*numbers, *others], cases), strict=True):
        assert column[: len(numbers)] == [float_steps(float(text), *case) for text in numbers]
        assert column[len(numbers) :] == [None] * len(others)


def test_truths_become_zero_and_one(ask: Asker) -> None:
    case = (Fraction(1, 2), 0, 9)
    assert ask.steps("truth", [None, "true", "false"], [case]) == [[None, 2, 0]]
    assert ask.steps("date", [None, "2020-01-01"], [case]) == [[None, None]]


def test_truth(ask: Asker) -> None:
    def make(spelling: Any, column: str, name: str) -> str:
        truth: str = spelling.truth(column, name)
        return truth

    assert ask.each("truth", [None, "true", "false"], make) == [None, True, False]
    assert ask.each("int4", [None, 0, 1, -5], make) == [None, False, True, True]
    assert ask.each("float8", FLOATS[:7], make) == [None, None, True, True, False, False, True]
    assert ask.each("decimal(4, 2)", [None, "0.00", "0.01"], make) == [None, False, True]
    texts = [None, "", "TRUE", "t", "Yes", "1", " false ", "F", "no", "0", "2", "y", "maybe"]
    assert ask.each("text", texts, make) == [None, None, *[True] * 4, *[False] * 4, None, None, None]
    assert ask.each("date", [None, "2020-01-01"], make) == [None, None]


def test_whole_numbers_are_cast_and_stored_as_narrow_as_they_fit(ask: Asker) -> None:
    spelling = ask.dialect
    for reach in (5, (1 << 31) - 1, BIG, 10**37):
        assert ask.one(spelling.whole(str(reach), reach)) == reach
    sizes = {
        name: ask.engine.columns(f"(SELECT {spelling.stored('1', *bounds)} AS v) AS one")["v"]
        for name, bounds in {
            "one": (0, 127),
            "two": (-129, 0),
            "four": (0, 1 << 30),
            "eight": (0, BIG),
        }.items()
    }
    names = {
        "duckdb": ["tinyint", "smallint", "integer", "bigint"],
        "postgres": ["smallint", "smallint", "integer", "bigint"],
        "spark": ["tinyint", "smallint", "int", "bigint"],
    }
    assert list(sizes.values()) == names[ask.engine.name]


def test_totals_never_overflow(ask: Asker) -> None:
    small, large = (1 << 31) - 1, BIG
    for kind, reach in (("int4", small), ("int8", large)):
        values = [reach] * 100 + [None]
        relation = ask.relation(kind, values)
        found = ask.engine.run(f"SELECT {ask.dialect.total('v', reach)} AS e FROM {relation}")
        assert found.column(0).to_pylist() == [100 * reach]
        assert str(found.schema.types[0]) == ("int64" if kind == "int4" else "decimal128(38, 0)")
        empty = ask.engine.run(f"SELECT {ask.dialect.total('v', reach)} AS e FROM {relation} WHERE v < 0")
        assert empty.column(0).to_pylist() == [0]
        assert empty.schema.types == found.schema.types


def test_divisions_round_down(ask: Asker) -> None:
    values = [None, 0, 1, -1, 6, -6, 7, -7, 13, -13, BIG, -BIG]
    bys = [1, 2, 7, (1 << 31) - 1, 1 << 40]
    spelling = ask.dialect
    small = [v for v in values if v is None or abs(v) < 1 << 52]
    for given, kind in ((small, "int8"), (small, "int4"), (small[:-2], "int1")):
        down = ask.all(kind, given, *(spelling.floor_divide("v", by) for by in bys))
        rest = ask.all(kind, given, *(spelling.modulo("v", by) for by in bys))
        for by, quotients, remainders in zip(bys, down, rest, strict=True):
            assert quotients == [None if v is None else v // by for v in given]
            assert remainders == [None if v is None else v % by for v in given]


def test_what_is_divided_may_be_a_sum(ask: Asker) -> None:
    spelling = ask.dialect
    found = ask.all(
        "int8", [-7, 7], spelling.floor_divide("v + 1", 4), spelling.modulo("v + 1", 4),
        spelling.quotient("v + 1", "v - v + 4"),
    )  # fmt: skip
    assert found == [[-2, 2], [2, 0], [-2, 2]]


def test_quotients_are_null_where_the_bottom_is_zero(ask: Asker) -> None:
    tops, bottoms = [7, -7, 0, 6, -6, 1 << 52], [None, 0, 1, -1, 2, -2, 5, -5, 1 << 52]
    found = ask.all(
        "int8", bottoms, *(ask.dialect.quotient(ask.dialect.whole(str(top), BIG), "v") for top in tops)
    )
    for top, column in zip(tops, found, strict=True):
        assert column == [None if not bottom else top // bottom for bottom in bottoms]
    wide = ask.dialect.quotient(ask.dialect.whole(str(10**30), 10**30), "v")
    assert ask.all("int8", [10**18, -(10**18) - 1], wide) == [[10**12, 10**30 // (-(10**18) - 1)]]


def test_the_least_and_greatest_pass_over_null(ask: Asker) -> None:
    values = [None, 1, 5]
    spelling = ask.dialect
    found = ask.all(
        "int4", values, spelling.least(["v", "3", "NULL"]), spelling.greatest(["v", "3"]),
        spelling.least(["v"]),
        spelling.greatest(["v", "v"]),
    )  # fmt: skip
    assert found == [[3, 1, 3], [3, 3, 5], values, values]


def test_whole_numbers_are_parsed_from_text(ask: Asker) -> None:
    values = [None, "", "5", "-5", "+5", "0", "-0", "007", "9" * 15, "9" * 16, "5.0", " 5", "5 ", "5\n",
    "1e3", "x",
              "-", "--5", "0x1", "1_0", "٣", "5L", "\\5", "Alice"]  # fmt: skip
    expected = [None, None, 5, -5, 5, 0, 0, 7, 10**15 - 1, *[None] * 15]
    assert ask.all("text", values, ask.dialect.parse_whole("v")) == [expected]
