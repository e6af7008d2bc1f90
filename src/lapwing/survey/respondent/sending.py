"""The device's side of HTTP: fetch a survey, have a blinded token signed, send the report.

Requests have no cookies, no time and nothing about the device; for one survey all are of one size.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from lapwing.errors import BadParameter, BadValue, MissingExtra, Unavailable
from lapwing.survey.credentials import Blinding, PublicKey, blind, prepare
from lapwing.survey.respondent.offered import digest

try:
    import httpx
except ImportError:
    raise MissingExtra("server", "Sending a report") from None

_PATIENCE = 30.0
_LOCAL = ("127.0.0.1", "localhost", "::1")


class Server:
    """The server of one survey. Only https, except on the same machine."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        local = parts.scheme == "http" and parts.hostname in _LOCAL
        if not parts.hostname or not (parts.scheme == "https" or local):
            raise BadParameter("url", "must begin with https://")
        self._client = httpx.Client(
            base_url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/",
            headers={"User-Agent": "lapwing"},  # the same for all devices
            timeout=_PATIENCE,
            trust_env=False,
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def survey(self) -> tuple[dict[str, Any], PublicKey]:
        """The survey's public part, which has the digest that it is said to have, and the key."""
        found = self._call("GET", "survey.json")
        public = found.get("survey")
        if (
            found.get("version") != 1
            or not isinstance(public, dict)
            or digest(public) != found.get("digest")
        ):
            raise BadValue("the server's survey is not in order: it is not what its digest says")
        return public, PublicKey.from_json(found.get("key"))

    def new_token(self, key: PublicKey) -> dict[str, str]:
        """A fresh token and its blinding, for the device's own storage."""
        return blind(key, prepare()).to_json()

    def sign(self, key: PublicKey, token: dict[str, str], invitation: str) -> str:
        """The signature of the token for this invitation, checked, in hexadecimal."""
        found = self._call("POST", "sign", {"invitation": invitation, "blinded": token["blinded"]})
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
        if self._call("POST", "report", body).get("accepted") is not True:
            raise Unavailable("the server did not say that it has the report: send it again")

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            answer = self._client.request(method, path, json=body)
        except httpx.HTTPError:
            raise Unavailable("the survey's server cannot be reached") from None
        if answer.status_code == httpx.codes.OK:
            try:
                found = answer.json()
            except ValueError:
                found = None
            if isinstance(found, dict):
                return found
            raise BadValue("the server's answer is not in order")
        malformed = path == "sign" and answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        raise _refused(403 if malformed else answer.status_code)


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
