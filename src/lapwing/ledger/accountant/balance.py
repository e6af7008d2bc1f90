"""The second accountant's balances: the spent and reserved costs of every block, from the entries alone.

Nothing here is taken from `Terms.after` or from the database. Sums are exact and never cut off: each is
kept in two machine words. Charges are added in batches. That finds the same as a check after every charge:
sums only grow in a batch, so a block that passes its filter at the end passed it all along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.ledger.accountant.forms import WIDTH

RowIndex = slice | NDArray[np.intp]
WholeNumbers = NDArray[np.int64]

LIMB = 31
MASK = (1 << LIMB) - 1
TOP = (1 << LIMB) - 1


class GrowingArray:
    """Rows of numbers that grow at the end."""

    def __init__(self, kind: type[np.generic], width: int = 0) -> None:
        self._all: NDArray[Any] = np.zeros((16, width) if width else 16, kind)
        self.count = 0

    def extend(self, values: Any, count: int) -> int:
        """Append `count` rows, with one value for all or one for each. Return the index of the first."""
        end = self.count + count
        if end > len(self._all):
            grown = np.zeros((max(end, len(self._all) * 3 // 2), *self._all.shape[1:]), self._all.dtype)
            grown[: self.count] = self._all[: self.count]
            self._all = grown
        start, self.count = self.count, end
        self._all[start:end] = values
        return start

    @property
    def rows(self) -> NDArray[Any]:
        """All rows, to read and to change."""
        return self._all[: self.count]


class ExactSums:
    """Rows of exact sums. Up to 2^31 numbers, each below 2^63, are added without error."""

    def __init__(self, width: int, count: int = 0) -> None:
        self._low, self._high = GrowingArray(np.uint32, width), GrowingArray(np.int64, width)
        self._low.extend(0, count)
        self._high.extend(0, count)

    def append(self, count: int, start: Sequence[int]) -> None:
        """Append `count` rows that start with these sums."""
        low, high = limbs(start)
        self._low.extend(low, count)
        self._high.extend(high, count)

    def add(self, rows: RowIndex, low: WholeNumbers, high: WholeNumbers) -> None:
        """Add numbers, given as two words each, to rows. No row may be named twice."""
        sums = low + self._low.rows[rows]
        self._high.rows[rows] += high + (sums >> LIMB)
        self._low.rows[rows] = sums & MASK

    def put(self, rows: RowIndex, sums: WholeNumbers) -> None:
        """Set rows to these sums."""
        self._low.rows[rows] = sums & MASK
        self._high.rows[rows] = sums >> LIMB

    def packed(self) -> list[str]:
        """Return all sums as hex texts."""
        return [self._low.rows.astype("<u4").tobytes().hex(), self._high.rows.astype("<i8").tobytes().hex()]

    def unpack(self, packed: list[str], width: int) -> None:
        """Append the rows that `packed` returned."""
        for words, kind, text in zip((self._low, self._high), ("<u4", "<i8"), packed, strict=True):
            rows = np.frombuffer(bytes.fromhex(text), kind).reshape(-1, width)
            words.extend(rows, len(rows))

    def below(self, rows: RowIndex) -> WholeNumbers:
        """Return the sums as one word each. A sum of 2^62 or more becomes a number near 2^62."""
        value: WholeNumbers = (np.minimum(self._high.rows[rows], TOP) << LIMB) | self._low.rows[rows]
        return value

    def exactly(self, row: int) -> tuple[int, ...]:
        """Return the sums of one row."""
        return joined(self._low.rows[row], self._high.rows[row])


def limbs(numbers: Sequence[int]) -> tuple[WholeNumbers, WholeNumbers]:
    """Return whole numbers as two words each: low and high."""
    low = np.array([number & MASK for number in numbers], np.int64)
    return low, np.array([number >> LIMB for number in numbers], np.int64)


def joined(low: NDArray[Any], high: NDArray[Any]) -> tuple[int, ...]:
    """Return whole numbers from their low and high words."""
    return tuple([(top << LIMB) + rest for rest, top in zip(low.tolist(), high.tolist(), strict=True)])


def find_sorted(known: NDArray[Any], wanted: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the index of each wanted number among rising numbers; -1 if it is not there."""
    if not len(known):
        return np.full(len(wanted), -1, np.intp)
    rows = np.minimum(np.searchsorted(known, wanted), len(known) - 1).astype(np.intp)
    rows[known[rows] != wanted] = -1
    return rows


OPEN, LOST, MOVED = 0, 1, 2
AT_ONCE = 1 << 16
FINDINGS_AT_MOST = 20
Costs = tuple[int, ...]
BlockRow = tuple[int, int, int, Costs, Costs]


@dataclass(slots=True)
class Findings:
    """A list of errors in plain words. The first few are kept, the others counted."""

    texts: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Add a finding."""
        self.count += 1
        if len(self.texts) < FINDINGS_AT_MOST:
            self.texts.append(text)

    def all(self) -> tuple[str, ...]:
        """Return the kept findings, and how many more there are."""
        more = self.count - len(self.texts)
        return (*self.texts, f"and {more} more") if more else tuple(self.texts)


def holds(sums: Sequence[int], caps: Sequence[int]) -> bool:
    """Return whether sums pass the privacy filter of these caps.

    The failure probability must be within its cap, and either the pair (ε, δ) or some Rényi order.
    """
    fits = [total <= cap for total, cap in zip(sums, caps, strict=True)]
    return fits[0] and ((fits[1] and fits[2]) or any(fits[3:]))


# The columns of a block in a signed state, and the form of their bytes.
# The names and kinds of the columns are part of the signed state.
_PACKED = {"numbers": "<i8", "owners": "<i4", "states": "u1", "ids": "u1"}


class Balances:
    """All blocks, in the order of their rising numbers."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.numbers, self.owners = GrowingArray(np.int64), GrowingArray(np.int32)
        self.states, self.ids = GrowingArray(np.uint8), GrowingArray(np.uint8, 16)
        self._spent = ExactSums(WIDTH)
        self._held: ExactSums | None = None  # most ledgers never reserve anything
        self._caps, self._accounts = GrowingArray(np.int64, WIDTH), GrowingArray(np.int64)
        self.forget_prices()
        # Charges of a batch: a block number, a price and an entry each.
        self.pending_blocks: list[int] = []
        self.pending_prices: list[int] = []
        self.pending_entries: list[int] = []
        self._looked_at = 0

    # Accounts, prices, blocks

    def add_account(self, number: int, caps: Sequence[int]) -> int:
        """Add an account and return its index."""
        self._caps.extend(np.array([caps], np.int64), 1)
        return self._accounts.extend(number, 1)

    def add_price(self, account: int, costs: Sequence[int]) -> int:
        """Add a price and return its index, for `pending_prices`."""
        low, high = limbs(costs)
        self._low.extend(low, 1)
        self._high.extend(high, 1)
        return self._payers.extend(account, 1)

    def forget_prices(self) -> None:
        """Begin a new list of prices, between batches: costs on an account, each kept once."""
        self._low, self._high = GrowingArray(np.int64, WIDTH), GrowingArray(np.int64, WIDTH)
        self._payers = GrowingArray(np.int32)

    @property
    def prices(self) -> int:
        """The number of stored prices."""
        return self._payers.count

    def is_fresh(self, number: int) -> bool:
        """Return whether the number is above all numbers used before."""
        return not self.numbers.count or number > self.numbers.rows[-1]

    def open(
        self, numbers: RowIndex | Sequence[int] | NDArray[np.int64], account: int, ids: NDArray[np.uint8]
    ) -> slice:
        """Open blocks with nothing spent, under rising fresh numbers, and return their rows."""
        count = len(ids)
        start = self.numbers.extend(numbers, count)
        self.owners.extend(account, count)
        self.states.extend(OPEN, count)
        self.ids.extend(ids, count)
        nothing = (0,) * WIDTH
        self._spent.append(count, nothing)
        if self._held is not None:
            self._held.append(count, nothing)
        return slice(start, start + count)

    def start_as(self, rows: slice, other: int) -> None:
        """Let new blocks begin with the spent costs of another block."""
        low, high = limbs(self._spent.exactly(other))
        if low.any() or high.any():
            self._spent.add(rows, low, high)

    def find(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the rows of block numbers; -1 for a block that was never opened."""
        known = self.numbers.rows
        if len(known) and known[-1] - known[0] + 1 == len(known):  # no gaps
            rows: NDArray[np.intp] = (numbers - known[0]).astype(np.intp)
            rows[(rows < 0) | (rows >= len(known))] = -1
            return rows
        return find_sorted(known, numbers)

    def rows_between(self, first: int, last: int) -> slice:
        """Return the rows of all blocks with numbers in a range."""
        known = self.numbers.rows
        return slice(int(np.searchsorted(known, first)), int(np.searchsorted(known, last, side="right")))

    def row(self, number: int) -> int:
        """Return the row of one block, or -1."""
        return int(self.find(np.array([number], np.int64))[0])

    def mark(self, rows: RowIndex, state: int) -> None:
        """Set the state of blocks."""
        self.states.rows[rows] = state

    def lose_everything(self) -> None:
        """Close every open block with every filter exceeded, as after a loss that nobody can measure."""
        for rows in self._pieces(slice(0, self.numbers.count)):
            where = rows.start + np.flatnonzero(self.states.rows[rows] == OPEN)
            self._spent.put(where, self._caps.rows[self.owners.rows[where]] + 1)
            self.states.rows[where] = LOST

    # Debits

    def are_pending(self, numbers: set[int]) -> bool:
        """Return whether one of these blocks has a charge that was not added yet.

        Each charge is looked at once.
        """
        new, self._looked_at = self.pending_blocks[self._looked_at :], len(self.pending_blocks)
        return not numbers.isdisjoint(new)

    def flush(self) -> None:
        """Add the charges of the batch, and check every block that it touched."""
        self._looked_at = 0
        if not self.pending_blocks:
            return
        blocks = np.array(self.pending_blocks, np.int64)
        prices = np.array(self.pending_prices, np.intp)
        entries = np.array(self.pending_entries, np.int64)
        for pending in (self.pending_blocks, self.pending_prices, self.pending_entries):
            pending.clear()
        rows = self.find(blocks)
        good = rows >= 0
        if good.any():  # without any known block there is nothing to compare
            good &= self.owners.rows[rows] == self._payers.rows[prices]
            good &= self.states.rows[rows] == OPEN
        if not good.all():
            for k in np.flatnonzero(~good):
                account = int(self._accounts.rows[self._payers.rows[prices[k]]])
                self._not_open(int(entries[k]), int(blocks[k]), account)
            rows, prices, entries = rows[good], prices[good], entries[good]
            if not len(rows):
                return
        order = np.argsort(rows, kind="stable")
        rows, prices, entries = rows[order], prices[order], entries[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        touched = rows[starts]
        low = np.add.reduceat(self._low.rows[prices], starts, axis=0)
        high = np.add.reduceat(self._high.rows[prices], starts, axis=0)
        self._spent.add(touched, low, high)
        for row in touched[~self._admitted(touched)]:
            mine = rows == row
            self._report_first_beyond(int(row), prices[mine], entries[mine])

    def _report_first_beyond(self, row: int, prices: NDArray[np.intp], entries: NDArray[np.int64]) -> None:
        """Report the first charge of a batch that should have been refused, by subtracting from the end."""
        caps = self.caps_of(row)
        total, first = self._taken(row), int(entries[0])
        for price, entry in zip(prices[::-1], entries[::-1], strict=True):
            if holds(total, caps):
                break
            first = int(entry)
            costs = joined(self._low.rows[price], self._high.rows[price])
            total = tuple([sum_ - cost for sum_, cost in zip(total, costs, strict=True)])
        self._beyond(first, row)

    def debit(self, entry: int, first: int, last: int, account: int, costs: Costs, *, hold: bool) -> slice:
        """Charge or reserve costs on many blocks at once, after `flush`, and return their rows."""
        rows = self.rows_between(first, last)
        if rows.stop - rows.start != last - first + 1:
            self._findings.add(f"entry {entry}: some of the blocks {first} to {last} were never opened")
        wrong = (self.owners.rows[rows] != account) | (self.states.rows[rows] != OPEN)
        if wrong.any():
            number = int(self.numbers.rows[rows][np.argmax(wrong)])
            self._not_open(entry, number, int(self._accounts.rows[account]))
        (self.change_held if hold else self.change_spent)([rows], costs)
        for piece in self._pieces(rows):
            admitted = self._admitted(piece)
            if not admitted.all():
                self._beyond(entry, piece.start + int(np.argmin(admitted)))
                break
        return rows

    def change_spent(self, many: Sequence[slice], costs: Sequence[int]) -> None:
        """Add to the spent costs of blocks."""
        self._change(self._spent, many, costs)

    def change_held(self, many: Sequence[slice], costs: Sequence[int]) -> None:
        """Add to the reserved costs of blocks. Settled costs are negative."""
        if self._held is None:
            self._held = ExactSums(WIDTH, self.numbers.count)
        self._change(self._held, many, costs)

    def _change(self, sums: ExactSums, many: Sequence[slice], costs: Sequence[int]) -> None:
        low, high = limbs(costs)
        for rows in many:
            for piece in self._pieces(rows):
                sums.add(piece, low, high)

    # Keeping

    def packed(self) -> dict[str, Any]:
        """Return all blocks with their sums, after `flush`, as hex texts."""
        columns = {
            name: getattr(self, name).rows.astype(kind).tobytes().hex() for name, kind in _PACKED.items()
        }
        return columns | {"spent": self._spent.packed(), "held": self._held and self._held.packed()}

    def unpack(self, packed: dict[str, Any]) -> None:
        """Restore the blocks that `packed` returned, into empty balances."""
        count = len(bytes.fromhex(packed["numbers"])) // np.dtype(_PACKED["numbers"]).itemsize
        for name, kind in _PACKED.items():
            column: GrowingArray = getattr(self, name)
            rows = np.frombuffer(bytes.fromhex(packed[name]), kind).reshape(-1, *column.rows.shape[1:])
            column.extend(rows, count)  # fails if a column has another length
        self._spent.unpack(packed["spent"], WIDTH)
        if packed["held"]:
            self._held = ExactSums(WIDTH)
            self._held.unpack(packed["held"], WIDTH)

    # Looking

    def caps_of(self, row: int) -> Costs:
        """Return the caps of a block's account."""
        return tuple(self._caps.rows[self.owners.rows[row]].tolist())

    def spent(self, row: int) -> Costs:
        """Return the spent costs of a block, exactly."""
        return self._spent.exactly(row)

    def held(self, row: int) -> Costs:
        """Return the reserved costs of a block, exactly."""
        return (0,) * WIDTH if self._held is None else self._held.exactly(row)

    def taken(self, rows: RowIndex) -> WholeNumbers:
        """Return spent and reserved costs of blocks together, one machine word each."""
        total = self._spent.below(rows)
        return total if self._held is None else total + self._held.below(rows)  # both are below 2^62

    def __iter__(self) -> Iterator[BlockRow]:
        """Yield number, account, state, spent (at most cap + 1) and reserved of every block."""
        for rows in self._pieces(slice(0, self.numbers.count)):
            owners = self.owners.rows[rows]
            spent = np.minimum(self._spent.below(rows), self._caps.rows[owners] + 1)
            held = np.zeros_like(spent) if self._held is None else self._held.below(rows)
            yield from zip(
                self.numbers.rows[rows].tolist(),
                self._accounts.rows[owners].tolist(),
                self.states.rows[rows].tolist(),
                map(tuple, spent.tolist()),
                map(tuple, held.tolist()),
                strict=True,
            )

    def names(self) -> Iterator[str]:
        """Yield the id of every block, in the same order; zeros for the blocks of everyone."""
        for rows in self._pieces(slice(0, self.numbers.count)):
            text = self.ids.rows[rows].tobytes().hex()
            yield from (text[k : k + 32] for k in range(0, len(text), 32))

    def _taken(self, row: int) -> Costs:
        return tuple([spent + held for spent, held in zip(self.spent(row), self.held(row), strict=True)])

    def _admitted(self, rows: RowIndex) -> NDArray[np.bool_]:
        """Return whether each block passes the filter with its spent and reserved costs."""
        fits = self.taken(rows) <= self._caps.rows[self.owners.rows[rows]]
        admits: NDArray[np.bool_] = (fits[:, 1] & fits[:, 2]) | fits[:, 3:].any(axis=1)
        admits &= fits[:, 0]
        return admits

    @staticmethod
    def _pieces(rows: slice) -> Iterator[slice]:
        """Yield parts of a long slice: results about a million blocks must not fill the memory."""
        for start in range(rows.start, rows.stop, AT_ONCE):
            yield slice(start, min(start + AT_ONCE, rows.stop))

    def _not_open(self, entry: int, number: int, account: int) -> None:
        self._findings.add(f"entry {entry}: block {number} is not an open block of account {account}")

    def _beyond(self, entry: int, row: int) -> None:
        number, account = self.numbers.rows[row], self._accounts.rows[self.owners.rows[row]]
        self._findings.add(f"entry {entry}: block {number} of account {account} was charged beyond its cap")
