"""Notes of officers: what is new since, and a ledger that has another entry there now."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.server.data.signatures import Signatures
from lapwing.server.people.person import NotAllowed
from lapwing.server.state import ServerState
from support.served import OFFICER, STEWARD, Served


@pytest.fixture
def state(tmp_path: Path) -> ServerState:
    return ServerState.open(tmp_path / "state")


def test_what_came_after_a_note_is_new(visits: Served, state: ServerState) -> None:
    signatures = Signatures(state, visits.sets)
    visits.released()
    before = signatures.find(OFFICER, "visits")
    assert (before.entry, before.time, before.new) == (0, None, before.newest)
    signatures.note(OFFICER, "visits", before.newest)
    noted = signatures.find(OFFICER, "visits")
    assert (noted.entry, noted.new, noted.holds) == (before.newest, 0, True)
    visits.released()
    assert signatures.find(OFFICER, "visits").new == signatures.find(OFFICER, "visits").newest - noted.entry
    state.close()


def test_another_entry_at_this_number_is_not_the_one_that_was_signed(
    visits: Served, state: ServerState
) -> None:
    signatures = Signatures(state, visits.sets)
    visits.released()
    signatures.note(OFFICER, "visits", 2)
    with state.transaction() as run:
        run("UPDATE signed SET hash = ?", ("00" * 32,))
    found = signatures.find(OFFICER, "visits")
    assert not found.holds
    assert found.new == found.newest
    state.close()


def test_only_officers_note_and_only_entries_that_are_there(visits: Served, state: ServerState) -> None:
    signatures = Signatures(state, visits.sets)
    for entry in (0, -1, 10**6, 1 << 70):
        with pytest.raises(BadParameter, match="entry"):
            signatures.note(OFFICER, "visits", entry)
    with pytest.raises(NotAllowed):
        signatures.find(STEWARD, "visits")
    state.close()
