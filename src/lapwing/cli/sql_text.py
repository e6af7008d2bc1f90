"""The question of a command: from the command line, a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lapwing.errors import BadParameter

STANDARD_INPUT = "-"
_BYTES_AT_MOST = 400_000  # of 100,000 characters, which is the longest query
Sql = Annotated[
    str | None,
    Argument(
        metavar="[SQL]", help='Such as "SELECT COUNT(*) FROM visits"; - reads it from standard input.'
    ),
]
SqlFile = Annotated[
    Path | None, Option("--file", "-f", help="Read the SQL from this file; - is standard input.")
]


def read_sql(sql: str | None, file: Path | None) -> str:
    """Return the question. Raise BadParameter, before anything is opened, if there is none, or two."""
    if sql is not None and file is not None:
        raise BadParameter("file", "and SQL are both given: give one of them")
    if sql is None and file is None:
        raise BadParameter(
            "SQL",
            'is missing. Write it after the policy, such as "SELECT COUNT(*) FROM visits"; or give '
            "--file query.sql, or - to read it from standard input",
        )
    if STANDARD_INPUT in (sql, str(file)):
        typed = b"" if sys.stdin is None else sys.stdin.buffer.read(_BYTES_AT_MOST + 1)
        return _checked(typed, "standard input")
    if file is not None:
        return _checked(_content(file), str(file))
    assert sql is not None
    return sql


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_BYTES_AT_MOST + 1)
    except OSError as error:
        raise BadParameter("file", f"{file} cannot be read ({error.strerror})") from None


def _checked(content: bytes, where: str) -> str:
    if len(content) > _BYTES_AT_MOST:
        raise BadParameter("file", f"{where} is too large: a query has at most 100,000 characters")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadParameter("file", f"{where} is not UTF-8: save it in that encoding") from None
    if not text.strip():
        raise BadParameter("file", f"{where} is empty: write one SELECT into it")
    return text
