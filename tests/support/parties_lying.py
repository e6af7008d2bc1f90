"""A relay with the right certificate that says whatever a test wants, and an honest member."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

from lapwing.parties.member import take_part
from lapwing.parties.messages import HEADER, FrameKind, Progress, read_header
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.run_configuration import parse_address
from lapwing.parties.transcript import Transcript
from support.parties import Flock


class Talk:
    """The lying relay's side of one connection."""

    def __init__(self, line: ssl.SSLSocket) -> None:
        self._line = line

    def read(self) -> tuple[FrameKind, bytes]:
        kind, length = read_header(self._exactly(HEADER.size), largest=1 << 30)
        return kind, self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        got = b""
        while len(got) < length:
            piece = self._line.recv(length - len(got))
            if not piece:
                raise EOFError
            got += piece
        return got

    def say(self, parts: list[bytes]) -> None:
        self._line.sendall(b"".join(parts))


Lie = Callable[[Talk], None]


@contextmanager
def lying(group: Flock, lie: Lie) -> Iterator[list[float]]:
    """Shows the host's certificate, then does as it is told; gives the times of all connections."""
    context = group.keys[0].tls(trusting=group.table.cards, server=True)
    server = socket.create_server(parse_address(group.table.address))
    times: list[float] = []

    def go() -> None:
        while True:
            try:
                plain, _ = server.accept()
            except OSError:
                return
            times.append(time.monotonic())
            plain.settimeout(5)
            with suppress(OSError, EOFError), context.wrap_socket(plain, server_side=True) as line:
                lie(Talk(line))

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield times
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


class South:
    """An honest member, and whether it was charged."""

    def __init__(self, group: Flock, watch: Callable[[Progress], None] | None = None) -> None:
        self.group = group
        self.watch = watch
        self.charged: list[int] = []
        self.takes = 0.0

    def contribute(self, stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
        del earlier
        self.charged.append(stage)
        time.sleep(self.takes)
        return np.full(self.group.table.length, 5, dtype=np.int64)

    def play(self) -> None:
        group = self.group
        take_part(
            group.table,
            1,
            group.keys[1],
            folder=group.folder(1),
            contribute=self.contribute,
            watch=self.watch,
        )

    def shown(self) -> Transcript:
        return Transcript.read(self.group.transcript(1))
