"""Copying a new file into the folder that a table's source names.

Claim    a file is in the source completely or not at all, the same file is added once, and no file that was
         added before is changed.
Because  the file is copied under a name that no pattern matches, synced to disk, and then linked to a free
         name. The name contains a digest of the content, and files with equal content are looked for first.
Test     tests/learn/test_new_files.py
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
import shutil
from contextlib import closing
from pathlib import Path

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter
from lapwing.sql.policy import Policy, Table
from lapwing.sql.source_location import FORMS
from lapwing.sql.truncated import prepared_copy, registration
from lapwing.sql.truncated.open_sources import FILES, encodings_of, private_tables
from lapwing.storage.private_file import PUBLIC, new_private_file, sync_to_disk

_ESCAPED = re.compile(r"\[([*?\[])\]")
_MAGIC = re.compile(r"[*?\[]")
PUT_IT_THERE = "Put the file where the policy's source finds it, and append without a file"


def require_unchanged_files(policy: Policy, version: int) -> None:
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
                f"{prepared_copy.prepared_folder(policy).name} from a backup; or `lapwing prepare` "
                "reads all anew",
            )
        return
    now = prepared_copy.files_of(policy)
    for table in _file_tables(policy):
        before = known.files.get(table.name, ())
        if not set(before) <= set(now[table.name]):
            raise BadParameter(
                "source",
                f'a file of "{table.name}" that was taken in before has changed or is gone. Old blocks '
                "are never changed: restore it. (If it must go, `lapwing prepare` reads all anew)",
            )


def require_readable_files(policy: Policy) -> None:
    """Raise BadParameter with the name of a new source file that cannot be opened. No row is read."""
    known, now = registration.last_registration(policy), prepared_copy.files_of(policy)
    for table in _file_tables(policy):
        before = () if known is None else known.files.get(table.name, ())
        old = {path for path, _, _ in before}
        new = [glob.escape(path) for path, _, _ in now[table.name] if path not in old]
        encodings = encodings_of(dict.fromkeys(new, table.source))
        with closing(DuckDbEngine.open(new, encodings=encodings)) as engine:
            for path in new:
                _require_opens(engine, table, path)


def _file_tables(policy: Policy) -> list[Table]:
    """Return the private tables in files: nothing says which rows of a database are new."""
    return [table for table in private_tables(policy) if table.source.form in FILES]


def _require_opens(engine: DuckDbEngine, table: Table, path: str) -> None:
    try:
        engine.columns(engine.relation_of(table.source.form, path, csv=table.source.csv))
    except (EngineFailed, OSError, UnicodeDecodeError):
        name = _ESCAPED.sub(r"\1", path)
        raise BadParameter("source", f"{name} cannot be read as {table.source.form}") from None


def table_for_file(policy: Policy, name: str | None) -> Table:
    """Return the private table that new rows belong to."""
    tables = {table.name: table for table in private_tables(policy)}
    if name is None and len(tables) == 1:
        return next(iter(tables.values()))
    if name is None or name not in tables:
        raise BadParameter("table", f"must be one of {', '.join(sorted(tables))}")
    return tables[name]


def take_file(table: Table, file: Path) -> Path:
    """Copy a file into a table's source, and return its place there, also if it was added before."""
    folder, tail = _place(table)
    file = file.absolute()
    if file.is_dir():
        raise BadParameter("file", f"{file} is a folder: give its files, one at a time")
    if not file.is_file():
        raise BadParameter("file", f"there is no file {file}")
    if _form(file.name) != table.source.form:
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


def _place(table: Table) -> tuple[Path, str]:
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


def _form(name: str) -> str | None:
    return next((form for suffix, form in FORMS.items() if name.lower().endswith(suffix)), None)


def _require_schema(table: Table, file: Path) -> None:
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
