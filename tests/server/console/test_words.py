"""Numbers in the words of the console."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from lapwing.server.console import words
from lapwing.server.console.words import SPACE


def test_prices_are_rounded_up_and_what_is_left_is_rounded_down() -> None:
    third = Fraction(1, 3)
    assert words.price_text(third) == f"ε{SPACE}0.333334"
    assert words.left_text(third) == f"ε{SPACE}0.3333"
    assert words.price_text(Fraction(1, 5), Fraction(1, 10**9)) == f"ε{SPACE}0.2, δ{SPACE}1e-9"


def test_per_cent_is_never_less_than_the_share() -> None:
    assert words.per_cent(Fraction(11, 20)) == f"55{SPACE}%"
    assert words.per_cent(Fraction(54983, 100_000)) == f"55{SPACE}%"
    assert words.per_cent(Fraction(5701, 10_000)) == f"57.1{SPACE}%"


@pytest.mark.parametrize(
    ("sql", "title"),
    [
        ("SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward", "Visits by ward"),
        ("select avg(stay) from visits where ward = 'A'", "Mean stay, some rows"),
        ("SELECT COUNT(*) FROM visits", "Visits"),
        (
            "SELECT sex, COUNT(DISTINCT patient_id) FROM p GROUP BY sex ORDER BY sex",
            "Number of patient id by sex",
        ),
        ("SELECT ward, COUNT(*) AS n, AVG(stay) AS m FROM v GROUP BY ward", "N and 1 more by ward"),
        ("SELECT a + b * 2 FROM t", "SELECT a + b * 2 FROM t"),
    ],
)
def test_a_question_has_a_heading_from_its_own_names(sql: str, title: str) -> None:
    assert words.title_of(sql) == title


def test_long_questions_are_shortened() -> None:
    title = words.title_of("SELECT " + ", ".join(f"f({k})" for k in range(50)) + " FROM t")
    assert len(title) == 60
    assert title.endswith("…")


def test_sql_is_divided_without_loss() -> None:
    sql = "SELECT ward, COUNT(*) FROM \"select\" WHERE x = 'from'"
    pieces = words.sql_pieces(sql)
    assert "".join(piece.text for piece in pieces) == sql
    assert [piece.text for piece in pieces if piece.is_keyword] == ["SELECT", "COUNT", "FROM", "WHERE"]


def test_times_are_as_people_say_them() -> None:
    now = datetime(2026, 11, 17, 10, 0, tzinfo=UTC)
    assert words.when_text(datetime(2026, 11, 17, 9, 12, tzinfo=UTC), now) == "today, 09:12"
    assert words.when_text(datetime(2026, 6, 3, tzinfo=UTC), now) == f"3{SPACE}Jun"
    assert words.when_text(datetime(2025, 6, 3, tzinfo=UTC), now) == f"3{SPACE}Jun{SPACE}2025"
    assert words.moment("2026-11-17T09:12:00Z") == datetime(2026, 11, 17, 9, 12, tzinfo=UTC)
