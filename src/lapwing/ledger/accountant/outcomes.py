"""What became of charges, and under which keys they were asked. Millions of them fit in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.sums import Growing

NOTHING, ANSWERED, FAILED = 0, 1, 2


class Outcomes:
    """Every charge and reservation, with at most one outcome each.

    `pending_charges`, `pending_keys` (hex, or None) and `pending_outcomes` (entry, charge, outcome) are
    filled from outside and worked off by `flush`. Of charges up to number `begin_after` nothing is known
    but the outcomes that came later, which are kept in `of_earlier`.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._charges, self._outcomes = Growing(np.int64), Growing(np.uint8)
        self._entries = Growing(np.int64)  # in which the outcome stands
        self._keys, self._owners = Growing(np.uint64, 4), Growing(np.int64)
        self.pending_charges: list[int] = []
        self.pending_keys: list[bytes | None] = []
        self.pending_outcomes: list[tuple[int, int, int]] = []
        self.begin_after = 0
        self.of_earlier: list[tuple[int, int, int]] = []

    @property
    def count(self) -> int:
        """How many charges and reservations there are, after `flush`."""
        return self._charges.count

    def flush(self) -> None:
        """Work off what is pending."""
        charges, keys = self.pending_charges, self.pending_keys
        if charges:
            numbers = np.array(charges, np.int64)
            self._charges.extend(numbers, len(numbers))
            self._outcomes.extend(NOTHING, len(numbers))
            self._entries.extend(0, len(numbers))
            if None in keys:
                numbers = numbers[[key is not None for key in keys]]
            hashed = bytes.fromhex(b"".join([key for key in keys if key is not None]).decode())
            self._keys.extend(np.frombuffer(hashed, np.uint64).reshape(-1, 4), len(numbers))
            self._owners.extend(numbers, len(numbers))
            charges.clear()
            keys.clear()
        if self.begin_after:
            later = [given for given in self.pending_outcomes if given[1] > self.begin_after]
            self.of_earlier += [given for given in self.pending_outcomes if given[1] <= self.begin_after]
            self.pending_outcomes[:] = later  # in place: others append to it
        if self.pending_outcomes:
            self._flush_outcomes()
            self.pending_outcomes.clear()

    def _flush_outcomes(self) -> None:
        given = np.array(self.pending_outcomes, np.int64)
        rows = self._find(given[:, 1])
        good = (rows >= 0) & (given[:, 1] < given[:, 0])
        ordered = np.sort(rows)  # np.unique imports masked arrays: longer than all the rest
        is_once = bool((ordered[1:] != ordered[:-1]).all())
        if good.all() and is_once and not self._outcomes.rows[rows].any():
            self._outcomes.rows[rows] = given[:, 2]
            self._entries.rows[rows] = given[:, 0]
            return
        for (entry, charge, outcome), row, is_known in zip(self.pending_outcomes, rows, good, strict=True):
            if not is_known:
                self._findings.add(f"entry {entry}: is about charge {charge}, which is none before it")
            elif self._outcomes.rows[row]:
                self._findings.add(f"entry {entry}: charge {charge} had an outcome before")
            else:
                self._outcomes.rows[row] = outcome
                self._entries.rows[row] = entry

    def _find(self, charges: NDArray[np.int64]) -> NDArray[np.intp]:
        known = self._charges.rows
        if not len(known):
            return np.full(len(charges), -1, np.intp)
        rows = np.minimum(np.searchsorted(known, charges), len(known) - 1).astype(np.intp)
        rows[known[rows] != charges] = -1
        return rows

    def of(self, charge: int) -> int:
        """The outcome of a charge, after `flush`."""
        row = int(self._find(np.array([charge], np.int64))[0])
        return int(self._outcomes.rows[row]) if row >= 0 else NOTHING

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """Each charge that has a key, and the key, after `flush`."""
        for owner, key in zip(self._owners.rows.tolist(), self._keys.rows, strict=True):
            yield owner, key.tobytes()

    def given(self) -> Iterator[tuple[int, int, bool]]:
        """Each charge that has an outcome, the entry of it, and whether it failed, after `flush`."""
        rows = np.flatnonzero(self._outcomes.rows)
        failed = self._outcomes.rows[rows] == FAILED
        columns = (self._charges.rows[rows], self._entries.rows[rows], failed)
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def used_twice(self) -> list[tuple[int, int]]:
        """(first entry, other entry) of each key that stands in several, after `flush`."""
        keys = self._keys.rows
        ordered = np.sort(keys[:, 0])
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(twice):
            return []
        seen: dict[bytes, int] = {}
        found: list[tuple[int, int]] = []
        for row in np.flatnonzero(np.isin(keys[:, 0], twice)):
            entry = int(self._owners.rows[row])
            first = seen.setdefault(keys[row].tobytes(), entry)
            if first != entry:
                found.append((first, entry))
        return found
