"""The demo's private SQL: the example data set in a temporary folder, asked, repeated and refused."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from lapwing.cli.demo_ledger import state_in
from lapwing.cli.example import example
from lapwing.cli.show import console, heading, indented, points
from lapwing.cli.show_query import show_answer
from lapwing.errors import LapwingError
from lapwing.query.answering.answer import Answer
from lapwing.query.dataset import Dataset
from lapwing.query.dataset import open as open_dataset

BY_WARD = "SELECT ward, COUNT(*) AS visits, AVG(stay) AS days FROM visits GROUP BY ward"
JOINED = (
    "SELECT sex, region, COUNT(DISTINCT v.patient_id) AS patients FROM visits v "
    "JOIN patients p ON v.patient_id = p.patient_id JOIN wards w ON v.ward = w.ward GROUP BY sex, region"
)
REFUSED = (
    "SELECT * FROM visits",
    "SELECT MAX(diagnosis) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
    "SELECT COUNT(*) FROM visits WHERE ward = 'surgry'",
)


def tell_query() -> None:
    """Ask, ask again, combine, and be refused."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder, state_in(Path(folder, "state")):
        with redirect_stdout(StringIO()):
            example(Path(folder))
        with open_dataset(Path(folder, "visits.toml"), analyst="the demo") as visits:
            visits.tell = lambda _: None  # it is gone in a minute
            _ask(visits)


def _ask(visits: Dataset) -> None:
    visits.prepare()
    with console() as out:
        heading(out, "Private SQL: a file of hospital visits (invented), ε 3 for life")
        indented(out, BY_WARD)
    first = visits.ask(BY_WARD, epsilon="0.5")
    show_answer(first)
    _again(visits, first)
    with console() as out:
        heading(out, "A join of two private tables by the person, and a public one")
        indented(out, JOINED)
    show_answer(visits.ask(JOINED, epsilon="0.5"))
    with console() as out:
        heading(out, "What is refused, before anything is read or charged")
        points(out, [f"{sql}: {_complaint(visits, sql)}" for sql in REFUSED])


def _again(visits: Dataset, first: Answer) -> None:
    again = visits.ask(BY_WARD, epsilon="0.5")
    same = "the same numbers" if again.to_arrow().equals(first.to_arrow()) else "OTHER NUMBERS"
    with console() as out:
        indented(out, f"Asked again: {same}, and {visits.left()} is left, as before.")


def _complaint(visits: Dataset, sql: str) -> str:
    try:
        visits.plan(sql, epsilon="0.1")
    except LapwingError as error:
        return str(error)
    raise AssertionError("this must be refused")
