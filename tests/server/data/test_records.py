"""Records: who sees which requests, and whether a receipt that somebody brings is true."""

from __future__ import annotations

import json

import pytest

from lapwing.errors import BadParameter
from lapwing.server.people.person import NotAllowed, NotFound
from support.served import ANN, BOB, COUNT, OFFICER, OWNER, STEWARD, STRANGER, Served


def test_a_history_shows_what_the_role_sees(visits: Served) -> None:
    assert visits.records.history(ANN, "visits") == []
    visits.released()
    visits.released(BOB)
    assert [one.line.principal for one in visits.records.history(ANN, "visits")] == ["ann"]
    everything = visits.records.history(STEWARD, "visits")
    assert [(one.line.principal, one.question) for one in everything] == [("bob", COUNT), ("ann", COUNT)]
    assert [one.question for one in visits.records.history(OFFICER, "visits")] == [None, None]
    assert len(visits.records.history(STEWARD, "visits", 1)) == 1
    with pytest.raises(NotAllowed):
        visits.records.history(OWNER, "visits")


def test_entries_are_for_stewards_and_officers(visits: Served) -> None:
    assert visits.records.entries(OFFICER, "visits") == []
    visits.released()
    assert [line.kind for line in visits.records.entries(OFFICER, "visits", 2)] == ["answer", "charge"]
    for who in (ANN, OWNER):
        with pytest.raises(NotAllowed):
            visits.records.entries(who, "visits")
        with pytest.raises(NotAllowed):
            visits.records.statement(who, "visits")
    with pytest.raises(NotFound):
        visits.records.entries(STRANGER, "visits")


def test_receipts_and_proofs_are_true_and_a_changed_one_is_not(visits: Served) -> None:
    number = int(visits.released().partition(".")[2])
    told = visits.records.receipt(ANN, "visits", number)
    proof = visits.records.proof(OFFICER, "visits", number)
    statement = visits.records.statement(OFFICER, "visits")
    for text, kind in (
        (json.dumps(told).encode(), "receipt"),
        (json.dumps(proof).encode(), "proof"),
        (statement, "statement"),
    ):
        found = visits.records.verify(text)
        assert (found.kind, found.is_good, found.data) == (kind, True, "visits"), found.findings
    for changed in (
        {"principal": "eve"},
        {"position": number + 1},
        {"hash": "0" * 64},
        {"position": "x"},
        {"position": 10**30},
    ):
        assert not visits.records.verify(json.dumps({**told, **changed}).encode()).is_good
    assert not visits.records.verify(json.dumps({**told, "ledger": "0" * 32}).encode()).is_good
    assert not visits.records.verify(json.dumps({**proof, "entry": number + 1}).encode()).is_good
    assert not visits.records.verify(statement[:-10] + b"0000000}\n\n").is_good
    for nothing in (b"", b"{}", b"[]", b"SQLite format 3\x00", b"\xff", b"{" * 100_000):
        with pytest.raises(BadParameter):
            visits.records.verify(nothing)


def test_anothers_receipt_is_one_that_never_was(visits: Served) -> None:
    number = int(visits.released().partition(".")[2])
    assert visits.records.receipt(STEWARD, "visits", number)["principal"] == "ann"
    for look in (visits.records.receipt, visits.records.proof):
        for who, position in ((BOB, number), (STRANGER, number), (ANN, 1), (ANN, 10**30), (ANN, 0)):
            with pytest.raises(NotFound):
                look(who, "visits", position)
