"""Texts: compared, cut, matched and hashed alike on all engines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from engines.conftest import Asker

TEXTS = [
    None, "", " ", "a", "A", "Alice", "alice ", "  x  ", "İ", "ı", "ß", "ẞ", "e\u0301", "é", "😀", "a😀b",
    "'", "''",
    '"', "\\", "\\\\", "a\\b", "a\\_b", "%", "_", "a%b", "a_b", "50%", "x\ny", "\t", "${spark.app.name}",
    "${a}", "`",
    "--", "; DROP TABLE x", "$1", ":name", "?", "Z", "z", "Ä", "中文", "\u00a0x\u00a0", "aXb", "ab", "aab",
    "abab",
    "\u200d", "K", "{}", "\\n", "\\'", "a" * 300,
]  # fmt: skip


def mapped(function: Callable[[str], Any]) -> list[Any]:
    return [None if text is None else function(text) for text in TEXTS]


def matches(text: str, pattern: str) -> bool:
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(c) or re.escape(c) for c in pattern), text, re.DOTALL) is not None


def ascii_case(text: str, *, up: bool) -> str:
    return "".join((c.upper() if up else c.lower()) if c.isascii() else c for c in text)


def test_any_text_is_a_literal(ask: Asker) -> None:
    literals = [ask.dialect.text(text) for text in TEXTS if text is not None]
    found = ask.engine.run(f"SELECT {', '.join(f'{sql} AS e{i}' for i, sql in enumerate(literals))}")
    assert [column[0].as_py() for column in found.columns] == [text for text in TEXTS if text is not None]


def test_any_name_is_a_name(ask: Asker) -> None:
    names = [name for name in TEXTS if name and name.strip() and len(name) < 60]
    seen = {name.lower(): name for name in names}.values()
    sql = ", ".join(f"1 AS {ask.dialect.name(name)}" for name in seen)
    assert ask.engine.run(f"SELECT {sql}").column_names == list(seen)


def test_functions_of_text(ask: Asker) -> None:
    spelling = ask.dialect
    found = ask.all(
        "text", TEXTS, spelling.lower("v"), spelling.upper("v"), spelling.trim("v"), spelling.length("v"),
        spelling.concat(["v", "'-'", "v"]), spelling.concat(["v", "NULL"]), spelling.hashed_text("v"),
    )  # fmt: skip
    assert found == [
        mapped(lambda text: ascii_case(text, up=False)),
        mapped(lambda text: ascii_case(text, up=True)),
        mapped(lambda text: text.strip(" ")),
        mapped(len),
        mapped(lambda text: f"{text}-{text}"),
        [None] * len(TEXTS),
        mapped(lambda text: int(hashlib.md5(text.encode()).hexdigest()[:15], 16) % ((1 << 31) - 1)),
    ]


def test_substrings_go_by_code_point(ask: Asker) -> None:
    cases = [(1, 1), (0, 2), (0, 0), (2, 3), (1, 0), (5, 100), (1, 1 << 62), (1 << 62, 5), (2, 1 << 31)]
    found = ask.all("text", TEXTS, *(ask.dialect.substring("v", start, length) for start, length in cases))
    for (start, length), column in zip(cases, found, strict=True):
        first, end = max(start, 1) - 1, max(start + length, 1) - 1
        assert column == [None if text is None else text[first:end] for text in TEXTS], (start, length)


def test_like_has_no_escape_and_sees_code_points(ask: Asker) -> None:
    patterns = [
        "", "%", "_", "__", "a%", "%b", "a%b", "a_b", "%a%b%", "\\", "\\%", "\\_", "%\\_%", "a\\_b", "%'%",
        "%.%", "[a]%",
        "x_y", "_%_", "%%", "%_", "%a_%b", "%ab", "ab%ab", "é", "_́", "%é%", "(%", "$1", "*", "${a}",
        "a\\\\%",
    ]  # fmt: skip
    found = ask.all("text", TEXTS, *(ask.dialect.like("v", pattern) for pattern in patterns))
    for pattern, column in zip(patterns, found, strict=True):
        assert column == [None if text is None else matches(text, pattern) for text in TEXTS], pattern


def test_like_takes_no_time_that_depends_on_the_text(ask: Asker) -> None:
    """Patterns that go back and forth would take hours here."""
    text = "a" * 20_000
    pattern = "%a_" * 8 + "%b"
    found = ask.engine.run(
        f"SELECT {ask.dialect.like('v', pattern)} AS e FROM {ask.relation('text', [text])}", timeout=20
    )
    assert found.column(0).to_pylist() == [False]


def test_texts_sort_and_group_by_code_point(ask: Asker) -> None:
    compared = ask.dialect.compared_text("v")
    relation = ask.relation("text", TEXTS)
    sorted_ = ask.engine.run(f"SELECT v FROM {relation} WHERE v IS NOT NULL ORDER BY {compared}")
    assert sorted_.column(0).to_pylist() == sorted(
        (text for text in TEXTS if text is not None), key=str.encode
    )
    grouped = ask.engine.run(f"SELECT {compared} AS g, count(*) AS n FROM {relation} GROUP BY {compared}")
    assert grouped.num_rows == len(TEXTS)
    least = ask.dialect.least([compared, ask.dialect.compared_text("'a'")])
    assert ask.all("text", TEXTS, least) == [
        [min(text or "a", "a", key=str.encode) if text != "" else "" for text in TEXTS]
    ]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("text", TEXTS, TEXTS),
        ("int8", [None, 0, -(1 << 63), (1 << 63) - 1], [None, "0", str(-(1 << 63)), str((1 << 63) - 1)]),
        ("truth", [None, "true", "false"], [None, "true", "false"]),
        (
            "float8",
            [None, "NaN", "Infinity", "-Infinity", 1, -0.0, 0.1, -2.5, 123.0, 1e15, 1e16, 5e-324,
            1234.5678901, -0.0000004],
            [None, None, None, None, "1", "0", "0.1", "-2.5", "123", "1000000000000000", None, "0",
            "1234.56789", "0"],
        ),
        ("decimal(10, 2)", [None, "1.50", "0.00", "-0.05", "100.00", "99999999.99"], [None, "1.5", "0",
        "-0.05", "100", "99999999.99"]),
        ("decimal(38, 18)", ["0.0000001", "-0.0000001", "0", "12"], ["0.0000001", "-0.0000001", "0", "12"]),
        ("decimal(4, 4)", ["0.0001", "-0.5", "0"], ["0.0001", "-0.5", "0"]),
        ("decimal(5, 0)", ["100", "0", "-7"], ["100", "0", "-7"]),
        ("date", [None, "2020-02-29", "0001-01-01", "9999-12-31"], [None, "2020-02-29", "0001-01-01",
        "9999-12-31"]),
        ("timestamp", ["2020-02-29 12:34:56.5", "1969-12-31 23:59:59"], ["2020-02-29 12:34:56.5",
        "1969-12-31 23:59:59"]),
        ("zoned", ["2020-02-29 12:34:56.5+02:00"], ["2020-02-29 10:34:56.5"]),
        ("bytes", [None, "ab"], [None, "6162"]),
    ],
)  # fmt: skip
def test_every_type_has_a_text(ask: Asker, kind: str, values: list[Any], expected: list[Any]) -> None:
    found = ask.each(kind, values, lambda spelling, column, name: spelling.plain_text(column, name))
    assert found == expected


def test_long_texts_are_cut(ask: Asker) -> None:
    text = ask.dialect.plain_text("v", ask.type_of("text"))
    relation = ask.relation("text", ["x"])
    long = f"(SELECT repeat('é', 600000) AS v FROM {relation}) AS long"
    found = ask.engine.run(f"SELECT {ask.dialect.length(text)} AS e FROM {long}")
    assert found.column(0).to_pylist() == [1 << 18]
