"""The whole application: guards before everything, headers on everything, one form for every error."""

from __future__ import annotations

import httpx
import pytest

from lapwing.server.data.plans import Plans
from lapwing.web.replies import HEADERS
from support.served import BASE, Door


def test_every_reply_has_the_headers_and_no_cookie(door: Door) -> None:
    ann = door.ann()
    given = door.release(ann)
    replies = [
        ann.get("/v1/data"), ann.get(f"/v1/answers/{given['id']}"), ann.get("/v1/nothing"),
        ann.post("/v1/plans", json={}), door.stranger().get("/v1/data"), door.stranger().get("/healthz"),
        ann.delete("/v1/data"), ann.get("/v1/openapi.json"),
    ]  # fmt: skip
    for reply in replies:
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS
        assert "set-cookie" not in reply.headers
        assert "server" not in reply.headers
        assert reply.headers["cache-control"] in ("no-store", "no-cache")


def test_requests_of_other_sites_and_hosts_change_nothing(door: Door) -> None:
    ann = door.ann()
    plan = door.plan(ann)
    address = f"/v1/plans/{plan}/release"
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
    ):
        assert ann.post(address, headers=headers).status_code in (403, 421), headers
    stranger = door.stranger()
    stranger.headers["cookie"] = "lapwing=forged"
    stranger.headers["origin"] = BASE
    assert stranger.post(address).status_code == 401
    assert door.charges() == 0


def test_errors_of_all_routes_have_one_form(door: Door) -> None:
    ann = door.ann()
    json = {"content-type": "application/json"}
    for reply in (
        ann.get("/v1/nothing"),
        ann.put("/v1/plans"),
        ann.post("/v1/plans", content=b"{", headers=json),
        ann.post("/v1/tokens", content=b"{", headers=json),
        ann.post("/v1/tokens", json={"name": 5}),
        ann.post("/v1/plans", content=b"x" * 600_000, headers=json),
        ann.post("/v1/plans", content=b"<x/>", headers={"content-type": "text/xml"}),
        ann.get("/v1/data/visits/receipts/x"),
        ann.get(f"/v1/data/visits/receipts/{'9' * 5000}"),
        ann.post("/v1/tokens", content=b"[" * 60_000, headers=json),
        ann.post("/v1/tokens", content=b'{"days": ' + b"9" * 5000 + b"}", headers=json),
        door.stranger().get("/v1/tokens"),
    ):
        assert reply.status_code in (400, 401, 403, 404, 405, 413, 415, 422)
        assert {"code", "message"} <= set(reply.json()["error"])
        assert reply.json()["error"]["code"] != "server-failed"


def test_a_mistake_of_ours_says_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise RuntimeError("canary")

    ann = door.ann()
    plan = door.plan(ann)
    monkeypatch.setattr(Plans, "release", fail)
    reply: httpx.Response = ann.post(f"/v1/plans/{plan}/release")
    assert reply.status_code == 500
    printed = capsys.readouterr()
    assert "canary" not in reply.text + printed.out + printed.err
    assert "RuntimeError" in printed.err
