"""Errors over HTTP: one form, the codes of `docs/reference/errors.md`, and a status for each kind.

`{"error": {"code": …, "message": …, "asked"?, "left"?, "what_now"?, …}}`

Claim    a refusal says nothing that the person may not know: no place of a file, and the same bytes for
         what another person has as for what never was.
Because  the texts of 401, 403 and 404 are fixed; errors of the ledger, the engine and the machine have a
         fixed text, too; and folders are cut out of all others.
Test     tests/server/api/test_errors.py
"""

from __future__ import annotations

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from lapwing.errors import (
    BadParameter,
    BadValue,
    Held,
    InProgress,
    KeyReused,
    LapwingError,
    OverBudget,
    TokenSpent,
    TooManyRequests,
    Unavailable,
    WorkEnded,
    fields_of,
)
from lapwing.server.data.places import without_places
from lapwing.server.people.person import IdentityNotBound, NotAllowed, NotFound, NotSignedIn

NOT_SIGNED_IN, NOT_ALLOWED, NOT_FOUND = "not-signed-in", "not-allowed", "not-found"
BAD_REQUEST, TOO_LARGE, TOO_MANY = "bad-request", "too-large", "too-many"
_FIXED = {
    400: (BAD_REQUEST, "the request is not understood"),
    401: (NOT_SIGNED_IN, "sign in, or send a token that is valid"),
    403: (NOT_ALLOWED, "your roles do not allow this"),
    404: (NOT_FOUND, "there is nothing here for you"),
    405: ("bad-method", "this address is asked in another way: see /v1/openapi.json"),
    408: ("too-slow", "the request took too long"),
    413: (TOO_LARGE, "the request is too long"),
    415: (BAD_REQUEST, "the content must be application/json"),
    421: ("bad-host", "this name is not served here"),
    429: (TOO_MANY, "these are too many requests: wait a moment"),
}
_UNAVAILABLE = (
    "the data or the ledger cannot be used now. A charge whose outcome is unknown counts as spent"
)
_BROKEN = "the ledger or the machine here is not as it must be: the steward must look"
_RETRY_SECONDS = {InProgress: "1", Unavailable: "5"}
JSON = "application/json"


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    match error:
        case HTTPException(status_code=status):
            return status
        case NotSignedIn():
            return 401
        case NotAllowed():
            return 403
        case NotFound():
            return 404
        case LapwingError():
            return _status_of_ours(error)
    return 500


def _status_of_ours(error: LapwingError) -> int:
    match error:
        case TokenSpent() | IdentityNotBound():
            return 403
        case TooManyRequests():
            return 429
        case Held() | InProgress() | KeyReused() | WorkEnded():
            return 409
        case BadParameter() | BadValue() | OverBudget():
            return 422
        case _:
            return 503


def error_json(error: Exception) -> dict[str, Any]:
    """Return an error in the one form."""
    status = status_of(error)
    if status in _FIXED and not isinstance(error, LapwingError):
        code, message = _FIXED[status]
        return {"error": {"code": code, "message": message}}
    if not isinstance(error, LapwingError):
        return {"error": {"code": "server-failed", "message": "the server failed"}}
    if status == 503:
        message = _UNAVAILABLE if isinstance(error, Unavailable) else _BROKEN
        return {"error": {"code": error.code, "message": message}}
    always = {"code": error.code, "message": str(error)}
    fields = {name: value for name, value in fields_of(error).items() if name not in always}
    return {"error": without_places({**always, **fields})}


def error_reply(error: Exception) -> Response:
    """Return the reply to a request that failed."""
    status = status_of(error)
    headers = dict(getattr(error, "headers", None) or {})
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    for kind, seconds in _RETRY_SECONDS.items():
        if isinstance(error, kind) or (status == 503 and kind is Unavailable):
            headers["Retry-After"] = seconds
    content = json.dumps(error_json(error), ensure_ascii=False).encode()
    return Response(content, status, headers, JSON)
