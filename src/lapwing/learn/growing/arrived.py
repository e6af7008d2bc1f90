"""Which blocks have data by now: a public note beside the policy, made by every append.

It follows what the curator says (`through`), or the calendar, and never the rows: blocks exist by
declaration. It only decides what is offered to pipelines and how fast budgets unlock. If it is lost, blocks
count as new: then less is unlocked, never more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.query.bounded.prepared import folder_of
from lapwing.query.bounded.registered import replace_file
from lapwing.query.policies.blocks import EPOCH, block_labels, period_of
from lapwing.query.policies.policy import Blocks, Policy
from lapwing.query.rows import codes_of_labels

FILE = "arrived.json"


@dataclass(frozen=True, slots=True)
class Arrived:
    """The newest block that has come in by the curator's word, and with which version each block came."""

    through: str = ""
    born: Mapping[str, int] = field(default_factory=dict)


def note_of(policy: Policy) -> Arrived:
    """The last note, if there is one that can be read."""
    try:
        found = json.loads((folder_of_stream(policy) / FILE).read_text(encoding="utf-8"))
        born = {str(label): int(version) for label, version in found["born"].items()}
        return Arrived(str(found["through"]), born)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return Arrived()


def folder_of_stream(policy: Policy) -> Path:
    """Where notes and the lock of appends lie."""
    return folder_of(policy) / "stream"


def blocks_so_far(
    blocks: Blocks, opened: Sequence[str], through: str, today: date | None = None
) -> list[str]:
    """The blocks that may have data, oldest first. `opened` are those of the account."""
    if blocks.by == "unit":
        labels = [label for label in opened if label != "*"]
        codes = codes_of_labels(blocks, labels)
        return [label for _, label in sorted(zip(codes, labels, strict=True))]
    last = blocks.last
    if through:
        [last] = codes_of_labels(blocks, [through])
    else:
        day = ((today or datetime.now(UTC).date()) - EPOCH).days
        last = min(last, period_of(blocks.every, day))
    return block_labels(blocks, range(blocks.first, last + 1))


def checked_through(blocks: Blocks, through: str | None, before: str) -> str:
    """Where the data reaches to now. It never goes back."""
    if through is None:
        return before
    if blocks.by != "row":
        raise BadParameter("through", "is for blocks of rows by time: others open by themselves")
    [now] = codes_of_labels(blocks, [through])
    if before and now < codes_of_labels(blocks, [before])[0]:
        raise BadParameter("through", f"must not go back before {before}")
    return through


def remember(policy: Policy, note: Arrived, labels: Sequence[str], version: int) -> list[str]:
    """Note that these blocks have come in, those that are new with this version. Gives the new ones."""
    new = [label for label in labels if label not in note.born]
    born = {**note.born, **dict.fromkeys(new, version)}
    text = json.dumps({"through": note.through, "born": born}, indent=1)
    replace_file(folder_of_stream(policy) / FILE, text)
    return new
