"""Where a survey's reports and its signing key lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.ledger.places import is_postgres
from lapwing.survey.collecting.sqlite import SqliteStore
from lapwing.survey.collecting.store import Store
from lapwing.survey.credentials import SigningKey


def open_store(where: str, *, digest: str, report_size: int) -> Store:
    """The reports of the survey with this digest, made at the first use."""
    if is_postgres(where):
        # psycopg is an extra: only who collects there needs it.
        from lapwing.survey.collecting.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(where, digest=digest, report_size=report_size)
    return SqliteStore(Path(where), digest=digest, report_size=report_size)


def signing_key(ledger: str, ledger_keys: str, *, name: str, digest: str) -> SigningKey:
    """The survey's own key, beside the ledger's keys; made at the first use.

    Each survey has its own, so that a token of one is worth nothing in another.
    """
    path = _key_file(ledger, ledger_keys, name, digest)
    return SigningKey.load(path) if path.exists() else SigningKey.create(path)


def known_key(ledger: str, ledger_keys: str, *, name: str, digest: str) -> SigningKey | None:
    """The survey's own key, if it was made."""
    if not ledger_keys and is_postgres(ledger):
        return None
    path = _key_file(ledger, ledger_keys, name, digest)
    return SigningKey.load(path) if path.exists() else None


def _key_file(ledger: str, ledger_keys: str, name: str, digest: str) -> Path:
    if not ledger_keys and is_postgres(ledger):
        raise BadParameter("ledger", "in PostgreSQL needs to be told where its keys lie: keys = …")
    beside = Path(ledger_keys or f"{ledger}.keys")
    mark = hashlib.sha256(f"{name}\n{digest}".encode()).hexdigest()[:16]
    return beside.with_name(f"{beside.name}.{mark}.signing")
