"""Terms are conditions and values of a question, never of Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sqlglot

from lapwing import questions as q
from lapwing.errors import BadParameter
from lapwing.questions import Term, column, count, table
from lapwing.sql.question.bind import bind
from lapwing.sql.question.meaning import query_digests
from support.clinic import clinic_catalog

stay, ward, urgent, admitted = column("stay"), column("ward"), column("urgent"), column("admitted")
CONDITIONS: list[tuple[Term, str]] = [
    (stay == 3, "stay = 3"),
    (stay != np.int64(3), "stay <> 3"),
    (stay < 2.5, "stay < 2.5"),
    (stay <= Decimal("1E+1"), "stay <= 10"),
    (column("cost") > np.float64(0.1), "cost > 0.1"),
    (column("cost") >= Fraction(1, 8), "cost >= 0.125"),
    (column("cost") > 1e-9, "cost > 0.000000001"),
    (stay > -4, "stay > -4"),
    (operator.lt(4, stay), "stay > 4"),
    ((stay > 1) & (stay < 5) & urgent, "stay > 1 AND stay < 5 AND urgent"),
    ((stay > 1) & ((stay < 5) | ~urgent), "stay > 1 AND (stay < 5 OR NOT urgent)"),
    ((stay > 1) | (stay < 5) & urgent, "stay > 1 OR (stay < 5 AND urgent)"),
    (~((stay > 1) & urgent), "NOT (stay > 1 AND urgent)"),
    (stay.between(1, 3) & urgent, "(stay BETWEEN 1 AND 3) AND urgent"),
    (ward.is_in(["A", "B"]), "ward IN ('A', 'B')"),
    (~ward.is_in(("A",)), "ward NOT IN ('A')"),
    (stay.is_missing(), "stay IS NULL"),
    (urgent == np.True_, "urgent = TRUE"),
    (admitted >= date(2026, 3, 1), "admitted >= DATE '2026-03-01'"),
    (admitted < datetime(2026, 3, 1, 12, 30), "admitted < TIMESTAMP '2026-03-01 12:30:00'"),
    ((stay + 1) * 2 - stay > 5, "(stay + 1) * 2 - stay > 5"),
    (1 + stay - (3 - stay) > -stay, "1 + stay - (3 - stay) > -stay"),
    (2 * stay / 4 > 5, "2 * stay / 4 > 5"),
    (stay - (stay - 1) > 0, "stay - (stay - 1) > 0"),
    ((stay > 3) == urgent, "(stay > 3) = urgent"),
    (Term(sqlglot.parse_one("LOWER(name)")) == "ann", "LOWER(name) = 'ann'"),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "sql"), CONDITIONS)
def test_a_condition_is_that_of_the_sql(condition: Term, sql: str) -> None:
    catalog = clinic_catalog()
    one, other = (
        query_digests(catalog.policy, bind(question, catalog), catalog.public)
        for question in (
            table("visits").where(condition).agg(n=count()),
            f"SELECT COUNT(*) AS n FROM visits WHERE {sql}",
        )
    )
    assert one == other


def test_many_conditions_are_one_chain() -> None:
    """The parser limits brackets, not lists of conditions."""
    many = table("visits").where(*[stay != n for n in range(300)]).agg(n=count())
    assert many.sql.count("AND") == 299
    bind(many, clinic_catalog())


WRONG: dict[str, Callable[[], object]] = {
    "a value of another type": lambda: stay == [1],
    "None": lambda: stay == None,  # noqa: E711
    "a fraction without decimals": lambda: stay > Fraction(1, 3),
    "not a number": lambda: stay > Decimal("nan"),
    "an infinite number": lambda: stay < np.float64("inf"),
    "a time with a zone": lambda: admitted < datetime(2026, 3, 1, tzinfo=UTC),
    "a condition as text": lambda: (stay > 1) & "urgent",
    "a list as text": lambda: ward.is_in("AB"),
    "an empty list": lambda: ward.is_in([]),
    "a condition that is counted": lambda: count(stay > 3),
    "a fraction in words": lambda: q.quantile("stay", "half"),
    "a list of quantiles": lambda: q.quantile("stay", [0.25, 0.75]),  # type: ignore[arg-type]
    "a text as a tree": lambda: Term("stay"),  # type: ignore[arg-type]
    "a column without a name": lambda: column(""),
    "a chain of Python": lambda: 1 < stay < 3,
    "and of Python": lambda: (stay > 1) and urgent,
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_what_a_term_cannot_be_is_told_when_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(BadParameter):
        make()


def test_a_missing_method_names_the_sql_of_the_term() -> None:
    with pytest.raises(AttributeError, match=r'no "lower".* "ward"'):
        ward.lower()
    with pytest.raises(AttributeError):
        _ = ward._private
    with pytest.raises(TypeError):
        hash(ward)
    assert repr(ward > "A") == """<Term "ward" > 'A'>"""


def test_a_tree_that_was_given_away_changes_nothing() -> None:
    term = stay > 3
    term.tree.set("this", None)
    assert str(term) == '"stay" > 3'
