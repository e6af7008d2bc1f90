"""The `source` of a table as a place: its text becomes an engine, a location and a form.

No data is read.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from lapwing.config.values import NAME_PATTERN, POSTGRES_SCHEMES
from lapwing.errors import BadParameter
from lapwing.ledger.registry import source_of_file
from lapwing.sql.policy.policy import Source
from lapwing.storage.birth_time import birth_time

SPARK = "spark:"
FRAME = "frame"  # the rows that a program gave
NAMES_AT_MOST = 10_000
DUCKDB_FILES = (".duckdb", ".ddb", ".db")
FORMS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst"), "csv"),
}
HOW = (
    "Write a Parquet or CSV file, a folder or a pattern of them, file.duckdb#table, "
    "postgresql://…#table, spark:table, or frame for rows that a program gives"
)


def parse_source(
    text: str, *, folder: Path, table: str, spark_master: str = "", rows_follow: bool = False
) -> Source:
    """Return the source that a text in a policy means.

    `folder` is the policy's folder, `table` the table's name in the policy. The location of files is a
    pattern in which special characters of patterns are escaped. With `rows_follow`, rows of data frames
    need not be stored yet. Raises BadParameter if the text means no source.
    """
    if not text or not text.isprintable():
        raise BadParameter("source", f"must be a printable text. {HOW}")
    if text.startswith(POSTGRES_SCHEMES):
        url, _, named = text.rpartition("#") if "#" in text else (text, "", "")
        _check_address(url)
        return Source("postgres", url, _table(named, table, parts=2), "postgres")
    if text.startswith(SPARK):
        return _spark(text.removeprefix(SPARK), folder, table, spark_master)
    if "://" in text:
        raise BadParameter("source", f"is not a known kind of source. {HOW}")
    if text == FRAME and not os.path.exists(folder / FRAME):
        return _frame(folder, table, rows_follow)
    return _file(text, folder, table)


def frame_file(folder: Path, table: str) -> Path:
    """Return the file that holds the rows of a data frame. `folder` is the policy's."""
    return folder / f"{table}.frame.parquet"


def files_in(source: Source) -> list[str]:
    """Return the absolute paths of the files that a source consists of now. A server has none."""
    if source.form in FORMS.values():
        paths = glob.glob(source.location, recursive=True)
    elif source.form == "duckdb":
        paths = [path for path in (source.location, f"{source.location}.wal") if os.path.exists(path)]
    elif source.form == "spark-parquet" and "://" not in source.table:
        paths = glob.glob(source.table)
        inside = [
            glob.glob(f"{glob.escape(top)}/**", recursive=True) for top in paths if os.path.isdir(top)
        ]
        paths += chain.from_iterable(inside)
    else:
        return []
    return [path for path in sorted(map(os.path.abspath, paths)) if os.path.isfile(path)]


def registry_names(source: Source, *, earlier: bool = False) -> set[str]:
    """Return the names of a source in the registry, which are the same for every policy.

    A file has two names: its path without links, and its inode with the times at which it was changed and
    made. A renamed file keeps the second one, and a later file in the same inode has another. A server's
    name is its address, without users. DuckDB and Spark ignore the case of table names.

    With `earlier`, the names that earlier versions noted are among them: those without the time of making.
    """
    if source.form == "spark-parquet" and source.table.startswith("file:///"):
        source = replace(source, table=source.table.removeprefix("file://"))
    paths = [path for path in files_in(source) if not (source.form == "duckdb" and path.endswith(".wal"))]
    table = f"#{_full(source.table.lower(), 'main')}" if source.form == "duckdb" else ""
    names = set()
    for path in paths:
        about, made = os.stat(path), birth_time(path)
        inode = f"inode:{about.st_dev}:{about.st_ino}:{about.st_mtime_ns}"
        names |= {
            f"{source_of_file(path)}{table}",
            f"{inode}{table}" if made is None else f"{inode}:{made}{table}",
        }
        names |= {f"{inode}{table}"} if earlier else set()
    if source.form == "postgres":
        names.add(f"postgres:{_server(source.location)}#{_full(source.table, 'public')}")
    elif source.form == "spark":
        names.add(f"spark:{source.location}#{_full(source.table.lower(), 'default')}")
    elif source.form == "spark-parquet" and "://" in source.table:
        names.add(f"spark-parquet:{source.table}")  # the same for every cluster that reads it
    return names


def _full(table: str, schema: str) -> str:
    return table if "." in table else f"{schema}.{table}"


def _server(url: str) -> str:
    """Return host, port and database of a URL, without the user and the options."""
    parts = urlsplit(url)
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    address = parts.netloc.rpartition("@")[2]
    host, _, port = address.rpartition(":") if re.search(r":\d*$", address) else (address, "", "")
    host = unquote(asked.get("host", host)).lower()
    here = host in ("", "localhost", "127.0.0.1", "[::1]", "::1") or host.startswith("/")
    database = asked.get("dbname") or unquote(parts.path[1:]) or unquote(parts.username or "")
    return f"{'localhost' if here else host}:{asked.get('port') or port or '5432'}/{database}"


def _check_address(url: str) -> None:
    try:
        urlsplit(url)
    except ValueError:  # its message repeats a part of the URL, which can be the password
        raise BadParameter("source", "is no address. Write postgresql://name@host/database#table") from None


def _table(named: str, default: str, *, parts: int) -> str:
    name = named or default
    pieces = name.split(".")
    if len(pieces) > parts or not all(NAME_PATTERN.fullmatch(piece) for piece in pieces):
        raise BadParameter(
            "source", 'must end in the name of a table, such as "#visits" or "#clinic.visits"'
        )
    return name


def moved_source(text: str, folder: Path) -> str:
    """Return the text of a source that means the same in every folder as `text` does in this one."""
    mark = SPARK if text.startswith(SPARK) else ""
    path = text.removeprefix(mark)
    names_table = bool(mark) and "/" not in path and not re.search(r"[*?\[]|\.parquet$", path)
    if "://" in path or os.path.isabs(path) or text == FRAME or names_table:
        return text
    is_pattern = re.search(r"[*?\[]", path) and not os.path.exists(folder / path)
    return mark + os.path.join(glob.escape(str(folder)) if is_pattern else str(folder), path)


def _spark(rest: str, folder: Path, table: str, master: str) -> Source:
    is_path = "/" in rest or any(letter in rest for letter in "*?[") or rest.endswith(".parquet")
    if not is_path:
        return Source("spark", master, _table(rest, table, parts=3), "spark")
    if "://" in rest:  # storage that only Spark can read
        return Source("spark", master, rest, "spark-parquet")
    absolute = os.path.normpath(folder / rest)
    location = absolute if os.path.exists(absolute) else _matching(rest, folder)
    return Source("spark", master, location, "spark-parquet")


def _frame(folder: Path, table: str, rows_follow: bool) -> Source:
    file = os.path.normpath(frame_file(folder, table))
    if not rows_follow and not os.path.isfile(file):
        raise BadParameter(
            "source",
            "nobody has given the rows yet. In Python: "
            f'lapwing.open(POLICY, tables={{"{table}": frame}}, version="1")',
        )
    return Source("duckdb", glob.escape(file), "", "parquet")


def _file(text: str, folder: Path, table: str) -> Source:
    path, mark, named = text.rpartition("#")
    if mark and path.lower().endswith(DUCKDB_FILES):
        return _duckdb(path, named, folder, table)
    if text.lower().endswith(DUCKDB_FILES):
        return _duckdb(text, "", folder, table)
    if os.path.isdir(folder / text):
        return _folder(text, folder)
    form = next((form for suffix, form in FORMS.items() if text.lower().endswith(suffix)), None)
    if form is None:
        raise BadParameter("source", f"is not a known kind of source. {HOW}")
    absolute = os.path.normpath(folder / text)
    location = glob.escape(absolute) if os.path.exists(absolute) else _matching(text, folder)
    return Source("duckdb", location, "", form)


def _duckdb(path: str, named: str, folder: Path, table: str) -> Source:
    absolute = os.path.normpath(folder / path)
    if not os.path.isfile(absolute):
        raise BadParameter("source", f"there is no DuckDB file here. {_paths_begin(folder)}")
    return Source("duckdb", absolute, _table(named, table, parts=2), "duckdb")


def _folder(text: str, folder: Path) -> Source:
    inside = glob.escape(os.path.normpath(folder / text))
    forms = sorted(_forms_in(folder / text), reverse=True)
    if not forms:
        raise BadParameter("source", "is a folder without .parquet or .csv files")
    if len(forms) > 1:
        raise BadParameter(
            "source", 'is a folder of Parquet and CSV files: say which, such as "folder/*.parquet"'
        )
    return Source("duckdb", f"{inside}/**/*.{forms[0]}", "", forms[0])


def _forms_in(folder: Path) -> set[str]:
    """Return the forms of the first files in a folder. Only NAMES_AT_MOST files are looked at."""
    names = (name for _, _, files in os.walk(folder) for name in files)
    first = islice(names, NAMES_AT_MOST)
    return {form for name in first for form in ("parquet", "csv") if name.endswith(f".{form}")}


def _matching(text: str, folder: Path) -> str:
    """Return a pattern with an absolute path, if at least one file matches it."""
    if not re.search(r"[*?\[]", text):
        raise BadParameter("source", f"there is no such file. {_paths_begin(folder)}")
    pattern = os.path.normpath(os.path.join(glob.escape(str(folder)), text))
    if not _has_match(pattern):
        raise BadParameter("source", f"no file matches this pattern. {_paths_begin(folder)}")
    return pattern


def _has_match(pattern: str) -> bool:
    try:
        return next(glob.iglob(pattern, recursive=True), None) is not None
    except (OSError, ValueError, re.error):  # invalid patterns
        return False


def _paths_begin(folder: Path) -> str:
    return f"Paths begin at {folder}" if str(folder).isprintable() else "Paths begin at the policy's folder"
