"""After the end: what a relay shows again, what it has dropped, and what it says when its disk is full."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.errors import Unavailable
from lapwing.parties.journals import ClosedRound, RelayJournal
from lapwing.parties.messages import FrameKind
from lapwing.parties.participant import Participant
from lapwing.parties.posts import Parcel
from lapwing.parties.relay_server import relay_in_thread
from support.parties import Flock, flock
from support.parties_raw import Raw
from support.parties_seats import seats, sit


@pytest.fixture
def three(tmp_path: Path) -> Flock:
    return flock(tmp_path, lobby=8.0, deadline=0.4)  # its end is shown as long as the lobby lasts


def memory(three: Flock) -> RelayJournal:
    return RelayJournal(three.root, three.table)


def play(three: Flock, *, cut: tuple[int, ...]) -> list[Participant]:
    """A whole run by hand; some are cut off after their last post."""
    everybody = seats(three)
    sit(everybody)
    with ExitStack() as stack:
        stack.enter_context(relay_in_thread(three.table, three.keys[0], folder=three.root))
        raws = [Raw(three, keys) for keys in three.keys]
        for raw in raws:
            raw.until(FrameKind.BEGIN)
        for number in range(len(everybody[0].config.rounds)):
            is_last = number == len(everybody[0].config.rounds) - 1
            for raw, seat in sorted(zip(raws, everybody, strict=True), key=lambda x: x[1].me not in cut):
                raw.post(seat.post().to_bytes())
                if is_last and seat.me in cut:
                    raw.close()
            for raw, seat in zip(raws, everybody, strict=True):
                if not (is_last and seat.me in cut):
                    seat.hear(raw.closed())
        for i, raw in enumerate(raws):
            if i not in cut:
                raw.done()
    return everybody


def test_who_missed_the_end_is_shown_it_again(three: Flock) -> None:
    everybody = play(three, cut=(1,))
    assert not everybody[1].is_over
    again = replace(three.table, round_seconds=20.0)
    with relay_in_thread(again, three.keys[0], folder=three.root):  # left at once when south has it, too
        south = Raw(three, three.keys[1], begun=True, stage=0, round=2)
        everybody[1].hear(south.closed())
        south.done()
    assert everybody[1].opened[0].values.tolist() == [6] * 4
    with relay_in_thread(again, three.keys[0], folder=three.root), pytest.raises(ConnectionRefusedError):
        Raw(three, three.keys[1], begun=True, stage=0, round=2)  # now everybody has it


def test_nobody_is_waited_for_longer_than_a_round(three: Flock) -> None:
    play(three, cut=(1,))
    with relay_in_thread(replace(three.table, lobby_seconds=0.5), three.keys[0], folder=three.root):
        pass
    kept = memory(three)
    assert kept.has_ended()
    assert kept.served() == {0, 2}
    kept.close()


def test_sealed_boxes_are_gone_after_the_end(three: Flock) -> None:
    posted: list[bytes] = []
    close_round = RelayJournal.close_round

    def noted(self: RelayJournal, closed: ClosedRound) -> None:
        posted.extend(box for parcel in closed.parcels.values() for box in parcel.boxes.values())
        close_round(self, closed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RelayJournal, "close_round", noted)
        play(three, cut=())
    assert len(posted) == 6
    stored = b"".join(path.read_bytes() for path in three.root.glob("*.relay*"))
    assert not any(box in stored for box in posted)
    kept = memory(three)
    assert [len(closed.parcels) for closed in kept.rounds()] == [3, 3, 3]
    kept.close()


def test_a_full_disk_is_said_plainly(three: Flock) -> None:
    kept = memory(three)
    kept._connection.execute("PRAGMA max_page_count = 1")
    closed = ClosedRound(0, 0, {0: Parcel(bytes(1 << 20), {})}, {})
    with pytest.raises(Unavailable, match=r"relay's file .* full") as failed:
        kept.close_round(closed)
    assert "twice" not in str(failed.value)
    kept.close()


def test_a_second_relay_is_told_apart(three: Flock) -> None:
    kept = memory(three)
    with pytest.raises(Unavailable, match="running twice"):
        memory(three)
    kept.close()


def test_a_relay_that_failed_is_why_it_could_not_be_reached(
    three: Flock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Unavailable("its disk is full")

    def fail() -> None:
        with relay_in_thread(three.table, three.keys[0], folder=three.root):
            for raw in [Raw(three, keys) for keys in three.keys]:
                with pytest.raises((EOFError, ConnectionError)):
                    raw.until(FrameKind.BEGIN)
                raw.cut()
            raise Unavailable("the relay cannot be reached")

    monkeypatch.setattr(RelayJournal, "begin", full)
    with pytest.raises(Unavailable, match="disk is full"):
        fail()
