"""What the survey's server never says: nothing of a request, in no reply and in no log."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from lapwing.survey.web_app import create_app
from support.collecting import DIGEST, SIZE, Shelf, credential, service_of
from support.survey_server import PUBLIC, Process

GOOD, OTHER = b"\x01\x00\x01", b"\x02\x01\x01"
CANARY = "c0ffee5ec2e7"


class TestSilence:
    def test_X7_no_value_comes_back_or_into_a_log(self, server: Process) -> None:
        prepared, signature = credential()
        odd = [
            server.ask("GET", f"/{CANARY}?{CANARY}", headers={"X-Forwarded-For": CANARY, "Cookie": CANARY}),
            server.ask("POST", "/report", f'{{"{CANARY}": "{CANARY}"}}'.encode()),
            server.ask(
                "POST", "/report", {"digest": CANARY, "token": CANARY, "signature": "", "report": ""}
            ),
            server.ask("POST", "/sign", {"invitation": CANARY * 2, "blinded": CANARY}),
            server.ask("POST", "/sign", {"invitation": CANARY * 2, "blinded": "00" * 256}),
            server.report(prepared, signature, bytes.fromhex(CANARY)),
        ]
        for reply in odd:
            assert reply.status in (403, 404, 422)
            assert CANARY.encode() not in reply.content
            assert CANARY not in str(reply.headers)
        connection = HTTPConnection(*server.host_and_port, timeout=60)
        connection.connect()
        connection.sock.sendall(f"{CANARY} / nonsense\r\n\r\n".encode())
        said = connection.sock.recv(4096)
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"content-security-policy: default-src 'none'" in said
        assert b"cache-control: no-store" in said
        assert CANARY.encode() not in said
        connection.close()
        assert server.log.read_text() == ""

    def test_what_nobody_foresaw_is_told_without_a_reason(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def broken(_: bytes) -> None:
            raise RuntimeError(CANARY)

        at = service_of(Shelf.of("sqlite", tmp_path).open(), check=broken)
        prepared, signature = credential()
        body = {"token": prepared.hex(), "signature": signature.hex(), "report": GOOD.hex()}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(create_app(at, PUBLIC))
            async with httpx.AsyncClient(transport=transport, base_url="http://survey") as client:
                return await client.post("/report", json={"digest": DIGEST, **body})

        with ThreadPoolExecutor(1) as apart:  # this thread may have the loop of the browser
            reply = apart.submit(asyncio.run, ask()).result()
        assert (reply.status_code, reply.json()) == (500, {"error": "the server failed"})
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert capsys.readouterr() == ("", "lapwing: a request failed (RuntimeError)\n")
        at.close()

    def test_nobody_can_have_requests_traced_or_measured(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The framework can send the time and address of each request elsewhere. It must never do so."""
        monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
        at = service_of(Shelf.of("sqlite", tmp_path).open())
        settings = create_app(at, PUBLIC)._telemetry
        assert not any(settings.values())
        at.close()

    def test_alike_requests_get_the_same_bytes(self, server: Process) -> None:
        """Whatever a report says: length and content of the reply are one and the same."""
        replies = {server.report(*credential(), report).content for report in (GOOD, OTHER, bytes(SIZE))}
        assert len(replies) == 1
