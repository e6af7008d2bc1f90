"""`lapwing demo`: private SQL, a survey, a joint count, learning, and the mechanisms, on invented data.

Everything happens in temporary folders, with real noise, real ledgers and real TLS.
"""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import Future
from fractions import Fraction
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from lapwing.cli.console import console, heading, indented, points, table, tell
from lapwing.cli.query import show_answer
from lapwing.core.explanation import short
from lapwing.errors import LapwingError, MissingExtra, OverBudget
from lapwing.examples import clinic
from lapwing.examples.clinic import state_in
from lapwing.examples.hospitals import MEMBERS, POLICY, WISH, write_hospitals
from lapwing.examples.rides import ARRIVING, PIPELINES, RIDES_POLICY, write_rides
from lapwing.examples.visits import write_visits
from lapwing.parties.consortium import Consortium
from lapwing.parties.draft import found_consortium, read_draft
from lapwing.parties.identity import MemberKeys
from lapwing.parties.joining import RunResult, join_run, open_statistic
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.simulation import simulate
from lapwing.parties.statistics import statistic_of
from lapwing.parties.transcript import VerifiedTranscript, verify_transcript
from lapwing.sql.answers import Answer
from lapwing.sql.dataset import Dataset
from lapwing.sql.dataset import open as open_dataset
from lapwing.survey.designing import Design, design
from lapwing.survey.estimating import estimate
from lapwing.survey.respondent import Respondent
from lapwing.survey.shuffled import shuffled_epsilon
from lapwing.survey.survey_file import load

if TYPE_CHECKING:
    from rich.console import Console

    from lapwing.learn.stream import Stream

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
    print()
    story = clinic.run_demo()
    with console() as out:
        _show_clinic(out, story)


def tell_query() -> None:
    """Show private SQL: an answer, the same question again, a join, and refusals."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder, state_in(Path(folder, "state")):
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
            indented(out, first.survey.questions[0].text)
            points(out, [*_estimated(first), *_device(Path(folder, "device"), [first, *more])])


def _survey(folder: Path, number: int) -> Design:
    file = folder / f"sleep{number}.toml"
    file.write_text(SURVEY.format(name=f"sleep {number}"))
    return design(load(file))


def _estimated(made: Design) -> list[str]:
    reports = made.simulate({"pill": np.repeat([0, 1], [TRULY_A, PEOPLE - TRULY_A])})
    found = estimate(made, reports).answers[0].tables[0].estimates[0]
    assert found.respondents is not None
    low, high = found.respondents.low, found.respondents.high
    return [
        f"{PEOPLE:,} reports (invented people, real coins): {np.sum(reports[:, 1] == 0):,} say A.",
        f"The estimate, 2 · mean - 1/2, is {found.value:.1%} ({low:.1%} to {high:.1%}); the truth is "
        f"{TRULY_A / PEOPLE:.0%}.",
        f"Each report costs its respondent ln 3 = {float(made.epsilon):.4f}; if a shuffler hides it among "
        f"{PEOPLE:,} honest ones, {float(shuffled_epsilon(made.epsilon, PEOPLE, '1e-6')):.4f} (δ 1e-6).",
    ]


def _device(folder: Path, surveys: list[Design]) -> list[str]:
    """Let one device answer survey after survey, until it refuses."""
    device = Respondent(folder)
    public = surveys[0].public()
    report = device.answer(public, {"pill": "A"})
    same = "the same bytes" if device.answer(public, {"pill": "B"}) == report else "OTHER BYTES"
    lines = [f"One device answers, and changes its mind: {same} are sent again, and nothing is charged."]
    for answered, made in enumerate(surveys):
        try:
            device.answer(made.public(), {"pill": "A"})
        except OverBudget:
            spent, lifetime = float(device.spent), float(device.lifetime)
            said = (
                f"After {answered} surveys it has sent ε {spent:.2f} of {lifetime:g}, and refuses any other"
            )
            return [*lines, f"{said}, for life."]
    raise AssertionError("the device must refuse one of them")


SURE = Fraction(95, 100)
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


def tell_party() -> None:
    """Show a joint count of three members in three threads, each with its own keys, data and ledger."""
    with (
        TemporaryDirectory(prefix="lapwing-demo-", ignore_cleanup_errors=True) as name,
        state_in(Path(name, "state")),
    ):
        folder = Path(name)
        write_hospitals(folder)
        wish = folder / WISH
        wish.write_text(
            wish.read_text(encoding="utf-8").replace("7443", str(_free_port())), encoding="utf-8"
        )
        keys = [MemberKeys.create(member, folder / member) for member in MEMBERS]
        consortium = _signed(wish, keys, folder / MEMBERS[0] / POLICY)
        for member in MEMBERS:  # makes the ledgers now, so that members tell nothing about new ones
            with open_dataset(folder / member / POLICY) as data:
                assert data.ledger.id
        results = _together(consortium, keys, folder)
        _show_joint(consortium, results, verify_transcript(results[-1].transcript))


def _signed(wish: Path, keys: list[MemberKeys], policy: Path) -> Consortium:
    file = read_draft(wish)
    with open_dataset(policy, analyst="the demo") as data:
        consortium = found_consortium(file, [one.card for one in keys], statistic_of(file.statistic, data))
    for one in keys:
        consortium = consortium.signed(one)
    return consortium


def _together(consortium: Consortium, keys: list[MemberKeys], folder: Path) -> list[RunResult]:
    """Run each member in a thread. If the demo is stopped, end the process at once.

    The members wait for one another: the process must not wait for them.
    """
    results: list[Future[RunResult]] = [Future() for _ in keys]
    try:
        for one, result in zip(keys, results, strict=True):
            Thread(target=_take_part, args=(consortium, one, folder, result), daemon=True).start()
        return [result.result() for result in results]
    except KeyboardInterrupt:
        rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
        os._exit(INTERRUPTED)


def _take_part(consortium: Consortium, keys: MemberKeys, folder: Path, result: Future[RunResult]) -> None:
    policy = folder / keys.name / POLICY
    try:
        with open_statistic(consortium.statistic, policy, tell=tell) as (data, statistic):
            done = join_run(consortium, keys, data, statistic, confidence=SURE, tell=tell)
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(done)


def _show_joint(consortium: Consortium, results: list[RunResult], checked: VerifiedTranscript) -> None:
    plan, answer = consortium.plan, results[0].answer
    headings, cells = answer.table()
    same = all(one.answer.to_json() == answer.to_json() for one in results)
    with console() as out:
        heading(out, "Three hospitals count together, and none sees another's rows")
        indented(out, f"{answer.title}  (invented, in three files, of three owners)")
        indented(out, f"Protocol {plan.protocol}, {plan.fit.name}. {plan.guarantee}")
        out.print(table(*headings, right=range(len(headings)), rows=cells))
        points(
            out,
            [
                f"{'All three have the same numbers' if same else 'THE NUMBERS DIFFER'}, over mutual TLS, "
                f"each after a charge to its own ledger ({results[0].left}).",
                f"The public transcript verifies: {len(checked.members)} members signed every step, and "
                "the sum follows from what they posted.",
                *_lost(),
            ],
        )


def _lost() -> list[str]:
    """Show why a run that lost a member opens nothing."""
    wish = JointRequirements(
        members=3,
        coalition=1,
        losses=0,
        adversary="unbounded",
        protocol="auto",
        epsilon=Fraction(1),
        delta=Fraction(0),
        people_at=1,
        noise="laplace",
    )
    done = simulate(wish, (120, 45, 230), MEMBERS, lose={"south": "deal"})
    (half, would), *_ = done.lessons
    return [
        f"If one fails before it has shared: {done.stopped}, and nothing is opened. With {half} of "
        f"{done.plan.honest} honest noise shares the sum would reveal ε {would:.3g} instead of 1."
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tell_train() -> None:
    """Append four months of data, and train two pipelines."""
    from lapwing.learn.stream import Stream

    with TemporaryDirectory(prefix="lapwing-demo-") as name, state_in(Path(name, "state")):
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
    from lapwing.learn.pipelines.model_card import model_card
    from lapwing.learn.pipelines.pipeline_file import load_pipeline
    from lapwing.learn.pipelines.run_files import load_model, write_outputs
    from lapwing.learn.pipelines.training import train

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
