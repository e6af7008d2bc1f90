"""Questions that differ only in what they call things are one question; false friends are not."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import without_names
from lapwing.sql.question.meaning import query_digests
from lapwing.sql.reading.reader import Reader
from sql.conftest import Open
from support.clinic import clinic_catalog, people, roomy, write_clinic
from support.slowly import slow
from support.sql_grammar import sound

KEY = bytes(range(32))
SAME = [
    (
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
        "SELECT ward AS w, COUNT(*) FROM visits GROUP BY w",
    ),
    ("SELECT COUNT(*) AS n FROM visits", "SELECT COUNT(*) AS people FROM visits AS other"),
    (
        "SELECT SUM(stay) AS s FROM visits HAVING s > 3",
        "SELECT SUM(v.stay) AS t FROM visits v HAVING t > 3",
    ),
    (
        "SELECT ward, AVG(stay) AS m FROM visits GROUP BY ward ORDER BY m DESC",
        "SELECT ward AS m, AVG(stay) AS ward2 FROM visits GROUP BY ward ORDER BY 2 DESC",
    ),
    (
        "WITH long AS (SELECT stay + 1 AS d FROM visits) SELECT AVG(d) AS a FROM long",
        "SELECT AVG(x.e) AS b FROM (SELECT stay + 1 AS e FROM visits) AS x",
    ),
]  # fmt: skip
OTHER = [
    (
        "SELECT SUM(stay) AS a, COUNT(*) AS b FROM visits",
        "SELECT COUNT(*) AS a, SUM(stay) AS b FROM visits",
    ),
    (
        "SELECT ward AS a, COUNT(*) AS b FROM visits GROUP BY ward ORDER BY b",
        "SELECT ward AS b, COUNT(*) AS a FROM visits GROUP BY ward ORDER BY b",
    ),
    ("SELECT SUM(stay) AS s FROM visits", "SELECT SUM(s) FROM (SELECT stay + 1 AS s FROM visits) t"),
    (
        "SELECT COUNT(*) AS n FROM visits WHERE ward = 'A'",
        "SELECT COUNT(*) AS n FROM visits WHERE ward = 'B'",
    ),
    (
        "SELECT COUNT(*) AS n FROM visits WHERE name = 'stay'",
        "SELECT COUNT(*) AS n FROM visits WHERE name = 'STAY'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_other_names_are_the_same_question(opened: Open, one: str, other: str) -> None:
    dataset = opened()
    first = dataset.ask(one, epsilon=1)
    again = dataset.ask(other, epsilon=1)
    assert again.is_replay
    assert again.receipt == first.receipt
    assert [list(column.values) for column in again.columns] == [
        list(column.values) for column in first.columns
    ]
    names = [output.name for output in dataset.plan(other, epsilon=1).question.outputs]
    assert [column.name for column in again.columns] == names


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_computes_something_else_is_another_question(opened: Open, one: str, other: str) -> None:
    dataset = opened()
    dataset.ask(one, epsilon=1)
    assert not dataset.ask(other, epsilon=1).is_replay


def renamed(text: str) -> str:
    """The grammar's aliases under other names; words in quotes stay."""
    parts = re.split(r"('(?:[^']|'')*')", text)
    for place in range(0, len(parts), 2):
        part = re.sub(r"\ba(\d)\b", r"number_\1", parts[place])
        part = re.sub(r"\bk(\d)\b", r'"Key \1"', part)
        parts[place] = re.sub(r"\bt\b", "its", part)
    return "".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [200, slow(600)])
def test_one_form_is_one_statement_and_other_names_have_one_form(tmp_path: Path, rounds: int) -> None:
    """Of generated questions. Equal forms have equal statements, numbers, noise and order of columns."""
    write_clinic(tmp_path, *people(11, 14))
    catalog = roomy(clinic_catalog(tmp_path))
    reader = Reader.open(catalog.policy, KEY, catalog.public, threads=1)
    random, met = Random(7), 0
    seen: dict[str, object] = {}
    for _ in range(rounds):
        text, _ = sound(random)
        one, other = bind(text, catalog), bind(renamed(text), catalog)
        forms = [query_digests(catalog.policy, question, catalog.public)[1] for question in (one, other)]
        assert forms[0] == forms[1], text
        for question in (one, other):
            what = (reader.statements(question), without_names(question))
            met += forms[0] in seen
            assert seen.setdefault(forms[0], what) == what, text
    reader.close()
    assert met >= rounds
    assert len(seen) > rounds * 2 / 3
