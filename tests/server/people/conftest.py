"""An open state of a server, with its people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from lapwing.server.people import passwords
from lapwing.server.people.people import People
from lapwing.server.state import ServerState


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServerState]:
    opened = ServerState.open(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def people(state: ServerState, monkeypatch: pytest.MonkeyPatch) -> People:
    """People whose passwords cost little: test_passwords.py has the real cost."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_HASHER", cheap)
    monkeypatch.setattr(passwords, "_NOBODY", cheap.hash("nobody", salt=bytes(16)))
    return People.of(state)
