"""Data sets as a server has them: a small policy in a folder, and people with roles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from lapwing.server.data.answers import Answers
from lapwing.server.data.plan_file import NAME, PlanFile
from lapwing.server.data.plans import Plans
from lapwing.server.data.question_form import QuestionForm
from lapwing.server.data.records import Records
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.people.people import People
from lapwing.server.people.person import EVERYWHERE, Person, Role
from lapwing.server.state import ServerState

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


def person(name: str, *roles: Role, data: str = EVERYWHERE, token: bool = False) -> Person:
    """Somebody with roles, who came with a session or a token."""
    credential = "token" if token else "session"
    return Person(name, {data: frozenset(roles)} if roles else {}, credential, f"{credential} of {name}")


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
        self, who: Person = ANN, question: QuestionForm | None = None, data: str = "visits"
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
