"""Where a ledger's parts lie: the database, the keys, the anchors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.ledger.anchors import Anchor, FileAnchor, anchor_at, witness_directory
from lapwing.ledger.stores.sqlite import SqliteStore
from lapwing.ledger.stores.store import Store

POSTGRES_SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Place:
    """A ledger's database, its keys and its first anchor. Everything else follows."""

    database: str
    keys: Path
    anchor: Anchor
    curator: Path

    @classmethod
    def of(
        cls,
        where: str | Path,
        *,
        keys: Path | None,
        anchor: str | Path | None,
        curator: Path | None = None,
    ) -> Place:
        """A file beside the data, or a PostgreSQL URL; `#name` at its end keeps several ledgers apart."""
        if not isinstance(where, str | Path) or not str(where):
            raise BadParameter("ledger", "must be a path or a postgresql:// URL")
        if is_postgres(where):
            if keys is None or anchor is None:
                raise BadParameter(
                    "ledger", "a ledger in PostgreSQL needs to be told where its keys and anchor lie"
                )
            return cls(str(where), Path(keys), anchor_at(anchor), Path(curator or f"{keys}.curator"))
        path = Path(where)
        return cls(
            database=str(path),
            keys=Path(keys) if keys else Path(f"{path}.keys"),
            anchor=anchor_at(anchor if anchor is not None else f"{path}.anchor"),
            curator=Path(curator or f"{path}.curator"),
        )

    def require_nothing(self) -> None:
        """A ledger is never written over another one, nor over what is left of one."""
        for path in (
            self.keys,
            self.curator,
            *([] if is_postgres(self.database) else [Path(self.database)]),
        ):
            if path.exists():
                raise BadParameter("ledger", f"{path} exists: a ledger is never replaced")
        if self.anchor.exists():
            raise BadParameter("ledger", f"{self.anchor.where} knows a ledger: it is never replaced")

    @property
    def news(self) -> str:
        """The notice of a new ledger, for people."""
        return (
            f"New ledger {self.database}, for life. The curator's key is in {self.curator}: move it away."
        )

    def store(self, *, create: bool) -> Store:
        """The database, open."""
        if is_postgres(self.database):
            # psycopg is an extra: only who has such a ledger needs it.
            from lapwing.ledger.stores.postgres import PostgresStore  # noqa: PLC0415

            return PostgresStore(self.database, create=create)
        return SqliteStore(Path(self.database), create=create)

    def witnesses(self, ledger_id: str) -> tuple[Anchor, ...]:
        """A second anchor in the user's own folder: restoring the data's folder does not restore it."""
        directory = witness_directory()
        return (FileAnchor(directory / f"{ledger_id}.anchor"),) if directory else ()


def is_postgres(where: str | Path) -> bool:
    """Whether this names a PostgreSQL database."""
    return isinstance(where, str) and where.startswith(POSTGRES_SCHEMES)
