"""The public transcript of a run: what everybody saw, in order, with all signatures. No private part.

One JSON object per line: the header with the consortium that all members signed; each closed round with its
posts (of private parts only commitments under secret salts); notices of members who left; the opened sums.
Nobody signs the last line: why a run stopped is what the writer of the file says.

What a third party can check in a transcript: who took part, in which order, to which sums.

Claim    a transcript that verifies was signed step by step by the members of a consortium that all of them
         signed; every member whose post is in a round had heard exactly the rounds before it; and the
         opened sums follow from the members' own public posts, by the rules of the protocol.
Because  each envelope's signature covers its run, stage, round, public part, commitments, and the digest of
         the round before; the protocol's own `follow` and `outcome` run on the public parts.
Test     tests/parties/running/test_verifying.py

It cannot show that a member told the truth about its data, drew its noise, or kept its secrets; nor that
the people behind the keys are who they say; nor, of a run that is said to have stopped, that it did.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.errors import BadParameter, BadValue, Tampered, Unavailable
from lapwing.parties.consortium import Consortium
from lapwing.parties.messages import LeaveMessage
from lapwing.parties.posts import SIGNATURE_BYTES, Envelope, round_digest, start_digest
from lapwing.parties.protocols.protocol import OpenedSum, ProtocolStopped
from lapwing.parties.protocols.registry import NAMES, PROTOCOLS
from lapwing.parties.run_configuration import RunConfiguration

TRANSCRIPT_FORMAT = "lapwing transcript 1"
LONGEST_STOPPED = 500
_MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TranscriptRound:
    """A closed round, with the envelopes of all who were in time."""

    stage: int
    round: int
    name: str
    envelopes: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a file holds, read but not verified."""

    number: int
    digest: bytes
    document: str = field(repr=False)
    rounds: Sequence[TranscriptRound] = field(repr=False)
    notices: Sequence[LeaveMessage] = ()
    opened: Sequence[OpenedSum] = field(default=(), repr=False)
    stopped: str | None = None

    def write(self, path: Path, *, durably: bool) -> None:
        """All or nothing. A member does not wait for the disk: its journal can write it again."""
        beside = path.with_name(path.name + ".new")
        try:
            with beside.open("w") as file:
                file.writelines(json.dumps(line) + "\n" for line in self._lines())
                file.flush()
                if durably:
                    os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            raise Unavailable(f"the transcript {path} cannot be written: {error.strerror}") from error

    def _lines(self) -> Iterator[dict[str, Any]]:
        yield {
            "format": TRANSCRIPT_FORMAT,
            "run": self.number,
            "digest": self.digest.hex(),
            "consortium": self.document,
        }
        for closed in self.rounds:
            posts = [_post_to_json(envelope) for envelope in closed.envelopes]
            yield {"stage": closed.stage, "round": closed.round, "name": closed.name, "posts": posts}
        for notice in self.notices:
            yield {"notice": notice.to_json()}
        for stage, opened in enumerate(self.opened):
            who = list(opened.contributors)
            yield {"opened": stage, "contributors": who, "sums": opened.values.tolist()}
        yield {"ended": "opened"} if self.stopped is None else {"ended": "stopped", "why": self._why()}

    def _why(self) -> str:
        """As it can be read again: short, and printable."""
        why = "".join(letter if letter.isprintable() else " " for letter in self.stopped or "")
        return why if len(why) <= LONGEST_STOPPED else why[: LONGEST_STOPPED - 1] + "…"

    @classmethod
    def read(cls, path: Path) -> Transcript:
        """Raises `Tampered` if it has not the form of a transcript."""
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as error:
            raise Unavailable(f"the transcript {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise Tampered([f"{path} is not a transcript"]) from error
        at = 0
        try:
            header = _header(lines[0])
            rounds: list[TranscriptRound] = []
            notices: list[LeaveMessage] = []
            opened: list[OpenedSum] = []
            for at, line in enumerate(lines[1:-1], 1):  # noqa: B007 (the error names the line)
                said = json.loads(line)
                if "notice" in said:
                    notices.append(LeaveMessage.from_json(_fields(line, "notice")["notice"]))
                elif "opened" in said:
                    opened.append(_opened(line, stage=len(opened)))
                else:
                    rounds.append(_round(line, header))
            at = len(lines) - 1
            return cls(
                header["run"],
                bytes.fromhex(header["digest"]),
                header["consortium"],
                rounds,
                notices,
                opened,
                _stopped(lines[-1]),
            )
        except _MALFORMED as error:
            why = str(error) if isinstance(error, BadValue) else "is not as lapwing writes it"
            raise Tampered([f"{path}, line {at + 1}: {why}"]) from error


def _header(line: str) -> dict[str, Any]:
    header = _fields(line, "format", "run", "digest", "consortium")
    if header["format"] != TRANSCRIPT_FORMAT:
        raise BadValue("this is not a transcript, or one of another version")
    if type(header["run"]) is not int or not isinstance(header["consortium"], str):
        raise BadValue("the run must be a whole number, and the consortium a text")
    return header


def _stopped(line: str) -> str | None:
    """What the last line says: why the run stopped, or that it did not."""
    ended = _fields(line, "ended", "why") if "why" in json.loads(line) else _fields(line, "ended")
    if ended["ended"] != ("stopped" if "why" in ended else "opened"):
        raise BadValue("its last line does not say how the run ended")
    why = ended.get("why", "")
    if not isinstance(why, str) or not why.isprintable() or len(why) > LONGEST_STOPPED:
        raise BadValue("why the run stopped must be a short text that can be printed")
    return why if "why" in ended else None


def sums_from_posts(
    table: RunConfiguration, rounds: Sequence[TranscriptRound]
) -> tuple[list[OpenedSum], ProtocolStopped | None]:
    """The sums that follow from public posts alone, and what stopped the protocol, if anything did."""
    kind = PROTOCOLS[table.protocol]
    opened: list[OpenedSum] = []
    for stage in range(table.stages):
        setting = table.setting(stage)
        of_stage = [closed for closed in rounds if closed.stage == stage]
        publics = [{e.sender: e.public for e in closed.envelopes} for closed in of_stage]
        try:
            for upto in range(1, len(publics) + 1):
                kind.follow(setting, publics[:upto])
            if len(publics) < len(kind.rounds):
                break
            opened.append(kind.outcome(setting, publics))
        except ProtocolStopped as stop:
            return opened, stop
    return opened, None


def order_violations(rounds: Sequence[TranscriptRound], table: RunConfiguration) -> list[str]:
    """What a stranger finds wrong with the signatures and the order of posts. Nothing, if all is well."""
    return [*_order(rounds, table), *_chain(rounds, table)]


def _order(rounds: Sequence[TranscriptRound], table: RunConfiguration) -> list[str]:
    """All rounds of all stages in order, none left out before the end."""
    names = PROTOCOLS[table.protocol].rounds
    for at, closed in enumerate(rounds):
        stage, number = divmod(at, len(names))
        if stage >= table.stages:
            return [f"there are more than {table.stages} stages"]
        if (closed.stage, closed.round, closed.name) != (stage, number, names[number]):
            return [f"{closed.name} of stage {closed.stage} stands where {names[number]} of {stage} should"]
    return []


def _chain(rounds: Sequence[TranscriptRound], table: RunConfiguration) -> list[str]:
    """Every post: its member's, signed, once, and after exactly the rounds before."""
    found = []
    seen = start_digest(table.run_id)
    before = set(range(len(table.cards)))
    for closed in rounds:
        where = f"stage {closed.stage}, {closed.name}"
        senders = [envelope.sender for envelope in closed.envelopes]
        if len(set(senders)) != len(senders):
            found.append(f"{where}: a member posted twice")
        for envelope in closed.envelopes:
            if envelope.sender not in before:
                found.append(f"{where}: a post of a member who is not, or no longer, in the run")
                continue
            name = table.names[envelope.sender]
            if not envelope.is_signed_by(table.cards[envelope.sender]):
                found.append(f"{where}: {name} did not sign this post")
            elif envelope.seen != seen:
                found.append(f"{where}: {name} had heard other rounds before than these")
            if any(to >= len(table.cards) for to in envelope.commitments):
                found.append(f"{where}: {name} committed to a part for nobody")
        seen = round_digest(closed.envelopes)
        before = set(senders) & before
    return found


def _post_to_json(envelope: Envelope) -> dict[str, Any]:
    return {
        "member": envelope.sender,
        "seen": envelope.seen.hex(),
        "public": base64.b64encode(envelope.public).decode(),
        "commitments": {str(to): digest.hex() for to, digest in sorted(envelope.commitments.items())},
        "signature": base64.b64encode(envelope.signature).decode(),
    }


def _round(line: str, header: dict[str, Any]) -> TranscriptRound:
    said = _fields(line, "stage", "round", "name", "posts")
    run = RunConfiguration.run_id_of(bytes.fromhex(header["digest"]), header["run"])
    envelopes = []
    for post in said["posts"]:
        if set(post) != {"member", "seen", "public", "commitments", "signature"}:
            raise BadValue("a post has not the right fields")
        envelope = Envelope(
            run,
            said["stage"],
            said["round"],
            post["member"],
            bytes.fromhex(post["seen"]),
            base64.b64decode(post["public"], validate=True),
            {int(to): bytes.fromhex(digest) for to, digest in post["commitments"].items()},
            base64.b64decode(post["signature"], validate=True),
        )
        if len(envelope.signature) != SIGNATURE_BYTES or any(
            len(x) != 32 for x in envelope.commitments.values()
        ):
            raise BadValue("a post's signature or commitments are not of the right length")
        envelopes.append(envelope)
    return TranscriptRound(said["stage"], said["round"], said["name"], tuple(envelopes))


def _opened(line: str, *, stage: int) -> OpenedSum:
    said = _fields(line, "opened", "contributors", "sums")
    if said["opened"] != stage or not all(type(x) is int for x in said["sums"] + said["contributors"]):
        raise BadValue("opened sums must be whole numbers, stage after stage")
    return OpenedSum(np.array(said["sums"], np.int64), tuple(said["contributors"]))


def _fields(line: str, *names: str) -> dict[str, Any]:
    said = json.loads(line)
    if not isinstance(said, dict) or set(said) != set(names):
        raise BadValue(f"must have {', '.join(names)}, and nothing else")
    return said


NOT_CHECKED = (
    "that each member's value was computed from its data, and within its bounds",
    "that each member drew its noise, and drew it once: a member could post a value without any",
    "that private parts were what they should be: only commitments to them are in here",
    "that a member's keys are held by whom its name says: compare the fingerprints of the cards",
    "that nothing was left out: members' notices may be missing, and of a run that is said to have stopped "
    "the last rounds; nobody signs why it stopped",
)


@dataclass(frozen=True, slots=True)
class VerifiedTranscript:
    """What a transcript shows. `stopped` is why not all sums were opened, as the file's writer says."""

    members: tuple[str, ...]
    number: int
    protocol: str
    contributors: tuple[tuple[str, ...], ...]  # in each opened sum
    opened: Sequence[OpenedSum] = field(repr=False)
    stopped: str | None
    left: tuple[str, ...]  # signed notices of members who left
    guarantee: str
    not_checked: tuple[str, ...] = NOT_CHECKED


def verify_transcript(path: Path) -> VerifiedTranscript:
    """Check a transcript file. Raises `Tampered` with all findings."""
    transcript = Transcript.read(path)
    try:
        consortium = Consortium.from_text(transcript.document)
        consortium.require_signed_by_all()
        table = consortium.table(transcript.number)
    except BadParameter as error:
        raise Tampered([f"the consortium in the header does not hold: {error}"]) from error
    return check_transcript(transcript, table, guarantee=consortium.guarantee)


def check_transcript(
    transcript: Transcript, table: RunConfiguration, *, guarantee: str
) -> VerifiedTranscript:
    """The same, for a table that is known to be the consortium's."""
    if transcript.digest != table.digest or transcript.number != table.number:
        raise Tampered(["the transcript is of another consortium or run than its header says"])
    found = order_violations(transcript.rounds, table)
    opened: list[OpenedSum] = []
    stopped = transcript.stopped
    if not found:
        opened, stop = sums_from_posts(table, transcript.rounds)
        if stop is not None and stopped is None:
            found.append(f"{stop.why}, but the transcript does not say that the run stopped")
        if stopped is not None and len(opened) == table.stages:
            found.append("all sums follow from the posts, but the transcript says that the run stopped")
    if stopped is None and not found and len(opened) < table.stages:
        found.append("rounds are missing at the end, but the transcript does not say that the run stopped")
    found += _sums(transcript.opened, opened, table) if not found else []
    found += _notices(transcript, table)
    if found:
        raise Tampered(found)
    names = table.names
    return VerifiedTranscript(
        members=names,
        number=table.number,
        protocol=f"{table.protocol}: {NAMES[table.protocol]}",
        contributors=tuple(tuple(names[i] for i in each.contributors) for each in opened),
        opened=opened,
        stopped=stopped,
        left=tuple(f"{names[notice.sender]}: {notice.why}" for notice in transcript.notices),
        guarantee=guarantee,
    )


def _sums(said: Sequence[OpenedSum], opened: Sequence[OpenedSum], table: RunConfiguration) -> list[str]:
    """A transcript that stopped may have more rounds than its member could use, and never more sums."""
    if len(said) > len(opened):
        return ["it shows sums that were not opened"]
    return [
        f"stage {stage}: the sums are not those that follow from the posts"
        for stage, (claimed, follows) in enumerate(zip(said, opened, strict=False))
        if claimed.contributors != follows.contributors
        or not np.array_equal(claimed.values, follows.values)
    ] + (["sums are missing"] if len(said) < min(len(opened), table.stages) else [])


def _notices(transcript: Transcript, table: RunConfiguration) -> list[str]:
    return [
        "a notice is not signed by a member, or of another run"
        for notice in transcript.notices
        if notice.run != table.run_id
        or not 0 <= notice.sender < len(table.cards)
        or not notice.is_signed_by(table.cards[notice.sender])
    ]
