"""Health, readiness and counts."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from lapwing.errors import Unavailable
from lapwing.server import metrics
from lapwing.server.people.person import Requester, Role
from support.served import Door


def test_anybody_may_ask_whether_the_server_lives_and_is_ready(door: Door) -> None:
    stranger = door.stranger()
    assert stranger.get("/healthz").json() == {"healthy": True}
    assert stranger.get("/readyz").json() == {"ready": True, "problems": []}


def test_a_ledger_that_cannot_be_written_makes_it_unready(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.release(door.ann())
    stranger = door.stranger()
    assert stranger.get("/readyz").status_code == 200
    [data] = door.services.sets

    def fail(*_: object, **__: object) -> object:
        raise Unavailable("canary")

    for part in ("write", "anchor"):
        where = data.curator.ledger.store if part == "write" else data.curator.ledger.store.anchors[0]
        with monkeypatch.context() as patch:
            patch.setattr(type(where), "write" if part == "write" else "read", fail)
            patch.setattr(metrics, "KEPT_SECONDS", 0.0)
            reply = stranger.get("/readyz")
        assert (reply.status_code, reply.json()) == (503, {"ready": False, "problems": ["unavailable"]})
        assert reply.headers["retry-after"] == "5"
        assert stranger.get("/healthz").status_code == 200


def test_counts_are_for_stewards_and_officers(door: Door) -> None:
    door.release(door.ann())
    for who, status in ((door.ann(), 403), (door.stranger(), 401), (door.client("s", Role.STEWARD), 200)):
        reply = who.get("/metrics")
        assert reply.status_code == status
    text = door.client("olga", Role.OFFICER).get("/metrics").text
    assert 'method="POST",route="/v1/plans/{plan}/release",status="200"} 1' in text
    assert "lapwing_answers_total" in text
    assert "ann" not in text.replace("channel", "")


def test_a_token_for_other_data_does_not_count(door: Door) -> None:
    people, both = door.services.people, {"visits": frozenset({Role.ANALYST}), "town": {Role.STEWARD}}
    people.accounts.make("mia")
    for data, roles in both.items():
        people.accounts.set_roles("mia", data, frozenset(roles))
    account = people.accounts.known("mia")
    _, secret = people.tokens.make(
        Requester("mia", account.roles, "session", "s"),
        name="x",
        data=frozenset({"visits"}),
        most_epsilon=None,
        expires=datetime.now(UTC) + timedelta(days=1),
    )
    client = door.stranger()
    client.headers["authorization"] = f"Bearer {secret}"
    assert client.get("/metrics").status_code == 403
    assert client.get("/v1/me").json()["roles"] == {"visits": ["analyst"]}


def test_nobody_waits_for_a_slow_anchor(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    readiness = metrics.Readiness(door.services.sets)
    assert readiness.problems() == {}
    begun, ends = threading.Event(), threading.Event()

    def slow(_: object) -> str:
        begun.set()
        ends.wait(20)
        return "unavailable"

    monkeypatch.setattr(metrics, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(metrics, "_problem", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(readiness.problems)
        assert begun.wait(20)
        before = time.monotonic()
        assert readiness.problems() == {}
        assert time.monotonic() - before < 10
        ends.set()
        assert first.result() == {"visits": "unavailable"}
