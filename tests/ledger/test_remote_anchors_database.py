"""Anchors in a second database only grow, and say so when they cannot be written."""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from lapwing.errors import BadParameter, Tampered, Unavailable
from lapwing.ledger.anchors import Anchor, newest
from lapwing.ledger.remote_anchors import PostgresAnchor, SqliteAnchor, anchor_at
from support import postgres
from support.marks import head, mark


def begin_together(make: Callable[[], Anchor]) -> None:
    """Several find nothing at the same moment: one makes the table, and all are written."""
    anchors = [make() for _ in range(4)]
    together = threading.Barrier(len(anchors))

    def write(seq: int) -> None:
        together.wait()
        anchors[seq].write([mark(seq)])

    threads = [threading.Thread(target=write, args=[seq]) for seq in range(len(anchors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(anchors[0].read()) == {mark(seq) for seq in range(4)}
    for anchor in anchors:
        anchor.close()


class TestSqlite:
    @pytest.fixture
    def anchor(self, tmp_path: Path) -> Iterator[SqliteAnchor]:
        anchor = SqliteAnchor(tmp_path / "anchor.db")
        yield anchor
        anchor.close()

    def test_it_gives_back_the_newest_head_and_the_marks_from_it_on(
        self, anchor: SqliteAnchor, tmp_path: Path
    ) -> None:
        assert not anchor.exists()
        assert anchor.read() == ()
        assert os.listdir(tmp_path) == []  # reading makes no file
        anchor.write([mark(1), mark(2), mark(4)])
        assert anchor.exists()
        assert anchor.read() == (mark(1), mark(2), mark(4))
        anchor.write([mark(3)], head(1, 2))
        anchor.write([])
        other = SqliteAnchor(tmp_path / "anchor.db")
        assert newest(other.read()) == newest(anchor.read()) == (head(1, 2), mark(4), mark(3))
        other.write([mark(5)], head(2, 4))
        other.close()
        assert newest(anchor.read()) == (head(2, 4), mark(5))

    @pytest.mark.parametrize(
        "change", ["DELETE FROM lapwing_anchor", "UPDATE lapwing_anchor SET line = 'm'"]
    )
    def test_its_table_only_grows(self, change: str, anchor: SqliteAnchor, tmp_path: Path) -> None:
        anchor.write([mark(1)])
        connection = sqlite3.connect(tmp_path / "anchor.db")
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            connection.execute(change)
        connection.close()
        assert anchor.read() == (mark(1),)

    def test_a_malformed_line_is_tampering(self, anchor: SqliteAnchor, tmp_path: Path) -> None:
        anchor.write([mark(1)])
        connection = sqlite3.connect(tmp_path / "anchor.db")
        connection.execute("INSERT INTO lapwing_anchor (seq, line) VALUES (9, 'm 9')")
        connection.commit()
        connection.close()
        with pytest.raises(Tampered):
            anchor.read()

    def test_it_waits_for_the_disk_on_every_commit(self, anchor: SqliteAnchor) -> None:
        anchor.write([mark(1)])
        (level,) = anchor._connection.execute("PRAGMA synchronous").fetchone()
        assert level >= 2  # FULL, or EXTRA

    def test_what_cannot_be_reached_is_unavailable(
        self, anchor: SqliteAnchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        missing = SqliteAnchor(tmp_path / "missing" / "anchor.db")
        assert missing.read() == ()
        with pytest.raises(Unavailable):
            missing.write([mark(1)])
        (tmp_path / "text").write_text("no database, but long enough to be taken for one" * 100)
        for attempt in (SqliteAnchor(tmp_path / "text").read, SqliteAnchor(tmp_path / "text").exists):
            with pytest.raises(Unavailable):
                attempt()
        anchor.write([mark(1)])
        monkeypatch.setattr("lapwing.ledger.remote_anchors.DATABASE_TIMEOUT", 0.01)
        anchor.close()
        connection = sqlite3.connect(tmp_path / "anchor.db", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="locked"):
            anchor.write([mark(2)])
        connection.close()
        anchor.write([mark(3)])
        assert anchor.read() == (mark(1), mark(3))

    def test_a_file_that_is_gone_is_not_made_anew(self, anchor: SqliteAnchor, tmp_path: Path) -> None:
        anchor.write([mark(1)])
        anchor.close()
        (tmp_path / "anchor.db").unlink()
        for _ in range(2):
            with pytest.raises(Unavailable):
                anchor.write([mark(2)])
            with pytest.raises(Unavailable):
                anchor.read()
        assert os.listdir(tmp_path) == []

    def test_a_file_that_goes_while_it_is_open_is_noticed(
        self, anchor: SqliteAnchor, tmp_path: Path
    ) -> None:
        anchor.write([mark(1)])
        (tmp_path / "anchor.db").unlink()
        with pytest.raises(Unavailable):
            anchor.write([mark(2)])
        assert os.listdir(tmp_path) == []

    def test_the_table_is_made_with_all_that_protects_it_or_not_at_all(
        self, anchor: SqliteAnchor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteAnchor, "tables", (*SqliteAnchor.tables, "CRASH"))
            with pytest.raises(Unavailable):
                anchor.write([mark(1)])
        assert not anchor.exists()
        anchor.write([mark(2)])
        assert anchor.read() == (mark(2),)

    def test_many_may_begin_at_once(self, tmp_path: Path) -> None:
        begin_together(lambda: SqliteAnchor(tmp_path / "anchor.db"))


class TestPostgres:
    @pytest.fixture
    def url(self) -> str:
        return postgres.fresh_url()

    @pytest.fixture
    def anchor(self, url: str) -> Iterator[PostgresAnchor]:
        anchor = PostgresAnchor(url)
        yield anchor
        anchor.close()

    def test_it_gives_back_the_newest_head_and_the_marks_from_it_on(
        self, anchor: PostgresAnchor, url: str
    ) -> None:
        assert not anchor.exists()
        assert anchor.read() == ()
        assert not anchor.exists()  # reading makes nothing
        anchor.write([mark(1), mark(2), mark(4)])
        assert anchor.exists()
        assert anchor.read() == (mark(1), mark(2), mark(4))
        anchor.write([mark(3)], head(1, 2))
        other = anchor_at(url)
        assert newest(other.read()) == newest(anchor.read()) == (head(1, 2), mark(4), mark(3))
        other.write([mark(5)], head(2, 4))
        other.close()
        assert newest(anchor.read()) == (head(2, 4), mark(5))

    def test_names_keep_ledgers_apart(self, anchor: PostgresAnchor) -> None:
        anchor.write([mark(1)])
        other = PostgresAnchor(postgres.fresh_url())
        assert not other.exists()
        other.close()

    @pytest.mark.parametrize("change", ["DELETE FROM", "TRUNCATE", "UPDATE"])
    def test_its_table_only_grows(self, change: str, anchor: PostgresAnchor, url: str) -> None:
        anchor.write([mark(1)])
        address, _, name = url.partition("#")
        table = f"lapwing_anchor_{name}.lapwing_anchor"
        statement = f"UPDATE {table} SET line = 'm'" if change == "UPDATE" else f"{change} {table}"
        with psycopg.connect(address) as connection, pytest.raises(psycopg.Error, match="only grows"):
            connection.execute(statement.encode())
        assert anchor.read() == (mark(1),)

    def test_a_connection_that_died_meanwhile_is_replaced(self, anchor: PostgresAnchor, url: str) -> None:
        anchor.write([mark(1)])
        pid = anchor._connection.info.backend_pid
        with psycopg.connect(url.partition("#")[0], autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        anchor.write([mark(2)])
        assert anchor.read() == (mark(1), mark(2))

    def test_many_may_begin_at_once(self, url: str) -> None:
        begin_together(lambda: PostgresAnchor(url))

    def test_a_forked_child_does_not_end_the_connection_of_its_parent(self, anchor: PostgresAnchor) -> None:
        anchor.write([mark(1)])
        connection = anchor._connection
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the test runner may have threads
            child = os.fork()
        if not child:
            try:
                anchor.write([mark(2)])
                anchor.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        anchor.write([mark(3)])
        assert anchor._connection is connection
        assert anchor.read() == (mark(1), mark(2), mark(3))

    def test_a_server_that_is_not_there_is_unavailable(self, tmp_path: Path) -> None:
        anchor = PostgresAnchor(f"postgresql://anna:hush@/visits?host={tmp_path}")
        for attempt in (anchor.read, anchor.exists, lambda: anchor.write([mark(1)])):
            with pytest.raises(Unavailable) as caught:
                attempt()
            assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://anna:hush@home@anchor.example/visits", "postgresql://anna:hush%zz@x/visits",
            "postgresql://anna:hu/sh@anchor.example/visits", "postgresql://x/visits#Hush me",
            "postgresql://x/visits#", "postgresql://x/visits?hush=1", "postgresql://anna:hush:x@y:z/v",
        ],
    )  # fmt: skip
    def test_a_mistyped_address_is_refused_without_its_password(self, url: str) -> None:
        with pytest.raises(BadParameter) as caught:
            PostgresAnchor(url)
        assert "hu" not in str(caught.value)
