"""Surveys, releases, models and audits: what the files of the served folder declare and hold.

Nothing is opened but these files: no data, no reports, no ledger. What a page does not know, it does not
say; the commands beside it do the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.server.console.desk import AtDesk, Desk, PageRoute
from lapwing.server.console.parts import Fact, Outcome
from lapwing.server.data.work_files import WorkFile, WorkKind, declared, facts_of
from lapwing.server.jobs.job import MAY_START, JobKind
from lapwing.server.people.person import EVERYWHERE, NotAllowed, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class WorkCard:
    """A survey, release, pipeline or audit: what its file says, and the commands for it."""

    title: str
    file: str
    words: str
    facts: tuple[Fact, ...]
    commands: tuple[tuple[str, str], ...]
    outcome: Outcome | None = None
    links: tuple[tuple[str, str], ...] = ()  # files that were written, with their addresses


@dataclass(frozen=True, slots=True)
class WorkPage:
    """One of the four pages."""

    title: str
    lead: str
    empty: str
    example: str


PAGES = {
    "surveys": WorkPage(
        "Surveys",
        "Answers are randomized on each respondent’s own device. Respondents never come to this server.",
        "No survey file is in the served folder.",
        "lapwing survey example",
    ),
    "releases": WorkPage(
        "Releases",
        "Synthetic and census tables: what is declared, and bundles that a stranger can verify.",
        "No release file and no bundle is in the served folder.",
        "lapwing publish example",
    ),
    "models": WorkPage(
        "Models",
        "Pipelines that train on growing data, and give a model away only if it is shown to be good.",
        "No pipeline file is in the served folder.",
        "lapwing stream example",
    ),
    "audits": WorkPage(
        "Audits",
        "Runs of the auditor, which tries to break every claim. Verdicts are counted again from the rows.",
        "No audit run is in the served folder.",
        "lapwing audit all --json > audit.json",
    ),
}


def surveys_in(folder: Path) -> list[WorkCard]:
    """Return a card for each survey."""
    cards = []
    for path, survey, values in declared(folder, "survey"):
        questions = values.get("questions")
        facts = [Fact("Questions", str(len(questions)))] if isinstance(questions, list) else []
        told = facts_of(
            survey,
            ("epsilon", "ε of one respondent"),
            ("ask", "Asks"),
            ("stop_after", "Stops after"),
            ("until", "Ends"),
        )
        facts += [Fact(*fact) for fact in told]
        commands = (
            ("What it will be able to tell:", f"lapwing survey plan {path.name} --n 5000"),
            ("Collect answers, at an address of its own:", f"lapwing survey serve {path.name}"),
            ("Estimates, with intervals:", f"lapwing survey estimate {path.name}"),
        )
        title = str(survey.get("title") or survey.get("name") or path.stem)
        cards.append(WorkCard(title, path.name, str(survey.get("name", "")), tuple(facts), commands))
    return cards


def work_card(work: WorkFile) -> WorkCard:
    """Return a release, model or audit with its commands and files."""
    facts = tuple(Fact(*fact) for fact in work.facts)
    links = tuple((name, f"/v1/{work.kind}/{quote(work.id)}/files/{quote(name)}") for name in work.files)
    outcome = None if work.state == "declared" else Outcome(work.state, _LOOKS.get(work.state, "bad"))
    return WorkCard(work.title, work.file, work.words, facts, _commands(work), outcome, links)


_LOOKS = {"released": "good", "accepted": "good", "passed": "good"}


def _commands(work: WorkFile) -> tuple[tuple[str, str], ...]:
    match work.kind, work.state:
        case WorkKind.RELEASES, "declared":
            return (
                ("What it would cost and tell:", f"lapwing publish plan {work.file}"),
                ("Release it:", f"lapwing publish run {work.file} --out {work.id}-bundle"),
            )
        case WorkKind.RELEASES, _:
            return (("Check every file and the signature:", f"lapwing verify {work.id}"),)
        case WorkKind.MODELS, "declared":
            return (("Train until a model is shown to be good:", f"lapwing train {work.file}"),)
    return ()


def _surveys(desk: Desk) -> Response:
    roles = frozenset[Role]().union(
        *(desk.roles(served.name) for served in desk.visible()), desk.roles(EVERYWHERE)
    )
    if not roles:
        raise NotAllowed("surveys")
    return _page(desk, "surveys", surveys_in(desk.services.settings.folder))


def _works(desk: Desk, kind: WorkKind) -> Response:
    works = desk.services.works.all_of(desk.person, kind)
    return _page(desk, kind.value, [work_card(work) for work in works])


def _page(desk: Desk, which: str, cards: list[WorkCard]) -> Response:
    about = PAGES[which]
    may_audit = [data.name for data in desk.visible() if desk.roles(data.name) & MAY_START[JobKind.AUDIT]]
    audits = may_audit if which == "audits" else []
    return desk.page("work.html", about.title, about=about, cards=cards, audits=audits)


@router.get("/surveys")
def surveys(desk: AtDesk) -> Response:
    """Show the surveys of the folder."""
    return _surveys(desk)


@router.get("/releases")
def releases(desk: AtDesk) -> Response:
    """Show declared releases, and bundles."""
    return _works(desk, WorkKind.RELEASES)


@router.get("/models")
def models(desk: AtDesk) -> Response:
    """Show pipelines."""
    return _works(desk, WorkKind.MODELS)


@router.get("/audits")
def audits(desk: AtDesk) -> Response:
    """Show audit runs."""
    return _works(desk, WorkKind.AUDITS)
