"""A member without manners: it speaks TLS and frames, and says whatever a test wants."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import (
    HEADER,
    PROTOCOL_VERSION,
    FrameKind,
    ReadyMessage,
    frame,
    json_frame,
    read_header,
    read_json,
)
from lapwing.parties.posts import Delivery
from lapwing.parties.run_configuration import parse_address
from support.parties import Flock, free_port


class Raw:
    """One connection to the relay, ready at once unless its greeting is taken out."""

    def __init__(self, flock: Flock, keys: MemberKeys, **hello: object) -> None:
        table = flock.table
        plain = socket.create_connection(parse_address(table.address), timeout=10)
        try:
            self._socket = keys.tls(trusting=(table.host,), server=False).wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        said: dict[str, object] = {"version": PROTOCOL_VERSION, "run": table.run_id.hex()}
        said |= {"stage": 0, "round": 0, "begun": False}
        sender = table.names.index(keys.name)
        said["greeting"] = ReadyMessage.fresh(table.run_id, sender, keys).to_json()
        self.send(json_frame(FrameKind.HELLO, **(said | hello)))

    def send(self, parts: list[bytes]) -> None:
        self._socket.sendall(b"".join(parts))

    def post(self, payload: bytes) -> None:
        self.send(frame(FrameKind.POST, payload))

    def receive(self) -> tuple[FrameKind, bytes]:
        kind, length = read_header(self._exactly(HEADER.size), largest=1 << 30)
        return kind, self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        got = b""
        while len(got) < length:
            piece = self._socket.recv(length - len(got))
            if not piece:
                raise EOFError
            got += piece
        return got

    def until(self, wanted: FrameKind) -> bytes:
        while True:
            kind, payload = self.receive()
            if kind is wanted:
                return payload

    def closed(self) -> Delivery:
        return Delivery.from_bytes(self.until(FrameKind.CLOSED))

    def end(self) -> dict[str, Any]:
        return read_json(self.until(FrameKind.END))

    def done(self) -> None:
        self.send(frame(FrameKind.DONE))
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.unwrap()
        self._socket.close()

    def cut(self) -> None:
        """As a cable does it."""
        self._socket.close()


class Proxy:
    """Stands between members and the relay, and cuts all connections when told to."""

    def __init__(self, to: str) -> None:
        self._to = parse_address(to)
        self._server = socket.create_server(("127.0.0.1", free_port()))
        self._pairs: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.connections = 0

    @property
    def address(self) -> str:
        host, port = self._server.getsockname()
        return f"{host}:{port}"

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._server.accept()
            except OSError:
                return
            try:
                other = socket.create_connection(self._to)
            except OSError:
                one.close()
                continue
            with self._lock:
                self.connections += 1
                self._pairs += [one, other]
            for source, sink in ((one, other), (other, one)):
                thread = threading.Thread(target=self._pump, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for one in pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)


@contextmanager
def proxy(to: str) -> Iterator[Proxy]:
    between = Proxy(to)
    try:
        yield between
    finally:
        between.close()


def refused_in_tls(flock: Flock, keys: MemberKeys) -> bool:
    """Whether the relay ends the connection before it says a word."""
    try:
        raw = Raw(flock, keys)
        try:
            raw.receive()
        finally:
            raw.cut()
    except (ssl.SSLError, ConnectionError, EOFError):
        return True
    return False
