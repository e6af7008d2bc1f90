"""Neighbouring data: whatever is not noise is the same, byte for byte, whatever one person's rows are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from lapwing.engines.engine import EngineFailed
from lapwing.server.app import create_app
from lapwing.server.people.person import Role
from lapwing.sql.reading.reader import Reader
from support.served import BASE, COUNT, Door
from support.server_people import client_of

POLICY = """
[dataset]
name = "visits"
[budget]
epsilon = 4
delta = 1e-6
[analysts."*"]
epsilon = 3
delta = 1e-6
[tables.visits]
source = "visits.parquet"
unit = "patient_id"
rows_per_unit = 2
[tables.visits.columns]
ward = {values = ["A", "B"]}
stay = {low = 0, high = 10}
weight = {low = 0, high = 200}
note = {type = "text"}
"""
OTHERS = """SELECT p AS patient_id, CASE WHEN p % 3 = 0 THEN 'A' ELSE 'B' END AS ward, p % 11 AS stay,
50.5 + p % 40 AS weight, CAST(p % 7 AS VARCHAR) AS note FROM range(200) AS t(p), range(3) WHERE p <> 7"""
ROWS = "SELECT 7, {ward}, {stay}, {weight}, {note} FROM range({count}) AS t(n)"
STRANGE = (
    ("'never declared'", "9223372036854775807", "'NaN'", """'Alice'' "; x'"""),
    ("NULL", "NULL", "'-Infinity'", "''"),
    ("'A'", "-1", "1e308", "'12,5'"),
)
PERSONS = {
    "nobody": None,
    "very many rows": ROWS.format(ward="'B'", stay="n % 11", weight="n % 200", note="n % 9", count=30_000),
    "rows that no cast reads": " UNION ALL ".join(
        ROWS.format(ward=ward, stay=stay, weight=weight, note=note, count=1)
        for ward, stay, weight, note in STRANGE
    ),
}
QUESTIONS: tuple[tuple[str, str], ...] = (
    (COUNT, "0.5"),
    ("SELECT AVG(stay) AS a FROM visits WHERE stay > 9", "0.1"),
    ("SELECT SUM(weight) AS a, MEDIAN(stay) AS m FROM visits", "0.1"),
    ("SELECT COUNT(*) AS n FROM visits WHERE CAST(note AS INTEGER) > 3", "0.1"),
    ("SELECT SUM(1 / stay) AS n FROM visits WHERE ward = 'never declared'", "0.1"),
    ("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", "0.1"),
    ("SELECT COUNT(*) AS n FROM visits", "2.5"),  # more than the quota that is left
    ("SELECT COUNT(*) AS n FROM visits", "99"),
    ("SELECT stay FROM visits", "0.5"),
    ("SELECT 1 / 0 AS n FROM visits", "0.5"),
    ("SELECT error('x') AS n FROM visits", "0.5"),
    ("SELECT COUNT(*) AS n FROM visits WHERE name = 'Alice'", "0.5"),
)
FAILING = "SELECT COUNT(*) AS held FROM visits"
NOISE = frozenset({"values", "low", "high"})
RANDOM = frozenset(
    {"id", "made", "hash", "answer", "request", "ledger", "session", "key", "by", "signature"}
)
TEXTS = re.compile(  # moments, names of 64 bits or more, secrets, lengths of noisy answers, the process
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::[\d.]+)?Z?)?|\b\d\d:\d\d\b|[0-9a-f]{16,}|[\w-]{43}|\d+ bytes"
    r"|process=.\d+."
)


def _public(value: Any, key: str = "") -> Any:
    """Return a value without noise, random names and moments. The number of noisy numbers stays."""
    if key in NOISE and isinstance(value, list):
        return len(value)
    if key in RANDOM and not (isinstance(value, str) and value.startswith("visits.")):
        return key
    if isinstance(value, dict):
        return {name: _public(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_public(part) for part in value]
    return TEXTS.sub("#", value) if isinstance(value, str) else value


class _Watched:
    """All that can be seen of one server."""

    def __init__(self, folder: Path, rows: str | None, patch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        patch.setenv("LAPWING_STATE", str(folder / "state"))
        (folder / "visits.toml").write_text(POLICY)
        both = OTHERS if rows is None else f"{OTHERS} UNION ALL {rows}"
        duckdb.execute(f"COPY (SELECT * FROM ({both}) ORDER BY stay, note) TO '{folder}/visits.parquet'")
        self.door, self.lines, self.seen = Door(folder), list[Any](), list[Any]()
        self.door.app = create_app(self.door.services, write=self.lines.append)

    def see(self, client: httpx.Client, method: str, address: str, **more: Any) -> Any:
        """Send a request, and note all of the reply that is not noise."""
        reply = client.request(method, address, **more)
        kind, text = reply.headers["content-type"], reply.text
        headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
        told = reply.json() if kind == "application/json" else None
        if told is not None:
            content = json.dumps(_public(told))
        elif kind.startswith("text/csv"):
            content = f"{text.count(chr(10))} lines"
        elif "arrow" in kind or "parquet" in kind or "svg" in kind:
            content = kind if "/answers/" in address else reply.content.hex()
        else:
            content = TEXTS.sub("#", text)
        if address == "/":  # it shows the newest answers
            content = re.sub(r"−?[\d.,]+", "0", content)
        place = TEXTS.sub("#", address)
        self.seen.append((method, place, reply.status_code, _public(headers), content))
        return told

    def ask(self, client: httpx.Client, sql: str, epsilon: str) -> None:
        """Plan, look at, release twice, and read the answer in all forms."""
        body = {"data": "visits", "sql": sql, "epsilon": epsilon}
        plan = self.see(client, "POST", "/v1/plans", json=body).get("id")
        self.see(client, "POST", "/v1/batches", json={"data": "visits", "questions": [{**body, "data": 0}]})
        if plan is None:
            return
        place = f"/v1/plans/{plan}"
        self.see(client, "GET", place)
        dry = client.post(f"{place}/dry-run")
        self.seen.append((dry.status_code, _public(dry.json())))
        answer, _ = (self.see(client, "POST", f"{place}/release").get("id") for _ in range(2))
        if answer is not None and "GROUP BY note" not in sql:
            for form in ("json", "csv", "arrow"):
                self.see(client, "GET", f"/v1/answers/{answer}?format={form}&confidence=0.9")


def _seen(folder: Path, rows: str | None, patch: pytest.MonkeyPatch) -> list[Any]:
    """Return all that can be seen of a server whose data have these rows of one person."""
    watched = _Watched(folder, rows, patch)
    door = watched.door
    ann = door.client("ann", Role.ANALYST)
    sue = door.client("sue", Role.STEWARD, Role.OFFICER)
    browser = client_of(door.app, BASE, {"accept": "text/html", "sec-fetch-site": "same-origin"})
    browser.cookies.set("lapwing", door.services.people.sessions.begin("ann"), domain="127.0.0.1")
    for sql, epsilon in QUESTIONS:
        watched.ask(ann, sql, epsilon)

    def failing(*_: object) -> None:
        raise EngineFailed

    with patch.context() as failed:
        failed.setattr(Reader, "exact", failing)
        watched.ask(ann, FAILING, "0.1")
    watched.ask(ann, FAILING, "0.1")
    batch = {"data": "visits", "epsilon": "0.2", "questions": [{"sql": COUNT}, {"sql": QUESTIONS[2][0]}]}
    for _ in range(2):
        made = watched.see(ann, "POST", "/v1/batches", json=batch)
        watched.see(ann, "POST", f"/v1/batches/{made['id']}/release")
    for name in ("left", "budget", "schema", "history", "answers", "example.parquet?rows=20"):
        watched.see(ann, "GET", f"/v1/data/visits/{name}")
    for name in ("left", "budget", "history", "entries"):
        watched.see(sue, "GET", f"/v1/data/visits/{name}")
    for number in range(9):
        watched.see(sue, "GET", f"/v1/data/visits/receipts/{number}")
    for sql, epsilon in QUESTIONS:
        watched.see(browser, "POST", "/d/visits/price", data={"sql": sql, "epsilon": epsilon})
    for page in ("/", "/d/visits", "/d/visits/ask", "/d/visits/budget", "/d/visits/history"):
        watched.see(browser, "GET", page)
    watched.see(door.client("sue", Role.STEWARD), "GET", "/metrics")
    watched.see(door.stranger(), "GET", "/readyz")
    watched.seen += [{**line, "time": "#"} for line in watched.lines]
    door.close()
    return watched.seen


def test_H7_X6_one_person_changes_noise_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a hundred replies: plans, refusals, answers, holds, budgets, pages, and log lines."""
    seen = {
        name: _seen(tmp_path / str(n), rows, monkeypatch) for n, (name, rows) in enumerate(PERSONS.items())
    }
    expected = seen["nobody"]
    statuses = [one[2] for one in expected if isinstance(one, tuple) and len(one) == 5]
    assert len(statuses) > 100
    assert {200, 201, 409, 422} <= set(statuses)
    for name, found in seen.items():
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            assert one == other, name
