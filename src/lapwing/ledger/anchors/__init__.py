"""Anchors: marks and heads kept outside the database, so that an old or edited copy of it is noticed.

A database that is restored from a backup is consistent in itself: only something outside can tell that it
knew more once. Such a place is a file, a web address, or another database.
"""

from __future__ import annotations

import os
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.ledger.anchors.database import DatabaseAnchor, PostgresAnchor, SqliteAnchor
from lapwing.ledger.anchors.file import FileAnchor
from lapwing.ledger.anchors.lines import Anchor, Head, Mark, newest, parse_line, parse_lines
from lapwing.ledger.anchors.url import UrlAnchor

__all__ = [
    "Anchor",
    "DatabaseAnchor",
    "FileAnchor",
    "Head",
    "Mark",
    "PostgresAnchor",
    "SqliteAnchor",
    "UrlAnchor",
    "anchor_at",
    "newest",
    "parse_line",
    "parse_lines",
    "witness_directory",
]

_SQLITE = "sqlite:///"


def anchor_at(where: str | Path) -> Anchor:
    """The anchor at a place: http(s)://…, postgresql://…, sqlite:///path, or the path of a file.

    After sqlite:/// a path is relative, and absolute with a fourth slash.
    """
    if isinstance(where, Path):
        return FileAnchor(where)
    scheme = where.partition("://")[0].lower() if "://" in where else ""
    if scheme in ("http", "https"):
        return UrlAnchor(where)
    if scheme in ("postgresql", "postgres"):
        return PostgresAnchor(where)
    if where.startswith(_SQLITE) and len(where) > len(_SQLITE):
        return SqliteAnchor(where[len(_SQLITE) :])
    if scheme or not where:  # a mistyped address must not become a file with a strange name
        raise BadParameter("where", "must be http(s)://…, postgresql://…, sqlite:///path or a path")
    return FileAnchor(where)


def witness_directory() -> Path | None:
    """Where this user's machine keeps second anchors, or None if there is no such place.

    $LAPWING_STATE, else $XDG_STATE_HOME/lapwing, else ~/.local/state/lapwing. It is made if need be.
    """
    own, state = os.environ.get("LAPWING_STATE"), os.environ.get("XDG_STATE_HOME", "")
    try:
        if own:
            directory = Path(own).absolute()
        elif os.path.isabs(state):  # the XDG rules ignore a relative one
            directory = Path(state, "lapwing")
        else:
            directory = Path.home() / ".local" / "state" / "lapwing"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no leave to make it, or no home
        return None
    return directory if os.access(directory, os.R_OK | os.W_OK | os.X_OK) else None
