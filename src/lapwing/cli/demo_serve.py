"""`lapwing demo --serve`: the web console on a folder in which every page has something to show.

The folder is like any other that is served: all of it comes from the examples, and from the same functions
that the commands call. What is there already is left as it is, so that a second start charges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from lapwing import learn
from lapwing import open as open_dataset
from lapwing.audit.audit_run import EXACT_STAGES, run_audit
from lapwing.audit.case import StageBudget
from lapwing.audit.query_audit import case_of_query
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.signed_audit import signed_run
from lapwing.cli import console
from lapwing.errors import LapwingError, MissingExtra
from lapwing.examples import rides, town
from lapwing.examples.visits import already_written, example_text, write_visits
from lapwing.publish import Publication
from lapwing.publish.bundle.manifest import MANIFEST
from lapwing.server.app import create_app
from lapwing.server.data.question_form import QuestionForm
from lapwing.server.people.person import EVERYWHERE, Requester, Role
from lapwing.server.services import Services
from lapwing.server.settings import read_settings
from lapwing.survey import design, load
from lapwing.survey.collection import collect_file
from lapwing.survey.planning import simulate_answers
from lapwing.survey.report_file import write_reports
from lapwing.web.serving import serve

SURVEY, RESPONDENTS = "wellbeing.toml", 2000
AUDIT, AUDITED = "audit.json", ("Laplace", "Gaussian")
STEWARD = "sue"
# Each account: its shown name, the data set that its roles are for, and the roles.
PEOPLE: Mapping[str, tuple[str, str, Role]] = {
    "ann": ("Ann", "visits", Role.ANALYST),
    "ben": ("Ben", "visits", Role.ANALYST),
    STEWARD: ("Sue", EVERYWHERE, Role.STEWARD),
    "olga": ("Olga", EVERYWHERE, Role.OFFICER),
    "otto": ("Otto", "visits", Role.SURVEY_OWNER),
}
BY_WARD = "SELECT ward, COUNT(*) AS visits, AVG(stay) AS days FROM visits GROUP BY ward"
QUESTIONS = (  # who released them, and for which ε
    ("ann", BY_WARD, "0.3"),
    ("ann", "SELECT urgent, COUNT(*) AS visits FROM visits GROUP BY urgent", "0.1"),
    ("ann", "SELECT MEDIAN(cost) AS middle FROM visits WHERE ward = 'cardiology'", "0.2"),
    ("ben", "SELECT ward, COUNT(DISTINCT patient_id) AS patients FROM visits GROUP BY ward", "0.2"),
    ("ben", "SELECT AVG(stay) AS days FROM visits WHERE urgent", "0.1"),
)
PLANNED = (  # priced, and not released
    ("ann", "SELECT ward, AVG(cost) AS mean FROM visits GROUP BY ward", "0.25"),
    ("ben", "SELECT COUNT(*) AS visits FROM visits WHERE stay > 20", "0.05"),
)


def serve_demo(folder: Path, *, port: int) -> None:
    """Fill the folder where it is not filled yet, and serve it to this machine until Ctrl-C.

    Args:
        folder: The folder; it is made if it is missing.
        port: The port; 0 for a free one.

    Raises:
        BadParameter: If the folder has other files of these names.
    """
    with suppress(KeyboardInterrupt):
        fill_folder(folder, tell=lambda what: print(f"{what} …", flush=True))
        settings = read_settings(folder)
        with closing(Services.open(settings)) as services:
            add_people(services)
            ask_questions(services)
            links = {name: services.people.links.make_start(name, settings) for name in PEOPLE}
            serve(
                create_app(services),
                host=settings.host,
                port=port,
                ready=lambda address: _tell_links(address, links),
            )
    print("\nStopped. Everything stays in the folder; the same command opens it again.")


def _tell_links(address: str, links: Mapping[str, str]) -> None:
    with console.page() as out:
        out.heading(f"Lapwing is at {address}, for this computer alone")
        out.print("Open the first link for a guided example. Each link signs in once, within an hour:")
    for name, (shown, _, role) in PEOPLE.items():
        print(f"  {shown} ({role.value}): {address}start?key={links[name]}")  # a page would break the line
    print("Ctrl-C ends it.", flush=True)


# The folder


def fill_folder(folder: Path, *, tell: Callable[[str], None]) -> None:
    """Make a data set, a survey, a model, a release and an audit run, unless they are there."""
    write_visits(folder)
    rides.write_rides(folder)
    town.write_town(folder)
    steps = (
        ("A data set: visits to a hospital", prepare_visits),
        ("A survey with answers", answer_survey),
        ("A model: how long a ride takes", train_model),
        ("A release: the census of a town", release_census),
        ("An audit of two mechanisms and a question", audit_claims),
    )
    for what, make in steps:
        tell(what)
        try:
            make(folder)
        except MissingExtra as missing:
            tell(f"{missing} Left out")


def prepare_visits(folder: Path) -> None:
    """Prepare the visits, which opens their account."""
    with open_dataset(folder / "visits.toml", analyst=STEWARD) as visits:
        visits.curator.notify = _hear_nothing
        visits.prepare()


def answer_survey(folder: Path) -> None:
    """Let invented people answer the survey, with real coins."""
    file, reports = folder / SURVEY, folder / "wellbeing.simulated"
    if not already_written({file: example_text(SURVEY)}):
        console.write_new(file, example_text(SURVEY), option="folder")
    made = design(load(file))
    if not reports.exists():
        people = simulate_answers(made.survey, RESPONDENTS)
        write_reports(reports, made, made.simulate({name: one.answers for name, one in people.items()}))
    collect_file(made, reports, again=False, tell=_hear_nothing, progress=lambda *_: None)


def train_model(folder: Path) -> None:
    """Take four months of rides in, and train until a model is shown to be good."""
    pipeline = learn.load_pipeline(folder / rides.PIPELINES[0])
    place = folder / f"{Path(rides.PIPELINES[0]).stem}.runs"
    if any(place.glob("run-*/card.json")):
        return
    with learn.Stream.open(folder / rides.RIDES_POLICY, analyst=STEWARD) as stream:
        stream.dataset.curator.notify = _hear_nothing
        if stream.status().version is None:
            stream.append(through="2026-01")
        for file in sorted((folder / rides.ARRIVING).iterdir()):
            if file.stem not in {block.label for block in stream.status().blocks if block.has_arrived}:
                stream.append(file, through=file.stem)
        learn.write_outputs(learn.train(stream, pipeline, place), stream.policy, place)


def release_census(folder: Path) -> None:
    """Publish the census of the town."""
    file = folder / town.TOWN_CENSUS
    bundle = file.with_name(f"{file.stem}-bundle")
    if not (bundle / MANIFEST).exists():
        with Publication.open(file, analyst=STEWARD) as release:
            release.dataset.curator.notify = _hear_nothing
            release.run(bundle)


def audit_claims(folder: Path) -> None:
    """Try to break two mechanisms and a question by exact probabilities, and sign the run."""
    path = folder / AUDIT
    if path.exists():
        return
    known = [case for case in mechanism_cases() if case.name in AUDITED]
    question = case_of_query(folder / "visits.toml", BY_WARD, epsilon=QUESTIONS[0][2])
    budget = StageBudget(seconds=1, is_thorough=False)
    run = run_audit([*known, question], budget, stages=EXACT_STAGES).to_json()
    with open_dataset(folder / "visits.toml", analyst=STEWARD) as visits:
        signed = signed_run(run, visits.curator.ledger.keys.signing)
    console.write_new(path, json.dumps(signed, ensure_ascii=False, indent=2), option="folder")


def _hear_nothing(_: str) -> None:
    """Leave out what a ledger says when it is made for life: this data is invented."""


# The server's own state


def add_people(services: Services) -> None:
    """Make an account for each role, unless it is there. They sign in by links."""
    accounts = services.people.accounts
    for name, (shown, data, role) in PEOPLE.items():
        if accounts.find(name) is None:
            accounts.make(name, shown_name=shown)
            accounts.set_roles(name, data, frozenset({role}))


def ask_questions(services: Services) -> None:
    """Release the questions of two analysts, and plan two others. Released ones cost nothing again."""
    for name, sql, epsilon in QUESTIONS:
        with _left_out():
            plan = services.plans.make(_person(services, name), "visits", _form(sql, epsilon))
            services.plans.release(_person(services, name), plan.id)
    for name, sql, epsilon in PLANNED:
        with _left_out():
            services.plans.make(_person(services, name), "visits", _form(sql, epsilon))


@contextmanager
def _left_out() -> Iterator[None]:
    """Go on without a question that is refused: somebody has used the budget of this folder since."""
    try:
        yield
    except LapwingError as error:
        console.tell(f"a question of the demo is left out: {error}")


def _form(sql: str, epsilon: str) -> QuestionForm:
    return QuestionForm.read({"sql": sql, "epsilon": epsilon})


def _person(services: Services, name: str) -> Requester:
    return Requester(name, services.people.accounts.known(name).roles, "command", "")
