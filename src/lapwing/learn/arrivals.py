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

Copying a new file into the folder that a table's source names.

Claim    a file is in the source completely or not at all, the same file is added once, and no file that was
         added before is changed.
Because  the file is copied under a name that no pattern matches, synced to disk, and then linked to a free
         name. The name contains a digest of the content, and files with equal content are looked for first.
Test     tests/learn/test_arrivals_new_files.py
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter
from lapwing.sql.policy.policy import EPOCH, BlockRule, CheckedPolicy, CheckedTable, block_labels, period_of
from lapwing.sql.policy.source_location import FORMS
from lapwing.sql.reading import registration
from lapwing.sql.reading.open_sources import FILES, encodings_of
from lapwing.sql.reading.prepared_copy import exclusive_lock, files_of, prepared_folder
from lapwing.sql.row_questions import codes_of_block_labels
from lapwing.storage.private_file import PUBLIC, new_private_file, replaced_private_file, sync_to_disk

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


def read_arrival_note(policy: CheckedPolicy) -> ArrivalNote | None:
    """Read the last note; None if there is none, or if it cannot be read."""
    try:
        fields = json.loads((stream_folder(policy) / ARRIVALS_FILE).read_text(encoding="utf-8"))
        born = {str(label): int(append) for label, append in fields["born"].items()}
        through, files, day = (str(fields[name]) for name in ("through", "files", "day"))
        note = ArrivalNote(through, born, int(fields["appends"]), files, day)
        if policy.blocks is not None and policy.blocks.by == "row":
            codes_of_block_labels(policy.blocks, [*born, *({through} - {"", *born})])
        return note
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None  # BadParameter, for a label that is no block, is a ValueError


def stream_folder(policy: CheckedPolicy) -> Path:
    """Return the folder of the note and of the lock for appends."""
    return prepared_folder(policy) / "stream"


@contextmanager
def append_lock(policy: CheckedPolicy) -> Iterator[None]:
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
    policy: CheckedPolicy, note: ArrivalNote | None, labels: Sequence[str], *, through: str, today: date
) -> list[str]:
    """Write a new note in which these blocks have arrived, and return those that are new."""
    before = note or ArrivalNote()
    files = hashlib.sha256(repr(sorted(files_of(policy).items())).encode()).hexdigest()
    day = str(today)
    by_files = all(table.source.form in FILES for table in policy.private_tables)
    has_new_data = before.appends == 0 or (files != before.files if by_files else day > before.day)
    if not by_files and not has_new_data:
        day = before.day
    appends = before.appends + has_new_data
    new = [label for label in labels if label not in before.born]
    after = ArrivalNote(through, {**before.born, **dict.fromkeys(new, appends)}, appends, files, day)
    with replaced_private_file(stream_folder(policy) / ARRIVALS_FILE) as file:
        file.write(json.dumps(asdict(after), indent=1).encode())
    return new


_ESCAPED = re.compile(r"\[([*?\[])\]")
_MAGIC = re.compile(r"[*?\[]")
PUT_IT_THERE = "Put the file where the policy's source finds it, and append without a file"


def require_unchanged_files(policy: CheckedPolicy, version: int) -> None:
    """Raise BadParameter if a file that the ledger knows has changed: old blocks are never changed.

    `version` is the ledger's version of the data, 0 before the first append. (A first append may have been
    interrupted before its note was written.)
    """
    known = registration.last_registration(policy)
    if known is None:
        if version > 1:
            raise BadParameter(
                "source",
                "which files were taken in before is not known any more: its note is lost. Restore "
                f"{prepared_folder(policy).name} from a backup; or `lapwing prepare` "
                "reads all anew",
            )
        return
    now = files_of(policy)
    for table in _file_tables(policy):
        before = known.files.get(table.name, ())
        if not set(before) <= set(now[table.name]):
            raise BadParameter(
                "source",
                f'a file of "{table.name}" that was taken in before has changed or is gone. Old blocks '
                "are never changed: restore it. (If it must go, `lapwing prepare` reads all anew)",
            )


def require_readable_files(policy: CheckedPolicy) -> None:
    """Raise BadParameter with the name of a new source file that cannot be opened. No row is read."""
    known, now = registration.last_registration(policy), files_of(policy)
    for table in _file_tables(policy):
        before = () if known is None else known.files.get(table.name, ())
        old = {path for path, _, _ in before}
        new = [glob.escape(path) for path, _, _ in now[table.name] if path not in old]
        encodings = encodings_of(dict.fromkeys(new, table.source))
        with closing(DuckDbEngine.open(new, encodings=encodings)) as engine:
            for path in new:
                try:
                    engine.columns(engine.relation_of(table.source.form, path, csv=table.source.csv))
                except (EngineFailed, OSError, UnicodeDecodeError):
                    name, form = _ESCAPED.sub(r"\1", path), table.source.form
                    raise BadParameter("source", f"{name} cannot be read as {form}") from None


def _file_tables(policy: CheckedPolicy) -> list[CheckedTable]:
    """Return the private tables in files: nothing says which rows of a database are new."""
    return [table for table in policy.private_tables if table.source.form in FILES]


def table_for_file(policy: CheckedPolicy, name: str | None) -> CheckedTable:
    """Return the private table that new rows belong to."""
    tables = {table.name: table for table in policy.private_tables}
    if name is None and len(tables) == 1:
        return next(iter(tables.values()))
    if name is None or name not in tables:
        raise BadParameter("table", f"must be one of {', '.join(sorted(tables))}")
    return tables[name]


def take_file(table: CheckedTable, file: Path) -> Path:
    """Copy a file into a table's source, and return its place there, also if it was added before."""
    folder, tail = _place(table)
    file = file.absolute()
    if file.is_dir():
        raise BadParameter("file", f"{file} is a folder: give its files, one at a time")
    if not file.is_file():
        raise BadParameter("file", f"there is no file {file}")
    forms = [form for suffix, form in FORMS.items() if file.name.lower().endswith(suffix)]
    if forms[:1] != [table.source.form]:
        raise BadParameter("file", f"must be {table.source.form}, as the files of the source are")
    known = [Path(path) for path in glob.glob(table.source.location, recursive=True)]
    if file.resolve() in {path.resolve() for path in known}:
        return file
    digest = file_digest(file)
    for path in known:
        if path.stat().st_size == file.stat().st_size and file_digest(path) == digest:
            return path
    _require_schema(table, file)
    return _copied(file, folder / _name(tail, file.name, digest[:12]), digest)


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of a file's content."""
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _place(table: CheckedTable) -> tuple[Path, str]:
    """Return the folder for new files, and the pattern of their names."""
    source = table.source
    if source.form not in FILES:
        raise BadParameter("file", f"the source is no folder of files. {PUT_IT_THERE}")
    *folders, tail = source.location.split("/")
    while folders and folders[-1] == "**":
        folders.pop()
    if not _MAGIC.search(_ESCAPED.sub("", tail)):
        raise BadParameter(
            "file", 'the source is one file: make it a folder, or a pattern such as "rides-*.parquet"'
        )
    if any(_MAGIC.search(_ESCAPED.sub("", folder)) for folder in folders):
        raise BadParameter("file", f"the source is a pattern of folders. {PUT_IT_THERE}")
    return Path("/".join(_ESCAPED.sub(r"\1", folder) for folder in folders) or "/"), tail


def _name(tail: str, wanted: str, digest: str) -> str:
    """Make a name that the pattern matches, from the file's name and its digest."""
    suffix = next(suffix for suffix in sorted(FORMS, key=len, reverse=True) if wanted.endswith(suffix))
    own = f"{wanted.removesuffix(suffix)}-{digest}{suffix}"
    made = _ESCAPED.sub(r"\1", tail.replace("*", digest, 1).replace("*", ""))
    for name in (own, made):
        if fnmatch.fnmatchcase(name, tail) and not name.startswith("."):
            return name
    raise BadParameter("file", f"no name could be made that the source's pattern finds. {PUT_IT_THERE}")


def _require_schema(table: CheckedTable, file: Path) -> None:
    """Check that the columns that the policy uses exist, with the types that they have in the source."""
    location = glob.escape(str(file))
    source = table.source
    both = dict.fromkeys((source.location, location), source)
    try:
        with closing(DuckDbEngine.open(both, encodings=encodings_of(both))) as engine:
            relations = [engine.relation_of(source.form, path, csv=source.csv) for path in both]
            old, new = (
                {name.lower(): kind for name, kind in engine.columns(relation).items()}
                for relation in relations
            )
    except (EngineFailed, OSError, UnicodeDecodeError):
        raise BadParameter("file", f"cannot be read as {source.form}") from None
    assert table.unit is not None
    read = [column.in_source for column in table.columns.values()]
    used = [*read, *table.primary_key, *([table.unit.in_source] if table.unit.column else [])]
    for name in dict.fromkeys(used):
        kind, known = new.get(name.lower()), old.get(name.lower())
        if kind is None:
            raise BadParameter("file", f"has no column {name!r}, which the policy uses")
        if known is not None and kind != known:
            raise BadParameter("file", f"its column {name!r} is {kind}, and {known} in the source")


def _copied(file: Path, place: Path, digest: str) -> Path:
    if place.exists():  # with another content: an equal file would have been found
        raise BadParameter("file", f"there is another file {place}")
    part = place.with_name(f".{place.name}.{os.getpid()}.part")  # no pattern matches this name
    try:
        with open(file, "rb") as source, new_private_file(part, mode=PUBLIC) as target:
            shutil.copyfileobj(source, target)
        if file_digest(part) != digest:
            raise BadParameter("file", "changed while it was read")
        os.link(part, place)  # fails if the name exists: nothing is ever replaced
    finally:
        part.unlink(missing_ok=True)
    sync_to_disk(place.parent)
    return place
