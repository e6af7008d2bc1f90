"""L3 and L4 for reports: kill -9, power loss, a full disk. What was acknowledged is there, once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from lapwing.errors import Unavailable
from lapwing.survey.credentials import new_invitation
from lapwing.survey.report_store import (
    IntakeResult,
    StoppingRule,
    blinded_hash,
    invitation_hash,
    read_all_reports,
    token_hash,
)
from support.collecting import DIGEST, SIZE, TODAY, Shelf, credential, invited
from support.ledgers import POSTGRES, SQLITE
from support.power import Keep, KeepAll, KeepBegun, KeepSome, Told, lay_out, recorded
from support.slowly import slow
from support.small_disk import small_disk
from support.survey_server import Process
from support.survey_siege import Siege, body

KINDS = (b"\x00\x00\x00", b"\x01\x00\x01", b"\x01\x01\x00", b"\x02\x01\x01")
NO_RULE = StoppingRule()


def besiege(folder: Path, database: str, *, reports: int, kills: int) -> Siege:
    shelf = Shelf.of(database, folder)
    siege = Siege(folder, [body(DIGEST, *credential(), KINDS[k % 4]) for k in range(reports)])
    server = Process(folder, shelf.where).start()
    try:
        siege.lay(server, shelf.open(), kills)
    finally:
        server.stop()
    siege.require_each_once(shelf.open())
    shelf.close()
    return siege


class TestKilled:
    @pytest.mark.parametrize("database", [SQLITE, slow(POSTGRES)])
    def test_a_few_times_under_load_nothing_acknowledged_is_lost_or_counted_twice(
        self, tmp_path: Path, database: str
    ) -> None:
        siege = besiege(tmp_path, database, reports=1500, kills=3)
        assert siege.kills == 3
        assert siege.sent_again > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("database", [SQLITE, POSTGRES])
    def test_many_times_under_load_nothing_acknowledged_is_lost_or_counted_twice(
        self, tmp_path: Path, database: str
    ) -> None:
        siege = besiege(tmp_path, database, reports=30_000, kills=25)
        assert siege.kills == 25

    @pytest.mark.parametrize("database", [SQLITE, slow(POSTGRES)])
    def test_a_signature_that_left_is_the_only_one_for_ever(self, tmp_path: Path, database: str) -> None:
        shelf = Shelf.of(database, tmp_path)
        store = shelf.open()
        server = Process(tmp_path, shelf.where).start()
        for _ in range(3):
            invitation, blinding = invited(store)
            _, other = invited(store)
            first = server.sign(invitation, blinding.blinded)
            server.kill()
            server.start()
            assert server.sign(invitation, blinding.blinded).content == first.content
            assert server.sign(invitation, other.blinded).status == 409
        server.stop()
        shelf.close()


def fill(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("wb", buffering=0) as balloon:
        piece = 1 << 16
        while piece:
            try:
                balloon.write(bytes(piece))
            except OSError:
                piece //= 2


KEPT: tuple[Keep, ...] = (Keep(), KeepSome(0), KeepSome(1), KeepSome(2), KeepAll(), KeepBegun())


class TestThePowerFails:
    """At any moment of a recorded run: what a disk would have kept holds all that was acknowledged."""

    def lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Sequence[Keep], instead: dict[str, str]
    ) -> int:
        """In how many of all cases an acknowledged report is missing, or the file is broken."""
        own = tmp_path / "own"
        own.mkdir()
        with recorded(monkeypatch, instead=instead, checkpoint_after=6) as disk:
            shelf = Shelf.of(SQLITE, own)
            store = shelf.open()
            for k in range(24):
                store.accept([(token_hash(b"%d" % k), KINDS[k % 4])], NO_RULE, TODAY)
                disk.record.append(Told(str(k)))
            shelf.close()
        missing = 0
        for keep in kept:
            for moment in disk.moments():
                told = disk.told_by(moment)
                if told:
                    images = tmp_path / "images"
                    shutil.rmtree(images, ignore_errors=True)
                    images.mkdir()
                    lay_out(disk.left(moment, keep), own, images)
                    missing += not self.holds(images, told)
        return missing

    def holds(self, folder: Path, told: list[str]) -> bool:
        """Whether all is there that somebody was told, and nothing that nobody sent."""
        tokens = [token_hash(k.encode()) for k in told]
        shelf = Shelf.of(SQLITE, folder)
        try:
            store = shelf.open()
            is_whole = len(read_all_reports(store)) == store.state().reports <= len(told) + 1
            return is_whole and store.stored(tokens) == set(tokens)
        except Unavailable:
            return False  # not even a database
        finally:
            shelf.close()

    @pytest.mark.parametrize("kept", [KEPT[:2], slow(KEPT[2:])])
    def test_L4_no_acknowledged_report_is_lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Sequence[Keep]
    ) -> None:
        assert self.lost(tmp_path, monkeypatch, kept, {}) == 0

    @pytest.mark.slow
    def test_L4_and_this_test_would_see_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        careless = {"PRAGMA synchronous = FULL": "PRAGMA synchronous = NORMAL"}
        assert self.lost(tmp_path, monkeypatch, KEPT, careless) > 0


class TestAFullDisk:
    def test_refuses_what_it_cannot_keep_and_goes_on_with_room(self, tmp_path: Path) -> None:
        folder = tmp_path / "disk"
        folder.mkdir()
        with small_disk(folder, "1m"):
            shelf = Shelf.of(SQLITE, folder)
            store = shelf.open()
            told: dict[bytes, bytes] = {}
            refused: list[tuple[bytes, bytes]] = []
            fill(folder / "balloon")
            for k in range(400):
                one = token_hash(b"%d" % k), KINDS[k % 4]
                try:
                    assert store.accept([one], NO_RULE, TODAY) == [IntakeResult.NEW]
                    told[one[0]] = one[1]
                except Unavailable:
                    refused.append(one)
            assert refused
            (folder / "balloon").unlink()
            assert store.stored(list(told)) == set(told)
            verdicts = store.accept(refused, NO_RULE, TODAY)
            assert set(verdicts) <= {IntakeResult.NEW, IntakeResult.AGAIN}
            assert store.state().reports == len(read_all_reports(store)) == 400
            shelf.close()
            again = Shelf.of(SQLITE, folder)
            assert again.open().stored(list(told)) == set(told)
            again.close()

    def test_at_the_server_is_told_as_later(self, tmp_path: Path) -> None:
        folder = tmp_path / "disk"
        folder.mkdir()
        with small_disk(folder, "1m"):
            shelf = Shelf.of(SQLITE, folder)
            server = Process(tmp_path, shelf.where).start()
            fill(folder / "balloon")
            credentials = [credential() for _ in range(60)]
            replies = [server.report(*own, KINDS[1]) for own in credentials]
            assert {reply.status for reply in replies} <= {200, 503}
            assert 503 in {reply.status for reply in replies}
            (folder / "balloon").unlink()
            for own in credentials:
                assert server.report(*own, KINDS[1]).status == 200
            server.stop()
            assert shelf.open().state().reports == 60
            shelf.close()

    def test_gives_no_signature_that_it_could_not_keep(self, tmp_path: Path) -> None:
        folder = tmp_path / "disk"
        folder.mkdir()
        with small_disk(folder, "1m"):
            shelf = Shelf.of(SQLITE, folder)
            store = shelf.open()
            invitations = [new_invitation() for _ in range(200)]
            store.admit(invitations)
            fill(folder / "balloon")
            kept, refused = [], []
            for invitation in invitations:
                wish = invitation_hash(invitation), blinded_hash(invitation.encode())
                try:
                    assert store.keep([wish], NO_RULE, TODAY) == [IntakeResult.NEW]
                    kept.append(wish)
                except Unavailable:
                    refused.append(wish)
            assert refused
            for hashed, what in kept:
                assert store.signed(hashed) == what
            for hashed, _ in refused:
                assert store.signed(hashed) is IntakeResult.NEW
            shelf.close()

    def test_has_room_for_the_use_of_every_invitation_that_was_admitted(self, tmp_path: Path) -> None:
        shelf = Shelf.of(SQLITE, tmp_path)
        store = shelf.open()
        invitations = [new_invitation() for _ in range(200)]
        store.admit(invitations)
        run = store._connection.execute  # type: ignore[attr-defined]
        [(pages,)] = run("PRAGMA page_count")
        run(f"PRAGMA max_page_count = {pages}").fetchall()
        more = [new_invitation() for _ in range(2000)]
        with pytest.raises(Unavailable, match="full"):
            store.admit(more)
        assert store.invitations() == (200, 0)
        wishes = [(invitation_hash(one), blinded_hash(one.encode())) for one in invitations]
        assert store.keep(wishes, NO_RULE, TODAY) == [IntakeResult.NEW] * 200
        shelf.close()


def test_a_report_that_is_not_whole_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was torn by a crash in the middle of a commit is not there at all, also as tables grow."""
    own, images = tmp_path / "own", tmp_path / "images"
    own.mkdir()
    with recorded(monkeypatch, instead={}, checkpoint_after=6) as disk:
        shelf = Shelf.of(SQLITE, own)
        store = shelf.open()
        for start in range(0, 300, 50):
            batch = [(token_hash(b"%d" % k), KINDS[k % 4]) for k in range(start, start + 50)]
            store.accept(batch, NO_RULE, TODAY)
            disk.record.append(Told(str(start + 50)))
        shelf.close()
    sizes = set()
    for keep in KEPT:
        for moment in disk.moments():
            if told := disk.told_by(moment):
                shutil.rmtree(images, ignore_errors=True)
                images.mkdir()
                lay_out(disk.left(moment, keep), own, images)
                place = Shelf.of(SQLITE, images)
                found = place.open()
                rows = read_all_reports(found)
                assert rows.shape == (found.state().reports, SIZE)
                assert int(told[-1]) <= len(rows) <= int(told[-1]) + 50
                assert len(rows) % 50 == 0
                assert {bytes(row) for row in rows} <= set(KINDS)
                sizes.add(len(rows))
                place.close()
    assert sizes == {50, 100, 150, 200, 250, 300}
