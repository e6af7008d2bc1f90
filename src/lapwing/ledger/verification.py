"""Check a ledger, a statement or a proof, whichever it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.config.values import is_postgres
from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accountant.guarantee import StatementReport
from lapwing.ledger.entry import digest_of
from lapwing.ledger.keys import public_key
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.statement import verify_proof, verify_statement

Working = Callable[[str], AbstractContextManager[object]]  # shows that something takes time
LEDGER, STATEMENT, PROOF = "ledger", "statement", "proof"
LARGEST_PROOF = 1 << 28
_SQLITE = b"SQLite format 3\x00"
_BEGINNING = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile(StatementReport):
    """The result of a check. `findings` is empty if nothing is wrong."""

    kind: str
    where: str
    key_was_given: bool
    anchors: tuple[str, ...] = ()
    entry: dict[str, str] | None = None  # the entry that a proof is about

    @property
    def promises(self) -> tuple[str, ...]:
        """The guarantee to the people in the ledger, in words. A history with findings gives none."""
        return () if self.guarantee is None or self.findings else tuple(self.guarantee.lines())

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names."""
        head = self.head
        return {
            "kind": self.kind,
            "good": not self.findings,
            "findings": list(self.findings),
            "ledger": self.ledger,
            "key": self.key,
            "key_was_given": self.key_was_given,
            "entries": self.entries,
            "seal": head
            and {"number": head.number, "last": head.last, "size": head.size, "root": head.root.hex()},
            "anchors": list(self.anchors),
            "prices_checked": self.prices_checked,
            "prices_unchecked": self.prices_unchecked,
            "promises": list(self.promises),
            "entry": self.entry and {**self.entry, "number": int(self.entry["number"])},
        }


def verify(
    where: str,
    *,
    key: str | None = None,
    keys: Path | None = None,
    anchor: str | None = None,
    registry: str = "",
    working: Working = nullcontext,
) -> VerifiedFile:
    """Check a ledger, a statement or a proof, whichever it is.

    Args:
        where: A path, or the URL of a ledger in PostgreSQL.
        key: The ledger's public key in hexadecimal digits, known from elsewhere; None if it is not known.
        keys: The ledger's key file; None for the usual one.
        anchor: The ledger's anchor; None for the usual one.
        registry: The folder of the ledger's registry; empty for the usual one.
        working: Shows progress while something takes time.

    Returns:
        What was checked and what was found.

    Raises:
        BadParameter: There is no such file, it is none of the three, or the key is not of the right form.

    Example:
        >>> import lapwing
        >>> lapwing.verify("patients.ledger").kind
        'ledger'
    """
    wanted = None if key is None else public_key(key)
    match kind_of(where):
        case "ledger":
            opened = partial(Ledger.open, where, keys=keys, anchor=anchor, registry=registry)
            return _ledger(where, wanted, opened, working)
        case "statement":
            with working("checking the statement"):
                report = verify_statement(where, key=wanted)
            return _of(STATEMENT, where, report, wanted)
        case _:
            record = _json(Path(where))
            verified = _of(PROOF, where, verify_proof(record, key=wanted), wanted)
            return verified if verified.findings else replace(verified, entry=_entry(record))


def kind_of(where: str) -> str:
    """Return "ledger", "statement" or "proof", by the content and not by the name."""
    if is_postgres(where):
        return LEDGER
    path = Path(where)
    if not path.is_file():
        raise BadParameter("file", f"there is none at {where}")
    with open(path, "rb") as file:
        beginning = file.read(_BEGINNING)
    if beginning.startswith(_SQLITE) or Path(f"{where}.keys").is_file():
        return LEDGER
    for kind in (STATEMENT, PROOF):
        if f'"{kind}"'.encode() in beginning:
            return kind
    raise BadParameter("file", "is no ledger, statement or proof, or its beginning was changed")


def _json(path: Path) -> Any:
    if path.stat().st_size > LARGEST_PROOF:
        raise BadParameter("file", "is too large for a proof")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None  # None is not the form of a proof


def _entry(proof: dict[str, Any]) -> dict[str, str]:
    """Return the parts of an entry that a receipt has, too. Most of the rest is ids and costs."""
    body = json.loads(proof["body"])
    told = {name: str(body[name]) for name in ("kind", "at", "mechanism", "request") if name in body}
    return {"number": str(proof["entry"]), **told, "hash": digest_of(proof["body"].encode()).hex()}


def _of(
    kind: str, where: str, report: StatementReport, wanted: bytes | None, anchors: tuple[str, ...] = ()
) -> VerifiedFile:
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    return VerifiedFile(**values, kind=kind, where=where, key_was_given=wanted is not None, anchors=anchors)


def _ledger(
    where: str, wanted: bytes | None, opened: Callable[[], Ledger], working: Working
) -> VerifiedFile:
    """Open the ledger, which compares every table with entries and anchors; then check all again.

    `Ledger.verify` also checks every signature, price and answer.
    """
    try:
        with working("opening the ledger"):
            ledger = opened()
    except Tampered as tampered:
        return _of(LEDGER, where, StatementReport("", "", 0, tampered.found), wanted)
    with ledger:
        with working("checking every entry"):
            report = ledger.verify()
        public = ledger.keys.signing.public
        findings = report.findings
        if wanted not in (None, public):
            findings = (*findings, "the ledger has another key than the one that was given")
        verified = StatementReport.of(report.replay, ledger.id, public.hex(), findings)
        return _of(LEDGER, where, verified, wanted, report.anchors)
