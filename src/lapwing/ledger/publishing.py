"""A ledger as the source of statements and proofs: one moment of it, up to its last seal.

What came after the seal is left out, names included: a statement names only what stands in its entries.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
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
# By whom something was charged stands in most entries; only few of the others name anything.
_BY = re.compile(rb'\{"kind":"(?:charge|reserve)","at":"[^"]*","by":"([0-9a-f]{32})"')
_NAMING = re.compile(rb'\{"kind":"(?:account|blocks|data)"')


def _nobody_watches(_: int, __: int) -> None:
    """Progress bars watch: they are told how many entries were read, and of how many."""


def export_statement(
    ledger: Ledger, path: str | Path, *, names: bool = False, watch: Watch = _nobody_watches
) -> int:
    """Write a statement to a new file; the number of its entries. With `names`, ids are explained in it."""
    ledger.store.seal()

    target = Path(path)
    if os.path.lexists(target):
        raise BadParameter("statement", f"{target} exists: nothing is written over")

    def work(tx: Transaction) -> int:
        source = _Moment(ledger, tx, watch)
        try:
            write_statement(target, source, names=names)
        except FileExistsError:
            raise BadParameter("statement", f"{target} exists: nothing is written over") from None
        except BaseException as error:
            with suppress(OSError):
                target.unlink()  # half a statement says nothing
            if isinstance(error, OSError):
                raise BadParameter("statement", f"{target} cannot be written ({error.strerror})") from None
            raise
        return source.size

    return ledger.store.read(work)


def prove_entry(ledger: Ledger, position: int) -> dict[str, Any]:
    """A proof that the entry of this number is in the ledger."""
    ledger.store.seal()
    return ledger.store.read(lambda tx: prove_from(_Moment(ledger, tx, _nobody_watches), position))


class _Moment:
    """A sealed moment of a ledger, within a transaction."""

    def __init__(self, ledger: Ledger, tx: Transaction, watch: Watch) -> None:
        seal = last_seal(tx)
        if seal is None:
            raise Tampered(["the ledger has no seal"])
        self.size, self._last = seal.size, seal.last
        self._ledger, self._tx, self._watch = ledger, tx, watch
        # The newest of each that stands in an entry up to the seal.
        self._principals: set[str] = set()
        self._account = self._block = self._data = 0

    @property
    def ledger_id(self) -> bytes:
        return bytes.fromhex(self._ledger.id)

    @property
    def key(self) -> bytes:
        return self._ledger.keys.signing.public

    @property
    def curator_key(self) -> bytes:
        return self._ledger.curator

    def entries(self) -> Iterator[RawEntry]:
        for count, (seq, body, digest) in enumerate(self._ledger.store.history(self._tx)):
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
        """After `entries` was read to its end: principals who never charged anything stand in none."""
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

    def sign_statement(self, message: bytes) -> bytes:
        return self._ledger.keys.signing.sign(message)


def _names(rows: Iterator[Any]) -> Iterator[CommittedName]:
    for label, salt, name in rows:
        yield CommittedName(label, bytes(salt), name)
