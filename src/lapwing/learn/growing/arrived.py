"""Which blocks have come in by now: a public note beside the policy, made by every append.

It follows what the curator says (`through`), or the calendar on the day of the append, and never the rows:
blocks exist by declaration. It only decides what is offered to pipelines and how fast budgets unlock.

Claim    a note that is lost or an older one offers and unlocks less, never more.
Because  a block of time has come in only if the note says so, what a block has unlocked is counted from the
         note alone, and where there should be a note, an append without `through` is refused: the calendar
         may know more months than have data. (Blocks of people are opened in the ledger as they come in.)
Test     tests/learn/growing/test_arrived.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.query.bounded.prepared import files_of, folder_of
from lapwing.query.bounded.registered import replace_file
from lapwing.query.bounded.sources import FILES, private_tables
from lapwing.query.policies.blocks import EPOCH, block_labels, period_of
from lapwing.query.policies.policy import Blocks, Policy
from lapwing.query.rows import codes_of_labels

FILE = "arrived.json"


@dataclass(frozen=True, slots=True)
class Arrived:
    """The newest block that has come in by the curator's word, and with which append each block came.

    Appends are counted if they bring files; where the source is none of files, one on a day. `files` and
    `day` are what the last one found.
    """

    through: str = ""
    born: Mapping[str, int] = field(default_factory=dict)
    appends: int = 0
    files: str = ""
    day: str = ""


def note_of(policy: Policy) -> Arrived | None:
    """The last note, if there is one that can be read."""
    try:
        found = json.loads((folder_of_stream(policy) / FILE).read_text(encoding="utf-8"))
        born = {str(label): int(append) for label, append in found["born"].items()}
        through, files, day = (str(found[name]) for name in ("through", "files", "day"))
        note = Arrived(through, born, int(found["appends"]), files, day)
        if policy.blocks is not None and policy.blocks.by == "row":
            codes_of_labels(policy.blocks, [*born, *({through} - {"", *born})])
        return note
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None  # (BadParameter, of a label that is no block, is a ValueError)


def folder_of_stream(policy: Policy) -> Path:
    """Where notes and the lock of appends lie."""
    return folder_of(policy) / "stream"


def in_order(blocks: Blocks, labels: Sequence[str]) -> list[str]:
    """Blocks by age, the oldest first."""
    return [label for _, label in sorted(zip(codes_of_labels(blocks, labels), labels, strict=True))]


def blocks_so_far(blocks: Blocks, through: str, today: date) -> list[str]:
    """The blocks of time that come in with an append of this day, oldest first."""
    last = blocks.last
    if through:
        [last] = codes_of_labels(blocks, [through])
    else:
        last = min(last, period_of(blocks.every, (today - EPOCH).days))
    return block_labels(blocks, range(blocks.first, last + 1))


def checked_through(blocks: Blocks, through: str | None, note: Arrived | None, *, is_known: bool) -> str:
    """Where the data reaches to now. It never goes back. `is_known`: the ledger knows the data already."""
    if through is None:
        if note is None and is_known and blocks.by == "row":
            raise BadParameter(
                "through",
                "must be said: there is no note (any more) of which blocks have come in, and the calendar "
                "may know more. Name the newest block that has data, such as --through 2026-03",
            )
        return "" if note is None else note.through
    if blocks.by != "row":
        raise BadParameter("through", "is for blocks of rows by time: others open by themselves")
    [now] = codes_of_labels(blocks, [through])
    if note is not None and note.born:
        newest = in_order(blocks, list(note.born))[-1]
        if now < codes_of_labels(blocks, [newest])[0]:
            raise BadParameter("through", f"must not go back before {newest}")
    return through


def remember(
    policy: Policy, note: Arrived | None, labels: Sequence[str], *, through: str, today: date | None = None
) -> list[str]:
    """Note that these blocks have come in, those that are new with this append. Gives the new ones."""
    before = note or Arrived()
    after = replace(
        before, through=through, files=_files(policy), day=str(today or datetime.now(UTC).date())
    )
    by_files = all(table.source.form in FILES for table in private_tables(policy))
    if before.appends == 0 or (after.files != before.files if by_files else after.day > before.day):
        after = replace(after, appends=before.appends + 1)
    elif not by_files:
        after = replace(after, day=before.day)
    new = [label for label in labels if label not in before.born]
    born = {**before.born, **dict.fromkeys(new, after.appends)}
    told = {"through": after.through, "born": born, "appends": after.appends}
    text = json.dumps({**told, "files": after.files, "day": after.day}, indent=1)
    replace_file(folder_of_stream(policy) / FILE, text)
    return new


def _files(policy: Policy) -> str:
    """Of the source's files, as they are now."""
    return hashlib.sha256(repr(sorted(files_of(policy).items())).encode()).hexdigest()
