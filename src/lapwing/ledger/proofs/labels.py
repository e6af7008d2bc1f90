"""Names in statements: each is what its id was made from, and nobody got two budgets under one name."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np

from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.forms import Malformed, is_hex
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.entry import SALT_BYTES, commitment


class Labels:
    """Checks each name as it comes, and all together at the end, in 32 bytes a name."""

    def __init__(self, replay: Replay, findings: Findings) -> None:
        self._replay, self._findings = replay, findings
        self._ids, self._labels = bytearray(), bytearray()
        self.count = 0

    def add(self, name: Any, salt: Any, label: Any) -> None:
        """One name."""
        if not is_hex(name, 32) or not is_hex(salt, 2 * SALT_BYTES) or not isinstance(label, str):
            raise Malformed("is not a name")
        try:
            is_its = commitment(label, bytes.fromhex(salt)) == name
        except UnicodeEncodeError:
            raise Malformed("is not a name") from None
        if not is_its:
            self._findings.add(f"the id {name} was not made from the label beside it")
        self.count += 1
        self._ids += bytes.fromhex(name)
        self._labels += sha256(label.encode()).digest()[:16]

    def finish(self) -> None:
        """All ids stand in entries and have one name; no two blocks of a family have the same."""
        if not self.count:
            return
        ids, labels = _texts(self._ids), _texts(self._labels)
        books = self._replay.balances
        known = np.ascontiguousarray(books.ids.rows).view("S16").reshape(-1)
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known, ids, sorter=order), max(len(known) - 1, 0))
        is_block = known[order[places]] == ids if len(known) else np.zeros(len(ids), bool)
        names = self._replay.registers.names
        for k in np.flatnonzero(~is_block):
            name = self._ids[16 * k : 16 * k + 16].hex()
            if name.encode() not in names:
                self._findings.add(f"the id {name} stands in no entry")
        if len(np.unique(ids)) < len(ids):
            self._findings.add("some id is named twice")
        roots = np.zeros(len(self._replay.accounts) + 1, np.int64)
        for account in self._replay.accounts.values():
            if account.place < len(roots):
                roots[account.place] = account.root
        rows = order[places[is_block]]
        owners = books.owners.rows[rows]
        pairs = np.empty(len(rows), [("root", np.int64), ("label", "S16")])
        pairs["root"], pairs["label"] = roots[np.minimum(owners, len(roots) - 1)], labels[is_block]
        if len(np.unique(pairs)) < len(pairs):
            self._findings.add("two blocks of one account have the same name")


def _texts(digests: bytearray) -> np.ndarray[tuple[int], np.dtype[np.bytes_]]:
    """Digests of 16 bytes. NumPy leaves out zeros at the end; those of equal length differ all the same."""
    return np.frombuffer(bytes(digests), "S16")
