"""One very long value in a source makes nothing fail, whatever its column was declared as."""

from __future__ import annotations

from fractions import Fraction

import pytest

from engines.conftest import Asker
from lapwing.engines.dialect import TEXT_BYTES
from lapwing.engines.dialects import PostgresDialect

LONG = 300_000_000  # letters: PostgreSQL's regular expressions take four bytes for each, and may have 10^9


def test_a_number_behind_more_spaces_than_are_read_is_unknown(ask: Asker) -> None:
    texts = [" " * TEXT_BYTES + "7", " " * 1000 + "7", "true" + " " * TEXT_BYTES, " true "]
    name = ask.type_of("text")
    found = ask.all(
        "text", texts,
        ask.dialect.clamped_steps("v", name, step=Fraction(1), first=0, last=9),
        ask.dialect.truth("v", name),
        ask.dialect.seconds("v", name),
    )  # fmt: skip
    assert found == [[None, 7, None, None], [None, None, None, True], [None] * 4]


def test_long_bytes_are_cut_as_long_texts_are(ask: Asker) -> None:
    values = ["7" * (TEXT_BYTES // 2), "7" * (TEXT_BYTES // 2 + 1)]
    [[whole, cut]] = ask.all("bytes", values, ask.dialect.plain_text("v", ask.type_of("bytes")))
    assert (len(whole), len(cut)) == (TEXT_BYTES, TEXT_BYTES // 4)


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["postgres"], indirect=True)
def test_hundreds_of_millions_of_letters_are_read_as_unknown(ask: Asker) -> None:
    spelling = PostgresDialect()
    read = [
        spelling.clamped_steps("v", "text", step=Fraction(1), first=0, last=9),
        spelling.truth("v", "text"),
        spelling.seconds("v", "text"),
    ]
    relation = f"(SELECT repeat('7', {LONG}) AS v) AS t"
    for sql in read:
        assert ask.engine.run(f"SELECT {sql} AS e FROM {relation}").column(0).to_pylist() == [None]
    hexed = spelling.plain_text("v", "bytea")
    many = f"(SELECT CAST(repeat('7', {2 * LONG}) AS bytea) AS v) AS t"
    [found] = ask.engine.run(f"SELECT length({hexed}) AS e FROM {many}").column(0).to_pylist()
    assert found == TEXT_BYTES // 4
