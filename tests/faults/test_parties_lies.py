"""A relay with the right certificate that lies, slams the door or fails; and members with odd cards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.errors import Aborted, Unavailable
from lapwing.parties import member
from lapwing.parties.journals import MemberJournal
from lapwing.parties.member import take_part
from lapwing.parties.messages import (
    PROTOCOL_VERSION,
    FrameKind,
    LeaveMessage,
    Progress,
    ReadyMessage,
    frame,
    json_frame,
    read_json,
)
from lapwing.parties.participant import Participant
from lapwing.parties.posts import Delivery, Parcel
from lapwing.parties.relay_client import RelayClient
from lapwing.parties.transcript import Transcript
from support.parties import Flock, flock
from support.parties_lying import Lie, South, Talk, lying


@pytest.fixture
def group(tmp_path: Path) -> Flock:
    return flock(tmp_path, lobby=1.0, deadline=1.0)


def greetings(group: Flock, *members: int) -> list[list[object]]:
    return [ReadyMessage.fresh(group.table.run_id, i, group.keys[i]).to_json() for i in members]


def welcome(talk: Talk) -> None:
    """As an honest relay lets a member in, until that is ready."""
    talk.read()
    talk.say(json_frame(FrameKind.WELCOME, version=PROTOCOL_VERSION))
    talk.read()


def open_run(group: Flock, talk: Talk) -> None:
    """As an honest relay begins."""
    welcome(talk)
    talk.say(json_frame(FrameKind.BEGIN, greetings=greetings(group, 0, 1, 2)))


def begin(group: Flock, talk: Talk) -> Parcel:
    """The same, and the member's first post."""
    open_run(group, talk)
    _, post = talk.read()
    return Parcel.from_bytes(post)


class TestTheBeginning:
    """It needs signatures of as many members as the run needs: it costs a member its charge."""

    def begun_with(self, group: Flock, said: object) -> str:
        def lie(talk: Talk) -> None:
            welcome(talk)
            talk.say(json_frame(FrameKind.BEGIN, members=[0, 1, 2], greetings=said))
            talk.read()

        south = South(group)
        with lying(group, lie), pytest.raises(Aborted, match="nothing was charged") as aborted:
            south.play()
        assert south.charged == []
        assert not aborted.value.was_charged
        return str(aborted.value)

    def test_needs_greetings_of_enough_members(self, group: Flock) -> None:
        assert "not that enough members are ready" in self.begun_with(group, greetings(group, 0, 1))

    @pytest.mark.parametrize("said", [None, [], {}, "all"])
    def test_needs_greetings(self, group: Flock, said: object) -> None:
        self.begun_with(group, said)

    def test_needs_greetings_of_this_run(self, group: Flock) -> None:
        assert "no member has signed" in self.begun_with(group, greetings(group.run(2), 0, 1, 2))

    def test_needs_greetings_that_are_signed(self, group: Flock) -> None:
        forged = [[0, *greetings(group, 2)[0][1:]], *greetings(group, 1, 2)]
        assert "no member has signed" in self.begun_with(group, forged)
        assert "not of the right form" in self.begun_with(group, [["0", 1]])

    def test_needs_this_member_to_be_ready(self, group: Flock) -> None:
        """Before it has read anything: it must not end a run in which nothing was charged."""

        def lie(talk: Talk) -> None:
            talk.read()
            talk.say(json_frame(FrameKind.BEGIN, greetings=greetings(group, 0, 2)))
            talk.say(json_frame(FrameKind.END, why="it is over", missing=[], version=PROTOCOL_VERSION))
            talk.read()

        south = South(group)
        with lying(group, lie), pytest.raises(Aborted, match="before this member was ready") as aborted:
            south.play()
        assert south.charged == []
        assert not aborted.value.was_charged
        with MemberJournal(group.journal(1), group.table, 1) as journal:
            assert journal.outcome() is None  # the same run may be tried again

    def test_that_is_followed_by_the_end_costs_nothing_yet(self, group: Flock) -> None:
        """Both are there before the member draws."""

        def lie(talk: Talk) -> None:
            welcome(talk)
            begun = json_frame(FrameKind.BEGIN, greetings=greetings(group, 0, 1, 2))
            talk.say(
                [*begun, *json_frame(FrameKind.END, why="it is over", missing=[], version=PROTOCOL_VERSION)]
            )
            talk.read()

        south = South(group)
        with lying(group, lie), pytest.raises(Aborted, match="it is over") as aborted:
            south.play()
        assert south.charged == []
        assert not aborted.value.was_charged

    def test_who_comes_too_late_is_not_told_that_nothing_was_opened(self, group: Flock) -> None:
        def late(talk: Talk) -> None:
            talk.read()
            talk.say(json_frame(FrameKind.WELCOME, version=PROTOCOL_VERSION))
            talk.say(json_frame(FrameKind.OUT, why="the run has gone on without south"))
            talk.read()

        south = South(group)
        with lying(group, late), pytest.raises(Aborted, match="The others may open the sums") as aborted:
            south.play()
        assert south.charged == []
        assert (aborted.value.was_charged, aborted.value.goes_on) == (False, True)
        assert "Nothing was opened" not in str(aborted.value)

    def test_a_member_counts_once(self, group: Flock) -> None:
        assert "enough" in self.begun_with(group, greetings(group, 0, 0, 0))


def test_greetings_of_ended_lobbies_cost_one_charge_and_not_for_another_run(group: Flock) -> None:
    """A limit that is told: greetings hold for a run's number. Members come one after the other, alone."""
    kept: list[object] = []
    charged: list[tuple[int, int]] = []

    def lie(talk: Talk) -> None:
        talk.read()
        talk.say(json_frame(FrameKind.WELCOME, version=PROTOCOL_VERSION))
        kept.append(read_json(talk.read()[1])["greeting"])
        if len(kept) >= len(group.keys):
            talk.say(json_frame(FrameKind.BEGIN, greetings=kept))
            talk.read()
        talk.say(
            json_frame(FrameKind.END, why="not all members came", missing=[], version=PROTOCOL_VERSION)
        )

    def alone(at: Flock, i: int) -> Aborted:
        def contribute(*_: object) -> NDArray[np.int64]:
            charged.append((at.table.number, i))
            return np.ones(at.table.length, dtype=np.int64)

        with lying(at, lie), pytest.raises(Aborted) as aborted:
            take_part(at.table, i, at.keys[i], folder=at.folder(i), contribute=contribute)
        return aborted.value

    assert [alone(group, i).was_charged for i in (0, 1)] == [False, False]
    assert alone(group, 2).was_charged
    assert alone(group, 2).was_charged  # as was told before: its journal has the end
    assert charged == [(1, 2)]
    assert "no member has signed" in str(alone(group.run(2), 2))
    assert charged == [(1, 2)]


class TestAnotherVersion:
    """Told before data is read, and before anything is charged."""

    def refused_by(self, group: Flock, lie: Lie) -> str:
        south = South(group)
        with lying(group, lie), pytest.raises(Aborted, match="nothing was charged") as aborted:
            take_part(
                group.table,
                1,
                group.keys[1],
                folder=group.folder(1),
                contribute=south.contribute,
                read=lambda: pytest.fail("it read"),
            )
        assert not south.charged
        return str(aborted.value)

    def test_of_a_relay_that_says_none(self, group: Flock) -> None:
        """Version 1 does not know this greeting, and says so in its own words."""

        def old(talk: Talk) -> None:
            talk.read()
            talk.say(
                json_frame(
                    FrameKind.END, why="south was refused: a greeting is not of the right form", missing=[]
                )
            )

        said = self.refused_by(group, old)
        assert "not of the right form" in said
        assert "no version, as old ones do" in said
        assert "same version of lapwing" in said

    @pytest.mark.parametrize("version", [1, PROTOCOL_VERSION + 1, None, "2"])
    def test_of_a_relay_that_says_another(self, group: Flock, version: object) -> None:
        def other(talk: Talk) -> None:
            talk.read()
            talk.say(json_frame(FrameKind.WELCOME, version=version))
            talk.read()

        assert "same version of lapwing" in self.refused_by(group, other)


def test_what_a_relay_says_of_others_is_never_signed_by_a_member(group: Flock) -> None:
    lies = {0: "left: its director admits that it sold the rows", 2: "is bankrupt"}
    signed: list[bytes] = []

    def lie(talk: Talk) -> None:
        parcel = begin(group, talk)
        talk.say(frame(FrameKind.CLOSED, *Delivery(0, 0, [(parcel.envelope, None)], lies).to_parts()))
        signed.append(talk.read()[1])

    south = South(group)
    with lying(group, lie), pytest.raises(Aborted) as aborted:
        south.play()
    assert "the relay says: east is bankrupt" in str(aborted.value)
    [notice] = south.shown().leave_messages
    assert notice.is_signed_by(group.table.cards[1])
    assert b"bankrupt" not in signed[0]
    assert "director" not in notice.why
    assert "north, east" in notice.why  # names are its own finding: they were not in the round


def test_whether_it_was_charged_a_member_says_itself(group: Flock) -> None:
    def lie(talk: Talk) -> None:
        begin(group, talk)
        talk.say(json_frame(FrameKind.END, why="nothing was charged", missing=["east"]))
        talk.read()

    south = South(group)
    with lying(group, lie), pytest.raises(Aborted) as aborted:
        south.play()
    assert south.charged == [0]
    assert aborted.value.was_charged
    assert str(aborted.value).startswith("the relay says: nothing was charged (east). Nothing was opened;")


def test_after_a_cut_a_member_waits_longer_each_time(group: Flock) -> None:
    short = replace(group, table=replace(group.table, lobby_seconds=0.5))
    with lying(group, lambda talk: None) as times, pytest.raises(Unavailable):
        South(short).play()
    assert 3 <= len(times) <= 12


def test_a_relay_that_begins_and_cuts_again_and_again_is_not_flooded(group: Flock) -> None:
    south = South(replace(group, table=replace(group.table, round_seconds=0.5)))
    with lying(group, lambda talk: open_run(group, talk)) as times, pytest.raises(Unavailable):
        south.play()
    assert south.charged == [0]
    assert 3 <= len(times) <= 12


@pytest.mark.parametrize("error", [OSError(32, "Broken pipe"), ValueError("I/O operation on closed file")])
def test_whoever_watches_cannot_end_a_run(group: Flock, error: Exception) -> None:
    events: list[str] = []

    def watch(progress: Progress) -> None:
        events.append(progress.kind)
        raise error

    def lie(talk: Talk) -> None:
        begin(group, talk)
        talk.say(json_frame(FrameKind.END, why="enough", missing=[]))
        talk.read()

    with lying(group, lie), pytest.raises(Aborted, match="enough"):
        South(group, watch).play()
    assert "begun" in events
    assert "round" in events


class TestAnUnexpectedError:
    """After the charge: the others hear of it, the journal has the end, the member is told plainly."""

    def test_is_an_end_like_others(self, group: Flock, monkeypatch: pytest.MonkeyPatch) -> None:
        heard: list[FrameKind] = []

        def lie(talk: Talk) -> None:
            open_run(group, talk)
            while True:
                heard.append(talk.read()[0])

        def post(_: object) -> Parcel:
            raise TypeError("SECRET")

        south = South(group)
        with monkeypatch.context() as patch, lying(group, lie):
            patch.setattr(Participant, "post", post)
            with pytest.raises(Aborted, match="an error of its own, TypeError") as aborted:
                south.play()
            assert "stays charged" in str(aborted.value)
        assert heard == [FrameKind.LEAVE]
        assert "SECRET" not in group.transcript(1).read_text()
        with pytest.raises(Aborted, match="an error of its own"):  # by the journal: nobody is asked
            south.play()
        assert south.charged == [0]

    def test_before_the_charge_ends_nothing(self, group: Flock, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> None:
            raise TypeError

        monkeypatch.setattr(RelayClient, "arrive", broken)
        with pytest.raises(TypeError):
            South(group).play()
        with MemberJournal(group.journal(1), group.table, 1) as journal:
            assert journal.outcome() is None


@pytest.mark.parametrize("broken", [(MemberJournal, "finish"), (Transcript, "write")])
def test_what_fails_while_giving_up_does_not_hide_why(
    group: Flock, monkeypatch: pytest.MonkeyPatch, broken: tuple[type, str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise Unavailable("no space left")

    def contribute(*_: object) -> NDArray[np.int64]:
        raise OSError(24, "Too many open files")

    south = South(group)
    monkeypatch.setattr(south, "contribute", contribute)
    monkeypatch.setattr(*broken, full)
    with lying(group, lambda talk: open_run(group, talk)), pytest.raises(OSError, match="Too many open"):
        south.play()


def test_who_was_slower_than_a_round_is_told_so(tmp_path: Path) -> None:
    group = flock(tmp_path, lobby=1.0, deadline=0.1)

    def lie(talk: Talk) -> None:
        open_run(group, talk)
        talk.say(json_frame(FrameKind.END, why="south was late", missing=["south"]))
        talk.read()

    south = South(group)
    south.takes = 0.2
    with lying(group, lie), pytest.raises(Aborted, match="a longer deadline"):
        south.play()
    assert "deadline" not in (south.shown().stopped or "")


def test_a_notice_is_within_its_length(group: Flock) -> None:
    """Also with the names of many members: what is signed can be read again."""
    many = LeaveMessage(group.table.run_id, 0, 0, 1, member._cut_to("x" * 1000, 300)).signed(group.keys[1])
    assert LeaveMessage.from_json(many.to_json()) == many
