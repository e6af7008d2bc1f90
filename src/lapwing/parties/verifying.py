"""What a third party can check in a transcript: who took part, in which order, to which sums.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lapwing.errors import BadParameter, Tampered
from lapwing.parties.consortium import Consortium
from lapwing.parties.messages.envelope import round_digest, start_digest
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols import NAMES, PROTOCOLS
from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.transcript import Round, Transcript, open_publicly

NOT_CHECKED = (
    "that each member's value was computed from its data, and within its bounds",
    "that each member drew its noise, and drew it once: a member could post a value without any",
    "that private parts were what they should be: only commitments to them are in here",
    "that a member's keys are held by whom its name says: compare the fingerprints of the cards",
    "that nothing was left out: members' notices may be missing, and of a run that is said to have stopped "
    "the last rounds; nobody signs why it stopped",
)


@dataclass(frozen=True, slots=True)
class Verified:
    """What a transcript shows. `stopped` is why not all sums were opened, as the file's writer says."""

    members: tuple[str, ...]
    number: int
    protocol: str
    contributors: tuple[tuple[str, ...], ...]  # in each opened sum
    opened: Sequence[Opened] = field(repr=False)
    stopped: str | None
    left: tuple[str, ...]  # signed notices of members who left
    guarantee: str
    not_checked: tuple[str, ...] = NOT_CHECKED


def verify(path: Path) -> Verified:
    """Check a transcript file. Raises `Tampered` with all findings."""
    transcript = Transcript.read(path)
    try:
        consortium = Consortium.from_text(transcript.document)
        consortium.require_signed_by_all()
        table = consortium.table(transcript.number)
    except BadParameter as error:
        raise Tampered([f"the consortium in the header does not hold: {error}"]) from error
    return check(transcript, table, guarantee=consortium.guarantee)


def check(transcript: Transcript, table: Table, *, guarantee: str) -> Verified:
    """The same, for a table that is known to be the consortium's."""
    if transcript.digest != table.digest or transcript.number != table.number:
        raise Tampered(["the transcript is of another consortium or run than its header says"])
    found = [*_order(transcript.rounds, table), *_chain(transcript.rounds, table)]
    opened: list[Opened] = []
    stopped = transcript.stopped
    if not found:
        opened, stop = open_publicly(table, transcript.rounds)
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
    return Verified(
        members=names,
        number=table.number,
        protocol=f"{table.protocol}: {NAMES[table.protocol]}",
        contributors=tuple(tuple(names[i] for i in each.contributors) for each in opened),
        opened=opened,
        stopped=stopped,
        left=tuple(f"{names[notice.sender]}: {notice.why}" for notice in transcript.notices),
        guarantee=guarantee,
    )


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


def _sums(said: Sequence[Opened], opened: Sequence[Opened], table: Table) -> list[str]:
    """A transcript that stopped may have more rounds than its member could use, and never more sums."""
    if len(said) > len(opened):
        return ["it shows sums that were not opened"]
    return [
        f"stage {stage}: the sums are not those that follow from the posts"
        for stage, (claimed, follows) in enumerate(zip(said, opened, strict=False))
        if claimed.contributors != follows.contributors
        or not np.array_equal(claimed.values, follows.values)
    ] + (["sums are missing"] if len(said) < min(len(opened), table.stages) else [])


def _notices(transcript: Transcript, table: Table) -> list[str]:
    return [
        "a notice is not signed by a member, or of another run"
        for notice in transcript.notices
        if notice.run != table.run_id
        or not 0 <= notice.sender < len(table.cards)
        or not notice.is_signed_by(table.cards[notice.sender])
    ]
