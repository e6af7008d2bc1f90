"""A served data set with people of all roles, in this process and on a port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser

from lapwing.server.people.person import EVERYWHERE, Role
from support.browser import chromium
from support.served import Door, write_data
from support.server_people import GOOD, cheapen, client_of

PEOPLE = {
    "ann": frozenset({Role.ANALYST}),
    "bob": frozenset({Role.ANALYST}),
    "sue": frozenset({Role.STEWARD}),
    "olga": frozenset({Role.OFFICER}),
    "otto": frozenset({Role.SURVEY_OWNER}),
}


class ConsoleDoor(Door):
    """A server with people who have passwords, and browsers without scripts."""

    base = "http://localhost"

    def add_people(self) -> None:
        for name, roles in PEOPLE.items():
            self.services.people.accounts.make(name, password=GOOD)
            self.services.people.accounts.set_roles(name, EVERYWHERE, roles)

    def browser(self, name: str = "") -> httpx.Client:
        """A browser without scripts, in which somebody has signed in."""
        own = {"origin": self.base, "sec-fetch-site": "same-origin", "accept": "text/html"}
        found = client_of(self.app, self.base, own)
        if name:
            reply = found.post("/sign-in", data={"name": name, "password": GOOD})
            assert reply.status_code == 303, reply.text
        return found


@pytest.fixture(scope="module")
def patching() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def console(
    tmp_path_factory: pytest.TempPathFactory, patching: pytest.MonkeyPatch
) -> Iterator[ConsoleDoor]:
    """One server for the tests of a file."""
    cheapen(patching)
    folder = tmp_path_factory.mktemp("served")
    write_data(folder)
    opened = ConsoleDoor(folder, requests_per_minute=100_000)
    opened.add_people()
    yield opened
    opened.close()


@contextmanager
def on_a_port(door: ConsoleDoor) -> Iterator[str]:
    """The same server on a port of this machine; returns its address."""
    config = uvicorn.Config(door.app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://localhost:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def address(console: ConsoleDoor) -> Iterator[str]:
    with on_a_port(console) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found
