"""Respondents as a process of their own: many connections, each sends a report until it is acknowledged.

    python -m support.survey_load HOST PORT BODIES DIARY CONNECTIONS

BODIES has one request of `/report` a line. The diary gets the number of each, in a line, once the server
has said that it is accepted. A connection that breaks is opened again, and its report sent again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from pathlib import Path

AGAIN_AFTER = 0.02  # seconds


class Load:
    """All respondents."""

    def __init__(self, host: str, port: int, bodies: list[bytes], diary: int) -> None:
        head = f"POST /report HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        self._requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        self._where = host, port
        self._diary = diary
        self._waiting = deque(range(len(bodies)))
        self.sent_again = 0

    async def run(self, connections: int) -> None:
        """Until every report is acknowledged."""
        await asyncio.gather(*(self._respondent() for _ in range(connections)))

    async def _respondent(self) -> None:
        while self._waiting:
            try:
                reader, writer = await asyncio.open_connection(*self._where)
            except OSError:
                await asyncio.sleep(AGAIN_AFTER)
                continue
            try:
                while self._waiting:
                    await self._send(reader, writer)
            except (OSError, EOFError):
                self.sent_again += 1
            finally:
                writer.close()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self._waiting.popleft()
        try:
            writer.write(self._requests[number])
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            content = await reader.readexactly(size)
        except (OSError, EOFError):
            self._waiting.append(number)
            raise
        if content == b'{"accepted":true}':
            os.write(self._diary, b"%d\n" % number)  # it must outlive us, too
        elif head.startswith(b"HTTP/1.1 503"):
            self._waiting.append(number)
            await asyncio.sleep(AGAIN_AFTER)
        else:
            raise SystemExit(f"refused: {head[:40]!r} {content!r}")


def main(host: str, port: str, bodies: str, diary: str, connections: str) -> None:
    """The process itself. Prints how often something was sent again."""
    requests = Path(bodies).read_bytes().splitlines()
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    load = Load(host, int(port), requests, file)
    print("ready", flush=True)
    asyncio.run(load.run(int(connections)))
    print(load.sent_again)


if __name__ == "__main__":
    main(*sys.argv[1:])
