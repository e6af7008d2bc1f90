"""What travels is read strictly: one form, one meaning, one place."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import Aborted, BadParameter, BadValue
from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import (
    FrameKind,
    LeaveMessage,
    ReadyMessage,
    frame,
    parcel_size,
    read_header,
    read_json,
)
from lapwing.parties.posts import (
    BoxContext,
    Delivery,
    Envelope,
    Parcel,
    commit,
    commitment,
    round_digest,
    seal,
    sealed_size,
    unseal,
)
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.run_configuration import parse_address
from support.parties import Flock, flock

RUN = bytes(range(32))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> MemberKeys:
    return MemberKeys.create("north", tmp_path_factory.mktemp("keys"))


@pytest.fixture
def envelope(keys: MemberKeys) -> Envelope:
    return Envelope(RUN, 1, 2, 0, bytes(32), b"public", {1: bytes(32), 2: bytes(32)}).signed(keys)


class TestAnEnvelope:
    def test_is_read_as_it_was_written(self, keys: MemberKeys, envelope: Envelope) -> None:
        again = Envelope.from_bytes(envelope.to_bytes())
        assert again == envelope
        assert again.is_signed_by(keys.card)

    def test_has_the_size_that_the_plan_says(self, envelope: Envelope) -> None:
        assert len(envelope.to_bytes()) == Envelope.size(6, 2)

    def test_changed_anywhere_is_refused_or_no_longer_signed(
        self, keys: MemberKeys, envelope: Envelope
    ) -> None:
        raw = envelope.to_bytes()
        for at in range(len(raw)):
            changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
            with suppress(BadValue):
                assert not Envelope.from_bytes(changed).is_signed_by(keys.card), at

    @given(st.binary(max_size=400))
    def test_is_not_made_of_garbage(self, raw: bytes) -> None:
        with pytest.raises(BadValue):
            Envelope.from_bytes(raw)

    def test_is_not_shorter_or_longer(self, envelope: Envelope) -> None:
        raw = envelope.to_bytes()
        for wrong in (raw[:-1], raw + b"x", raw[:100], b""):
            with pytest.raises(BadValue):
                Envelope.from_bytes(wrong)

    def test_has_commitments_in_one_order_only(self, envelope: Envelope) -> None:
        raw = envelope.to_bytes()
        at = len(envelope.head) - 2 * 34
        swapped = raw[:at] + raw[at + 34 : at + 68] + raw[at : at + 34] + raw[at + 68 :]
        with pytest.raises(BadValue, match="not as it was signed"):
            Envelope.from_bytes(swapped)

    @pytest.mark.parametrize(
        "wrong",
        [{"stage": -1}, {"round": 1 << 16}, {"sender": 1}, {"run": b"x"}, {"commitments": {1 << 16: b""}}],
    )
    def test_out_of_range_cannot_be_made(self, envelope: Envelope, wrong: dict[str, object]) -> None:
        with pytest.raises(BadValue):
            replace(envelope, **wrong)  # type: ignore[arg-type]


def test_a_round_has_another_digest_with_any_other_post(keys: MemberKeys, envelope: Envelope) -> None:
    other = replace(envelope, public=b"other", sender=3)
    digest = round_digest([envelope, other])
    assert digest == round_digest([other, envelope])
    assert digest != round_digest([envelope])
    assert digest != round_digest([envelope, replace(other, public=b"0ther")])
    assert digest != round_digest([replace(envelope, seen=bytes(31) + b"x"), other])
    assert digest == round_digest([envelope.signed(keys), other])


def test_commitments_to_the_same_words_differ() -> None:
    (salt, one), (_, two) = commit(b"words"), commit(b"words")
    assert one != two
    assert commitment(salt, b"words") == one
    assert commitment(salt, b"other") != one


class TestABox:
    place = BoxContext(RUN, 0, 1, 2, 3)

    def test_opens_for_its_recipient(self, keys: MemberKeys) -> None:
        box = seal(b"plain", to=keys.card.box_key, place=self.place)
        assert unseal(box, key=keys.box, place=self.place) == b"plain"
        assert len(box) == sealed_size(5)
        assert b"plain" not in box

    def test_is_fresh_each_time(self, keys: MemberKeys) -> None:
        boxes = {seal(b"plain", to=keys.card.box_key, place=self.place) for _ in range(3)}
        assert len(boxes) == 3

    @pytest.mark.parametrize("wrong", ["run", "stage", "round", "sender", "recipient"])
    def test_opens_nowhere_else(self, keys: MemberKeys, wrong: str) -> None:
        box = seal(b"plain", to=keys.card.box_key, place=self.place)
        elsewhere = replace(self.place, **{wrong: bytes(32) if wrong == "run" else 9})  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="does not open"):
            unseal(box, key=keys.box, place=elsewhere)

    def test_does_not_open_for_others_or_changed(self, keys: MemberKeys, tmp_path: Path) -> None:
        box = seal(b"plain", to=keys.card.box_key, place=self.place)
        other = MemberKeys.create("south", tmp_path)
        for key, wrong in (
            (other.box, box),
            (keys.box, box[:-1] + bytes([box[-1] ^ 1])),
            (keys.box, bytes(32) + box[32:]),
            (keys.box, b"short"),
        ):
            with pytest.raises(BadValue):
                unseal(wrong, key=key, place=self.place)


class TestParcels:
    @given(st.binary(max_size=50), st.dictionaries(st.integers(0, 99), st.binary(max_size=20), max_size=4))
    def test_are_read_as_written(self, envelope: bytes, boxes: dict[int, bytes]) -> None:
        parcel = Parcel(envelope, boxes)
        assert Parcel.from_bytes(parcel.to_bytes()) == parcel

    @given(
        st.lists(st.tuples(st.binary(max_size=30), st.none() | st.binary(max_size=20)), max_size=4),
        st.dictionaries(st.integers(0, 99), st.text(max_size=10), max_size=3),
    )
    def test_so_are_deliveries(
        self, items: list[tuple[bytes, bytes | None]], missing: dict[int, str]
    ) -> None:
        delivery = Delivery(3, 2, items, missing)
        assert Delivery.from_bytes(delivery.to_bytes()) == delivery

    @given(st.binary(max_size=60))
    def test_garbage_is_refused(self, raw: bytes) -> None:
        for kind in (Parcel, Delivery):
            try:
                found = kind.from_bytes(raw)
            except BadValue:
                continue
            assert found.to_bytes() == raw


class TestFrames:
    def test_have_a_bounded_length(self) -> None:
        head = frame(FrameKind.POST, bytes(1000))[0]
        assert read_header(head, largest=1000) == (FrameKind.POST, 1000)
        with pytest.raises(BadValue, match="at most 999"):
            read_header(head, largest=999)

    def test_small_ones_are_small_whatever_posts_may_be(self) -> None:
        head = frame(FrameKind.HELLO, bytes(1 << 17))[0]
        with pytest.raises(BadValue, match="at most"):
            read_header(head, largest=1 << 30)

    def test_of_no_known_kind_are_refused(self) -> None:
        with pytest.raises(BadValue, match="no known kind"):
            read_header(bytes(4) + b"\xff", largest=9)

    @pytest.mark.parametrize("wrong", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
    def test_words_are_json_objects(self, wrong: bytes) -> None:
        with pytest.raises(BadValue):
            read_json(wrong)


class TestAGreeting:
    def test_is_read_as_it_was_written(self, keys: MemberKeys) -> None:
        greeting = ReadyMessage.fresh(RUN, 2, keys)
        again = ReadyMessage.from_json(RUN, json.loads(json.dumps(greeting.to_json())))
        assert again == greeting
        assert again.is_signed_by(keys.card)
        assert greeting != ReadyMessage.fresh(RUN, 2, keys)

    @pytest.mark.parametrize("wrong", [{"run": bytes(32)}, {"sender": 1}, {"nonce": bytes(16)}])
    def test_is_signed_as_a_whole(self, keys: MemberKeys, wrong: dict[str, Any]) -> None:
        assert not replace(ReadyMessage.fresh(RUN, 2, keys), **wrong).is_signed_by(keys.card)

    @pytest.mark.parametrize("wrong", [None, [], [0, "", 1], [0, "?", ""], ["0", "", ""], [0, "", "", ""]])
    def test_is_read_strictly(self, wrong: object) -> None:
        with pytest.raises(BadValue):
            ReadyMessage.from_json(RUN, wrong)


class TestANotice:
    def test_is_read_as_it_was_written(self, keys: MemberKeys) -> None:
        notice = LeaveMessage(RUN, 0, 1, 2, "why").signed(keys)
        assert LeaveMessage.from_json(notice.to_json()) == notice
        assert notice.is_signed_by(keys.card)
        assert not replace(notice, why="other").is_signed_by(keys.card)

    @pytest.mark.parametrize(
        "wrong",
        [{"why": 1}, {"why": "x" * 301}, {"why": "a\nb"}, {"signature": "?"}, {"run": "zz"}, {"more": 1}],
    )
    def test_is_read_strictly(self, keys: MemberKeys, wrong: dict[str, object]) -> None:
        said = LeaveMessage(RUN, 0, 1, 2, "why").signed(keys).to_json() | wrong
        with pytest.raises(BadValue):
            LeaveMessage.from_json(said)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Flock:
    return flock(tmp_path_factory.mktemp("three"))


class TestATable:
    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"digest": b"x"}, "32 bytes"),
            ({"number": -1}, "from 0"),
            ({"protocol": "X"}, "one of"),
            ({"protocol": "AB"}, "one of"),
            ({"coalition": 2}, "less than half"),
            ({"stages": 0}, "stages"),
            ({"round_seconds": 0}, "above 0"),
            ({"lobby_seconds": float("nan")}, "above 0"),
            ({"address": "nowhere"}, "host:port"),
            ({"length": 0}, "at least 1"),
        ],
    )
    def test_that_cannot_be_is_refused(self, three: Flock, wrong: dict[str, object], words: str) -> None:
        with pytest.raises(BadParameter, match=words):
            replace(three.table, **wrong)  # type: ignore[arg-type]

    def test_has_each_member_once(self, three: Flock) -> None:
        with pytest.raises(BadParameter, match="different names"):
            replace(three.table, cards=three.table.cards[:1] * 3)

    def test_has_no_host_with_a_members_name_and_another_card(self, three: Flock, tmp_path: Path) -> None:
        other = MemberKeys.create("south", tmp_path).card
        with pytest.raises(BadParameter, match="not with this card"):
            replace(three.table, host=other)

    def test_runs_and_stages_have_ids_of_their_own(self, three: Flock) -> None:
        table = three.table
        ids = [table.run_id, replace(table, number=2).run_id, replace(table, digest=bytes(32)).run_id]
        ids += [table.setting(0).run, table.setting(1).run]
        assert len(set(ids)) == 5

    @pytest.mark.parametrize("wrong", ["", "x", ":1", "x:", "x:0", "x:65536", "x:-1", "x:٣"])
    def test_addresses(self, wrong: str) -> None:
        assert parse_address("[::1]:7443") == ("::1", 7443)
        with pytest.raises(BadParameter, match="host:port"):
            parse_address(wrong)


def test_every_protocols_posts_have_a_planned_size(tmp_path: Path) -> None:
    table = flock(tmp_path).table
    for kind in PROTOCOLS.values():
        for traffic in kind.traffic(table.setting(0)):
            assert parcel_size(traffic.public, traffic.private, traffic.recipients) > traffic.public


@pytest.mark.parametrize(
    ("aborted", "words"),
    [
        (Aborted("why", ("a",)), "why (a). Nothing was opened; what was charged stays charged"),
        (Aborted("why", was_charged=False), "why. Nothing was opened, and nothing was charged"),
        (
            Aborted("why", goes_on=True),
            "why. The others may open the sums; this member has no part in them, and was not charged",
        ),
        (Aborted("why", opened=2), "why. Sums that were opened before: 2; what was charged stays charged"),
    ],
)
def test_an_abort_says_what_is_true(aborted: Aborted, words: str) -> None:
    assert str(aborted) == words
