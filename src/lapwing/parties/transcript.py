"""The public transcript of a run, and its verification by a third party.

A transcript holds everything that all members saw, in order, with all signatures. It has no private part.
The file has one JSON object per line: the header with the consortium that all members signed; each closed
round with its posts (of private parts only commitments under secret salts); messages of members that left;
the opened sums. Nobody signs the last line: the reason for a stop is the statement of the file's writer.

Claim    a transcript that verifies was signed step by step by the members of a consortium that all of them
         signed; every member whose post is in a round had received exactly the rounds before it; and the
         opened sums follow from the members' own public posts, by the rules of the protocol.
Because  each envelope's signature covers its run, stage, round, public part, commitments, and the digest of
         the round before; the protocol's own `follow` and `outcome` run on the public parts.
Test     tests/parties/test_transcript.py

A transcript cannot show that a member told the truth about its data, drew its noise, or kept its secrets;
nor that the people behind the keys are those of the names; nor that a run with the end "stopped" did stop.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.errors import BadParameter, BadValue, Tampered, Unavailable
from lapwing.parties.consortium import Consortium
from lapwing.parties.identity import SIGNATURE_BYTES
from lapwing.parties.messages import LeaveMessage
from lapwing.parties.posts import Envelope, round_digest, start_digest
from lapwing.parties.protocols.protocol import OpenedSum, ProtocolStopped
from lapwing.parties.protocols.registry import NAMES, PROTOCOLS
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.storage.private_file import PUBLIC, replaced_private_file

TRANSCRIPT_FORMAT = "lapwing transcript 1"
LONGEST_STOPPED = 500
_POST_FIELDS = {"member", "seen", "public", "commitments", "signature"}
_MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TranscriptRound:
    """A closed round, with the envelopes of all members that were in time."""

    stage: int
    round: int
    name: str
    envelopes: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True)
class Transcript:
    """The content of a transcript file, not verified. `stopped` is None if all sums were opened."""

    number: int
    digest: bytes
    document: str = field(repr=False)
    rounds: Sequence[TranscriptRound] = field(repr=False)
    leave_messages: Sequence[LeaveMessage] = ()
    opened: Sequence[OpenedSum] = field(default=(), repr=False)
    stopped: str | None = None

    def write(self, path: Path, *, durably: bool) -> None:
        """Write all of the file or nothing. Raises `Unavailable`.

        A member does not write durably, and so does not wait for the disk: its journal can write it again.
        """
        try:
            with replaced_private_file(path, mode=PUBLIC, durable=durably) as file:
                file.writelines(json.dumps(line).encode() + b"\n" for line in self._lines())
        except OSError as error:
            raise Unavailable(f"the transcript {path} cannot be written: {error.strerror}") from error

    def _lines(self) -> Iterator[dict[str, Any]]:
        header = {"format": TRANSCRIPT_FORMAT, "run": self.number, "digest": self.digest.hex()}
        yield {**header, "consortium": self.document}
        for closed in self.rounds:
            posts = [_post_to_json(envelope) for envelope in closed.envelopes]
            yield {"stage": closed.stage, "round": closed.round, "name": closed.name, "posts": posts}
        for message in self.leave_messages:
            yield {"notice": message.to_json()}
        for stage, opened in enumerate(self.opened):
            who = list(opened.contributors)
            yield {"opened": stage, "contributors": who, "sums": opened.values.tolist()}
        yield {"ended": "opened"} if self.stopped is None else {"ended": "stopped", "why": self._why()}

    def _why(self) -> str:
        """Return the reason for the stop in a form that can be read again: short, and printable."""
        why = "".join(letter if letter.isprintable() else " " for letter in self.stopped or "")
        return why if len(why) <= LONGEST_STOPPED else why[: LONGEST_STOPPED - 1] + "…"

    @classmethod
    def read(cls, path: Path) -> Transcript:
        """Read a file. Raises `Tampered` if it has not the form of a transcript, or `Unavailable`."""
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as error:
            raise Unavailable(f"the transcript {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise Tampered([f"{path} is not a transcript"]) from error
        at = 0
        try:
            header = _header(lines[0])
            run = RunConfiguration.run_id_of(bytes.fromhex(header["digest"]), header["run"])
            rounds: list[TranscriptRound] = []
            leave_messages: list[LeaveMessage] = []
            opened: list[OpenedSum] = []
            for at, line in enumerate(lines[1:-1], 1):  # noqa: B007 (the error names the line)
                said = json.loads(line)
                if "notice" in said:
                    leave_messages.append(LeaveMessage.from_json(_fields(line, "notice")["notice"]))
                elif "opened" in said:
                    opened.append(_opened(line, stage=len(opened)))
                else:
                    rounds.append(_round(line, run))
            at = len(lines) - 1
            digest, document = bytes.fromhex(header["digest"]), header["consortium"]
            return cls(header["run"], digest, document, rounds, leave_messages, opened, _stopped(lines[-1]))
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
    """Return why the run stopped, by the last line, or None if it did not."""
    ended = _fields(line, "ended", "why") if "why" in json.loads(line) else _fields(line, "ended")
    if ended["ended"] != ("stopped" if "why" in ended else "opened"):
        raise BadValue("its last line does not say how the run ended")
    why = ended.get("why", "")
    if not isinstance(why, str) or not why.isprintable() or len(why) > LONGEST_STOPPED:
        raise BadValue("the reason for the stop must be a short text that can be printed")
    return why if "why" in ended else None


def _post_to_json(envelope: Envelope) -> dict[str, Any]:
    return {
        "member": envelope.sender,
        "seen": envelope.seen.hex(),
        "public": base64.b64encode(envelope.public).decode(),
        "commitments": {str(to): digest.hex() for to, digest in sorted(envelope.commitments.items())},
        "signature": base64.b64encode(envelope.signature).decode(),
    }


def _round(line: str, run: bytes) -> TranscriptRound:
    said = _fields(line, "stage", "round", "name", "posts")
    envelopes = []
    for post in said["posts"]:
        if set(post) != _POST_FIELDS:
            raise BadValue("a post has not the right fields")
        commitments = {int(to): bytes.fromhex(digest) for to, digest in post["commitments"].items()}
        public, signature = (base64.b64decode(post[key], validate=True) for key in ("public", "signature"))
        if len(signature) != SIGNATURE_BYTES or any(len(digest) != 32 for digest in commitments.values()):
            raise BadValue("a post's signature or commitments are not of the right length")
        seen, member = bytes.fromhex(post["seen"]), post["member"]
        envelopes.append(
            Envelope(run, said["stage"], said["round"], member, seen, public, commitments, signature)
        )
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


# Verification

NOT_CHECKED = (
    "that each member's value was computed from its data, and within its bounds",
    "that each member drew its noise, and drew it once: a member could post a value without any",
    "that private parts were what they should be: only commitments to them are in here",
    "that a member's keys belong to the organization of its name: compare the fingerprints of the cards",
    "that nothing was left out: members' leave messages may be missing, and of a run that is said to have "
    "stopped the last rounds; nobody signs why it stopped",
)


@dataclass(frozen=True, slots=True)
class VerifiedTranscript:
    """The facts that a valid transcript shows.

    `stopped` is why not all sums were opened, as the file's writer states; None if all were opened.
    """

    members: tuple[str, ...]
    number: int
    protocol: str
    contributors: tuple[tuple[str, ...], ...]  # names, for each opened sum
    opened: Sequence[OpenedSum] = field(repr=False)
    stopped: str | None
    left: tuple[str, ...]  # signed reasons of members that left
    guarantee: str
    not_checked: tuple[str, ...] = NOT_CHECKED


def verify_transcript(path: Path) -> VerifiedTranscript:
    """Check a transcript file. Raises `Tampered` with all findings."""
    transcript = Transcript.read(path)
    try:
        consortium = Consortium.from_text(transcript.document)
        consortium.require_signed_by_all()
        config = consortium.run_configuration(transcript.number)
    except BadParameter as error:
        raise Tampered([f"the consortium in the header does not hold: {error}"]) from error
    return check_transcript(transcript, config, guarantee=consortium.guarantee)


def check_transcript(
    transcript: Transcript, config: RunConfiguration, *, guarantee: str
) -> VerifiedTranscript:
    """Check a transcript against a configuration that the caller trusts. Raises `Tampered`."""
    if transcript.digest != config.digest or transcript.number != config.number:
        raise Tampered(["the transcript is of another consortium or run than its header says"])
    violations = order_violations(transcript.rounds, config)
    opened: list[OpenedSum] = []
    stopped = transcript.stopped
    if not violations:
        opened, stop = sums_from_posts(config, transcript.rounds)
        if stop is not None and stopped is None:
            violations.append(f"{stop.why}, but the transcript does not say that the run stopped")
        if stopped is not None and len(opened) == config.stages:
            violations.append(
                "all sums follow from the posts, but the transcript says that the run stopped"
            )
    if stopped is None and not violations and len(opened) < config.stages:
        violations.append(
            "rounds are missing at the end, but the transcript does not say that the run stopped"
        )
    violations += _wrong_sums(transcript.opened, opened, config) if not violations else []
    violations += [
        "a leave message is not signed by a member, or is of another run"
        for message in transcript.leave_messages
        if not message.is_valid_in(config)
    ]
    if violations:
        raise Tampered(violations)
    names = config.names
    return VerifiedTranscript(
        members=names,
        number=config.number,
        protocol=f"{config.protocol}: {NAMES[config.protocol]}",
        contributors=tuple(tuple(names[i] for i in each.contributors) for each in opened),
        opened=opened,
        stopped=stopped,
        left=tuple(f"{names[message.sender]}: {message.why}" for message in transcript.leave_messages),
        guarantee=guarantee,
    )


def _wrong_sums(
    said: Sequence[OpenedSum], opened: Sequence[OpenedSum], config: RunConfiguration
) -> list[str]:
    """Return what is wrong with the sums in a transcript.

    A transcript that stopped may have more rounds than its member could use, but never more sums.
    """
    if len(said) > len(opened):
        return ["it shows sums that were not opened"]
    return [
        f"stage {stage}: the sums are not those that follow from the posts"
        for stage, (claimed, follows) in enumerate(zip(said, opened, strict=False))
        if claimed.contributors != follows.contributors
        or not np.array_equal(claimed.values, follows.values)
    ] + (["sums are missing"] if len(said) < min(len(opened), config.stages) else [])


def sums_from_posts(
    config: RunConfiguration, rounds: Sequence[TranscriptRound]
) -> tuple[list[OpenedSum], ProtocolStopped | None]:
    """Return the sums that follow from public posts alone, and why the protocol stopped, or None."""
    kind = PROTOCOLS[config.protocol]
    opened: list[OpenedSum] = []
    for stage in range(config.stages):
        setting = config.setting(stage)
        of_stage = [closed for closed in rounds if closed.stage == stage]
        publics = [{e.sender: e.public for e in closed.envelopes} for closed in of_stage]
        try:
            opened_sum = kind.observe(setting, publics)
        except ProtocolStopped as stop:
            return opened, stop
        if opened_sum is None:
            break
        opened.append(opened_sum)
    return opened, None


def order_violations(rounds: Sequence[TranscriptRound], config: RunConfiguration) -> list[str]:
    """Return what is wrong with the order of rounds and the signatures of posts. Empty if all is well."""
    return [*_misplaced_rounds(rounds, config), *_broken_chain(rounds, config)]


def _misplaced_rounds(rounds: Sequence[TranscriptRound], config: RunConfiguration) -> list[str]:
    """Check that all rounds of all stages stand in order, and none is left out before the end."""
    names = config.rounds
    for at, closed in enumerate(rounds):
        stage, number = divmod(at, len(names))
        if stage >= config.stages:
            return [f"there are more than {config.stages} stages"]
        if (closed.stage, closed.round, closed.name) != (stage, number, names[number]):
            return [f"{closed.name} of stage {closed.stage} stands where {names[number]} of {stage} should"]
    return []


def _broken_chain(rounds: Sequence[TranscriptRound], config: RunConfiguration) -> list[str]:
    """Check that every post is its member's, signed, the only one, and follows the rounds before."""
    violations = []
    seen = start_digest(config.run_id)
    before = set(range(len(config.cards)))
    for closed in rounds:
        where = f"stage {closed.stage}, {closed.name}"
        senders = [envelope.sender for envelope in closed.envelopes]
        if len(set(senders)) != len(senders):
            violations.append(f"{where}: a member posted twice")
        for envelope in closed.envelopes:
            if envelope.sender not in before:
                violations.append(f"{where}: a post of a member who is not, or no longer, in the run")
                continue
            name = config.names[envelope.sender]
            if not envelope.is_signed_by(config.cards[envelope.sender]):
                violations.append(f"{where}: {name} did not sign this post")
            elif envelope.seen != seen:
                violations.append(f"{where}: {name} had received other rounds before than these")
            if any(to >= len(config.cards) for to in envelope.commitments):
                violations.append(
                    f"{where}: {name} committed to a private part for a member that does not exist"
                )
        seen = round_digest(closed.envelopes)
        before = set(senders) & before
    return violations
