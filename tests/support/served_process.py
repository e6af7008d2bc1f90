"""A server as `lapwing serve` runs it, in processes of its own, and tokens for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from lapwing.server.people.people import People
from lapwing.server.people.person import Person, Role
from lapwing.server.settings import STATE_FOLDER
from lapwing.server.state import ServerState


@dataclass
class ServedProcess:
    """A running `lapwing serve`."""

    folder: Path
    process: subprocess.Popen[str]
    address: str
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, name: str, *roles: Role, data: str = "visits") -> httpx.Client:
        """Return a client with a token of a new account."""
        state = ServerState.open(self.folder / STATE_FOLDER)
        people = People.of(state)
        people.accounts.make(name)
        people.accounts.set_roles(name, data, frozenset(roles))
        who = Person(name, {data: frozenset(roles)}, "session", "s")
        expires = datetime.now(UTC) + timedelta(days=1)
        _, secret = people.tokens.make(who, name="x", data=None, most_epsilon=None, expires=expires)
        state.close()
        headers = {"Authorization": f"Bearer {secret}"}
        self.clients.append(httpx.Client(base_url=self.address, headers=headers, timeout=60))
        return self.clients[-1]

    def children(self) -> list[int]:
        """The processes that it started, without the one that Python keeps for shared memory."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(one) for one in listed if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]

    def stop(self) -> int:
        """End it as a terminal does, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[ServedProcess]:
    """Run `lapwing serve` for a folder until the block ends."""
    command = [sys.executable, "-m", "lapwing", "serve", str(folder), "--port", "0", *options]
    log = (folder / "stderr").open("w")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http\S+", line)
        assert found is not None, (line, (folder / "stderr").read_text())
        server = ServedProcess(folder, process, found[0])
        yield server
        for client in server.clients:
            client.close()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
        log.close()


def until(holds: object, seconds: float = 30.0) -> None:
    """Wait until a function returns something true."""
    assert callable(holds)
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)
