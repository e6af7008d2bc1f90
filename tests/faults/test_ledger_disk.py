"""The disk is full: who was told of a charge finds it, nothing is half written; with space, it goes on."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from lapwing.errors import Unavailable, WorkEnded
from lapwing.ledger import Ledger
from lapwing.ledger.gate import ChargedRelease, Gate, ReleaseStep
from support.clients import Place, nursery
from support.histories_check import Judge
from support.ledgers import SQLITE, Home, open_account, open_sliced, release, spending
from support.postgres import Server, fresh_url
from support.small_disk import small_disk
from support.spenders import BLOCKS, fill


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "2m"):
        yield folder


def prepare(home: Home) -> None:
    with home.create() as ledger:
        open_sliced(ledger, BLOCKS, epsilon=20)
        open_account(ledger, "staff", epsilon=20, delta=0)


def judged(home: Home, diaries: list[Path]) -> Counter[str]:
    """All diaries against the ledger. How often what was told."""
    with home.open() as ledger:
        judge = Judge(ledger, diaries)
        assert judge.judge() == []
        assert ledger.verify().findings == ()
        return Counter(ask.outcome for ask in judge.asks)


class TestSqlite:
    @pytest.mark.parametrize("how", ["file size", "pages"])
    def test_nothing_is_lost_or_half_written_when_there_is_no_room_for(
        self, file_home: Home, tmp_path: Path, how: str
    ) -> None:
        self.squeeze(file_home, tmp_path, how)

    def test_nothing_is_lost_or_half_written_on_a_disk_that_is_full(
        self, disk: Path, tmp_path: Path
    ) -> None:
        home = Home.of(SQLITE, disk)
        self.squeeze(home, tmp_path, "disk", balloon=str(disk / "balloon"))

    def squeeze(self, home: Home, diaries: Path, how: str, **more: str) -> None:
        prepare(home)
        diary = diaries / "diary"
        client = nursery().start(
            "spenders:squeezed", Place.of(home), name="client 0", diary=str(diary), how=how, **more
        )
        assert client.last("finished")
        told = judged(home, [diary])
        assert told["unknown"] >= 5
        assert told["done"] >= 20

    def test_an_answer_that_cannot_be_stored_does_not_leave(self, file_home: Home) -> None:
        """There was room for the charge, and none for the answer."""
        ledger = file_home.create()
        open_account(ledger)
        run = ledger.store._writer.execute  # type: ignore[attr-defined]

        def no_room(point: ReleaseStep) -> None:
            if point is ReleaseStep.RAN:
                [(pages,)] = run("PRAGMA page_count")
                run(f"PRAGMA max_page_count = {pages}").fetchall()

        gate = Gate(ledger, principal="analyst", watch=no_room)
        with pytest.raises(Unavailable, match="The charge stays"):
            gate.release(ChargedRelease(spending("0.1"), lambda: bytes(100_000)), key="k")
        run("PRAGMA max_page_count = 1000000").fetchall()
        never_answered(file_home, ledger)


class TestTheAnchor:
    """The database has room, and the anchor has none: charged, but nobody may hear of it."""

    def test_on_a_full_disk_stops_every_answer(self, file_home: Home, disk: Path) -> None:
        home = Home(file_home.where, file_home.keys, disk / "anchor", file_home.curator_path)
        ledger = home.create()
        open_account(ledger)
        fill(str(disk / "balloon"))
        with pytest.raises(Unavailable):
            use_the_last_page(ledger)
        spent = ledger.blocks("visits")[0].spent[1]
        refused(ledger)
        assert ledger.blocks("visits")[0].spent[1] == spent + 100_000_000
        (disk / "balloon").unlink()
        never_answered(home, ledger, spent=spent + 100_000_000)
        home.close()

    def test_that_cannot_be_written_stops_every_answer(
        self, file_home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = file_home.create()
        open_account(ledger)

        write = os.write

        def full(file: int, content: bytes) -> int:
            if content.startswith(b"m "):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(file, content)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            refused(ledger)
        never_answered(file_home, ledger)


def use_the_last_page(ledger: Ledger) -> None:
    """Marks have room until the page that they are on is full."""
    while True:
        release(ledger, "0.000001")


def refused(ledger: Ledger) -> None:
    """A request whose charge cannot be marked is not run."""
    ran: list[int] = []

    def run() -> bytes:
        ran.append(1)
        return b"42"

    with pytest.raises(Unavailable, match="No space left"):
        Gate(ledger, principal="analyst").release(ChargedRelease(spending("0.1"), run), key="k")
    assert not ran


def never_answered(home: Home, ledger: Ledger, spent: int = 100_000_000) -> None:
    """The charge counts, once; the key gives no answer any more; and everything else goes on."""
    with pytest.raises(WorkEnded):
        release(ledger, "0.1", key="k")
    assert ledger.blocks("visits")[0].spent[1] == spent
    release(ledger, "0.2", key="another")
    ledger.close()
    with home.open() as again:
        with pytest.raises(WorkEnded):
            release(again, "0.1", key="k")
        assert again.blocks("visits")[0].spent[1] == spent + 200_000_000
        assert again.verify().findings == ()


class TestPostgres:
    @pytest.mark.slow
    def test_nothing_is_lost_when_the_disk_of_the_server_is_full(self, tmp_path: Path) -> None:
        """First there is no room for tables, then none for the log, which the server does not survive."""
        folder = Path(tempfile.mkdtemp(prefix="lapwing_pg_"))
        with small_disk(folder, "160m"):
            server = Server(folder).start()
            try:
                self.squeeze(server, tmp_path)
            finally:
                server.remove()
        folder.rmdir()

    def squeeze(self, server: Server, tmp_path: Path) -> None:
        files = Home.of(SQLITE, tmp_path)
        home = Home(fresh_url(server.url), files.keys, files.anchor, files.curator_path)
        prepare(home)
        diaries = [tmp_path / f"diary {k}" for k in range(3)]
        stop, balloon = tmp_path / "stop", server.folder / "balloon"
        clients = [
            nursery().start(
                "spenders:spend", Place.of(home), name=f"client {k}", diary=str(diary), count=1_000_000,
                keys=400, until=str(stop),
            )
            for k, diary in enumerate(diaries)
        ]  # fmt: skip
        for client in clients:
            assert client.says() == {"ready": True}
        time.sleep(0.5)
        fill(str(balloon))
        time.sleep(0.5)
        with suppress(psycopg.Error):
            for _ in range(20):  # until there is no room for a new piece of the log
                server.sql("SELECT pg_switch_wal()")
                server.sql("CREATE TABLE IF NOT EXISTS some (a int)")
                server.sql("INSERT INTO some VALUES (1)")
        time.sleep(0.5)
        balloon.unlink()
        self.bring_back(server)
        time.sleep(0.5)
        stop.touch()
        for client in clients:
            assert client.last("finished")
        told = judged(home, diaries)
        assert told["done"] > 0
        assert told["unknown"] > 0

    def bring_back(self, server: Server) -> None:
        for _ in range(10):
            with suppress(psycopg.Error):
                server.sql("SELECT 1")
                return
            time.sleep(0.2)
        server.start()
