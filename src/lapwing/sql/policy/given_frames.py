"""Data frames as sources: rows that a program gives, stored as a private file beside the policy.

A policy says `source = "frame"` for such a table. The rows come with a version, a name that the curator
chooses. Then everything is as for a Parquet file.

Claim    whether the data has a new version depends on the names that the curator gives, never on rows.
Because  a name other than the stored one always stores the rows anew, which makes a new version in the
         ledger, also if the rows are the same, and if the name was used earlier. The stored name stores
         nothing: other rows under it are refused, before anything is planned or charged, and to the
         program that holds both. One process at a time stores rows and registers their version.
Test     tests/sql/policy/test_given_frames.py
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.config.toml_text import quoted
from lapwing.config.values import NAME_PATTERN
from lapwing.engines.engine import private_folder
from lapwing.errors import BadParameter, Unavailable
from lapwing.sql.policy.source_location import FRAME, frame_file
from lapwing.storage.private_file import replaced_private_file

VERSION_KEY, DATASET_KEY = b"lapwing.version", b"lapwing.dataset"  # in the metadata of the stored file
VERSION_AT_MOST = 100
FIRST_VERSION = "1"
HOW_VERSION = 'Give a name such as version="2026-03"; the same name stands for the same rows'

Declared = tuple[str, Mapping[str, Any]]  # the data set's name, and the source of each table


@contextmanager
def stored_frames(
    path: Path,
    frames: Mapping[str, Any] | None,
    version: str | None,
    *,
    declared: Declared | None = None,
    keeps_version: bool = False,
) -> Iterator[list[Path]]:
    """Store the rows of tables of a policy, unless they are stored under this version.

    The block registers them. Other threads and processes that give rows to this policy wait until it ends.
    If it raises, the earlier rows are put back: corrected rows may then be given under the same name.

    Args:
        path: The policy file. A policy in code has the path that it would be saved at.
        frames: For each table, a pandas or Polars data frame, or an Arrow table.
        version: The curator's name of these rows.
        declared: What a policy in code says: the data set's name and the source of each table.
        keeps_version: Whether `version` may be None: the stored rows keep theirs, and first ones get "1".

    Yields:
        The files that were written.

    Raises:
        BadParameter: If the policy reads a table from elsewhere, the version has other rows, or the file
            has rows of another data set.
    """
    if frames is None:
        raise BadParameter("version", "names rows that are given in tables. Give both, or neither")
    name = None if keeps_version and version is None else _checked_version(version)
    declared = declared or _declared(path)
    if declared is None:
        yield []
        return
    with _one_at_a_time(path):
        written: dict[Path, Path] = {}  # the new files, each with the place of the earlier one
        try:
            _store(path, frames, name, declared, written)
            yield list(written)
        except BaseException:
            for file, before in written.items():
                if before.exists():
                    os.replace(before, file)
                else:
                    file.unlink(missing_ok=True)
            raise
        finally:
            for before in written.values():
                before.unlink(missing_ok=True)


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Lock the policy's folder. The kernel releases the lock of a dead process.

    A policy in code, and a file beside it, store the same files: they wait for each other.
    """
    folder = path.absolute().parent
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{folder}, where rows are stored, cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _store(
    path: Path,
    frames: Mapping[str, Any],
    name: str | None,
    declared: Declared,
    written: dict[Path, Path],
) -> None:
    dataset, sources = declared
    files = {table: _checked_file(path, table, sources) for table in frames}
    rows = {table: arrow_rows(frame, table) for table, frame in frames.items()}
    stored = {table: _stored(files[table]) for table in rows}
    of_others = "" if name is not None else '. Or are they other data? Name them: name="…"'
    if name is None:
        name = next(
            (about[VERSION_KEY] for about in stored.values() if VERSION_KEY in about), FIRST_VERSION
        )
    new = [table for table in rows if stored[table].get(VERSION_KEY) != name]
    for table, given in rows.items():
        if table not in new and not _are_stored(files[table], given, table):
            raise BadParameter(
                "version",
                f"{quoted(name)} has other rows of {quoted(table)}. Give the changed rows a new name: they "
                f"are new data, and answers about them are charged anew{of_others}",
            )
    for table in new:
        if stored[table].get(DATASET_KEY, dataset) != dataset:
            raise BadParameter(
                "tables",
                f"{files[table].name} has rows of the data set {quoted(stored[table][DATASET_KEY])}, and "
                f"{quoted(dataset)} would replace them. Give each data set a folder of its own",
            )
    for table in new:
        file = files[table]
        before = file.with_name(f".{file.name}.before")
        before.unlink(missing_ok=True)  # of a process that was killed
        if file.exists():
            _keep(file, before)
        written[file] = before
        _write(file, rows[table], {VERSION_KEY: name, DATASET_KEY: dataset}, table)


def _keep(file: Path, before: Path) -> None:
    """Give the stored rows a second name. They are copied if the file system has no hard links."""
    try:
        os.link(file, before)
    except OSError:
        with file.open("rb") as stored, replaced_private_file(before) as copy:
            shutil.copyfileobj(stored, copy)
        shutil.copystat(file, before)  # the ledger knows the version by size and time


def _checked_file(path: Path, table: str, sources: Mapping[str, Any]) -> Path:
    """Return the file of a table. Raises BadParameter if the policy does not read the table from it."""
    if table not in sources or not NAME_PATTERN.fullmatch(table):
        raise BadParameter("tables", f"the policy has no table {quoted(table)}. It has {_list(sources)}")
    if sources[table] != FRAME:
        raise BadParameter(
            "tables",
            f"the policy reads {quoted(table)} from elsewhere. Write source = {quoted(FRAME)} in "
            f"[tables.{table}], or do not give its rows",
        )
    folder = path.absolute().parent
    if os.path.exists(folder / FRAME):  # which would be read instead
        raise BadParameter("tables", f"the folder has a file called {FRAME}, and rows are read from it")
    return frame_file(folder, table)


def arrow_rows(frame: Any, table: str) -> pa.Table:
    """Return the rows of a data frame as an Arrow table. Errors show no value."""
    library = type(frame).__module__.partition(".")[0]
    is_pandas = library == "pandas" and hasattr(frame, "columns")
    if is_pandas:
        _require_no_named_index(frame, table)
    try:
        if is_pandas:
            return pa.Table.from_pandas(frame, preserve_index=False)
        if (
            library == "polars" and hasattr(frame, "to_arrow") and hasattr(frame, "columns")
        ):  # its newest types cannot all be stored
            return frame.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())
        if isinstance(frame, pa.Table):
            return frame
        if library != "polars" and hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except (pa.ArrowException, ValueError, TypeError):
        raise _not_storable(table) from None
    raise BadParameter(
        "tables",
        f"{quoted(table)} is no data frame of pandas or Polars and no Arrow table. Convert or collect it",
    )


def _require_no_named_index(frame: Any, table: str) -> None:
    """Raise BadParameter if the index has a name of its own: its values would not be stored."""
    names = [str(name) for name in frame.index.names if name is not None and name not in frame.columns]
    if names:
        listed = ", ".join(quoted(name, at_most=80) for name in names[:8])
        raise BadParameter(
            "tables",
            f"{quoted(table)} has the index {listed}, and only columns are stored. Give "
            "frame.reset_index(), or frame.reset_index(drop=True) without it",
        )


def _not_storable(table: str) -> BadParameter:
    why = (
        f"the columns of {quoted(table)} cannot be stored. Give each a name of its own and one simple type"
    )
    return BadParameter("tables", why)


def _checked_version(version: str | None) -> str:
    if version is None:
        raise BadParameter("version", f"is needed for rows of a data frame. {HOW_VERSION}")
    if not isinstance(version, str) or not version.strip() or not version.isprintable():
        raise BadParameter("version", f"must be a printable text. {HOW_VERSION}")
    if len(version) > VERSION_AT_MOST:
        raise BadParameter("version", f"must have at most {VERSION_AT_MOST} characters")
    return version


def _declared(path: Path) -> Declared | None:
    """Return the data set's name and the source of each table.

    It is None if the file cannot be read, which `load_policy` explains.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        sources = {name: about.get("source") for name, about in content.get("tables", {}).items()}
        return str(content["dataset"]["name"]), sources
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(quoted(name, at_most=80) for name in list(names)[:8]) or "none"


def _stored(file: Path) -> dict[bytes, str]:
    """Return the version and the data set of the stored rows; nothing if there are none."""
    if not file.exists():
        return {}
    try:
        metadata = pq.read_schema(file).metadata or {}
    except (pa.ArrowException, OSError):
        raise _damaged(file) from None
    known = (key for key in (VERSION_KEY, DATASET_KEY) if key in metadata)
    return {key: bytes(metadata[key]).decode("utf-8", "replace") for key in known}


def _damaged(file: Path) -> Unavailable:
    return Unavailable(f"{file} is damaged. Remove it, and give the rows again under a new version")


def _write(file: Path, rows: pa.Table, about: Mapping[bytes, str], table: str) -> None:
    marked = rows.replace_schema_metadata({key: text.encode() for key, text in about.items()})
    try:
        with replaced_private_file(file) as stream:
            pq.write_table(marked, stream)
    except pa.ArrowException:  # some types have no Parquet form
        raise _not_storable(table) from None


def _are_stored(file: Path, rows: pa.Table, table: str) -> bool:
    """Return whether a file has exactly these rows, in any order."""
    import duckdb  # noqa: PLC0415 (only this comparison needs it here)

    folder, remove = private_folder("frame")
    try:
        given = Path(folder) / "given.parquet"
        _write(given, rows, {}, table)
        places = [str(given), str(file)]
        with duckdb.connect() as connection:
            types = [
                connection.execute("DESCRIBE FROM read_parquet([?])", [place]).fetchall()
                for place in places
            ]
            sizes = [pq.read_metadata(place).num_rows for place in places]
            if types[0] != types[1] or sizes[0] != sizes[1]:
                return False
            # Of equally many rows: if none is left over here, none is left over there.
            beyond = "SELECT 1 FROM (FROM read_parquet([?]) EXCEPT ALL FROM read_parquet([?])) LIMIT 1"
            return connection.execute(beyond, places).fetchone() is None
    except duckdb.Error:
        raise _damaged(file) from None
    finally:
        remove()
