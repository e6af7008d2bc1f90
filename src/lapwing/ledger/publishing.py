"""Publishing statements and proofs from an open ledger: one snapshot of it, up to its last seal.

Entries after the seal are left out, and so are their names: a statement names only what is in its entries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accounts import EVERYONE
from lapwing.ledger.anchors import Head
from lapwing.ledger.entry import CommittedName, RawEntry
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.statement import make_proof as prove_from
from lapwing.ledger.statement import write_statement
from lapwing.ledger.store import SEAL_COLUMNS, Transaction, last_seal, seal_of

Watch = Callable[[int, int], None]
TOLD_EVERY = 1 << 12
# Most entries name a principal. Of the other kinds, only a few name anything.
_BY = re.compile(rb'\{"kind":"(?:charge|reserve)","at":"[^"]*","by":"([0-9a-f]{32})"')
_NAMING = re.compile(rb'\{"kind":"(?:account|blocks|data)"')


def _nobody_watches(_: int, __: int) -> None:
    """Do nothing. Progress bars are told how many entries were read, and of how many."""


def export_statement(
    ledger: Ledger, path: str | Path, *, names: bool = False, watch: Watch = _nobody_watches
) -> int:
    """Write a statement to a new file. Return the number of its entries. `names` adds the labels of ids."""
    ledger.store.seal()
    target = Path(path)

    def work(tx: Transaction) -> int:
        source = _Snapshot(ledger, tx, watch)
        try:
            write_statement(target, source, names=names)
        except FileExistsError:
            raise BadParameter("statement", f"{target} exists: nothing is written over") from None
        except OSError as error:
            raise BadParameter("statement", f"{target} cannot be written ({error.strerror})") from None
        return source.size

    return ledger.store.read(work)


def prove_entry(ledger: Ledger, position: int) -> dict[str, Any]:
    """Return a proof that the entry of this number is in the ledger."""
    ledger.store.seal()
    return ledger.store.read(lambda tx: prove_from(_Snapshot(ledger, tx, _nobody_watches), position))


def answer_position(ledger: Ledger, charge: int) -> int:
    """Return the number of the entry that records the answer to a charge."""
    rows = ledger.store.rows("SELECT entry FROM answers WHERE charge = ? AND bytes IS NOT NULL", charge)
    if not rows:
        raise BadParameter("charge", f"entry {charge} is no charge with a stored answer")
    return int(rows[0][0])


def principal_names(ledger: Ledger, ids: Container[str]) -> list[CommittedName]:
    """Return the names of principals, with which their holder can prove what these ids stand for."""
    rows = ledger.store.rows("SELECT label, salt, name FROM principals ORDER BY label")
    return [CommittedName(label, bytes(salt), name) for label, salt, name in rows if name in ids]


class _Snapshot:
    """A sealed snapshot of a ledger, within a transaction."""

    def __init__(self, ledger: Ledger, tx: Transaction, watch: Watch) -> None:
        seal = last_seal(tx)
        if seal is None:
            raise Tampered(["the ledger has no seal"])
        self.size, self._last = seal.size, seal.last
        self._tx, self._watch = tx, watch
        self.ledger_id, self.curator_key = bytes.fromhex(ledger.id), ledger.curator
        self.signing = ledger.keys.signing
        # The newest of each that stands in an entry up to the seal.
        self._principals: set[str] = set()
        self._account = self._block = self._data = 0

    def entries(self) -> Iterator[RawEntry]:
        for count, (seq, body, digest) in enumerate(self._tx.history()):
            if seq > self._last:
                return
            if count % TOLD_EVERY == 0:
                self._watch(count, self.size)
            text = bytes(body)
            by = _BY.match(text)
            if by:
                self._principals.add(by[1].decode())
            elif _NAMING.match(text):
                self._learn(json.loads(text))
            yield seq, text, bytes(digest)

    def _learn(self, record: dict[str, Any]) -> None:
        match record["kind"]:
            case "account":
                self._account = record["account"]
                moved = [new for _, new in record.get("moved", ())]
                self._block = max([self._block, record["everyone"], *moved])
            case "blocks":
                self._block = record["first"] + len(record["names"]) - 1
            case "data":
                self._data = record["data"]

    def heads(self) -> Iterator[Head]:
        for row in self._tx.stream(f"SELECT {SEAL_COLUMNS} FROM seals ORDER BY number"):  # noqa: S608
            yield seal_of(row).head

    def names(self) -> Iterator[CommittedName]:
        """Yield names after `entries` was read to its end. Principals without a charge are in no entry."""
        principals = self._tx.stream("SELECT label, salt, name FROM principals ORDER BY name")
        yield from _names(row for row in principals if row[2] in self._principals)
        for sql in (
            f"SELECT label, salt, name FROM accounts WHERE raises IS NULL AND account <= {self._account}",  # noqa: S608
            # Blocks keep their name when they move to a raised account.
            "SELECT DISTINCT label, salt, name FROM blocks "  # noqa: S608
            f"WHERE label <> '{EVERYONE}' AND block <= {self._block}",
            f"SELECT label, salt, name FROM datasets WHERE data <= {self._data}",  # noqa: S608
            f"SELECT origin, origin_salt, origin_name FROM datasets WHERE data <= {self._data}",  # noqa: S608
        ):
            yield from _names(self._tx.stream(f"{sql} ORDER BY 3"))


def _names(rows: Iterator[Any]) -> Iterator[CommittedName]:
    for label, salt, name in rows:
        yield CommittedName(label, bytes(salt), name)
