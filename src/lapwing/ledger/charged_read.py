"""One charged read of private data: check, charge, read, check again, store.

Claim    rows are read only after their charge is on disk. The result is stored before it is returned, and
         is made of the version of the data that was charged. A key is charged once.
Because  the gate charges, then reads, then stores, and refuses a key that was used for another request. The
         request names the version, which is compared with the current one after the rows were read: new
         rows may be about people who were not charged.
Test     tests/ledger/test_charged_read.py

SQL questions, contributions to joint statistics and attempts of pipelines all read in this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lapwing.errors import BadParameter
from lapwing.ledger.gate import ChargedRelease, Gate, Release
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.ledger.spending import Spending

T = TypeVar("T")


def _only_version() -> int:
    """Return the version of data in memory, which does not change while it is read."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedRead:
    """A read of private data, with its price and the accounts that pay.

    Args:
        gate: The gate of the ledger, for one principal.
        spending: The price, the accounts, and the request, which names the version of the data.
        key: The idempotency key: the same key again gives the stored result. None draws a fresh key.
        shared: Whether it is one key for all principals.
        version: The version of the data that is charged.
        current_version: Returns the version of the data as it is now.

    Example:
        >>> from lapwing.ledger import ChargedRead, Gate
        >>> read = ChargedRead(gate=Gate(ledger, principal="ann"), spending=price, key="monday")
        >>> read.release(lambda: 42, lambda found: str(found).encode()).answer
        b'42'
        >>> read.is_stored
        True
    """

    gate: Gate
    spending: Spending
    key: str | None = None
    shared: bool = False
    version: int = 0
    current_version: Callable[[], int] = _only_version

    def find(self) -> RequestStatus | None:
        """Return the earlier request under this key, or None. Costs nothing."""
        return None if self.key is None else self.gate.find(self.key, shared=self.shared)

    @property
    def is_stored(self) -> bool:
        """Whether a result is stored under this key."""
        found = self.find()
        return found is not None and found.state is RequestState.ANSWERED

    def release(self, read: Callable[[], T], finish: Callable[[T], bytes]) -> Release:
        """Charge, then read, then finish and store; or return what is stored under the key.

        Args:
            read: Reads the private data. It is called once, after the charge.
            finish: Makes the result that may leave, with its noise. Nothing else may leave.

        Returns:
            The stored bytes, the receipt, and whether they were stored before.

        Raises:
            OverBudget: If an account has too little left. Nothing was charged or read.
            KeyReused: If the key was used for another request.
            InProgress: If the same request is under way elsewhere.
            WorkEnded: If reading failed, or the data changed meanwhile. The charge stays.
        """

        def run() -> bytes:
            found = read()
            if self.current_version() != self.version:
                raise BadParameter("source", "changed while it was read")
            return finish(found)

        return self.gate.release(ChargedRelease(self.spending, run), key=self.key, shared=self.shared)
