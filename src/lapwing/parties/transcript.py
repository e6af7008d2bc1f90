"""The public transcript of a run: what everybody saw, in order, with all signatures. No private part.

One JSON object per line: the header with the consortium that all members signed; each closed round with its
posts (of private parts only commitments under secret salts); notices of members who left; the opened sums.
Nobody signs the last line: why a run stopped is what the writer of the file says.
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

from lapwing.errors import BadValue, Tampered, Unavailable
from lapwing.parties.messages.envelope import SIGNATURE_BYTES, Envelope, round_digest, start_digest
from lapwing.parties.messages.notice import Notice
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols import PROTOCOLS
from lapwing.parties.protocols.protocol import Opened, Stop

FORMAT = "lapwing transcript 1"
LONGEST_STOPPED = 500
_MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Round:
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
    rounds: Sequence[Round] = field(repr=False)
    notices: Sequence[Notice] = ()
    opened: Sequence[Opened] = field(default=(), repr=False)
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
            "format": FORMAT,
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
            rounds: list[Round] = []
            notices: list[Notice] = []
            opened: list[Opened] = []
            for at, line in enumerate(lines[1:-1], 1):  # noqa: B007 (the error names the line)
                said = json.loads(line)
                if "notice" in said:
                    notices.append(Notice.from_json(_fields(line, "notice")["notice"]))
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
    if header["format"] != FORMAT:
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


def open_publicly(table: Table, rounds: Sequence[Round]) -> tuple[list[Opened], Stop | None]:
    """The sums that follow from public posts alone, and what stopped the protocol, if anything did."""
    kind = PROTOCOLS[table.protocol]
    opened: list[Opened] = []
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
        except Stop as stop:
            return opened, stop
    return opened, None


def out_of_order(rounds: Sequence[Round], table: Table) -> list[str]:
    """What a stranger finds wrong with the signatures and the order of posts. Nothing, if all is well."""
    return [*_order(rounds, table), *_chain(rounds, table)]


def _order(rounds: Sequence[Round], table: Table) -> list[str]:
    """All rounds of all stages in order, none left out before the end."""
    names = PROTOCOLS[table.protocol].rounds
    for at, closed in enumerate(rounds):
        stage, number = divmod(at, len(names))
        if stage >= table.stages:
            return [f"there are more than {table.stages} stages"]
        if (closed.stage, closed.round, closed.name) != (stage, number, names[number]):
            return [f"{closed.name} of stage {closed.stage} stands where {names[number]} of {stage} should"]
    return []


def _chain(rounds: Sequence[Round], table: Table) -> list[str]:
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


def _round(line: str, header: dict[str, Any]) -> Round:
    said = _fields(line, "stage", "round", "name", "posts")
    run = Table.run_id_of(bytes.fromhex(header["digest"]), header["run"])
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
    return Round(said["stage"], said["round"], said["name"], tuple(envelopes))


def _opened(line: str, *, stage: int) -> Opened:
    said = _fields(line, "opened", "contributors", "sums")
    if said["opened"] != stage or not all(type(x) is int for x in said["sums"] + said["contributors"]):
        raise BadValue("opened sums must be whole numbers, stage after stage")
    return Opened(np.array(said["sums"], np.int64), tuple(said["contributors"]))


def _fields(line: str, *names: str) -> dict[str, Any]:
    said = json.loads(line)
    if not isinstance(said, dict) or set(said) != set(names):
        raise BadValue(f"must have {', '.join(names)}, and nothing else")
    return said
