"""An open state of a server, with its people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.server.people.people import People
from lapwing.server.state import ServerState
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
