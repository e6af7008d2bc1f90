"""One report for each token, each invitation one signature, and no trace of an order."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter, Unavailable
from lapwing.survey.credentials import new_invitation
from lapwing.survey.report_store import (
    IntakeResult,
    StoppingRule,
    blinded_hash,
    invitation_hash,
    read_all_reports,
    token_hash,
)
from support import postgres
from support.collecting import SIZE, TODAY, Shelf
from support.raised import named

NO_RULE = StoppingRule()


def report(k: int) -> bytes:
    return k.to_bytes(SIZE, "big")


def token(k: int) -> bytes:
    return token_hash(b"%d" % k)


class TestReports:
    def test_are_stored_once_for_each_token(self, shelf: Shelf) -> None:
        store = shelf.open()
        first = [(token(k), report(k)) for k in range(5)]
        assert store.accept(first, NO_RULE, TODAY) == [IntakeResult.NEW] * 5
        assert store.accept(first, NO_RULE, TODAY) == [IntakeResult.AGAIN] * 5
        assert store.accept([(token(0), report(9))], NO_RULE, TODAY) == [IntakeResult.OTHER]
        assert store.state().reports == 5
        assert sorted(map(bytes, read_all_reports(store))) == [report(k) for k in range(5)]

    def test_of_one_token_in_one_batch_count_once(self, shelf: Shelf) -> None:
        store = shelf.open()
        batch = [(token(0), report(1)), (token(0), report(1)), (token(0), report(2)), (token(1), report(1))]
        expected = [IntakeResult.NEW, IntakeResult.AGAIN, IntakeResult.OTHER, IntakeResult.NEW]
        assert store.accept(batch, NO_RULE, TODAY) == expected
        assert store.state().reports == 2

    def test_are_there_for_whoever_opens_the_store_next(self, shelf: Shelf) -> None:
        shelf.open().accept([(token(1), report(7))], NO_RULE, TODAY)
        again = shelf.open()
        assert again.state().reports == 1
        assert again.accept([(token(1), report(7))], NO_RULE, TODAY) == [IntakeResult.AGAIN]

    def test_are_read_as_an_array_in_the_order_of_their_hashes(self, shelf: Shelf) -> None:
        store = shelf.open()
        assert read_all_reports(store).shape == (0, SIZE)
        store.accept([(token(k), report(k)) for k in range(200)], NO_RULE, TODAY)
        rows = read_all_reports(store)
        assert rows.dtype == np.uint8
        assert rows.shape == (200, SIZE)
        assert [bytes(row) for row in rows] == [report(k) for k in sorted(range(200), key=token)]

    def test_are_found_by_their_tokens(self, shelf: Shelf) -> None:
        store = shelf.open()
        store.accept([(token(k), report(k)) for k in range(700)], NO_RULE, TODAY)
        wanted = [token(k) for k in range(100, 1300)]
        assert store.stored(wanted) == set(wanted[:600])
        assert store.stored([]) == set()

    def test_without_a_credential_are_counted_apart(self, shelf: Shelf) -> None:
        store = shelf.open()
        store.accept([(token(1), report(1))], NO_RULE, TODAY)
        store.accept([(token(2), report(1))], NO_RULE, TODAY, has_credential=False)
        assert (store.state().reports, store.state().without_credential) == (2, 1)

    def test_of_another_survey_are_not_mixed_in(self, shelf: Shelf) -> None:
        shelf.open()
        with pytest.raises(BadParameter, match="another survey"):
            shelf.open(digest=hashlib.sha256(b"changed").hexdigest())
        with pytest.raises(BadParameter, match="another survey"):
            shelf.open(size=SIZE + 1)


class TestTheStoppingRule:
    def test_counts_reports_exactly(self, shelf: Shelf) -> None:
        store, rule = shelf.open(), StoppingRule(stop_after=3)
        batch = [(token(k), report(k)) for k in range(5)]
        assert store.accept(batch, rule, TODAY) == [IntakeResult.NEW] * 3 + [IntakeResult.CLOSED] * 2
        assert store.accept([(token(9), report(9))], rule, TODAY) == [IntakeResult.CLOSED]
        assert store.state().reports == 3

    def test_ends_with_the_last_day(self, shelf: Shelf) -> None:
        store, rule = shelf.open(), StoppingRule(until=TODAY)
        assert store.accept([(token(1), report(1))], rule, TODAY) == [IntakeResult.NEW]
        late = store.accept([(token(2), report(2))], rule, TODAY + timedelta(days=1))
        assert late == [IntakeResult.CLOSED]

    def test_lets_those_who_were_counted_ask_again(self, shelf: Shelf) -> None:
        """Their acknowledgement may have been lost."""
        store, rule = shelf.open(), StoppingRule(stop_after=1)
        store.accept([(token(1), report(1))], rule, TODAY)
        again = store.accept([(token(1), report(1)), (token(1), report(2))], rule, TODAY)
        assert again == [IntakeResult.AGAIN, IntakeResult.OTHER]

    def test_does_not_look_at_answers(self) -> None:
        assert not StoppingRule().is_over(10**9, date.max)
        assert StoppingRule(stop_after=5, until=TODAY).is_over(5, date.min)
        assert StoppingRule(stop_after=5, until=TODAY).is_over(0, date.max)


class TestSignatures:
    def test_bind_an_invitation_for_ever(self, shelf: Shelf) -> None:
        store, invitation = shelf.open(), new_invitation()
        hashed, first, second = invitation_hash(invitation), blinded_hash(b"1"), blinded_hash(b"2")
        assert store.signed(hashed) is IntakeResult.UNKNOWN
        assert store.keep([(hashed, first)], NO_RULE, TODAY) == [IntakeResult.UNKNOWN]
        store.admit([invitation])
        assert store.signed(hashed) is IntakeResult.NEW
        both = store.keep([(hashed, first), (hashed, second), (hashed, first)], NO_RULE, TODAY)
        assert both == [IntakeResult.NEW, IntakeResult.OTHER, IntakeResult.AGAIN]
        assert store.keep([(hashed, first)], NO_RULE, TODAY) == [IntakeResult.AGAIN]
        assert store.signed(hashed) == first
        assert shelf.open().signed(hashed) == first
        assert store.invitations() == (1, 1)

    def test_are_not_given_when_the_survey_is_over(self, shelf: Shelf) -> None:
        store, invitation = shelf.open(), new_invitation()
        store.admit([invitation])
        wish = (invitation_hash(invitation), blinded_hash(b"1"))
        yesterday = StoppingRule(until=TODAY - timedelta(days=1))
        assert store.keep([wish], yesterday, TODAY) == [IntakeResult.CLOSED]
        assert store.signed(wish[0]) is IntakeResult.NEW

    def test_an_invitation_is_admitted_once(self, shelf: Shelf) -> None:
        store, invitation = shelf.open(), new_invitation()
        store.admit([invitation])
        with pytest.raises(Unavailable):
            store.admit([new_invitation(), invitation])
        assert store.invitations() == (1, 0)

    @pytest.mark.parametrize("text", ["", "a" * 23, "a" * 25, "a" * 23 + "!", "ä" * 24, "a" * 24 + "\n"])
    def test_what_is_no_invitation_is_refused(self, shelf: Shelf, text: str) -> None:
        store = shelf.open()
        with pytest.raises(BadParameter, match="24 characters"):
            store.admit([text])

    def test_people_are_known_by_their_marks(self, shelf: Shelf) -> None:
        store = shelf.open()
        marks = [f"mark {k}" for k in range(1200)]
        store.admit([new_invitation() for _ in range(600)], marks[:600])
        store.admit([new_invitation()], marks[:1])
        assert store.known_people(marks) == set(marks[:600])
        assert store.known_people([]) == set()


class TestClosing:
    def fill(self, shelf: Shelf) -> list[bytes]:
        store = shelf.open()
        for k in range(300):
            store.accept([(token(k), report(k))], NO_RULE, TODAY)
            invitation = new_invitation()
            store.admit([invitation])
            store.keep([(invitation_hash(invitation), blinded_hash(b"%d" % k))], NO_RULE, TODAY)
        return [token(k) for k in range(300)]

    def test_is_for_ever_and_keeps_everything(self, shelf: Shelf) -> None:
        self.fill(shelf)
        store = shelf.open()
        before = read_all_reports(store)
        store.close_survey()
        store.close_survey()
        assert store.state().is_closed
        assert (read_all_reports(store) == before).all()
        assert store.accept([(token(999), report(1))], NO_RULE, TODAY) == [IntakeResult.CLOSED]
        assert store.accept([(token(1), report(1))], NO_RULE, TODAY) == [IntakeResult.AGAIN]
        assert shelf.open().state().is_closed
        assert store.invitations() == (300, 300)

    def test_leaves_no_order_in_a_server(self, tmp_path: Path) -> None:
        shelf = Shelf.of("postgres", tmp_path)
        tokens = self.fill(shelf)
        order = "SELECT {key}, xmin::text::bigint FROM {table} ORDER BY ctid"
        arrived = postgres.sql(shelf.where, order.format(key="token", table="reports"))
        assert [bytes(key) for key, _ in arrived] == tokens  # before, it shows
        assert len({xmin for _, xmin in arrived}) == 300
        shelf.open().close_survey()
        for key, table in (("token", "reports"), ("invitation", "invitations")):
            rows = postgres.sql(shelf.where, order.format(key=key, table=table))
            assert [bytes(key) for key, _ in rows] == sorted(bytes(key) for key, _ in rows)
            assert len({xmin for _, xmin in rows}) == 1
        shelf.close()


class TestTheFile:
    def test_is_its_owners_alone(self, file_shelf: Shelf) -> None:
        file_shelf.open()
        assert stat.S_IMODE(Path(file_shelf.where).stat().st_mode) == 0o600

    def test_has_no_column_for_a_time_an_address_or_an_account(self, file_shelf: Shelf) -> None:
        file_shelf.open()
        with sqlite3.connect(file_shelf.where) as connection:
            columns = {
                table: [column for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")]
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
        connection.close()
        assert columns == {
            "survey": ["one", "digest", "report_size", "reports", "without_credential", "closed", "secret"],
            "invitations": ["bucket", "content"],
            "people": ["bucket", "content"],
            "reports": ["bucket", "content"],
        }

    def test_is_synced_at_every_commit(self, file_shelf: Shelf) -> None:
        connection = file_shelf.open()._connection  # type: ignore[attr-defined]
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)

    def test_that_is_no_database_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "survey.reports").write_bytes(b"something else entirely" * 100)
        shelf = Shelf.of("sqlite", tmp_path)
        with pytest.raises(Unavailable, match="not a database"):
            shelf.open()

    def test_in_a_folder_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        shelf = Shelf.of("sqlite", tmp_path / "nowhere")
        with pytest.raises(Unavailable, match="No such file"):
            shelf.open()


class TestTheServer:
    def test_is_reached_again_after_it_was_restarted(self, tmp_path: Path) -> None:
        server = postgres.Server().start()
        try:
            shelf = Shelf(postgres.fresh_url(server.url))
            store = shelf.open()
            store.accept([(token(1), report(1))], NO_RULE, TODAY)
            server.restart("immediate")
            with pytest.raises(Unavailable):
                store.accept([(token(2), report(2))], NO_RULE, TODAY)
            both = store.accept([(token(1), report(1)), (token(2), report(2))], NO_RULE, TODAY)
            assert both == [IntakeResult.AGAIN, IntakeResult.NEW]
            shelf.close()
            server.restart(fsync="off")
            with pytest.raises(Unavailable, match="fsync is off"):
                shelf.open()
        finally:
            server.remove()

    @pytest.mark.parametrize(
        "url",
        ["postgresql://u:p@ss/word@host/db", "postgresql://host/db#Big Name", "postgresql://host:port:9/x"],
    )
    def test_urls_that_mean_something_else_are_refused_without_their_password(self, url: str) -> None:
        shelf = Shelf(url)
        with pytest.raises(BadParameter, check=named("store")) as caught:
            shelf.open()
        assert "ss/word" not in str(caught.value)

    def test_that_is_away_is_told_plainly(self, tmp_path: Path) -> None:
        shelf = Shelf(f"postgresql://postgres:secret@/x?host={tmp_path}")
        with pytest.raises(Unavailable, match="cannot be reached") as caught:
            shelf.open()
        assert "secret" not in str(caught.value)
