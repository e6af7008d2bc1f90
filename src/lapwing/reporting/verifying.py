"""One check of everything that Lapwing signs: ledgers, statements, proofs, bundles and reports."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from lapwing.config.values import is_postgres
from lapwing.errors import BadParameter
from lapwing.ledger.verification import VerifiedFile, Working, verify
from lapwing.publish.bundle.verified_bundle import BundleReport, verify_bundle
from lapwing.reporting.signed_report import LARGEST_REPORT, VerifiedReport, is_report, verify_report


def verify_anything(
    where: str,
    *,
    key: str | None = None,
    keys: Path | None = None,
    anchor: str | None = None,
    statement: Path | None = None,
    working: Working = nullcontext,
) -> VerifiedFile | BundleReport | VerifiedReport:
    """Check a ledger, statement, proof, bundle or report, whichever it is.

    Args:
        where: A path, or the URL of a ledger in PostgreSQL.
        key: The ledger's public key in hexadecimal digits, known from elsewhere; None if it is not known.
        keys: The ledger's key file; None for the usual one.
        anchor: The ledger's anchor; None for the usual one.
        statement: The statement of a report that does not enclose it.
        working: Shows progress while something takes time.

    Returns:
        What was checked, and what was found.

    Raises:
        BadParameter: There is nothing of this name, it is nothing signed, or the key has a wrong form.
    """
    path = Path(where)
    if not is_postgres(where):
        if path.is_dir():
            with working("checking the bundle"):
                return verify_bundle(path, key=key)
        if not path.is_file():
            raise BadParameter("what", f"there is no file or folder {where}")
        if _looks_like_report(path):
            with working("checking the report"):
                return verify_report(path, key=key, statement=statement)
    return verify(where, key=key, keys=keys, anchor=anchor, working=working)


def _looks_like_report(path: Path) -> bool:
    with path.open("rb") as file:
        beginning = file.read(256)
        if is_report(beginning):
            return True
        is_other = beginning.startswith((b"SQLite format 3", b'{"lapwing"'))
        if is_other or path.stat().st_size > LARGEST_REPORT:
            return False
        return is_report(beginning + file.read())
