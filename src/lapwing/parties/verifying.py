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
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols import NAMES
from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.transcript import Transcript, open_publicly, out_of_order

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
    found = out_of_order(transcript.rounds, table)
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
