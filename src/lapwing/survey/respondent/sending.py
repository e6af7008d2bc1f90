"""The device's side of HTTP: fetch a survey, have a blinded token signed, send the report.

Requests have no cookies, no time and nothing about the device; for one survey all are of one size. Each
goes over a connection of its own: the report does not arrive on the one that the credential came by.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.credentials import Blinding, PublicKey, blind, prepare
from lapwing.survey.planning.design import LARGEST_SURVEY
from lapwing.survey.respondent.exactly import has_exactly, parsed
from lapwing.survey.respondent.offered import read
from lapwing.survey.respondent.wire import Place, request

PATIENCE: Final = 60.0  # seconds, for all that is asked of a server at one go
_LARGEST_REPLY = 64 << 10


class Server:
    """The server of one survey. Only https, except on the same machine; `patience` bounds all calls."""

    def __init__(self, url: str, *, patience: float = PATIENCE) -> None:
        self._place = Place.of(url)
        self._deadline = time.monotonic() + patience

    def survey(self) -> tuple[dict[str, Any], PublicKey]:
        """The survey's public part, which is in order and what its digest says, and the key."""
        found = self._call("survey.json", most=LARGEST_SURVEY)
        if not has_exactly(found, ("survey", "digest", "key", "version")) or found["version"] != 1:
            raise BadValue("the server's survey is not in order: it is not of a known kind")
        public = found["survey"]
        if read(public).digest != found["digest"]:
            raise BadValue("the server's survey is not in order: it is not what its digest says")
        return public, PublicKey.from_json(found["key"])

    def new_token(self, key: PublicKey) -> dict[str, str]:
        """A fresh token and its blinding, for the device's own storage."""
        return blind(key, prepare()).to_json()

    def sign(self, key: PublicKey, token: dict[str, str], invitation: str) -> str:
        """The signature of the token for this invitation, checked, in hexadecimal."""
        found = self._call("sign", {"invitation": invitation, "blinded": token["blinded"]})
        try:
            signature = bytes.fromhex(found["signature"])
        except (KeyError, TypeError, ValueError):
            raise BadValue("the server's signature is not in order") from None
        return Blinding.from_json(key, token).finish(signature).hex()

    def report(self, survey: str, memo: Mapping[str, Any]) -> None:
        """Send the report of a memo under its credential."""
        body = {
            "digest": survey, "token": memo["token"]["prepared"], "signature": memo["signature"],
            "report": memo["report"],
        }  # fmt: skip
        if self._call("report", body).get("accepted") is not True:
            raise Unavailable("the server did not say that it has the report: send it again")

    def _call(
        self, path: str, body: dict[str, str] | None = None, most: int = _LARGEST_REPLY
    ) -> dict[str, Any]:
        status, content = request(self._place, path, body, most=most, deadline=self._deadline)
        if status == HTTPStatus.OK:
            found = parsed(content)
            if isinstance(found, dict):
                return found
            raise BadValue("the server's answer is not in order")
        malformed = path == "sign" and status == HTTPStatus.UNPROCESSABLE_ENTITY
        raise _refused(403 if malformed else status)


def _refused(status: int) -> Exception:
    match status:
        case 403 | 404:
            return BadParameter("invitation", "is not known to this survey")
        case 409:
            return BadParameter(
                "invitation", "was used on another device, or before this one lost its memory"
            )
        case 410:
            return Unavailable("the survey is closed: it takes no more reports")
        case 422:
            return BadValue("the server did not accept the request: it is not of the form that it takes")
    return Unavailable(f"the survey's server answered with the code {status}: try again later")
