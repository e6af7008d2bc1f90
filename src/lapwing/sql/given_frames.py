"""Data frames as sources: rows that a program gives, stored as a private file beside the policy.

A policy says `source = "frame"` for such a table. The rows come with a version, a name that the curator
chooses. Then everything is as for a Parquet file.

Claim    whether the data has a new version depends on the names that the curator gives, never on rows.
Because  a new name always stores the rows anew, which makes a new version in the ledger, also if the rows
         are the same. A known name stores nothing: other rows under it are refused, before anything is
         planned or charged, and to the program that holds both.
Test     tests/sql/test_given_frames.py
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.config.toml_text import quoted
from lapwing.config.values import NAME_PATTERN
from lapwing.engines.engine import private_folder
from lapwing.errors import BadParameter, Unavailable
from lapwing.sql.source_location import FRAME, frame_file
from lapwing.storage.private_file import replaced_private_file

VERSION_KEY = b"lapwing.version"  # in the metadata of the stored file
VERSION_AT_MOST = 100
HOW_VERSION = 'Give a name such as version="2026-03"; the same name stands for the same rows'


def store_frames(path: Path, frames: Mapping[str, Any], version: str | None) -> list[Path]:
    """Store the rows of tables of a policy file, unless they are stored under this version.

    Args:
        path: The policy file.
        frames: For each table, a pandas or Polars data frame, or an Arrow table.
        version: The curator's name of these rows.

    Returns:
        The files that were written.

    Raises:
        BadParameter: If the policy reads a table from elsewhere, or the version has other rows.
    """
    name, sources = _checked_version(version), _declared_sources(path)
    if sources is None:
        return []
    files = {table: _checked_file(path, table, sources) for table in frames}
    rows = {table: arrow_rows(frame, table) for table, frame in frames.items()}
    new = [table for table in rows if _stored_version(files[table]) != name]
    for table, given in rows.items():
        if table not in new and not _are_stored(files[table], given, table):
            raise BadParameter(
                "version",
                f"{quoted(name)} has other rows of {quoted(table)}. Give the changed rows a new name: they "
                "are new data, and answers about them are charged anew",
            )
    for table in new:
        _write(files[table], rows[table], name, table)
    return [files[table] for table in new]


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
    return frame_file(path.absolute().parent, table)


def arrow_rows(frame: Any, table: str) -> pa.Table:
    """Return the rows of a data frame as an Arrow table. Errors show no value."""
    library = type(frame).__module__.partition(".")[0]
    try:
        if library == "pandas" and hasattr(frame, "columns"):
            return pa.Table.from_pandas(frame, preserve_index=False)
        if library == "polars" and hasattr(frame, "to_arrow"):  # its newest types cannot all be stored
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


def _not_storable(table: str) -> BadParameter:
    why = (
        f"the columns of {quoted(table)} cannot be stored. Give each a name of its own and one simple type"
    )
    return BadParameter("tables", why)


def _checked_version(version: str | None) -> str:
    if version is None:
        raise BadParameter("version", f"is needed with tables. {HOW_VERSION}")
    if not isinstance(version, str) or not version.strip() or not version.isprintable():
        raise BadParameter("version", f"must be a printable text. {HOW_VERSION}")
    if len(version) > VERSION_AT_MOST:
        raise BadParameter("version", f"must have at most {VERSION_AT_MOST} characters")
    return version


def _declared_sources(path: Path) -> dict[str, Any] | None:
    """Return the source of each table; None if the file cannot be read, which `load_policy` explains."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("tables", {})
        return {name: about.get("source") for name, about in tables.items()}
    except (OSError, ValueError, AttributeError):
        return None


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(quoted(name, at_most=80) for name in list(names)[:8]) or "none"


def _stored_version(file: Path) -> str | None:
    """Return the version of the stored rows; None if there are none."""
    if not file.exists():
        return None
    try:
        found = pq.read_schema(file).metadata or {}
    except (pa.ArrowException, OSError):
        raise _damaged(file) from None
    return bytes(found.get(VERSION_KEY, b"")).decode("utf-8", "replace")


def _damaged(file: Path) -> Unavailable:
    return Unavailable(f"{file} is damaged. Remove it, and give the rows again under a new version")


def _write(file: Path, rows: pa.Table, version: str, table: str) -> None:
    marked = rows.replace_schema_metadata({VERSION_KEY: version.encode()})
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
        _write(given, rows, "", table)
        places = [str(given), str(file)]
        with duckdb.connect() as connection:
            types = [
                connection.execute("DESCRIBE FROM read_parquet([?])", [one]).fetchall() for one in places
            ]
            sizes = [pq.read_metadata(one).num_rows for one in places]
            if types[0] != types[1] or sizes[0] != sizes[1]:
                return False
            # Of equally many rows: if none is left over here, none is left over there.
            beyond = "SELECT 1 FROM (FROM read_parquet([?]) EXCEPT ALL FROM read_parquet([?])) LIMIT 1"
            return connection.execute(beyond, places).fetchone() is None
    except duckdb.Error:
        raise _damaged(file) from None
    finally:
        remove()
