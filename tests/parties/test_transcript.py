"""What a third party finds in a transcript, and what nobody can change in it unseen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import Tampered, Unavailable
from lapwing.parties.messages import LeaveMessage
from lapwing.parties.posts import Envelope
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.transcript import (
    Transcript,
    TranscriptRound,
    VerifiedTranscript,
    check_transcript,
    sums_from_posts,
    verify_transcript,
)
from support.parties import Flock, flock
from support.parties_seats import play


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Flock:
    return flock(tmp_path_factory.mktemp("three"), stages=2)


def transcript_of(group: Flock) -> Transcript:
    opened, parcels = play(group)
    names = PROTOCOLS[group.table.protocol].rounds
    rounds = []
    for at, posted in enumerate(parcels):
        stage, number = divmod(at, len(names))
        envelopes = tuple(Envelope.from_bytes(parcel.envelope) for parcel in posted.values())
        rounds.append(TranscriptRound(stage, number, names[number], envelopes))
    table = group.table
    return Transcript(table.number, table.digest, table.document, rounds, [], opened)


@pytest.fixture(scope="module")
def good(three: Flock) -> Transcript:
    return transcript_of(three)


def checked(transcript: Transcript, group: Flock) -> VerifiedTranscript:
    return check_transcript(transcript, group.table, guarantee="the guarantee")


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_all_protocols_verify_and_the_sums_follow(three: Flock, letter: str, tmp_path: Path) -> None:
    table = replace(three.table, protocol=letter, coalition=0 if letter == "L" else 1)
    group = Flock(three.root, table, three.keys)
    transcript_of(group).write(tmp_path / "t", durably=False)
    found = checked(Transcript.read(tmp_path / "t"), group)
    assert [opened.values.tolist() for opened in found.opened] == [[6] * 4, [12] * 4]
    assert found.contributors == (("north", "south", "east"),) * 2
    assert found.protocol.startswith(letter)
    assert found.guarantee == "the guarantee"
    assert any("drew its noise" in line for line in found.not_checked)


def test_what_is_written_is_read(good: Transcript, tmp_path: Path) -> None:
    good.write(tmp_path / "t", durably=False)
    again = Transcript.read(tmp_path / "t")
    assert again.rounds == good.rounds
    assert (again.number, again.digest, again.stopped) == (good.number, good.digest, None)


Change = Callable[[list[dict[str, Any]]], object]


def _post(lines: list[dict[str, Any]], at: int, member: int) -> Any:
    return lines[at]["posts"][member]


def _swap(value: str) -> str:
    return ("B" if value[0] == "A" else "A") + value[1:]


CHANGES: dict[str, tuple[Change, str]] = {
    "a sum": (lambda ls: ls[7]["sums"].__setitem__(0, 7), "not those that follow"),
    "who is in it": (lambda ls: ls[7].__setitem__("contributors", [0, 1]), "not those that follow"),
    "a public part": (
        lambda ls: _post(ls, 3, 1).__setitem__("public", "A" * 43 + "="),
        "south did not sign",
    ),
    "a commitment": (
        lambda ls: _post(ls, 1, 2)["commitments"].__setitem__("0", "00" * 32),
        "east did not sign",
    ),
    "a signature": (
        lambda ls: _post(ls, 2, 0).__setitem__("signature", _swap(_post(ls, 2, 0)["signature"])),
        "north did not sign",
    ),
    "what was seen": (lambda ls: _post(ls, 2, 0).__setitem__("seen", "00" * 32), "north did not sign"),
    "a post left out": (lambda ls: ls[1]["posts"].pop(), "had received other rounds"),
    "a post twice": (lambda ls: ls[1]["posts"].append(ls[1]["posts"][0]), "posted twice"),
    "posts swapped between members": (
        lambda ls: (_post(ls, 3, 0).__setitem__("member", 1), _post(ls, 3, 1).__setitem__("member", 0)),
        "did not sign",
    ),
    "a stranger": (lambda ls: _post(ls, 2, 1).__setitem__("member", 9), "not, or no longer, in the run"),
    "a round left out": (lambda ls: ls.pop(2), "stands where agree"),
    "rounds swapped": (lambda ls: ls.insert(1, ls.pop(2)), "stands where deal"),
    "the last round left out": (lambda ls: ls.pop(6), "rounds are missing at the end"),
    "a sum left out": (lambda ls: ls.pop(8), "sums are missing"),
    "a sum that was not opened": (lambda ls: ls.insert(9, {**ls[8], "opened": 2}), "not opened"),
    "too many stages": (
        lambda ls: ls.insert(7, {**ls[6], "stage": 2, "round": 0, "name": "deal"}),
        "more than 2 stages",
    ),
    "another run": (lambda ls: ls[0].__setitem__("run", 2), "another consortium or run"),
    "another format": (lambda ls: ls[0].__setitem__("format", "x"), "another version"),
    "a field more": (lambda ls: ls[1].__setitem__("more", 1), "nothing else"),
    "a field of a post less": (lambda ls: _post(ls, 1, 0).pop("seen"), "not the right fields"),
    "no end": (lambda ls: ls.pop(), "line"),
    "a sum that is no number": (lambda ls: ls[7]["sums"].__setitem__(0, 1.5), "whole numbers"),
    "a huge member": (lambda ls: _post(ls, 1, 0).__setitem__("member", 1 << 80), "out of range"),
    "a run as a text": (lambda ls: ls[0].__setitem__("run", "1"), "must be a whole number"),
    "a run as a truth": (lambda ls: ls[0].__setitem__("run", True), "must be a whole number"),
    "a run as a fraction": (lambda ls: ls[0].__setitem__("run", 1.0), "must be a whole number"),
    "no run": (lambda ls: ls[0].__setitem__("run", None), "must be a whole number"),
    "a run below 0": (lambda ls: ls[0].__setitem__("run", -1), "is not as lapwing writes it"),
    "no consortium": (lambda ls: ls[0].__setitem__("consortium", None), "a text"),
    "a table as consortium": (lambda ls: ls[0].__setitem__("consortium", {}), "a text"),
    "called stopped": (
        lambda ls: ls.__setitem__(-1, {"ended": "stopped", "why": "south cheated"}),
        "all sums follow",
    ),
    "a long story": (
        lambda ls: ls.__setitem__(-1, {"ended": "stopped", "why": "x" * 501}),
        "short text that can be printed",
    ),
    "a story in colours": (
        lambda ls: ls.__setitem__(-1, {"ended": "stopped", "why": "\x1b[2J\x1b[32mall good"}),
        "short text that can be printed",
    ),
    "no reason": (
        lambda ls: ls.__setitem__(-1, {"ended": "stopped", "why": None}),
        "short text that can be printed",
    ),
    "not even a post": (lambda ls: ls[1].__setitem__("posts", 5), "is not as lapwing writes it"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_found(three: Flock, good: Transcript, tmp_path: Path, change: str) -> None:
    spoil, words = CHANGES[change]
    path = tmp_path / "t"
    good.write(path, durably=False)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(line.get("posts", ())) for line in lines] == [0, 3, 3, 3, 3, 3, 3, 0, 0, 0]
    spoil(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def look() -> VerifiedTranscript:
        return checked(Transcript.read(path), three)

    with pytest.raises(Tampered, match=words):
        look()


def test_a_run_that_stopped_shows_how_far_it_came(three: Flock, good: Transcript) -> None:
    stopped = replace(good, rounds=good.rounds[:4], opened=good.opened[:1], stopped="too few (east)")
    found = checked(stopped, three)
    assert found.stopped == "too few (east)"
    assert len(found.opened) == 1


@pytest.mark.parametrize("why", ["a\nb \x1b[2J", "x" * 2000])
def test_why_it_stopped_is_written_so_that_it_can_be_read(
    three: Flock, good: Transcript, tmp_path: Path, why: str
) -> None:
    replace(good, rounds=good.rounds[:4], opened=good.opened[:1], stopped=why).write(
        tmp_path / "t", durably=False
    )
    found = checked(Transcript.read(tmp_path / "t"), three)
    assert found.stopped is not None
    assert found.stopped.isprintable()
    assert any("nobody signs why it stopped" in line for line in found.not_checked)


@pytest.mark.parametrize("letter", ["A", "L"])
@pytest.mark.parametrize("left_out", range(3))
def test_the_sum_of_own_noise_cannot_be_made_of_fewer_posts(
    tmp_path: Path, three: Flock, letter: str, left_out: int
) -> None:
    """Enough would be left; but the members have signed whose posts are in the sum."""
    table = replace(three.table, protocol=letter, losses=1, stages=1)
    group = Flock(three.root, table, three.keys)
    good = transcript_of(group)
    assert len(checked(good, group).opened) == 1
    post, agree = good.rounds

    def without(whole: TranscriptRound) -> TranscriptRound:
        return replace(whole, envelopes=tuple(e for e in whole.envelopes if e.sender != left_out))

    for rounds in ([without(post), agree], [without(post), without(agree)]):
        opened, _ = sums_from_posts(table, rounds)
        for stopped in (None, "x"):
            with pytest.raises(Tampered, match=r"had received other rounds|no longer, in the run"):
                checked(replace(good, rounds=rounds, opened=opened, stopped=stopped), group)
    for rounds in ([without(post)], [post]):
        with pytest.raises(Tampered, match="rounds are missing"):
            checked(replace(good, rounds=rounds, opened=[]), group)
    with pytest.raises(Tampered, match="sums that were not opened"):
        checked(replace(good, rounds=[without(post)], stopped="x"), group)
    fewer = replace(agree, envelopes=agree.envelopes[:1])
    with pytest.raises(Tampered, match="too few members agreed"):
        checked(replace(good, rounds=[post, fewer]), group)
    enough = replace(agree, envelopes=agree.envelopes[1:])  # a minority may fail to agree
    assert checked(replace(good, rounds=[post, enough]), group).contributors == (table.names,)


def test_a_run_cannot_be_called_stopped_to_show_other_sums(three: Flock, good: Transcript) -> None:
    other = replace(good.opened[0], values=good.opened[0].values + 1)
    with pytest.raises(Tampered, match="not those that follow"):
        checked(replace(good, rounds=good.rounds[:4], opened=[other], stopped="x"), three)


def test_notices_are_signed(three: Flock, good: Transcript) -> None:
    notice = LeaveMessage(three.table.run_id, 1, 0, 1, "I leave").signed(three.keys[1])
    assert checked(replace(good, leave_messages=[notice]), three).left == ("south: I leave",)
    for wrong in (replace(notice, sender=2), replace(notice, sender=-1), replace(notice, run=bytes(32))):
        with pytest.raises(Tampered, match="leave message"):
            checked(replace(good, leave_messages=[wrong]), three)


def test_too_small_a_set_is_found_even_if_all_signed_it(tmp_path: Path) -> None:
    """Two of five are missing in the deal, though one loss was planned."""
    five = flock(tmp_path, 5, protocol="C", losses=1)
    _, parcels = play(five)
    rounds = [
        TranscriptRound(
            0, at, PROTOCOLS["C"].rounds[at], tuple(Envelope.from_bytes(p.envelope) for p in posts.values())
        )
        for at, posts in enumerate(parcels)
    ]
    table = five.table
    transcript = Transcript(
        table.number, table.digest, "", [replace(rounds[0], envelopes=rounds[0].envelopes[:3])]
    )
    with pytest.raises(Tampered, match="too few members dealt"):
        checked(transcript, five)


def test_a_file_that_is_none_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        verify_transcript(tmp_path / "none")
    (tmp_path / "t").write_bytes(b"\xff\xfe")
    with pytest.raises(Tampered, match="not a transcript"):
        verify_transcript(tmp_path / "t")
    header = '{"format": "lapwing transcript 1", "run": 1, "digest": "00", "consortium": ""}'
    (tmp_path / "t").write_text(f'{header}\n{"[" * 100_000}\n{{"ended": "opened"}}\n')
    with pytest.raises(Tampered, match="is not as lapwing writes it"):
        verify_transcript(tmp_path / "t")
    (tmp_path / "t").write_text("")
    with pytest.raises(Tampered):
        verify_transcript(tmp_path / "t")


def test_a_header_without_a_consortium_is_refused(good: Transcript, tmp_path: Path) -> None:
    good.write(tmp_path / "t", durably=False)
    with pytest.raises(Tampered, match="does not hold"):
        verify_transcript(tmp_path / "t")
