"""Errors over HTTP: the status of each kind, one form, and nothing of the machine in it."""

from __future__ import annotations

import json

from starlette.exceptions import HTTPException

from lapwing.engines.engine import EngineFailed
from lapwing.errors import (
    AllHeld,
    BadFile,
    BadParameter,
    Held,
    InProgress,
    KeyReused,
    NoEntropy,
    OverBudget,
    Tampered,
    TokenSpent,
    TooManyRequests,
    Unavailable,
    WorkEnded,
)
from lapwing.server.api.errors import error_reply
from lapwing.server.people.person import NotAllowed, NotFound, NotSignedIn
from lapwing.sql.question.refusal import Refused

PLACE = "/srv/canary"


def test_each_kind_has_its_status_and_one_form() -> None:
    for error, status, code in (
        (NotSignedIn(), 401, "not-signed-in"),
        (NotAllowed("visits"), 403, "not-allowed"),
        (TokenSpent(2, 1, 1), 403, "token-spent"),  # type: ignore[arg-type]
        (NotFound("canary"), 404, "not-found"),
        (HTTPException(404, "canary"), 404, "not-found"),
        (HTTPException(405), 405, "bad-method"),
        (Held(5), 409, "held"),
        (AllHeld([5, 6]), 409, "all-held"),
        (InProgress(), 409, "in-progress"),
        (KeyReused(), 409, "key-reused"),
        (WorkEnded(), 409, "work-ended"),
        (BadParameter("epsilon", "is odd"), 422, "bad-parameter"),
        (BadFile([f"{PLACE}/a.toml:1: x"]), 422, "bad-file"),
        (BadParameter("source", f'in "{PLACE}/lapwing.ledger"'), 422, "bad-parameter"),
        (BadParameter("source", f"url = {PLACE}/x/lapwing.ledger, (`{PLACE}/y`)"), 422, "bad-parameter"),
        (Refused("rows", "Ask for a count", (1, 2)), 422, "refused"),
        (OverBudget("ε 1", "ε 0", "Stop."), 422, "over-budget"),
        (TooManyRequests(7), 429, "too-many"),
        (Unavailable(f"{PLACE}/lapwing.ledger cannot be used"), 503, "unavailable"),
        (EngineFailed(), 503, "engine-failed"),
        (Tampered(["canary"]), 503, "tampered"),
        (NoEntropy("canary"), 503, "no-entropy"),
        (RuntimeError("canary"), 500, "server-failed"),
    ):
        reply = error_reply(error)
        told = json.loads(bytes(reply.body))["error"]
        assert (reply.status_code, told["code"]) == (status, code)
        assert told["message"]
        assert b"canary" not in bytes(reply.body), error


def test_who_may_try_again_is_told_when() -> None:
    for error, seconds in ((TooManyRequests(7), "7"), (InProgress(), "1"), (Unavailable("x"), "5")):
        assert error_reply(error).headers["retry-after"] == seconds
    assert "retry-after" not in error_reply(Held(5)).headers
    assert error_reply(NotSignedIn()).headers["www-authenticate"] == "Bearer"


def test_an_error_keeps_its_public_fields() -> None:
    told = json.loads(bytes(error_reply(OverBudget("ε 1", "ε 0.5 of 1", "Stop.", where='"v"')).body))[
        "error"
    ]
    assert (told["asked"], told["left"], told["what_now"], told["where"]) == (
        "ε 1",
        "ε 0.5 of 1",
        "Stop.",
        '"v"',
    )
