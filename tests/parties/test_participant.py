"""A participant: what a relay, or another run, cannot make it believe."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lapwing.parties.participant import Participant
from lapwing.parties.posts import Envelope, Parcel
from lapwing.parties.protocols.protocol import ProtocolStopped
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import FreshCoins
from support.parties import Flock, flock
from support.parties_seats import deliver, play, play_round, seats, sit


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Flock:
    return flock(tmp_path_factory.mktemp("three"))


def with_envelope(flock: Flock, parcel: Parcel, sender: int, **changes: object) -> Parcel:
    """The same parcel with a changed envelope, signed anew by its sender."""
    envelope = replace(Envelope.from_bytes(parcel.envelope), **changes)  # type: ignore[arg-type]
    return replace(parcel, envelope=envelope.signed(flock.keys[sender]).to_bytes())


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_all_protocols_come_to_the_sum_in_all_stages(three: Flock, letter: str) -> None:
    table = replace(three.table, protocol=letter, coalition=0 if letter == "L" else 1, stages=2)
    opened, _ = play(Flock(three.root, table, three.keys))
    assert [each.values.tolist() for each in opened] == [[6] * 4, [12] * 4]


def test_masks_and_shares_are_fresh_each_run(three: Flock) -> None:
    for letter in "BCD":
        table = replace(three.table, protocol=letter)
        runs = [play(Flock(three.root, replace(table, number=n), three.keys))[1] for n in (1, 1, 2)]
        for place in range(len(PROTOCOLS[letter].rounds)):
            for sender in range(3):
                publics = [Envelope.from_bytes(run[place][sender].envelope).public for run in runs]
                boxes = [box for run in runs for box in run[place][sender].boxes.values()]
                assert len(set(boxes)) == len(boxes)
                assert len(set(publics)) in (1 if not publics[0] else 3,)


class TestM1:
    """A relay that shows members different rounds is found out before anything can be opened."""

    def test_a_round_that_differs_stops_everybody_in_the_next(self, three: Flock) -> None:
        everybody = seats(three)
        sit(everybody)
        parcels = {seat.me: seat.post() for seat in everybody}
        other = with_envelope(three, parcels[2], 2, commitments={0: bytes(32), 1: bytes(32)})
        shown = {0: parcels, 1: parcels, 2: parcels}
        shown[1] = parcels | {2: replace(other, boxes={})}
        everybody[0].hear(deliver(shown[0], everybody[0]))
        with pytest.raises(
            ProtocolStopped, match="missing"
        ) as stopped:  # its box is not what was committed to
            everybody[1].hear(deliver(shown[1], everybody[1]))
        assert stopped.value.members == (2,)

    @pytest.mark.parametrize("letter", "BCD")
    def test_different_sets_stop_everybody_in_the_next_round(self, tmp_path: Path, letter: str) -> None:
        five = flock(tmp_path, 5, protocol=letter, losses=1)
        everybody = seats(five)
        sit(everybody)
        while everybody[0].config.rounds[everybody[0].round] not in ("present", "deal", "masked"):
            play_round(everybody)
        parcels = {seat.me: seat.post() for seat in everybody}
        for seat in everybody:
            left_out = 4 if seat.me < 2 else 3
            if seat.me != left_out:
                seat.hear(deliver({i: p for i, p in parcels.items() if i != left_out}, seat))
        still = [seat for seat in everybody if seat.round == everybody[0].round]
        agreeing = {seat.me: seat.post() for seat in still if seat.me < 3}
        for seat in still[:3]:
            with pytest.raises(ProtocolStopped, match="different rounds") as stopped:
                seat.hear(deliver(agreeing, seat))
            assert stopped.value.members == ((2,) if seat.me < 2 else (0, 1))
            with pytest.raises(ProtocolStopped, match="nothing more is posted"):
                seat.post()

    def test_a_member_who_says_two_things_stops_everybody(self, three: Flock) -> None:
        """South and the relay are one: south signs two masked values, and each is shown to one member."""
        everybody = seats(Flock(three.root, replace(three.table, protocol="D"), three.keys))
        sit(everybody)
        play_round(everybody)
        play_round(everybody)
        parcels = {seat.me: seat.post() for seat in everybody}
        other = with_envelope(three, parcels[1], 1, public=bytes(32))
        everybody[0].hear(deliver(parcels, everybody[0]))
        everybody[1].hear(deliver(parcels, everybody[1]))
        everybody[2].hear(deliver(parcels | {1: other}, everybody[2]))
        agreeing = {seat.me: seat.post() for seat in everybody}
        for i, differs in ((0, (2,)), (2, (0, 1))):
            with pytest.raises(ProtocolStopped, match="different rounds") as stopped:
                everybody[i].hear(deliver(agreeing, everybody[i]))
            assert stopped.value.members == differs

    def test_the_same_boxes_in_another_place_do_not_open(self, three: Flock) -> None:
        everybody = seats(three)
        sit(everybody)
        parcels = {seat.me: seat.post() for seat in everybody}
        swapped = replace(parcels[1], boxes={0: parcels[1].boxes[2], 2: parcels[1].boxes[0]})
        with pytest.raises(ProtocolStopped, match="does not open") as stopped:
            everybody[0].hear(deliver(parcels | {1: swapped}, everybody[0]))
        assert stopped.value.members == (1,)


class TestRefusals:
    """By name, and for good."""

    def ready(self, three: Flock) -> tuple[Participant, dict[int, Parcel]]:
        everybody = seats(three)
        sit(everybody)
        return everybody[0], {seat.me: seat.post() for seat in everybody}

    def shown(self, three: Flock, change: dict[str, object], words: str) -> None:
        seat, parcels = self.ready(three)
        wrong = with_envelope(three, parcels[1], 1, **change)
        with pytest.raises(ProtocolStopped, match=words) as stopped:
            seat.hear(deliver(parcels | {1: wrong}, seat))
        assert stopped.value.members == (1,)

    def test_M1_posts_of_an_old_run(self, three: Flock) -> None:
        _, old = play(Flock(three.root, replace(three.table, number=7), three.keys))
        seat, parcels = self.ready(three)
        with pytest.raises(ProtocolStopped, match="another run") as stopped:
            seat.hear(deliver(parcels | {1: old[0][1]}, seat))
        assert stopped.value.members == (1,)

    def test_another_run(self, three: Flock) -> None:
        self.shown(three, {"run": bytes(32)}, "another run")

    def test_another_stage_or_round(self, three: Flock) -> None:
        self.shown(three, {"stage": 1}, "another round")
        self.shown(three, {"round": 1}, "another round")

    def test_a_part_for_nobody(self, three: Flock) -> None:
        self.shown(
            three, {"commitments": {0: bytes(32), 7: bytes(32)}}, "part for a member that does not exist"
        )

    def test_another_past(self, three: Flock) -> None:
        self.shown(three, {"seen": bytes(32)}, "different rounds")

    def test_a_post_in_anothers_name(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        envelope = replace(Envelope.from_bytes(parcels[2].envelope), sender=1, commitments={})
        forged = Parcel(envelope.signed(three.keys[2]).to_bytes(), {})
        with pytest.raises(ProtocolStopped, match="not signed by its sender") as stopped:
            seat.hear(deliver(parcels | {1: forged}, seat))
        assert stopped.value.members == (1,)

    def test_a_stranger(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        envelope = replace(Envelope.from_bytes(parcels[2].envelope), sender=9)
        wrong = parcels | {9: Parcel(envelope.signed(three.keys[2]).to_bytes(), {})}
        with pytest.raises(ProtocolStopped, match="post of a member that does not exist"):
            seat.hear(deliver(wrong, seat))

    def test_the_same_member_twice(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        with pytest.raises(ProtocolStopped, match="posted twice") as stopped:
            seat.hear(deliver(parcels | {9: parcels[1]}, seat))
        assert stopped.value.members == (1,)

    def test_garbage(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        with pytest.raises(ProtocolStopped, match="no post"):
            seat.hear(deliver(parcels | {1: Parcel(b"garbage" * 40, {})}, seat))

    def test_its_own_post_changed_or_left_out(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        with pytest.raises(ProtocolStopped, match="own post"):
            seat.hear(deliver({1: parcels[1], 2: parcels[2]}, seat))
        seat, parcels = self.ready(three)
        other = with_envelope(three, parcels[0], 0, public=b"other")
        with pytest.raises(ProtocolStopped, match="own post"):
            seat.hear(deliver(parcels | {0: other}, seat))

    def test_another_round_than_the_open_one(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        with pytest.raises(ProtocolStopped, match="another round than the open one"):
            seat.hear(replace(deliver(parcels, seat), round=1))

    def test_a_private_part_that_was_not_committed_to(self, three: Flock) -> None:
        seat, parcels = self.ready(three)
        wrong = with_envelope(three, parcels[1], 1, commitments={0: bytes(32), 2: bytes(32)})
        with pytest.raises(ProtocolStopped, match="committed to") as stopped:
            seat.hear(deliver(parcels | {1: wrong}, seat))
        assert stopped.value.members == (1,)

    @pytest.mark.parametrize("public", [b"\xff" * 32, bytes(31), bytes(40), b""])
    def test_out_of_range_or_wrong_length(self, three: Flock, public: bytes) -> None:
        everybody = seats(three)
        sit(everybody)
        play_round(everybody)
        play_round(everybody)
        parcels = {seat.me: seat.post() for seat in everybody}
        wrong = with_envelope(three, parcels[1], 1, public=public)
        with pytest.raises(ProtocolStopped) as stopped:
            everybody[0].hear(deliver(parcels | {1: wrong}, everybody[0]))
        assert stopped.value.members == (1,)

    def test_who_missed_a_round_does_not_come_back(self, tmp_path: Path) -> None:
        five = flock(tmp_path, 5, protocol="C", losses=1)
        everybody = seats(five)
        sit(everybody)
        parcels = {seat.me: seat.post() for seat in everybody}
        for seat in everybody[:4]:
            seat.hear(deliver({i: parcels[i] for i in range(4)}, seat))
        everybody[4].hear(deliver(parcels, everybody[4]))
        agreeing = {seat.me: seat.post() for seat in everybody}
        with pytest.raises(ProtocolStopped, match="missed a round") as stopped:
            everybody[0].hear(deliver(agreeing, everybody[0]))
        assert stopped.value.members == (4,)


def test_a_value_of_another_length_is_refused(three: Flock) -> None:
    seat = seats(three)[0]
    with pytest.raises(ValueError, match="4 whole numbers"):
        seat.start_stage(np.zeros(3, dtype=np.int64), FreshCoins())


@pytest.mark.parametrize("honest_quorum", [False, True])
def test_two_signed_agreements_stop_who_asks_for_an_honest_quorum(
    tmp_path: Path, honest_quorum: bool
) -> None:
    """Members 0 and 1 of five sign one set for member 2, and one without it for 3 and 4. What that tells is
    in tests/parties/protocols/test_protocols_views.py; here are the signatures, and who goes on to open."""
    made = flock(tmp_path, 5, coalition=2, losses=1)
    five = replace(made, table=replace(made.table, honest_quorum=honest_quorum))
    everybody = seats(five)
    sit(everybody)
    dealt = {seat.me: seat.post() for seat in everybody}
    without = {i: parcel for i, parcel in dealt.items() if i != 2}
    for seat in everybody:
        seat.hear(deliver(without if seat.me in (3, 4) else dealt, seat))
    agreed = {seat.me: seat.post() for seat in everybody}
    opening = []
    for group in ((2,), (3, 4)):
        seen = everybody[group[0]].seen
        signed = {i: with_envelope(five, agreed[i], i, seen=seen) for i in (0, 1)}
        for i in group:
            with suppress(ProtocolStopped):
                everybody[i].hear(deliver(signed | {j: agreed[j] for j in group}, everybody[i]))
                everybody[i].post()
                opening.append(i)
    assert opening == ([3, 4] if honest_quorum else [2, 3, 4])
