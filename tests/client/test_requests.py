"""Requests go to one host, are repeated where that costs nothing, and hide the token."""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lapwing.client import requests
from lapwing.client.address import ServerAddress
from lapwing.client.credentials import ClientToken
from lapwing.client.replied_errors import RequestRefused
from lapwing.client.requests import Requests
from lapwing.errors import BadParameter, KeyReused, Tampered, TooManyRequests, Unavailable
from support.raised import named

TOKEN = "lapwing_0123456789abcdefghijklmnop"
Reply = tuple[int, dict[str, str], bytes] | None  # None: the connection is cut


@dataclass
class Scripted:
    """A server that replies by a script, and notes what it was sent."""

    replies: list[Reply]
    seen: list[dict[str, Any]] = field(default_factory=list)
    origin: str = ""

    def requests(self, **more: Any) -> Requests:
        given = {"ca": None, "timeout": 5.0, "patience": 5.0, **more}
        return Requests(ServerAddress.of(self.origin), ClientToken(TOKEN), **given)


@contextmanager
def scripted(*replies: Reply) -> Iterator[Scripted]:
    """Run a server that gives these replies in turn, and the last one for ever."""
    script = Scripted(list(replies))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.seen.append({"path": self.path, "body": body, "headers": dict(self.headers.items())})
            reply = script.replies[min(len(script.seen), len(script.replies)) - 1]
            if reply is None:
                self.close_connection = True
                return
            status, headers, content = reply
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 (the base class calls it)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        script.origin = f"http://127.0.0.1:{server.server_port}"
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()


def said(status: int, code: str, **headers: str) -> Reply:
    content = json.dumps({"error": {"code": code, "message": f"the words of {code}"}}).encode()
    return status, headers, content


GOOD: Reply = (200, {}, b'{"good": true}')


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let nobody wait, and note how long they would."""
    waited: list[float] = []
    monkeypatch.setattr("lapwing.client.requests.time.sleep", waited.append)
    return waited


AGAIN: dict[str, Reply] = {
    "a lost connection": None,
    "unavailable": said(503, "unavailable"),
    "too many": said(429, "too-many"),
    "in progress": said(409, "in-progress"),
    "a proxy without its server": (502, {}, b"<html>Bad Gateway</html>"),
}


@pytest.mark.parametrize("first", AGAIN.values(), ids=AGAIN)
def test_what_may_pass_is_sent_again_as_it_was(first: Reply) -> None:
    with scripted(first, first, GOOD) as server:
        sender = server.requests(patience=60.0)
        assert sender.post("/v1/plans/abc/release", {"a": "1"}) == {"good": True}
        sender.close()
    assert len(server.seen) == 3
    assert {(one["path"], one["body"]) for one in server.seen} == {("/v1/plans/abc/release", b'{"a":"1"}')}


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (said(409, "key-reused"), KeyReused),
        (said(503, "tampered"), Tampered),
        (said(401, "not-signed-in"), RequestRefused),
        ((500, {}, b"broken"), RequestRefused),
    ],
)
def test_what_does_not_pass_is_sent_once(reply: Reply, kind: type[Exception]) -> None:
    with scripted(reply, GOOD) as server:
        sender = server.requests()
        with pytest.raises(kind):
            sender.get("/v1/data")
        sender.close()
    assert len(server.seen) == 1


def test_the_servers_seconds_are_kept(quick: list[float]) -> None:
    with scripted(said(429, "too-many", **{"Retry-After": "7"}), GOOD) as server:
        sender = server.requests(patience=60.0)
        sender.get("/v1/data")
        sender.close()
    assert quick == [7.0]


def test_patience_ends() -> None:
    with scripted(said(429, "too-many", **{"Retry-After": "100"})) as server:
        sender = server.requests(patience=1.0)
        with pytest.raises(TooManyRequests, match="the words"):
            sender.get("/v1/data")
        sender.close()
    assert len(server.seen) == 1


def test_what_is_not_repeatable_is_sent_once() -> None:
    with scripted(None, GOOD) as server:
        sender = server.requests()
        with pytest.raises(Unavailable):
            sender.post("/v1/jobs", {}, is_repeatable=False)
        sender.close()
    assert len(server.seen) == 1


def test_no_redirect_is_followed_and_no_cookie_kept() -> None:
    with scripted((200, {}, b"{}")) as elsewhere:
        away: Reply = (307, {"Location": f"{elsewhere.origin}/v1/data", "Set-Cookie": "a=b"}, b"")
        with scripted(away, (200, {"Set-Cookie": "a=b; Path=/"}, b"{}"), GOOD) as server:
            sender = server.requests()
            with pytest.raises(RequestRefused, match="another address"):
                sender.get("/v1/data")
            sender.get("/v1/data")
            sender.get("/v1/data")
            sender.close()
    assert elsewhere.seen == []
    assert all("Cookie" not in one["headers"] for one in server.seen)


def test_no_proxy_of_the_environment_sees_a_token_on_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(GOOD) as proxy, scripted(GOOD) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        sender = server.requests()
        sender.get("/v1/data")
        sender.close()
    assert (len(proxy.seen), len(server.seen)) == (0, 1)


def test_a_reply_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_BYTES", 1000)
    with scripted((200, {}, b"x" * 5000)) as server:
        sender = server.requests(patience=0.0)
        with pytest.raises(Unavailable):
            sender.get("/v1/data")
        sender.close()


BROKEN: tuple[Callable[[Requests], Any], ...] = (
    lambda sender: sender.get("/v1/data"),
    lambda sender: sender.post("/v1/plans", {"sql": "SELECT 'canary'"}),
)


@pytest.mark.parametrize("reply", [GOOD, None, said(401, "not-signed-in"), (200, {}, b"<html>")])
def test_the_token_is_in_no_log_error_or_text(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    with scripted(reply) as server:
        sender = server.requests(patience=0.0)
        for send in BROKEN:
            try:
                send(sender)
            except Exception as error:
                told += [str(error), repr(error), repr(vars(error)), repr(error.__context__)]
        told.append(f"{sender!r} {vars(sender)}")
        sender.close()
    assert {one["headers"]["Authorization"] for one in server.seen} == {f"Bearer {TOKEN}"}
    assert TOKEN not in caplog.text + "".join(told)


def test_a_certificate_that_is_not_trusted_is_refused_at_once_and_an_own_ca_is_trusted(
    tmp_path: Path, tls_files: tuple[Path, Path]
) -> None:
    certificate, key = tls_files
    with tls_server(certificate, key) as origin:
        address = ServerAddress.of(origin)
        strange = Requests(address, ClientToken(TOKEN), ca=None, timeout=5.0, patience=60.0)
        with pytest.raises(BadParameter, match="ca=", check=named("ca")):
            strange.get("/v1/data")
        strange.close()
        known = Requests(address, ClientToken(TOKEN), ca=certificate, timeout=5.0, patience=0.0)
        assert known.get("/v1/data") == {}
        known.close()
        with pytest.raises(BadParameter, check=named("ca")):
            Requests(address, ClientToken(TOKEN), ca=tmp_path / "missing", timeout=5.0, patience=0.0)


@contextmanager
def tls_server(certificate: Path, key: Path) -> Iterator[str]:
    """Run a server with TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
