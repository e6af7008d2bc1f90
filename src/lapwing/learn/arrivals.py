"""The blocks of a stream that have arrived.

A public note beside the policy records which blocks have arrived. Every append writes it, from the
curator's `through` or from the calendar of that day, and never from rows: blocks exist by declaration. The
note only decides which blocks are offered to pipelines and how fast budgets unlock.

Claim    a lost or outdated note offers and unlocks less, never more.
Because  a block of time has arrived only if the note says so, and the unlocked part of a block is computed
         from the note alone. If a note should exist but does not, an append without `through` is refused:
         the calendar may name more months than have data. (Blocks of people are opened in the ledger as
         they arrive.)
Test     tests/learn/test_arrivals.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.sql.policy import EPOCH, BlockRule, Policy, block_labels, period_of
from lapwing.sql.row_questions import codes_of_block_labels
from lapwing.sql.truncated import registration
from lapwing.sql.truncated.open_sources import FILES, private_tables
from lapwing.sql.truncated.prepared_copy import exclusive_lock, files_of, prepared_folder
from lapwing.storage.private_file import replaced_private_file

ARRIVALS_FILE = "arrived.json"


@dataclass(frozen=True, slots=True)
class ArrivalNote:
    """The public note: the newest declared block, and the append with which each block arrived.

    Appends are counted if they bring new files; for sources other than files, once a day. `files` is a
    digest of the source files at the last append, and `day` its date.
    """

    through: str = ""
    born: Mapping[str, int] = field(default_factory=dict)
    appends: int = 0
    files: str = ""
    day: str = ""


def read_arrival_note(policy: Policy) -> ArrivalNote | None:
    """Read the last note; None if there is none, or if it cannot be read."""
    try:
        found = json.loads((stream_folder(policy) / ARRIVALS_FILE).read_text(encoding="utf-8"))
        born = {str(label): int(append) for label, append in found["born"].items()}
        through, files, day = (str(found[name]) for name in ("through", "files", "day"))
        note = ArrivalNote(through, born, int(found["appends"]), files, day)
        if policy.blocks is not None and policy.blocks.by == "row":
            codes_of_block_labels(policy.blocks, [*born, *({through} - {"", *born})])
        return note
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None  # BadParameter, for a label that is no block, is a ValueError


def stream_folder(policy: Policy) -> Path:
    """Return the folder of the note and of the lock for appends."""
    return prepared_folder(policy) / "stream"


@contextmanager
def append_lock(policy: Policy) -> Iterator[None]:
    """Make the stream's folder, and let one process at a time append."""
    registration.make_folder(policy)
    stream_folder(policy).mkdir(mode=0o700, exist_ok=True)
    with exclusive_lock(stream_folder(policy)):
        yield


def sort_by_age(blocks: BlockRule, labels: Sequence[str]) -> list[str]:
    """Sort blocks by age, the oldest first."""
    return [label for _, label in sorted(zip(codes_of_block_labels(blocks, labels), labels, strict=True))]


def arrived_periods(blocks: BlockRule, through: str, today: date) -> list[str]:
    """Return the blocks of time that have arrived by this day, oldest first.

    `through` names the newest one; "" means that the calendar decides.
    """
    if through:
        [last] = codes_of_block_labels(blocks, [through])
    else:
        last = min(blocks.last, period_of(blocks.every, (today - EPOCH).days))
    return block_labels(blocks, range(blocks.first, last + 1))


def checked_through(
    blocks: BlockRule, through: str | None, note: ArrivalNote | None, *, is_known: bool
) -> str:
    """Return the newest block with data that was ever declared; "" if none was declared.

    It never goes back. `is_known` is True if the ledger knows the data set already.

    Raises BadParameter if `through` goes back, does not fit, or is needed because the note is missing.
    """
    if through is None:
        if note is None and is_known and blocks.by == "row":
            raise BadParameter(
                "through",
                "must be given: the note of the blocks that have arrived is missing, and the calendar "
                "may name blocks without data. Name the newest block with data, such as --through 2026-03",
            )
        return "" if note is None else note.through
    if blocks.by != "row":
        raise BadParameter("through", "is for blocks of rows by time: others open by themselves")
    [now] = codes_of_block_labels(blocks, [through])
    if note is not None and note.born:
        newest = sort_by_age(blocks, list(note.born))[-1]
        if now < codes_of_block_labels(blocks, [newest])[0]:
            raise BadParameter(
                "through",
                f"must not go back before {newest}: all blocks up to it have arrived. Nothing was added. "
                f"If there is newer data, name its newest block",
            )
    return through


def record_arrivals(
    policy: Policy, note: ArrivalNote | None, labels: Sequence[str], *, through: str, today: date
) -> list[str]:
    """Write a new note in which these blocks have arrived, and return those that are new."""
    before = note or ArrivalNote()
    files, day = _files_digest(policy), str(today)
    by_files = all(table.source.form in FILES for table in private_tables(policy))
    has_new_data = before.appends == 0 or (files != before.files if by_files else day > before.day)
    if not by_files and not has_new_data:
        day = before.day
    appends = before.appends + has_new_data
    new = [label for label in labels if label not in before.born]
    after = ArrivalNote(through, {**before.born, **dict.fromkeys(new, appends)}, appends, files, day)
    with replaced_private_file(stream_folder(policy) / ARRIVALS_FILE) as file:
        file.write(json.dumps(asdict(after), indent=1).encode())
    return new


def _files_digest(policy: Policy) -> str:
    """Return a digest of the source files as they are now."""
    return hashlib.sha256(repr(sorted(files_of(policy).items())).encode()).hexdigest()
