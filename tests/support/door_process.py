"""A server in a process of its own, on the loopback, as `lapwing serve` runs it, and accounts for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from lapwing.server.people.people import People
from lapwing.server.people.person import Requester, Role
from lapwing.server.settings import STATE_FOLDER
from lapwing.server.state import ServerState

_STARTED = re.compile(rb"https?://[^\s]+")


def new_token(
    folder: Path, name: str, *roles: Role, data: str = "visits", most_epsilon: Fraction | None = None
) -> str:
    """Return a new token of an account with these roles, which is made if it is missing."""
    state = ServerState.open(folder / STATE_FOLDER)
    try:
        people = People.of(state)
        if people.accounts.find(name) is None:
            people.accounts.make(name)
        people.accounts.set_roles(name, data, frozenset(roles))
        who = Requester(name, {data: frozenset(roles)}, "session", "s")
        _, secret = people.tokens.make(
            who,
            name="a program",
            data=None,
            most_epsilon=most_epsilon,
            expires=datetime.now(UTC) + timedelta(days=1),
        )
        return secret
    finally:
        state.close()


def set_password(folder: Path, name: str, password: str) -> None:
    """Give an account a password, with which a browser can sign in."""
    state = ServerState.open(folder / STATE_FOLDER)
    try:
        People.of(state).accounts.set_password(name, password)
    finally:
        state.close()


@dataclass
class DoorProcess:
    """A running server."""

    process: subprocess.Popen[bytes]
    address: str

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(30)


def start(folder: Path, *, port: int = 0, slot: str = "0.05", more: tuple[str, ...] = ()) -> DoorProcess:
    """Start a server of a folder, and return it when it says that it serves."""
    settings = folder / "server.toml"
    if not settings.exists():
        settings.write_text(f"[server]\nreply_slot = {slot}\n[limits]\nrequests_per_minute = 1000000\n")
    folder = folder.absolute()
    command = [sys.executable, "-m", "lapwing", "serve", str(folder), "--port", str(port), *more]
    log = (folder / "server.log").open("ab")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    log.close()
    assert process.stdout is not None
    for line in process.stdout:
        if found := _STARTED.search(line):
            return DoorProcess(process, found[0].decode().rstrip("/"))
    process.wait(30)
    raise AssertionError((folder / "server.log").read_text())


@contextmanager
def running(folder: Path, *, more: tuple[str, ...] = ()) -> Iterator[DoorProcess]:
    """Run a server of a folder."""
    door = start(folder, more=more)
    try:
        yield door
    finally:
        if door.process.poll() is None:
            door.stop()
        assert door.process.stdout is not None
        door.process.stdout.close()
