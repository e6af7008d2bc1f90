"""A server that answers as it is told to: what does a device do with replies that no honest one gives?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

from lapwing.survey.credentials import BlindSigningKey
from lapwing.survey.offered import survey_digest

DRIP = 0.05  # seconds


class Hostile:
    """What was asked of the server, and what it answers: `replies` by path, else as an honest one does."""

    def __init__(self, public: dict[str, Any], key: BlindSigningKey) -> None:
        self.public, self.key = public, key
        self.replies: dict[str, Any] = {}
        self.asked: list[tuple[str, int, dict[str, str]]] = []  # path, the client's port, headers
        self.address = ""
        self.stopping = threading.Event()

    def survey(self, **more: Any) -> bytes:
        found = {
            "survey": self.public,
            "digest": survey_digest(self.public),
            "key": self.key.public.to_json(),
        }
        return json.dumps({**found, "version": 1, **more}).encode()

    def honest(self, path: str, body: bytes) -> bytes:
        match path:
            case "/survey.json":
                return self.survey()
            case "/sign":
                blinded = bytes.fromhex(json.loads(body)["blinded"])
                return json.dumps({"signature": self.key.sign(blinded).hex()}).encode()
        return b'{"accepted": true}'

    def hang(self, _: BinaryIO) -> None:
        """Says nothing, until the test is over."""
        self.stopping.wait()

    def drip(self, out: BinaryIO) -> None:
        """A head that never ends, a byte at a time."""
        self._drip(out, b"HTTP/1.1 200 OK\r\nX: ")

    def drip_body(self, out: BinaryIO) -> None:
        """A content that never ends, a byte at a time."""
        self._drip(out, b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")

    def _drip(self, out: BinaryIO, head: bytes) -> None:
        out.write(head)
        while not self.stopping.is_set():
            out.write(b" ")
            out.flush()
            time.sleep(DRIP)

    def flood(self, out: BinaryIO) -> None:
        """A content without end, as fast as it goes."""
        out.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not self.stopping.is_set():
            out.write(b" " * (1 << 20))


@contextmanager
def hostile(public: dict[str, Any], key: BlindSigningKey) -> Iterator[Hostile]:
    """The server, on a port of its own."""
    told = Hostile(public, key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            told.asked.append((self.path, self.client_address[1], dict(self.headers)))
            reply = told.replies.get(self.path) or told.honest(self.path, body)
            try:
                if callable(reply):
                    self.close_connection = True
                    reply(self.wfile)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)
            except OSError:
                self.close_connection = True  # the device had enough

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        told.address = f"http://127.0.0.1:{server.server_port}/"
        try:
            yield told
        finally:
            told.stopping.set()
            server.shutdown()
            serving.join()
