"""A survey's server as a process of its own: to be asked over a real connection, and to be killed."""

from __future__ import annotations

import json
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from lapwing.survey.credentials import BlindSigningKey
from lapwing.survey.report_store import StoppingRule
from lapwing.survey.service import SurveyService, open_report_store
from lapwing.survey.web_app import CONTENT_SECONDS, create_app
from lapwing.web.connections import ConnectionLimits
from lapwing.web.serving import serve
from support.collecting import DIGEST, SIZE, private_key, small
from support.forking import Program

PUBLIC = {"name": "test", "title": "A test", "report_size": SIZE, "questions": []}


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Process:
    """A server that was started. `log` holds all that it said."""

    folder: Path
    where: str
    more: dict[str, Any] = field(default_factory=dict)
    address: str = ""
    port: int = 0
    trusted: Path | None = None

    def start(self) -> Process:
        """Start it, and wait until it takes requests."""
        key = self.folder / "survey.signing"
        if not key.exists():
            key.touch(0o600)
            key.write_bytes(
                private_key().private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
            )
        order = {"where": self.where, "key": str(key), "port": self.port, **self.more}
        self.log = self.folder / "server.log"
        self.log.touch()
        self.process = Program(main, order, log=self.log)
        self.address = self.process.stdout.readline().decode().strip()
        assert self.address, self.log.read_text()
        _, self.port = self.host_and_port  # whoever comes back finds it there
        return self

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self._wait()

    def stop(self) -> None:
        """As its owner would."""
        self.process.terminate()
        self._wait()

    def _wait(self) -> None:
        self.process.wait(60)
        self.process.stdout.close()

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.partition("://")[2].strip("/").rpartition(":")
        return host, int(port)

    def connect(self) -> HTTPConnection:
        if self.address.startswith("https"):
            context = ssl.create_default_context(cafile=self.trusted)
            return HTTPSConnection(*self.host_and_port, timeout=60, context=context)
        return HTTPConnection(*self.host_and_port, timeout=60)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        over: HTTPConnection | None = None,
    ) -> Reply:
        """One request; a body that is not bytes is sent as JSON."""
        connection = over or self.connect()
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, content, {**sent, **(headers or {})})
            reply = connection.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            if over is None:
                connection.close()

    def report(self, prepared: bytes, signature: bytes, report: bytes, **more: Any) -> Reply:
        body = {
            "digest": DIGEST,
            "token": prepared.hex(),
            "signature": signature.hex(),
            "report": report.hex(),
        }
        return self.ask("POST", "/report", body, **more)

    def sign(self, invitation: str, blinded: bytes, **more: Any) -> Reply:
        return self.ask("POST", "/sign", {"invitation": invitation, "blinded": blinded.hex()}, **more)


def main(order: dict[str, Any]) -> None:
    """The process itself."""
    store = open_report_store(order["where"], digest=DIGEST, report_size=SIZE)
    until = date.fromisoformat(order["until"]) if "until" in order else None
    rule = StoppingRule(order.get("stop_after"), until)
    service = SurveyService(store, BlindSigningKey.load(order["key"]), DIGEST, SIZE, small, rule)
    tls = {name: Path(order[name]) for name in ("certificate", "tls_key") if name in order}
    patience = order.get("patience", CONTENT_SECONDS)
    with suppress(KeyboardInterrupt):
        serve(
            create_app(service, PUBLIC, has_tls=bool(tls), patience=patience),
            limits=ConnectionLimits(**order.get("limits", {})),
            host="127.0.0.1",
            port=order.get("port", 0),
            certificate=tls.get("certificate"),
            key=tls.get("tls_key"),
            ready=lambda address: print(address, flush=True),
        )
