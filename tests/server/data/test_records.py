"""Records: who sees which requests, and whether a receipt that somebody brings is true."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from lapwing.errors import BadParameter
from lapwing.server.people.person import NotAllowed, NotFound, Role
from support.served import (
    ANN,
    BOB,
    COUNT,
    OFFICER,
    OWNER,
    STEWARD,
    STRANGER,
    Served,
    person,
    served,
    write_data,
)


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
        found = visits.records.verify(ANN, text)
        assert (found.kind, found.is_good, found.data) == (kind, True, "visits"), found.findings
    for changed in (
        {"principal": "eve"},
        {"position": number + 1},
        {"hash": "0" * 64},
        {"position": "x"},
        {"position": 10**30},
    ):
        assert not visits.records.verify(ANN, json.dumps({**told, **changed}).encode()).is_good
    assert not visits.records.verify(ANN, json.dumps({**told, "ledger": "0" * 32}).encode()).is_good
    assert not visits.records.verify(ANN, json.dumps({**proof, "entry": number + 1}).encode()).is_good
    assert not visits.records.verify(ANN, statement[:-10] + b"0000000}\n\n").is_good
    for nothing in (b"", b"{}", b"[]", b"SQLite format 3\x00", b"\xff", b"{" * 100_000):
        with pytest.raises(BadParameter):
            visits.records.verify(ANN, nothing)


def test_anothers_receipt_is_one_that_never_was(visits: Served) -> None:
    number = int(visits.released().partition(".")[2])
    assert visits.records.receipt(STEWARD, "visits", number)["principal"] == "ann"
    for look in (visits.records.receipt, visits.records.proof):
        for who, position in ((BOB, number), (STRANGER, number), (ANN, 1), (ANN, 10**30), (ANN, 0)):
            with pytest.raises(NotFound):
                look(who, "visits", position)


def test_a_shared_ledger_names_no_data_of_others(tmp_path: Path) -> None:
    shared = '[ledger]\nurl = "lapwing.ledger"\n'
    for name in ("town", "visits"):
        write_data(tmp_path, name=name, after=shared)
    town, rows = tmp_path / "town.toml", tmp_path / "visits.parquet"
    others = f"SELECT patient_id + 1000 AS patient_id, ward, stay FROM '{rows}'"
    duckdb.execute(f"COPY ({others}) TO '{tmp_path}/town.parquet'")
    town.write_text(town.read_text().replace("visits.parquet", "town.parquet"))
    mine = person("ann", Role.ANALYST, data="visits")
    theirs = person("ted", Role.OFFICER, Role.ANALYST, data="town")
    with served(tmp_path) as found:
        for who, data in ((theirs, "town"), (mine, "visits")):
            receipt = int(found.released(who, data=data).partition(".")[2])
            told = found.records.receipt(who, data, receipt)
            proof = found.records.proof(who, data, receipt)
            for record in (told, proof):
                text = json.dumps(record).encode()
                for reader in (mine, theirs):
                    checked = found.records.verify(reader, text)
                    assert (checked.is_good, checked.data) == (True, data if reader is who else "")
            forged = json.dumps({**told, "hash": "0" * 64}).encode()
            assert found.records.verify(mine, forged).data == ""
        statement = found.records.statement(theirs, "town")
        assert found.records.verify(mine, statement).data == "visits"
