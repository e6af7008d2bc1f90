"""`lapwing demo`: SQL, a survey, a joint count, learning, releases, and mechanisms, on invented data.

Everything happens in temporary folders, with real noise, real ledgers and real TLS.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from lapwing import Answer, Dataset, LapwingError, OverBudget
from lapwing import open as open_dataset
from lapwing.cli.console import console, heading, indented, points, table
from lapwing.cli.demo_parties import tell_party
from lapwing.cli.demo_publish import tell_publish
from lapwing.cli.query import show_answer
from lapwing.core.exact import short
from lapwing.errors import MissingExtra
from lapwing.examples import clinic
from lapwing.examples.rides import ARRIVING, PIPELINES, RIDES_POLICY, write_rides
from lapwing.examples.visits import write_visits
from lapwing.survey import Respondent, Survey, shuffled_epsilon

if TYPE_CHECKING:
    from rich.console import Console

    from lapwing.learn import Stream

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


SURVEY = """
[survey]
name = "{name}"
title = "Sleep"
epsilon = 1.1
stop_after = 10000
[[questions]]
name = "pill"
text = "A: I took something to fall asleep last month. B: I did not. Which one holds?"
kind = "yes_no"
options = ["A", "B"]
no_answer = false
protocol = "two_coins"
"""
PEOPLE, TRULY_A = 10_000, 3_000


def tell_survey() -> None:
    """Show a survey of ten thousand invented people, none of whom says for sure what they did."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder:
        first, *more = (_survey(Path(folder), number) for number in range(9))
        with console() as out:
            heading(out, "A survey in the local model: each device throws two coins, nobody is trusted")
            indented(out, first.questionnaire.questions[0].text)
            points(out, [*_estimated(first), *_device(Path(folder, "device"), [first, *more])])


def _survey(folder: Path, number: int) -> Survey:
    file = folder / f"sleep{number}.toml"
    file.write_text(SURVEY.format(name=f"sleep {number}"))
    return Survey.load(file)


def _estimated(survey: Survey) -> list[str]:
    reports = survey.simulate({"pill": np.repeat([0, 1], [TRULY_A, PEOPLE - TRULY_A])})
    found = survey.estimate(reports).answers[0].tables[0].estimates[0]
    assert found.respondents is not None
    low, high, epsilon = found.respondents.low, found.respondents.high, survey.design.epsilon
    return [
        f"{PEOPLE:,} reports (invented people, real coins): {np.sum(reports[:, 1] == 0):,} say A.",
        f"The estimate, 2 · mean - 1/2, is {found.value:.1%} ({low:.1%} to {high:.1%}); the truth is "
        f"{TRULY_A / PEOPLE:.0%}.",
        f"Each report costs its respondent ln 3 = {float(epsilon):.4f}; if a shuffler hides it among "
        f"{PEOPLE:,} honest ones, {float(shuffled_epsilon(epsilon, PEOPLE, '1e-6')):.4f} (δ 1e-6).",
    ]


def _device(folder: Path, surveys: list[Survey]) -> list[str]:
    """Let one device answer survey after survey, until it refuses."""
    device = Respondent(folder)
    public = surveys[0].public()
    report = device.answer(public, {"pill": "A"})
    same = "the same bytes" if device.answer(public, {"pill": "B"}) == report else "OTHER BYTES"
    lines = [f"One device answers, and changes its mind: {same} are sent again, and nothing is charged."]
    for answered, survey in enumerate(surveys):
        try:
            device.answer(survey.public(), {"pill": "A"})
        except OverBudget:
            spent, lifetime = float(device.spent), float(device.lifetime)
            said = (
                f"After {answered} surveys it has sent ε {spent:.2f} of {lifetime:g}, and refuses any other"
            )
            return [*lines, f"{said}, for life."]
    raise AssertionError("the device must refuse one of them")


def tell_train() -> None:
    """Append four months of data, and train two pipelines."""
    from lapwing.learn import Stream

    with TemporaryDirectory(prefix="lapwing-demo-") as name, clinic.state_in(Path(name, "state")):
        folder = Path(name)
        write_rides(folder)
        with console() as out:
            heading(out, "Learning from data that keeps arriving: a model leaves only if it is proven good")
            indented(out, "Rides of four months (invented); every month may lose ε 8 in its life.")
        with Stream.open(folder / RIDES_POLICY, analyst="the demo") as stream:
            stream.append(through="2026-01")
            _run(stream, folder, PIPELINES[0], show=False)  # ends waiting for data
            for file in sorted((folder / ARRIVING).iterdir()):
                stream.append(file, through=file.stem)
            for pipeline in PIPELINES:
                _run(stream, folder, pipeline, show=True)


def _run(stream: Stream, folder: Path, name: str, *, show: bool) -> None:
    from lapwing.cli.learning import show_outcome
    from lapwing.learn import load_model, load_pipeline, model_card, train, write_outputs

    pipeline = load_pipeline(folder / name)
    runs = folder / "runs" / pipeline.name
    outcome = train(stream, pipeline, runs)
    if not show:
        return
    files = write_outputs(outcome, stream.policy, runs)
    show_outcome(outcome, model_card(outcome, stream.policy), {})
    if "model" in files:
        predicted = load_model(files["model"]).predict({"distance": [10]})[0]
        with console() as out:
            indented(out, f"The model says of a ride of 10 km: {predicted:.1f} minutes (the truth is 25).")


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
