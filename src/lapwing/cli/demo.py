"""`lapwing demo`: SQL, a survey, a joint count, learning, releases, mechanisms, an audit, on invented data.

Everything happens in temporary folders, with real noise, real ledgers and real TLS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lapwing import Answer, Dataset, LapwingError, OverBudget, learn
from lapwing import open as open_dataset
from lapwing.audit import audit_run, case, planted
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.stages.self_check import run_self_check
from lapwing.cli import console, learning, query
from lapwing.cli.demo_parties import tell_party
from lapwing.core.exact import short
from lapwing.errors import MissingExtra
from lapwing.examples import clinic, rides, town
from lapwing.examples.visits import write_visits
from lapwing.publish import Publication, PublishedBundle, verify_bundle
from lapwing.survey import Respondent, Survey, shuffled_epsilon

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
    with console.page() as out:
        _show_clinic(out, story)
    tell_audit()
    _tell_next()


def _tell_next() -> None:
    """Say where to go on."""
    with console.page() as out:
        out.heading("Next")
        out.points(
            "`lapwing demo --serve` fills a folder with all this, and opens the web console on it.",
            "`lapwing show` explains the ideas behind all this, one by one, with pictures.",
            "`lapwing report POLICY` writes the report that a privacy officer can file.",
            "`lapwing init FILE.csv` starts with data of your own.",
        )


@contextmanager
def _demo_folder() -> Iterator[Path]:
    """Lend a temporary folder, which also holds the state of ledgers."""
    with TemporaryDirectory(prefix="lapwing-demo-") as name, clinic.state_in(Path(name, "state")):
        yield Path(name)


def tell_query() -> None:
    """Show private SQL: an answer, the same question again, a join, and refusals."""
    with _demo_folder() as folder:
        write_visits(folder)
        with open_dataset(folder / "visits.toml", analyst="the demo") as visits:
            visits.curator.notify = lambda _: None  # remarks about a ledger that is soon gone
            _ask(visits)


def _ask(visits: Dataset) -> None:
    visits.prepare()
    with console.page() as out:
        out.heading("Private SQL: a file of hospital visits (invented), ε 3 for life")
        out.indented(BY_WARD)
    first = visits.ask(BY_WARD, epsilon="0.5")
    query.show_answer(first)
    _again(visits, first)
    with console.page() as out:
        out.heading("A join of two private tables by the person, and a public one")
        out.indented(JOINED)
    query.show_answer(visits.ask(JOINED, epsilon="0.5"))
    with console.page() as out:
        out.heading("What is refused, before anything is read or charged")
        out.points(*(f"{sql}: {_complaint(visits, sql)}" for sql in REFUSED))


def _again(visits: Dataset, first: Answer) -> None:
    again = visits.ask(BY_WARD, epsilon="0.5")
    same = "the same numbers" if again.to_arrow().equals(first.to_arrow()) else "OTHER NUMBERS"
    with console.page() as out:
        out.indented(f"Asked again: {same}, and {visits.left()} is left, as before.")


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
    with _demo_folder() as folder:
        first, *more = (_survey(folder, number) for number in range(9))
        with console.page() as out:
            out.heading("A survey in the local model: each device throws two coins, nobody is trusted")
            out.indented(first.questionnaire.questions[0].text)
            out.points(*_estimated(first), *_device(folder / "device", [first, *more]))


def _survey(folder: Path, number: int) -> Survey:
    file = folder / f"sleep{number}.toml"
    file.write_text(SURVEY.format(name=f"sleep {number}"))
    return Survey.load(file)


def _estimated(survey: Survey) -> list[str]:
    reports = survey.simulate({"pill": np.repeat([0, 1], [TRULY_A, PEOPLE - TRULY_A])})
    estimate = survey.estimate(reports).answers[0].tables[0].estimates[0]
    assert estimate.respondents is not None
    low, high, epsilon = estimate.respondents.low, estimate.respondents.high, survey.design.epsilon
    return [
        f"{PEOPLE:,} reports (invented people, real coins): {np.sum(reports[:, 1] == 0):,} say A.",
        f"The estimate, 2 · mean - 1/2, is {estimate.value:.1%} ({low:.1%} to {high:.1%}); the truth is "
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
    with _demo_folder() as folder:
        rides.write_rides(folder)
        with console.page() as out:
            out.heading("Learning from data that keeps arriving: a model leaves only if it is proven good")
            out.indented("Rides of four months (invented); every month may lose ε 8 in its life.")
        with learn.Stream.open(folder / rides.RIDES_POLICY, analyst="the demo") as stream:
            stream.append(through="2026-01")
            _train(stream, folder, rides.PIPELINES[0], show=False)  # ends waiting for data
            for file in sorted((folder / rides.ARRIVING).iterdir()):
                stream.append(file, through=file.stem)
            for pipeline in rides.PIPELINES:
                _train(stream, folder, pipeline, show=True)


def _train(stream: learn.Stream, folder: Path, name: str, *, show: bool) -> None:
    pipeline = learn.load_pipeline(folder / name)
    runs = folder / "runs" / pipeline.name
    outcome = learn.train(stream, pipeline, runs)
    if not show:
        return
    files = learn.write_outputs(outcome, stream.policy, runs)
    learning.show_outcome(outcome, learn.model_card(outcome, stream.policy), {})
    if "model" in files:
        predicted = learn.load_model(files["model"]).predict({"distance": [10]})[0]
        with console.page() as out:
            out.indented(f"The model says of a ride of 10 km: {predicted:.1f} minutes (the truth is 25).")


def tell_publish() -> None:
    """Publish invented rows and the census of a town, and let a stranger verify both."""
    with _demo_folder() as folder:
        town.write_town(folder)
        with console.page() as out:
            out.heading("Publishing: a table of invented rows, and a census of three levels")
            out.indented(f"A town of {town.TOWN_PEOPLE:,} people (invented), ε 6 for life.")
        for file in (town.TOWN_ROWS, town.TOWN_CENSUS):
            bundle = folder / Path(file).stem
            with Publication.open(folder / file, analyst="the demo") as release:
                release.dataset.curator.notify = lambda _: None
                manifest = release.run(bundle)
            verified = verify_bundle(bundle, key=manifest["key"])
            with console.page() as out:
                out.points(*_published(PublishedBundle(bundle), verified.rows, verified.findings))


def _published(bundle: PublishedBundle, rows: int | None, findings: Sequence[str]) -> list[str]:
    privacy = bundle.manifest["privacy"]
    if bundle.is_census:
        estimate = bundle.count({"life": "old"}, level="district", area="district 2")
        what, counted = "census", "people of 65 or more in district 2"
    else:
        estimate, what, counted = bundle.count({"work": "retired"}), "rows", "retired people"
    verdict = "; ".join(findings) or "nothing differs"
    return [
        f"{what}: {rows:,} invented rows at ε {privacy['epsilon']}; {counted}: {estimate.value:,.0f} "
        f"({estimate.low:,.0f} to {estimate.high:,.0f}).",
        f"Verified by a stranger, with the ledger's public key alone: {verdict}.",
    ]


def _show_clinic(out: console.Page, story: clinic.DemoStory) -> None:
    terms = story.terms
    budget = f"ε {short(float(terms.epsilon))}, δ {short(float(terms.delta))}"
    out.title("A clinic and its patients (an invented data set)")
    out.points(
        "Protected: everything about one patient, that is one answer to a survey and up to "
        f"{clinic.VISITS_AT_MOST} visits. Further visits are left out.",
        "Neighbours: data sets in which one patient is replaced by another. That there are "
        f"{clinic.PATIENTS} patients is public.",
        f"Budget: {budget}, for life, on a ledger in a file. Each question is charged there before "
        "it is computed.",
    )
    # Two lines a cell, so that the table fits a terminal of 80 columns.
    steps = console.table(
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
    out.indented(
        "Intervals cover the noise. What the bounds leave out (further visits, costs above "
        f"{float(clinic.COSTS.high):,.0f}) is missing besides."
    )

    out.heading("Patients by the ward that they came to first")
    bars = console.table("ward", "patients, noisy", "", _TRUTH, right=(1, 3))
    for bar in story.bars:
        bars.add_row(bar.ward, str(bar.patients), "▇" * max(round(bar.patients / 5), 0), str(bar.truth))
    out.print(bars)

    out.heading("One question too many")
    out.indented(f"Refused: {story.refused}")
    left = f"ε {float(story.left_after_refusal):.3f}"
    out.indented(f"Nothing was computed and nothing was charged: {left} is left, as before.")
    _ending(out, story)


def _ending(out: console.Page, story: clinic.DemoStory) -> None:
    ending, question = story.ending, story.asked_twice.question
    same = "the same bytes" if ending.again == ending.first else "OTHER BYTES"
    wrong = "; ".join(ending.findings) or "nothing differs"
    out.heading("The ledger: closed, opened again, and cheated")
    out.points(
        f"The same key: {question} {ending.again.decode()}, {same}, "
        f"and ε {float(ending.left):.3f} is left, as before.",
        f"Verified: {ending.entries} entries replayed by a second accountant, {wrong}.",
        f"A copy in which somebody gave spent budget back: refused, {ending.edited}.",
        f"A copy from before the first question: refused, {ending.older}.",
    )


QUICK = case.StageBudget(seconds=2, is_thorough=False)
HELD, PLANTED = "Laplace", "noise x 0.8"


def tell_audit() -> None:
    """Audit one mechanism of Lapwing, and one that is broken on purpose."""
    [claim] = [case for case in mechanism_cases() if case.name == HELD]
    [bug] = [planted_bug for planted_bug in planted.planted_bugs() if planted_bug.name == PLANTED]
    result = audit_run.run_case(claim, QUICK, audit_run.EXACT_STAGES)
    [caught] = run_self_check([bug], QUICK).bugs
    exact = result.stages[-1]
    verdict = "no violation found" if result.witness is None and not result.unable else "VIOLATION"
    outcome = "caught" if caught.is_caught else "NOT CAUGHT"
    finding = (
        f"the true ε is at least {caught.measured:.2f}" if caught.measured is not None else "it is caught"
    )
    with console.page() as out:
        out.heading("The auditor: it tries to break every claim, on generated data")
        out.points(
            f"{claim.name} noise, claimed ε {float(claim.epsilon):g}: {verdict} in {exact.checks} "
            f"comparisons of exact probabilities. The largest true ε is {exact.measured:.4f}.",
            f"Broken on purpose ({bug.wrong}), claimed ε {caught.claimed:g}: {outcome} by the "
            f"{caught.stage.value} stage, {finding}.",
        )
        out.indented("Try `lapwing audit all --quick`, and `lapwing attack all`.")
