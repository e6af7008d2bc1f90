"""A backup of an open ledger in SQLite: one snapshot in a file of its own, while others go on charging.

Claim    the copy is the ledger as it was at one moment after the call began: every charge that was
         acknowledged before is in it, and no charge is half in it. Put back in the ledger's place it is
         refused if the ledger has been charged since, and opens if nothing was.
Because  SQLite's backup copies all pages within one read transaction, which sees whole commits only and
         holds up no writer. The ledger is sealed first, so the copy has a seal and a signed state of its
         own. The copy is checked as at opening before it counts as made; it has no anchor of its own, and
         the anchor and the witness have a mark of each charge since.
Test     tests/ledger/test_backup.py
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from lapwing.config.values import shortened_list
from lapwing.errors import BadParameter, Tampered, Unavailable
from lapwing.ledger.check import check
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.sqlite_store import SqliteStore
from lapwing.storage.private_file import new_private_file


def back_up(ledger: Ledger, path: str | Path) -> int:
    """Write a copy of an open ledger to a new file that only its owner can read.

    Keys and anchors are not copied: keys never change, and an anchor must never be restored.

    Args:
        ledger: The open ledger. Other processes may charge it meanwhile.
        path: The new file.

    Returns:
        The number of the newest entry in the copy.

    Raises:
        BadParameter: If the file exists, or the ledger is in PostgreSQL.
        Tampered: If the copy is not sound. It is removed.
        Unavailable: If it cannot be written.

    Example:
        >>> from lapwing.ledger import Ledger
        >>> from lapwing.ledger.backup import back_up
        >>> with Ledger.open("visits.ledger") as ledger:
        ...     newest = back_up(ledger, "visits.ledger.copy")
    """
    store, target = ledger.store, Path(path)
    if not isinstance(store, SqliteStore):
        raise BadParameter(
            "ledger",
            "is in PostgreSQL: back it up with the server's own means (pg_dump, or a standby), which also "
            "give one snapshot while charges go on",
        )
    store.seal()
    try:
        with new_private_file(target):
            store.copy_to(target)
            return _checked(target, ledger)
    except FileExistsError:
        raise BadParameter("copy", f"{target} exists: nothing is written over") from None
    except OSError as error:
        raise Unavailable(f"the copy {target} cannot be written: {error.strerror}") from None


def _checked(target: Path, ledger: Ledger) -> int:
    """Check a copy by itself: anchors may know later entries already. Return its newest entry."""
    try:
        copy = SqliteStore(target, create=False)
        try:
            copy.migrate()  # changes nothing, and says how its tables must be
            report = check(copy, ledger.keys.signing.public, (), thorough=False)
        finally:
            copy.close()
    finally:
        with suppress(FileNotFoundError):
            Path(f"{target.resolve()}.lock").unlink()  # nobody uses the copy
    if report.findings:
        found = shortened_list(list(report.findings))
        raise Tampered([f"the copy is not sound, and was removed: {found}"])
    return report.replay.last
