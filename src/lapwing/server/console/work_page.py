"""Surveys, releases, models and audits: what the files of the served folder declare and hold.

Nothing is opened but these files: no data, no reports, no ledger. What a page does not know, it does not
say; the commands beside it do the work.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.core.exact import short
from lapwing.errors import BadParameter
from lapwing.publish.bundle.manifest import MANIFEST, read_manifest
from lapwing.reporting.audit_records import AuditRecord
from lapwing.server.console.desk import AtDesk, Desk, PageRoute
from lapwing.server.console.parts import Fact, Outcome
from lapwing.server.console.words import counted, day_text, moment, price_text
from lapwing.server.jobs.job import MAY_START, JobKind
from lapwing.server.people.person import EVERYWHERE, NotAllowed, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)
LARGEST = 1 << 20  # bytes of a file that may declare something
LARGEST_AUDIT = 1 << 23
MOST_FILES = 500
_DATA_ROLES = frozenset({Role.STEWARD, Role.ANALYST, Role.OFFICER})


@dataclass(frozen=True, slots=True)
class WorkCard:
    """A survey, release, pipeline or audit: what its file says, and the commands for it."""

    title: str
    file: str
    words: str
    facts: tuple[Fact, ...]
    commands: tuple[tuple[str, str], ...]
    outcome: Outcome | None = None


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


def _declared(folder: Path, table: str) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    for path in sorted(folder.glob("*.toml"))[:MOST_FILES]:
        values = _toml(path, path.stat().st_mtime_ns)
        found = values.get(table)
        if isinstance(found, dict):
            yield path, found, values


@lru_cache(maxsize=256)
def _toml(path: Path, _: int) -> dict[str, Any]:
    """Return a TOML file as it was at a time; nothing if it cannot be read: it may be no file of ours."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= LARGEST else {}
    except (OSError, ValueError):
        return {}


def surveys_in(folder: Path) -> list[WorkCard]:
    """Return a card for each survey."""
    cards = []
    for path, survey, values in _declared(folder, "survey"):
        questions = values.get("questions")
        facts = [Fact("Questions", str(len(questions)))] if isinstance(questions, list) else []
        facts += _facts(
            survey,
            ("epsilon", "ε of one respondent"),
            ("ask", "Asks"),
            ("stop_after", "Stops after"),
            ("until", "Ends"),
        )
        commands = (
            ("What it will be able to tell:", f"lapwing survey plan {path.name} --n 5000"),
            ("Collect answers, at an address of its own:", f"lapwing survey serve {path.name}"),
            ("Estimates, with intervals:", f"lapwing survey estimate {path.name}"),
        )
        title = str(survey.get("title") or survey.get("name") or path.stem)
        cards.append(WorkCard(title, path.name, str(survey.get("name", "")), tuple(facts), commands))
    return cards


def releases_in(folder: Path) -> list[WorkCard]:
    """Return a card for each release file and each bundle."""
    cards = []
    for path, release, _ in _declared(folder, "release"):
        facts = _facts(
            release, ("method", "Method"), ("policy", "Policy"), ("epsilon", "ε"), ("delta", "δ")
        )
        commands = (
            ("What it would cost and tell:", f"lapwing publish plan {path.name}"),
            ("Release it:", f"lapwing publish run {path.name} --out {path.stem}-bundle"),
        )
        cards.append(
            WorkCard(str(release.get("name", path.stem)), path.name, "declared", tuple(facts), commands)
        )
    for place in sorted(folder.glob(f"*/{MANIFEST}"))[:MOST_FILES]:
        try:
            manifest = read_manifest(place.parent)
        except BadParameter:
            continue
        privacy = manifest["privacy"]
        facts = [
            Fact("Method", str(manifest["method"])),
            Fact("Price", price_text(Fraction(privacy["epsilon"]), Fraction(privacy["delta"]))),
            Fact("Charged in entry", str(manifest["charge"])),
            Fact("Files", str(len(manifest["files"]))),
        ]
        checking = (("Check every file and the signature:", f"lapwing verify {place.parent.name}"),)
        cards.append(
            WorkCard(
                str(manifest["name"]),
                f"{place.parent.name}/",
                "a bundle",
                tuple(facts),
                checking,
                Outcome("released"),
            )
        )
    return cards


def models_in(folder: Path) -> list[WorkCard]:
    """Return a card for each pipeline."""
    cards = []
    for path, pipeline, values in _declared(folder, "pipeline"):
        facts = _facts(pipeline, ("stream", "Stream"), ("features", "Features"), ("label", "Label"))
        for table, name in (("trainer", "Trainer"), ("validator", "Validator"), ("strategy", "Strategy")):
            part = values.get(table)
            if isinstance(part, dict) and "kind" in part:
                facts.append(Fact(name, str(part["kind"])))
        commands = (("Train until a model is shown to be good:", f"lapwing train {path.name}"),)
        cards.append(
            WorkCard(str(pipeline.get("name", path.stem)), path.name, "declared", tuple(facts), commands)
        )
        cards += _runs_of(path)
    return cards


def _runs_of(path: Path) -> Iterator[WorkCard]:
    """Yield a card for each run of a pipeline that ended, from the card that training wrote."""
    for place in sorted(path.parent.glob(f"{path.stem}.runs/run-*/card.json"))[:MOST_FILES]:
        try:
            card = json.loads(place.read_bytes()) if place.stat().st_size <= LARGEST else {}
            verdict, privacy = str(card["verdict"]), card["privacy"]
            facts = (
                Fact("Run", str(card["run"])),
                Fact("Price at most", price_text(_exact(privacy, "epsilon"), _exact(privacy, "delta"))),
                Fact("Attempts", str(len(card["attempts"]))),
            )
            title, words = str(card["pipeline"]), str(card["words"])
        except (OSError, ValueError, LookupError, TypeError):
            continue
        outcome = Outcome(verdict) if verdict == "accepted" else Outcome(verdict, "bad")
        yield WorkCard(title, f"{place.parent.parent.name}/{place.parent.name}/", words, facts, (), outcome)


def _exact(privacy: dict[str, float], which: str) -> Fraction:
    return Fraction(str(privacy[f"run_{which}_at_most"]))


def audits_in(folder: Path) -> list[WorkCard]:
    """Return a card for each audit run."""
    cards = []
    for path in sorted(folder.glob("*.json"))[:MOST_FILES]:
        if path.stat().st_size > LARGEST_AUDIT:
            continue
        try:
            with path.open("rb") as file:
                if json.loads(file.read()).get("lapwing") != "audit":
                    continue
            record = AuditRecord.read(path, None)
        except (BadParameter, OSError, ValueError, AttributeError):
            continue
        facts = (
            Fact("Begun", day_text(moment(record.started))),
            Fact("Version", record.version),
            Fact("Claims tried", counted(len({row[0] for row in record.rows}), "claim")),
        )
        outcome = Outcome("failed", "bad") if record.failure else Outcome("passed")
        cards.append(WorkCard(record.file, path.name, record.verdict, facts, (), outcome))
    return cards


def _facts(values: dict[str, Any], *wanted: tuple[str, str]) -> list[Fact]:
    return [Fact(words, _words(values[key])) for key, words in wanted if key in values]


def _words(value: Any) -> str:
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


_READ = {"surveys": surveys_in, "releases": releases_in, "models": models_in, "audits": audits_in}


def _show(desk: Desk, which: str) -> Response:
    roles = frozenset[Role]().union(
        *(desk.roles(one.name) for one in desk.visible()), desk.roles(EVERYWHERE)
    )
    if not roles & (_DATA_ROLES if which != "surveys" else frozenset(Role)):
        raise NotAllowed(which)
    about = PAGES[which]
    cards = _READ[which](desk.services.settings.folder)
    may_audit = [one.name for one in desk.visible() if desk.roles(one.name) & MAY_START[JobKind.AUDIT]]
    audits = may_audit if which == "audits" else []
    return desk.page("work.html", about.title, about=about, cards=cards, audits=audits)


@router.get("/surveys")
def surveys(desk: AtDesk) -> Response:
    """Show the surveys of the folder."""
    return _show(desk, "surveys")


@router.get("/releases")
def releases(desk: AtDesk) -> Response:
    """Show declared releases, and bundles."""
    return _show(desk, "releases")


@router.get("/models")
def models(desk: AtDesk) -> Response:
    """Show pipelines."""
    return _show(desk, "models")


@router.get("/audits")
def audits(desk: AtDesk) -> Response:
    """Show audit runs."""
    return _show(desk, "audits")
