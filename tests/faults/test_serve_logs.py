"""Case X7: what is planted in requests and rows is in no log, metric or file where it must not be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx

from support.served import POLICY
from support.served_process import ServedProcess, serving

ADDRESS = "203.0.113.77"
PASSWORD = "canary-of-a-password"
HEADERS = {
    "user-agent": "canary-of-a-browser",
    "referer": "https://canary-of-a-page.example/",
    "x-forwarded-for": ADDRESS,
    "forwarded": f"for={ADDRESS}",
    "accept-language": "canary-of-a-language",
    "x-request-id": "canary-of-an-id",
    "traceparent": "canary-of-a-trace",
}
ASKED = "SELECT COUNT(*) AS canary_asked FROM visits WHERE ward = 'A'"
PLANNED = ASKED.replace("asked", "planned")
REFUSED = "SELECT canary_refused FROM visits"
PRICE = "0.0371"
MAY_HAVE = {  # where SQL must be kept: what was planned, and what was answered
    "canary_asked": {"plans.sqlite", "lapwing.ledger"},
    "canary_planned": {"plans.sqlite"},
}


def _write(folder: Path) -> None:
    """Write a policy, and rows with planted values."""
    (folder / "visits.toml").write_text(POLICY.format(name="visits", shares="false", after=""))
    (folder / "server.toml").write_text("[server]\nreply_slot = 0.05\n")
    duckdb.execute(
        "COPY (SELECT 'canary-of-a-person ' || p AS patient_id, CASE WHEN p % 3 = 0 THEN 'A' ELSE "
        "'canary-of-a-ward' END AS ward, p % 11 AS stay FROM range(90) AS t(p)) "
        f"TO '{folder}/visits.parquet' (COMPRESSION uncompressed)"
    )


def _ask(server: ServedProcess) -> list[str]:
    """Send requests with planted texts in every place, and return the secrets of this run."""
    ann, browser = server.program("ann"), server.browser()
    for client in (ann, browser, server.stranger()):
        client.headers.update(HEADERS)

    def plan(sql: str) -> httpx.Response:
        return ann.post("/v1/plans", json={"data": "visits", "sql": sql, "epsilon": PRICE})

    made = plan(ASKED).json()["id"]
    answer = ann.post(f"/v1/plans/{made}/release")
    assert answer.status_code == 200, answer.text
    assert plan(PLANNED).status_code == 201
    assert plan(REFUSED).status_code == 422
    for sql in ("canary_text", "SELECT CAST('canary-of-a-ward' AS INTEGER) FROM visits", "x" * 30_000):
        assert plan(sql).status_code == 422
    secrets = [ann.headers["authorization"].split()[1], server.people.links.make_password("ann")]
    links = [server.people.links.make_start("ann", server.settings) for _ in range(2)]
    assert server.stranger().get("/start", params={"key": links[0]}).status_code == 303
    for name, password in (("ann", "canary-of-a-guess"), ("canary-of-a-name", PASSWORD), (PASSWORD, "x")):
        assert (
            server.stranger()
            .post(
                "/session",
                json={"name": name, "password": password},
                headers={"origin": server.address[:-1]},
            )
            .status_code
            == 401
        )
    assert browser.post("/session", json={"name": "ann", "password": PASSWORD}).status_code == 204
    secrets += [*links, browser.cookies["lapwing"], browser.cookies["lapwing-known"]]
    form = {"sql": "canary_of_a_page", "epsilon": "0.0372"}
    assert browser.post("/d/visits/ask", data=form).status_code in (200, 422)
    made = browser.post("/v1/tokens", json={"name": "for a program", "days": 3})
    secrets.append(made.json()["secret"])
    json = {"content-type": "application/json"}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/canary/of-a-path", {"params": {"canary": "of a query"}}),
        ("GET", "/v1/data/canary-of-data/schema", {}),
        ("GET", "/v1/answers/canary-of-an-answer", {}),
        ("CANARY", "/v1/data", {}),
        ("POST", "/v1/verify", {"json": {"canary": "of a proof"}}),
        ("POST", "/v1/plans", {"content": b'{"canary": "of a body', "headers": json}),
        ("POST", "/v1/plans", {"content": b"canary" * 200_000, "headers": json}),
        ("POST", "/v1/plans", {"content": b"canary", "headers": {"content-type": "canary/of-a-type"}}),
    ]
    for method, address, more in requests:
        assert ann.request(method, address, **more).status_code >= 400 or "verify" in address
    stranger = server.stranger()
    for header in ({"authorization": "Bearer lapwing_canary"}, {"cookie": "lapwing=canary"}):
        assert stranger.get("/v1/data", headers=header).status_code == 401
    assert stranger.get("/v1/data", headers={"host": "canary-of-a-host.example"}).status_code == 421
    for raw in (
        b"CANARY\r\n\r\n",
        b"GET /canary HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"canary" * 9000,
    ):
        with server.connected() as connection, suppress(OSError):
            connection.sendall(raw)
            connection.recv(1000)
    return secrets


def _texts(path: Path) -> Iterable[str]:
    """Return all that a file says: its bytes, and every value of a database."""
    yield path.read_bytes().decode("utf-8", "replace")
    if path.suffix in (".sqlite", ".ledger"):
        with closing(sqlite3.connect(path)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                yield str(database.execute(f"SELECT * FROM {table}").fetchall())


def _without_what_it_may_have(path: Path, text: str) -> str:
    for canary, places in MAY_HAVE.items():
        if path.name.removesuffix("-wal") in places:
            text = text.replace(canary, "")
    return text


def test_X7_what_is_planted_is_in_no_log_metric_or_file(tmp_path: Path) -> None:
    folder, log = tmp_path / "served", tmp_path / "log.jsonl"
    folder.mkdir()
    _write(folder)
    with serving(folder, "--log", str(log)) as server:
        server.person("ann", "analyst", password=PASSWORD)
        server.person("sue", "steward")
        secrets = _ask(server)
        public = server.program("sue").get("/metrics").text + server.stranger().get("/readyz").text
        assert server.stop() == 0
        assert server.process.stdout is not None
        printed = server.process.stdout.read()
    lines = log.read_text()
    assert lines.count("\n") > 20
    assert '"route":"(unknown)"' in lines
    told = {"log": lines, "metrics": public, "output": printed, "errors": (folder / "stderr").read_text()}
    for place, text in told.items():
        for word in ("canary", "CANARY", ADDRESS, "127.0.0.1", "SELECT", PRICE, "0.0372", *secrets):
            assert word not in text, (place, word)
    looked = set()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (".toml", ".parquet"):
            continue
        looked.add(path.name)
        words = ["canary", ADDRESS, *secrets]
        if path.suffix == ".duckdb":  # the prepared copy of the rows
            assert path.stat().st_mode & 0o077 == 0
            words.remove("canary")
        for text in _texts(path):
            rest = _without_what_it_may_have(path, text)
            for word in words:
                at = rest.find(word)
                assert at < 0, (path.name, word, rest[max(0, at - 80) : at + 80])
    assert looked >= {"server.sqlite", "plans.sqlite", "batches.sqlite", "lapwing.ledger", "stderr"}
