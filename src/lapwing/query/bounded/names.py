"""What tables that an engine does not have by itself are called in statements, and so in plans."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from lapwing.engines.spelling import Spelling
from lapwing.query.language.relation import PublicScan, Scan

LONGEST_NAME = 63  # of PostgreSQL


def shipped_name(scan: PublicScan) -> str:
    """The name under which the coded rows of a public table are made known to an engine."""
    digest = hashlib.blake2b(repr(scan).encode(), digest_size=12, person=b"lapwing public")
    return f"lapwing_public_{digest.hexdigest()}"


def bounded_name(table: str) -> str:
    """A bounded table that is computed on the way."""
    name = f"the bounded table {table}"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"the bounded table {hashlib.blake2b(table.encode(), digest_size=16).hexdigest()}"


def rows_name(scan: Scan) -> str:
    """Whose rows a scan reads: those of a table, or those that its own WHERE leaves of it."""
    if scan.where is None:
        return scan.table
    digest = hashlib.blake2b(repr(scan.where).encode(), digest_size=4, person=b"lapwing where")
    return f"{scan.table} after WHERE {digest.hexdigest()}"


def with_bounded(statement: str, definitions: Mapping[str, str], spelling: Spelling) -> str:
    """A statement with the definitions (by what `rows_name` gives) of bounded tables. They hold secrets:
    never show it."""
    views = [f"{spelling.name(bounded_name(table))} AS ({sql})" for table, sql in definitions.items()]
    return f"WITH {', '.join(views)} {statement}" if views else statement
