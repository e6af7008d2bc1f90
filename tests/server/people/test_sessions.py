"""Sessions: 30 idle minutes, 12 hours, ended everywhere at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lapwing.server.people import links, sessions
from lapwing.server.people.people import People
from lapwing.server.people.person import Role
from lapwing.server.people.sessions import IDLE_SECONDS, LIFE_SECONDS, NOTED_EVERY
from lapwing.server.state import ServerState


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A function that lets time pass."""
    begun, passed = time.time(), [0.0]
    monkeypatch.setattr("lapwing.server.people.sessions.time.time", lambda: begun + passed[0])

    def wait(seconds: float) -> None:
        passed[0] += seconds

    return wait


def test_a_session_stands_for_its_account_with_the_roles_of_now(people: People) -> None:
    people.accounts.make("ann", shown_name="Ann")
    secret = people.sessions.begin("ann")
    found = people.sessions.find(secret)
    assert found is not None
    assert (found.person.name, found.person.shown_name, found.person.credential) == (
        "ann",
        "Ann",
        "session",
    )
    assert found.person.credential_id not in secret
    assert not found.person.can("visits", Role.ANALYST)
    people.accounts.set_roles("ann", "visits", frozenset({Role.ANALYST}))
    again = people.sessions.find(secret)
    assert again is not None
    assert again.person.can("visits", Role.ANALYST)
    assert people.sessions.find("") is None
    assert people.sessions.find(secret[:-1]) is None


def test_a_session_ends_after_30_idle_minutes(people: People, wait: Callable[[float], None]) -> None:
    people.accounts.make("ann")
    secret = people.sessions.begin("ann")
    wait(IDLE_SECONDS - 1)
    found = people.sessions.find(secret)
    assert found is not None
    assert found.is_to_note
    people.sessions.note(found.person.credential_id)
    wait(IDLE_SECONDS - 1)
    assert people.sessions.find(secret) is not None
    wait(1)
    assert people.sessions.find(secret) is None


def test_a_session_ends_after_12_hours_however_busy(people: People, wait: Callable[[float], None]) -> None:
    people.accounts.make("ann")
    secret = people.sessions.begin("ann")
    for _ in range(LIFE_SECONDS // 600 - 1):
        wait(600)
        found = people.sessions.find(secret)
        assert found is not None
        people.sessions.note(found.person.credential_id)
    wait(600)
    assert people.sessions.find(secret) is None


def test_last_seen_is_written_at_most_once_a_minute(people: People, wait: Callable[[float], None]) -> None:
    people.accounts.make("ann")
    secret = people.sessions.begin("ann")
    noted = []
    for _ in range(180):
        found = people.sessions.find(secret)
        assert found is not None
        if found.is_to_note:
            people.sessions.note(found.person.credential_id)
            noted.append(found)
        wait(1)
    assert len(noted) == 180 // NOTED_EVERY - 1


def test_a_session_ends_alone_or_with_all_others_in_all_processes(people: People, tmp_path: Path) -> None:
    people.accounts.make("ann")
    people.accounts.make("bob")
    one, two, three, other = [people.sessions.begin(name) for name in ("ann", "ann", "ann", "bob")]
    assert len({one, two, three, other}) == 4
    elsewhere = ServerState.open(tmp_path / "state")
    found = People.of(elsewhere).sessions.find(one)
    assert found is not None
    people.sessions.end(found.person.credential_id)
    assert People.of(elsewhere).sessions.find(one) is None
    assert People.of(elsewhere).sessions.find(two) is not None
    people.sessions.end_all("ann")
    assert [People.of(elsewhere).sessions.find(secret) is None for secret in (two, three, other)] == [
        True, True, False,
    ]  # fmt: skip
    elsewhere.close()


def test_old_sessions_are_removed_from_the_file(
    people: People, state: ServerState, wait: Callable[[float], None]
) -> None:
    people.accounts.make("ann")
    for _ in range(5):
        people.sessions.begin("ann")
    wait(IDLE_SECONDS)
    people.sessions.begin("ann")
    assert state.rows("SELECT count(*) FROM sessions") == [(1,)]


def test_an_account_has_a_bounded_number_of_sessions_and_browsers(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 3)
    monkeypatch.setattr(links, "MOST_LINKS", 3)
    for name in ("ann", "bob"):
        people.accounts.make(name)
    bobs = people.sessions.begin("bob"), people.links.make_device("bob")
    for _ in range(8):
        began, device = people.sessions.begin("ann"), people.links.make_device("ann")
        assert people.sessions.find(began) is not None  # the newest stays, also within one second
        assert people.links.is_device(device, "ann")
    counts = [people.sessions._state.rows(f"SELECT count(*) FROM {one}") for one in ("sessions", "links")]
    assert counts == [[(4,)], [(4,)]]
    assert people.sessions.find(bobs[0]) is not None
    assert people.links.is_device(bobs[1], "bob")
