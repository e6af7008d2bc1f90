"""That the curator has seen exact counts, and that the policy was changed after it, is in the ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, Tampered
from lapwing.ledger import CuratorKey
from lapwing.ledger.accountant.replay import replay_from, state_bytes
from lapwing.ledger.publishing import export_statement
from lapwing.ledger.statement import verify_statement
from support.ledgers import Home, open_account, release

ONE, OTHER = "ab" * 32, "cd" * 32


def test_a_policy_is_noted_once_and_only_after_a_check(home: Home) -> None:
    with home.create() as ledger:
        open_account(ledger)
        ledger.record_policy("visits", ONE)
        assert ledger.checks == []
        ledger.record_check("visits", ONE, home.curator)
        ledger.record_policy("visits", ONE)
        assert [check.is_change for check in ledger.checks] == [False]
    with home.open() as ledger:
        ledger.record_policy("visits", ONE)
        ledger.record_policy("visits", OTHER)
        ledger.record_policy("visits", OTHER)
    with home.open() as ledger:
        ledger.record_policy("visits", OTHER)
        assert [(check.policy, check.is_change) for check in ledger.checks] == [(ONE, False), (OTHER, True)]
        assert ledger.verify().findings == ()


def test_other_accounts_have_their_own_checks(home: Home) -> None:
    with home.create() as ledger:
        open_account(ledger)
        open_account(ledger, "stays")
        ledger.record_check("visits", ONE, home.curator)
        ledger.record_policy("stays", OTHER)
        assert len(ledger.checks) == 1


def test_only_the_curator_s_key_notes_a_check(home: Home, tmp_path: Path) -> None:
    with home.create() as ledger:
        open_account(ledger)
        stranger = CuratorKey.create(tmp_path / "stranger")
        with pytest.raises(BadParameter, match="is not the key of this ledger's curator"):
            ledger.record_check("visits", ONE, stranger)
        assert ledger.checks == []


def test_statements_show_checks_and_what_was_changed_after_them(file_home: Home, tmp_path: Path) -> None:
    with file_home.create() as ledger:
        open_account(ledger)
        ledger.record_check("visits", ONE, file_home.curator)
        release(ledger)
        ledger.record_policy("visits", OTHER)
        path = tmp_path / "statement"
        export_statement(ledger, path, names=True)
        report = verify_statement(path, key=ledger.keys.signing.public)
    assert not report.findings
    assert report.guarantee is not None
    told = [line for line in report.guarantee.lines() if line.startswith("entry ")]
    assert told == [
        "entry 3: account 1: the curator signed to have seen exact counts of the data (`lapwing check`)",
        "entry 6: account 1: the policy was changed after a check; what that showed may be in it, "
        "and is not covered",
    ]


def test_books_keep_checks_and_are_those_of_before_without_any(file_home: Home) -> None:
    with file_home.create() as ledger:
        open_account(ledger)
        before = state_bytes(ledger.verify().replay)
        assert before is not None
        assert b"checks" not in before
        assert replay_from(before).checks == []
        ledger.record_check("visits", ONE, file_home.curator)
        replay = ledger.verify().replay
        books = state_bytes(replay)
        assert books is not None
        assert replay_from(books).checks == replay.checks == ledger.checks
        assert state_bytes(replay_from(books)) == books


def test_a_check_that_is_taken_out_is_found(file_home: Home) -> None:
    with file_home.create() as ledger:
        open_account(ledger)
        ledger.record_check("visits", ONE, file_home.curator)
    with sqlite3.connect(file_home.where) as connection:
        connection.execute("DROP TRIGGER entries_delete")
        connection.execute("DELETE FROM entries WHERE seq = 3")
    with pytest.raises(Tampered):
        file_home.open()
