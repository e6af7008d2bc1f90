"""An open state of a server, with its people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.server.people.open_id import OpenIdClient
from lapwing.server.people.people import People
from lapwing.server.settings import OpenIdSettings
from lapwing.server.state import ServerState
from support.open_id_provider import CLIENT, SECRET, LoopbackProvider, running_provider
from support.server_people import cheapen


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServerState]:
    opened = ServerState.open(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def people(state: ServerState, monkeypatch: pytest.MonkeyPatch) -> People:
    cheapen(monkeypatch)
    return People.of(state)


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def client(provider: LoopbackProvider, people: People) -> Iterator[OpenIdClient]:
    people.accounts.make("ann")
    people.accounts.bind("ann", provider.address, provider.subject)
    made = OpenIdClient(
        OpenIdSettings(provider.address, CLIENT, SECRET, "Sign in"), people.accounts, people.links
    )
    yield made
    made.close()
