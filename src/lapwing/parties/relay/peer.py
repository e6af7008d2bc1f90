"""One connection of one member to the relay."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from lapwing.parties.messages.frames import HEADER, Kind, read_header


class Peer:
    """`member` is whose certificate the connection showed, whatever is said over it."""

    def __init__(self, member: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.member = member
        self.watches = False
        self._reader = reader
        self._writer = writer

    async def receive(self, *, largest: int) -> tuple[Kind, bytes]:
        """The next frame. Raises `BadValue`, or `OSError` and `EOFError` when the connection ends."""
        kind, length = read_header(await self._reader.readexactly(HEADER.size), largest=largest)
        return kind, await self._reader.readexactly(length)

    def send(self, parts: list[bytes]) -> None:
        """Without waiting: what is sent is bounded by what a run has."""
        if not self._writer.is_closing():
            self._writer.write(b"".join(parts))  # each piece by itself would be a TLS record

    async def drain(self) -> None:
        """Until most of it has left."""
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        """What was sent before still leaves."""
        self._writer.close()
