"""A server as `lapwing serve` runs it, in processes of its own, and tokens for it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from lapwing.server.people.people import People
from lapwing.server.people.person import Requester, Role
from lapwing.server.settings import STATE_FOLDER, ServerSettings, read_settings
from lapwing.server.state import ServerState


@dataclass
class ServedProcess:
    """A running `lapwing serve`, and the people of its state, which this process shares."""

    folder: Path
    process: subprocess.Popen[str]
    address: str
    state: ServerState
    clients: dict[tuple[str, str | None], httpx.Client] = field(default_factory=dict)

    @property
    def people(self) -> People:
        """The people of the server."""
        return People.of(self.state)

    @property
    def settings(self) -> ServerSettings:
        """The settings of the server."""
        return read_settings(self.folder)

    def person(self, name: str, *roles: str, data: str = "visits", password: str | None = None) -> None:
        """Make an account, unless it is there, and give it these roles alone."""
        accounts = self.people.accounts
        if accounts.find(name) is None:
            accounts.make(name, password=password)
        accounts.set_roles(name, data, frozenset(map(Role, roles)))

    def program(self, name: str, *, data: str = "visits", most_epsilon: str | None = None) -> httpx.Client:
        """Return the client with a token of an account."""
        key = name, most_epsilon
        if key not in self.clients:
            who = Requester(name, {data: frozenset(Role)}, "session", "s")
            expires, most = datetime.now(UTC) + timedelta(days=1), None
            if most_epsilon is not None:
                most = Fraction(most_epsilon)
            _, secret = self.people.tokens.make(
                who, name="x", data=None, most_epsilon=most, expires=expires
            )
            self.clients[key] = self._client({"authorization": f"Bearer {secret}"})
        return self.clients[key]

    def client(self, name: str, *roles: Role, data: str = "visits") -> httpx.Client:
        """Return a client with a token of an account with these roles, which is made if it is missing."""
        self.person(name, *roles, data=data)
        return self.program(name, data=data)

    def browser(self, session: str = "") -> httpx.Client:
        """Return a client that keeps cookies, and says where its requests come from, as browsers do."""
        own = {"origin": self.address.rstrip("/"), "sec-fetch-site": "same-origin"}
        found = self._client(own, key=f"browser {len(self.clients)}")
        if session:
            found.cookies.set("lapwing", session, domain="127.0.0.1")
        return found

    def stranger(self) -> httpx.Client:
        """Return a client without a credential, which keeps no cookie of earlier requests."""
        if ("", None) not in self.clients:
            self.clients["", None] = self._client({})
        self.clients["", None].cookies.clear()
        return self.clients["", None]

    def _client(self, headers: dict[str, str], *, key: str = "") -> httpx.Client:
        made = httpx.Client(base_url=self.address, headers=headers, timeout=60)
        if key:
            self.clients[key, None] = made
        return made

    def connected(self) -> socket.socket:
        """Return a connection to the server, on which anything may be sent."""
        parts = urlsplit(self.address)
        return socket.create_connection((parts.hostname, parts.port))

    def children(self) -> list[int]:
        """The processes that it started, without the one that Python keeps for shared memory."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")  # a thread starts those of jobs
        listed = [child for task in tasks for child in task.read_text().split()]
        return [int(child) for child in listed if _is_worker(Path(f"/proc/{child}/cmdline"))]

    def stop(self) -> int:
        """End it as a terminal does, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def _is_worker(command: Path) -> bool:
    try:
        return b"spawn_main" in command.read_bytes()
    except OSError:  # it ended meanwhile
        return False


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
        server = ServedProcess(folder, process, found[0], ServerState.open(folder / STATE_FOLDER))
        try:
            yield server
        finally:
            for client in server.clients.values():
                client.close()
            server.state.close()
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
