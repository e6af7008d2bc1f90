"""`lapwing demo`: SQL, a survey, a joint count, learning, releases, mechanisms, an audit, on invented data.

Everything happens in temporary folders, with real noise, real ledgers and real TLS.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.text import Text

from lapwing import Answer, Dataset, LapwingError
from lapwing import open as open_dataset
from lapwing.cli.console import console, heading, indented, points, table
from lapwing.cli.demo_audit import tell_audit
from lapwing.cli.demo_learning import tell_train
from lapwing.cli.demo_parties import tell_party
from lapwing.cli.demo_publish import tell_publish
from lapwing.cli.demo_survey import tell_survey
from lapwing.cli.query import show_answer
from lapwing.core.exact import short
from lapwing.errors import MissingExtra
from lapwing.examples import clinic
from lapwing.examples.visits import write_visits

if TYPE_CHECKING:
    from rich.console import Console

_TRUTH = "truth (only because\nthis data is invented)"
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


def show_demo() -> None:
    """Show all parts of the demo, one after another."""
    tell_query()
    print()
    tell_survey()
    tell_party()
    try:
        tell_train()
    except MissingExtra as missing:
        print(f"\n{missing}")
    tell_publish()
    print()
    story = clinic.run_demo()
    with console() as out:
        _show_clinic(out, story)
    tell_audit()
    _tell_next()


def _tell_next() -> None:
    """Say where to go on."""
    with console() as out:
        heading(out, "Next")
        points(
            out,
            (
                "`lapwing show` explains the ideas behind all this, one by one, with pictures.",
                "`lapwing report POLICY` writes the report that a privacy officer can file.",
                "`lapwing init FILE.csv` starts with data of your own.",
            ),
        )


def tell_query() -> None:
    """Show private SQL: an answer, the same question again, a join, and refusals."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder, clinic.state_in(Path(folder, "state")):
        write_visits(Path(folder))
        with open_dataset(Path(folder, "visits.toml"), analyst="the demo") as visits:
            visits.tell = lambda _: None  # remarks about a ledger that is soon gone
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


def _show_clinic(out: Console, story: clinic.DemoStory) -> None:
    terms = story.terms
    budget = f"ε {short(float(terms.epsilon))}, δ {short(float(terms.delta))}"
    out.print(Text("A clinic and its patients (an invented data set)", style="bold"))
    points(
        out,
        (
            "Protected: everything about one patient, that is one answer to a survey and up to "
            f"{clinic.VISITS_AT_MOST} visits. Further visits are left out.",
            "Neighbours: data sets in which one patient is replaced by another. That there are "
            f"{clinic.PATIENTS} patients is public.",
            f"Budget: {budget}, for life, on a ledger in a file. Each question is charged there before "
            "it is computed.",
        ),
    )
    # Two lines a cell, so that the table fits a terminal of 80 columns.
    steps = table(
        "question\nand mechanism",
        "price\nand what is left",
        "answer\nand 95 % interval",
        _TRUTH,
        right=(3,),
    )
    for step in story.steps:
        steps.add_row(
            f"{step.question}\n{step.mechanism}",
            f"{step.price}\nε {float(step.left):.3f} left",
            f"{step.answer}\n{step.interval}",
            step.truth,
            end_section=True,
        )
    out.print(steps)
    indented(
        out,
        "Intervals cover the noise. What the bounds leave out (further visits, costs above "
        f"{float(clinic.COSTS.high):,.0f}) is missing besides.",
    )

    heading(out, "Patients by the ward that they came to first")
    bars = table("ward", "patients, noisy", "", _TRUTH, right=(1, 3))
    for bar in story.bars:
        bars.add_row(bar.ward, str(bar.patients), "▇" * max(round(bar.patients / 5), 0), str(bar.truth))
    out.print(bars)

    heading(out, "One question too many")
    indented(out, f"Refused: {story.refused}")
    left = f"ε {float(story.left_after_refusal):.3f}"
    indented(out, f"Nothing was computed and nothing was charged: {left} is left, as before.")
    _ending(out, story)


def _ending(out: Console, story: clinic.DemoStory) -> None:
    ending, question = story.ending, story.asked_twice.question
    same = "the same bytes" if ending.again == ending.first else "OTHER BYTES"
    wrong = "; ".join(ending.findings) or "nothing differs"
    heading(out, "The ledger: closed, opened again, and cheated")
    points(
        out,
        (
            f"The same key: {question} {ending.again.decode()}, {same}, "
            f"and ε {float(ending.left):.3f} is left, as before.",
            f"Verified: {ending.entries} entries replayed by a second accountant, {wrong}.",
            f"A copy in which somebody gave spent budget back: refused, {ending.edited}.",
            f"A copy from before the first question: refused, {ending.older}.",
        ),
    )
