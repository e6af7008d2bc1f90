"""Data sets as a server has them: a small policy in a folder, and people with roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import httpx

from lapwing.audit.audit_run import AUDIT_FORMAT
from lapwing.publish.bundle.manifest import FORM
from lapwing.server.app import create_app
from lapwing.server.data.answers import Answers
from lapwing.server.data.plan_file import NAME, PlanFile
from lapwing.server.data.plans import Plans
from lapwing.server.data.question_form import QuestionForm
from lapwing.server.data.records import Records
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.people.people import People
from lapwing.server.people.person import EVERYWHERE, Requester, Role
from lapwing.server.services import Services
from lapwing.server.state import ServerState
from support.server_people import client_of, settings_in

POLICY = """
[dataset]
name = "{name}"
share_answers = {shares}
[budget]
epsilon = 10.0
delta = 1e-6
{after}
[tables.visits]
source = "visits.parquet"
unit = "patient_id"
rows_per_unit = 2
[tables.visits.columns.ward]
values = ["A", "B"]
[tables.visits.columns.stay]
low = 0
high = 10
"""
QUICK = {"reply_slot": Fraction(1, 100), "unknown_per_minute": 100_000, "requests_per_minute": 100_000}
BASE = "http://127.0.0.1"
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


def write_data(
    folder: Path, *, name: str = "visits", people: int = 200, shares: bool = False, after: str = ""
) -> Path:
    """Write a policy and its rows, unless the rows are there."""
    policy = folder / f"{name}.toml"
    policy.write_text(POLICY.format(name=name, shares=str(shares).lower(), after=after))
    rows = folder / "visits.parquet"
    if not rows.exists():
        duckdb.execute(
            "COPY (SELECT p AS patient_id, CASE WHEN p % 3 = 0 THEN 'A' ELSE 'B' END AS ward, "
            f"p % 11 AS stay FROM range({people}) AS t(p), range(3)) TO '{rows}'"
        )
    return policy


def person(name: str, *roles: Role, data: str = EVERYWHERE, token: bool = False) -> Requester:
    """Somebody with roles, who came with a session or a token."""
    credential = "token" if token else "session"
    return Requester(name, {data: frozenset(roles)} if roles else {}, credential, f"{credential} of {name}")


ANN = person("ann", Role.ANALYST)
BOB = person("bob", Role.ANALYST)
STEWARD = person("sue", Role.STEWARD)
OFFICER = person("olga", Role.OFFICER)
OWNER = person("otto", Role.SURVEY_OWNER)
STRANGER = person("nobody")


def asked(sql: str = COUNT, epsilon: str = "0.5", **more: object) -> QuestionForm:
    """The form of a question."""
    return QuestionForm.read({"sql": sql, "epsilon": epsilon, **more})


@dataclass
class Served:
    """The data services of one worker process."""

    sets: ServedDataSets
    plans: Plans
    answers: Answers
    records: Records
    people: People

    def released(
        self, who: Requester = ANN, question: QuestionForm | None = None, data: str = "visits"
    ) -> str:
        """Plan and release a question; return the id of the answer."""
        made = self.plans.make(who, data, asked() if question is None else question)
        return self.plans.release(who, made.id).id

    def charges(self, data: str = "visits") -> int:
        """The number of requests that were charged."""
        return len(self.records.history(STEWARD, data, 1000))


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Open the data services of a folder, as a worker does."""
    sets, state = ServedDataSets.open(folder), ServerState.open(folder / ".lapwing-server")
    file, people = PlanFile(folder / ".lapwing-server" / NAME), People.of(state)
    answers = Answers(sets)
    try:
        yield Served(sets, Plans(sets, file, answers, people.tokens), answers, Records(sets), people)
    finally:
        file.close()
        sets.close()
        state.close()


def write_works(door: Door) -> dict[str, tuple[str, str]]:
    """Write a bundle, a run and an audit of the data "visits". Return the id and a file of each."""
    folder, [data] = door.services.settings.folder, door.services.sets
    ledger = data.curator.ledger
    key = ledger.keys.signing.public.hex()
    privacy = {"rho": "1/8", "epsilon": "1", "delta": "1/1000000000"}
    manifest = {
        "form": FORM, "name": "stays", "method": "independent", "ledger": ledger.id, "key": key,
        "charge": 1, "answer": 1, "notes": [], "privacy": privacy, "files": {}, "signature": "",
    }  # fmt: skip
    card = {
        "pipeline": "p", "run": 1, "charged": {"ledger": ledger.id, "stream": "visits", "analyst": "sue"},
        "verdict": "accepted", "words": "", "attempts": [],
        "privacy": {"run_epsilon_at_most": 0.5, "run_delta_at_most": 1e-9},
    }  # fmt: skip
    audit = {
        "lapwing": "audit", "format": AUDIT_FORMAT, "passed": True, "started": "2026-01-01T00:00:00+00:00",
        "version": "0", "cases": [], "self_check": [], "uncovered": [], "error_probability": 1e-9,
        "key": key,
    }  # fmt: skip
    (folder / "pipe.toml").write_text('[pipeline]\nname = "p"\nstream = "visits.toml"\n')
    for path, value in (
        ("stays-bundle/bundle.json", manifest), ("pipe.runs/run-1/card.json", card), ("seen.json", audit)
    ):  # fmt: skip
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    return {
        "releases": ("stays-bundle", "bundle.json"),
        "models": ("pipe.run-1", "card.json"),
        "audits": ("seen", "seen.json"),
    }


def released_elsewhere(folder: Path, plan: str) -> str:
    """Release a plan of ann's, for another process, which finds it here by name. Return the answer's id."""
    with served(folder) as found:
        return found.plans.release(ANN, plan).id


class Door:
    """A server's application, as programs with tokens reach it.

    Args:
        folder: The folder that is served.
        settings: Settings that differ from the usual ones.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.services = Services.open(settings_in(folder, **{**QUICK, **settings}))
        self.app = create_app(self.services)

    def client(
        self, name: str, *roles: Role, data: str = "visits", most_epsilon: Fraction | None = None
    ) -> httpx.Client:
        """Return a client with a token of an account with these roles, which is made if it is missing."""
        people = self.services.people
        if people.accounts.find(name) is None:
            people.accounts.make(name)
        people.accounts.set_roles(name, data, frozenset(roles))
        who = Requester(name, {data: frozenset(roles)}, "session", "s")
        expires = datetime.now(UTC) + timedelta(days=1)
        _, secret = people.tokens.make(
            who, name="a program", data=None, most_epsilon=most_epsilon, expires=expires
        )
        return client_of(self.app, BASE, {"authorization": f"Bearer {secret}"})

    def stranger(self) -> httpx.Client:
        """Return a client without a credential."""
        return client_of(self.app, BASE, {})

    def ann(self) -> httpx.Client:
        """Return a client of an analyst."""
        return self.client("ann", Role.ANALYST)

    def plan(self, client: httpx.Client, **more: Any) -> str:
        """Return the id of a new plan."""
        body = {"data": "visits", "sql": COUNT, "epsilon": "0.5", **more}
        reply = client.post("/v1/plans", json=body)
        assert reply.status_code == 201, reply.text
        return str(reply.json()["id"])

    def release(self, client: httpx.Client, **more: Any) -> dict[str, Any]:
        """Return a new answer."""
        reply = client.post(f"/v1/plans/{self.plan(client, **more)}/release")
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def charges(self) -> int:
        """The number of requests that were charged."""
        return len(self.services.records.history(STEWARD, "visits", 1000))

    def close(self) -> None:
        """Close the services."""
        self.services.close()
