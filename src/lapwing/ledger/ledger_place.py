"""Where a ledger is stored: its database, its key files, its first anchor and its witnesses."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from lapwing.config.values import is_postgres
from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.anchors import Anchor
from lapwing.ledger.keys import LedgerKeys
from lapwing.ledger.registry import Registry
from lapwing.ledger.remote_anchors import anchor_at
from lapwing.ledger.sqlite_store import SqliteStore
from lapwing.ledger.store import Store


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The database, the key files, the first anchor and the registry of a ledger."""

    database: str
    keys: Path
    anchor: Anchor
    curator: Path
    registry: Registry

    @classmethod
    def of(
        cls,
        where: str | Path,
        *,
        keys: Path | None,
        anchor: str | Path | None,
        curator: Path | None = None,
        registry: str = "",
    ) -> LedgerPlace:
        """Return the place of a ledger in a file or at a PostgreSQL URL.

        `#name` at the end of a URL keeps several ledgers apart.
        """
        if not isinstance(where, str | Path) or not str(where):
            raise BadParameter("ledger", "must be a path or a postgresql:// URL")
        if is_postgres(where):
            if keys is None or anchor is None:
                raise BadParameter("ledger", "in PostgreSQL needs the paths of its keys and its anchor")
            own = Path(curator or f"{keys}.curator")
            return cls(str(where), Path(keys), anchor_at(anchor), own, Registry.at(registry))
        path = Path(where)
        return cls(
            database=str(path),
            keys=Path(keys) if keys else Path(f"{path}.keys"),
            anchor=anchor_at(anchor if anchor is not None else f"{path}.anchor"),
            curator=Path(curator or f"{path}.curator"),
            registry=Registry.at(registry),
        )

    def require_unused(self) -> None:
        """Raise BadParameter if a ledger, or a part of one, exists there."""
        database = [] if is_postgres(self.database) else [Path(self.database)]
        for path in (*database, self.keys, self.curator):
            if path.exists():
                now = ". Open it with Ledger.open(…)" if path in database else ""
                raise BadParameter("ledger", f"{path} exists: a ledger is never replaced{now}")
        if self.anchor.exists():
            raise BadParameter("ledger", f"{self.anchor.where} knows a ledger: it is never replaced")

    @property
    def notice(self) -> str:
        """The notice of a new ledger, for people."""
        return (
            f"New ledger {self.database}, for life. The curator's key is in {self.curator}: move it away."
        )

    def store(self, *, create: bool) -> Store:
        """Open the database."""
        if is_postgres(self.database):
            # psycopg is an extra: only ledgers in PostgreSQL need it.
            from lapwing.ledger.postgres_store import PostgresStore  # noqa: PLC0415

            return PostgresStore(self.database, create=create)
        return SqliteStore(Path(self.database), create=create)

    def open_store(self) -> tuple[Store, LedgerKeys, str]:
        """Open the database of an existing ledger, and bring its tables up to date.

        Return it with the ledger's keys and id.
        """
        keys = LedgerKeys.load(self.keys)
        store = self.store(create=False)
        try:
            store.migrate()
            return store, keys, id_of(store)
        except BaseException:
            store.close()
            raise

    def witnesses(self, ledger_id: str) -> tuple[Anchor, ...]:
        """Return the second anchor, in the registry. Restoring the data's folder does not restore it."""
        return (self.registry.witness(ledger_id),)

    def missing_witnesses(self, replay: Replay) -> list[str]:
        """Return a finding for each witness that must be here: this registry's, if the ledger names it.

        The first entry is sealed, and so in the witness, before there is a second one.
        """
        if replay.registry != self.registry.id or replay.entries < 2:
            return []
        return [
            f"the second anchor {witness.where} is missing or empty, though the ledger was used with this "
            "registry: nobody can tell whether the ledger is an older copy"
            for witness in self.witnesses(replay.ledger)
            if not (witness.exists() and witness.read())
        ]


def location_of(store: Store) -> str:
    """Return the location of a ledger, without links and passwords."""
    where = str(store.where)
    return where if is_postgres(where) else os.path.realpath(where)


def id_of(store: Store) -> str:
    """Return the id that the first entry gives the ledger. It names the ledger's witness files."""
    first = store.rows("SELECT body FROM entries ORDER BY seq LIMIT 1")
    try:
        return bytes.fromhex(json.loads(bytes(first[0][0]))["ledger"]).hex()
    except (IndexError, KeyError, TypeError, ValueError):
        raise Tampered([f"{store.where} is no ledger: its first entry is not that of one"]) from None


def without_password(where: str) -> str:
    """Return a URL that may be shown: a password may be before the host, and among the options."""
    if not is_postgres(where):
        return where
    from lapwing.storage.postgres import PostgresAddress  # noqa: PLC0415

    return PostgresAddress.of(where).where
