"""The relay: whom it lets in, what it refuses and by which name, and what it passes on to whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, Unavailable
from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import HEADER, FrameKind, LeaveMessage, frame, json_frame
from lapwing.parties.participant import Participant
from lapwing.parties.posts import Envelope, Parcel
from lapwing.parties.relay_server import relay_in_thread, serve_relay
from lapwing.parties.transcript import Transcript
from support.parties import Flock, flock
from support.parties_raw import Raw, refused_in_tls
from support.parties_seats import seats, sit


class Group:
    """A relay in a thread, and three members that a test moves by hand."""

    def __init__(self, three: Flock, stack: ExitStack) -> None:
        self.flock = three
        stack.enter_context(relay_in_thread(three.table, three.keys[0], folder=three.root))
        self.raws = [Raw(three, keys) for keys in three.keys]
        stack.callback(self.leave)
        for raw in self.raws:
            raw.until(FrameKind.BEGIN)
        self.seats = seats(three)
        sit(self.seats)

    def leave(self) -> None:
        """Whoever is left says so, so that nobody waits for a deadline."""
        for i, raw in enumerate(self.raws):
            notice = LeaveMessage(self.flock.table.run_id, 0, 0, i, "end of test").signed(
                self.flock.keys[i]
            )
            with suppress(OSError):
                raw.send(json_frame(FrameKind.LEAVE, **notice.to_json()))
            raw.close()

    def round(self, *members: int) -> list[Parcel]:
        parcels = [self.seats[i].post() for i in members]
        for i, parcel in zip(members, parcels, strict=True):
            self.raws[i].post(parcel.to_bytes())
        for i in members:
            self.seats[i].hear(self.raws[i].closed())
        return parcels


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Flock:
    return flock(tmp_path_factory.mktemp("members"), deadline=20.0)


@pytest.fixture
def three(members: Flock, tmp_path: Path) -> Flock:
    again = members.run(1)
    return Flock(tmp_path, again.table, again.keys)


@pytest.fixture
def group(three: Flock) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(three, stack)


def test_it_carries_a_run_and_boxes_go_to_their_recipient_only(group: Group) -> None:
    posts = [seat.post() for seat in group.seats]
    for raw, parcel in zip(group.raws, posts, strict=True):
        raw.post(parcel.to_bytes())
    for i, (raw, seat) in enumerate(zip(group.raws, group.seats, strict=True)):
        delivery = raw.closed()
        assert [box for _, box in delivery.items] == [parcel.boxes.get(i) for parcel in posts]
        seat.hear(delivery)
    group.round(0, 1, 2)
    group.round(0, 1, 2)
    assert all(seat.opened[0].values.tolist() == [6] * 4 for seat in group.seats)


Spoil = Callable[[Group, Participant, Parcel], bytes]


def _forged(group: Group, seat: Participant, parcel: Parcel, **changes: object) -> bytes:
    envelope = replace(Envelope.from_bytes(parcel.envelope), **changes)  # type: ignore[arg-type]
    boxes = {i: parcel.boxes[i] for i in parcel.boxes if i in envelope.commitments}
    return Parcel(envelope.signed(group.flock.keys[seat.me]).to_bytes(), boxes).to_bytes()


REFUSED: dict[str, tuple[Spoil, str]] = {
    "garbage": (lambda g, s, p: b"garbage" * 99, "shorter than it says"),
    "no envelope": (lambda g, s, p: Parcel(bytes(300), {}).to_bytes(), "not an envelope"),
    "another's name": (lambda g, s, p: _forged(g, s, p, sender=2, commitments={}), "another member's name"),
    "old run": (lambda g, s, p: _forged(g, s, p, run=bytes(32)), "another run"),
    "later round": (lambda g, s, p: _forged(g, s, p, round=1), "before its round was open"),
    "other past": (lambda g, s, p: _forged(g, s, p, seen=bytes(32)), "does not follow"),
    "no boxes": (lambda g, s, p: Parcel(p.envelope, {}).to_bytes(), "do not belong together"),
    "unsigned": (
        lambda g, s, p: Parcel(
            replace(Envelope.from_bytes(p.envelope), signature=bytes(64)).to_bytes(), p.boxes
        ).to_bytes(),
        "not signed",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_is_refused_by_name(group: Group, kind: str) -> None:
    spoil, why = REFUSED[kind]
    group.raws[1].post(spoil(group, group.seats[1], group.seats[1].post()))
    said = group.raws[1].end()["why"]
    assert said.startswith("south was refused")
    assert why in said
    for i in (0, 2):
        group.raws[i].post(group.seats[i].post().to_bytes())
    delivery = group.raws[0].closed()
    assert len(delivery.items) == 2
    assert delivery.missing.keys() == {1}
    assert why in delivery.missing[1]


def test_the_same_bytes_twice_are_one_post_and_other_bytes_are_refused(group: Group) -> None:
    parcel = group.seats[1].post()
    group.raws[1].post(parcel.to_bytes())
    group.raws[1].post(parcel.to_bytes())
    other = _forged(group, group.seats[1], parcel, public=b"x")
    group.raws[1].post(other)
    assert "two different posts" in group.raws[1].end()["why"]
    for i in (0, 2):
        group.raws[i].post(group.seats[i].post().to_bytes())
    delivery = group.raws[0].closed()
    assert parcel.envelope in [envelope for envelope, _ in delivery.items]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([HEADER.pack(1 << 30, FrameKind.POST)], "at most"),
        ([HEADER.pack(1 << 20, FrameKind.HELLO)], "at most"),
        ([HEADER.pack(0, 99)], "no known kind"),
        (frame(FrameKind.BEGIN), "do not send"),
        (json_frame(FrameKind.LEAVE, why="x"), "not of the right form"),
    ],
)
def test_frames_that_cannot_be_are_refused_by_name(group: Group, parts: list[bytes], why: str) -> None:
    group.raws[2].send(parts)
    said = group.raws[2].end()["why"]
    assert said.startswith("east was refused")
    assert why in said


def test_a_notice_must_be_signed_by_who_sends_it(group: Group) -> None:
    run, east = group.flock.table.run_id, group.flock.keys[2]
    for i, sender in ((2, 1), (1, 1)):  # in another's name; in its own name, signed by another
        notice = LeaveMessage(run, 0, 0, sender, "I leave").signed(east)
        group.raws[i].send(json_frame(FrameKind.LEAVE, **notice.to_json()))
        assert "was refused: a leave message" in group.raws[i].end()["why"]


def test_a_notice_reaches_the_others_at_once(group: Group) -> None:
    notice = LeaveMessage(group.flock.table.run_id, 0, 0, 1, "I leave").signed(group.flock.keys[1])
    group.raws[1].send(json_frame(FrameKind.LEAVE, **notice.to_json()))
    for i in (0, 2):
        group.raws[i].post(group.seats[i].post().to_bytes())
    for i in (0, 2):
        assert b"I leave" in group.raws[i].until(FrameKind.LEAVE)
        assert group.raws[i].closed().missing == {1: "left: I leave"}


def test_who_is_cut_off_comes_again_and_gets_what_it_missed(group: Group) -> None:
    parcels = [seat.post() for seat in group.seats]
    group.raws[1].post(parcels[1].to_bytes())
    group.raws[1].cut()
    group.raws[0].post(parcels[0].to_bytes())
    group.raws[2].post(parcels[2].to_bytes())
    group.seats[0].hear(group.raws[0].closed())
    group.seats[2].hear(group.raws[2].closed())
    group.raws[1] = Raw(group.flock, group.flock.keys[1], begun=True)
    group.raws[1].post(parcels[1].to_bytes())
    group.seats[1].hear(group.raws[1].closed())
    group.round(0, 1, 2)


def test_an_old_connection_gives_way_to_a_new_one(group: Group) -> None:
    again = Raw(group.flock, group.flock.keys[1], begun=True)
    again.until(FrameKind.BEGIN)
    with pytest.raises(EOFError):
        group.raws[1].receive()
    group.raws[1].close()
    group.raws[1] = again
    group.round(0, 1, 2)


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"run": "00" * 32}, "of another consortium or number"),
        ({"stage": 7}, "different rounds"),
        ({"begun": "yes"}, "not of the right form"),
        ({"round": None}, "not of the right form"),
    ],
)
def test_greetings_that_do_not_fit_are_turned_away_and_may_come_again(
    group: Group, hello: dict[str, object], why: str
) -> None:
    raw = Raw(group.flock, group.flock.keys[1], **({"begun": True} | hello))
    assert why in raw.end()["why"]
    raw.close()
    group.raws[1].close()
    group.raws[1] = Raw(group.flock, group.flock.keys[1], begun=True)
    group.raws[1].until(FrameKind.BEGIN)
    group.round(0, 1, 2)


def test_late_posts_are_discarded_and_their_sender_is_out(members: Flock, tmp_path: Path) -> None:
    table = replace(members.run(5).table, round_seconds=0.5, losses=0, protocol="C")
    three = Flock(tmp_path, table, members.keys)
    with ExitStack() as stack:
        group = Group(three, stack)
        parcels = [seat.post() for seat in group.seats]
        group.raws[0].post(parcels[0].to_bytes())
        group.raws[1].post(parcels[1].to_bytes())
        delivery = group.raws[0].closed()
        assert [Envelope.from_bytes(raw).sender for raw, _ in delivery.items] == [0, 1]
        assert "before its deadline" in delivery.missing[2]
        group.raws[2].post(parcels[2].to_bytes())
        assert group.raws[2].end()["missing"] == ["east"]
    shown = Transcript.read(tmp_path / f"{table.label}.relay.transcript")
    assert [envelope.sender for envelope in shown.rounds[0].envelopes] == [0, 1]


class TestTls:
    def test_certificates_that_are_on_no_card_are_refused(self, group: Group, tmp_path: Path) -> None:
        stranger = MemberKeys.create(
            "north", tmp_path / "stranger"
        )  # the name of a member, and another key
        assert refused_in_tls(group.flock, stranger)
        group.round(0, 1, 2)

    def test_only_the_host_may_serve(self, three: Flock) -> None:
        with pytest.raises(BadParameter, match="north is the host"):
            serve_relay(three.table, three.keys[1], folder=three.root)

    def test_an_address_in_use_is_said(self, group: Group, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match="cannot listen"):
            serve_relay(group.flock.table, group.flock.keys[0], folder=tmp_path / "other")


def test_a_host_that_fails_in_the_lobby_sends_the_others_home(three: Flock) -> None:
    """Nobody waits for a lobby that cannot fill."""
    told: list[dict[str, Any]] = []

    def wait(raw: Raw) -> None:
        told.append(raw.end())
        raw.close()

    def fail() -> None:
        with relay_in_thread(three.table, three.keys[0], folder=three.root):
            raw = Raw(three, three.keys[1], watch=True)
            raw.until(FrameKind.NEWS)
            waiting = threading.Thread(target=wait, args=(raw,))
            waiting.start()
            threads.append(waiting)
            raise ValueError("over budget")

    threads: list[threading.Thread] = []
    with pytest.raises(ValueError, match="over budget"):
        fail()
    threads[0].join()
    assert told[0]["missing"] == ["north"]
    assert told[0]["why"] == "the host left before the run began"  # what was charged each knows itself
