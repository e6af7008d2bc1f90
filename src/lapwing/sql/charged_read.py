"""One charged read of private data: check, charge, read, check again, store.

Claim    rows are read only after their charge is on disk. The result is stored before it is returned, and
         is made of the version of the data that was charged. A key is charged once.
Because  the gate charges, then reads, then stores, and refuses a key that was used for another request. The
         request names the version, which is compared with the current one after the rows were read: new
         rows may be about people who were not charged.
Test     tests/query/test_charged_read.py

Questions, contributions to joint statistics and attempts of pipelines all read in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter
from lapwing.ledger import Unit
from lapwing.ledger import gate as gates
from lapwing.ledger.gate import Gate, Release
from lapwing.ledger.request_status import RequestStatus
from lapwing.ledger.spending import Target
from lapwing.sql import policy_ledger
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.curator import Curator
from lapwing.sql.truncated.reader import Reader

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedRead:
    """A read of private data, with its price and the accounts that pay.

    `key` is the idempotency key: the same key again gives the stored result. None is a fresh key. With
    `shared`, it is one key for all principals. `request` says what is asked, of which version: the gate
    compares its digest. `keeps_request` stores the request itself as well. `current_version` returns the
    version of the data as it is now.
    """

    gate: Gate
    key: str | None
    request: bytes
    version: int
    current_version: Callable[[], int]
    targets: tuple[Target, ...]
    loss: Loss
    unit: Unit
    relation: Relation
    mechanism: str
    parameters: Mapping[str, str | int]
    shared: bool = False
    keeps_request: bool = False

    @property
    def spending(self) -> gates.Spending:
        """The charge, as the ledger stores it."""
        return gates.Spending(
            targets=self.targets,
            loss=self.loss,
            unit=self.unit,
            relation=self.relation,
            mechanism=self.mechanism,
            parameters=self.parameters,
            request=self.request,
            keeps_request=self.keeps_request,
        )

    def find(self) -> RequestStatus | None:
        """Return the earlier request under this key, or None. Costs nothing."""
        return None if self.key is None else self.gate.find(self.key, shared=self.shared)

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

        return self.gate.release(gates.ChargedRelease(self.spending, run), key=self.key, shared=self.shared)


def checked_version(
    curator: Curator, analyst: str, check: Callable[[Reader], None], question: BoundQuery | None = None
) -> int:
    """Return the version of the data to charge, or refuse a source or question that cannot be read.

    `check` and `question` are those of `Curator.require_answerable`. Raises `AllHeld` if too many
    questions of the analyst have failed.
    """
    version = curator.version()
    policy_ledger.require_few_failures(curator.ledger, curator.policy, analyst)
    curator.require_answerable(version, check, question)
    return version


def targets_of_question(curator: Curator, analyst: str, question: BoundQuery) -> tuple[Target, ...]:
    """Return the accounts to charge: the data's, in the blocks that the question reaches, and the quota."""
    blocks = curator.blocks_reached(question.source)
    if blocks == []:
        raise BadParameter("WHERE", "reaches no block: there is nothing to ask about")
    return policy_ledger.targets_of(curator.ledger, curator.policy, analyst, blocks or ())
