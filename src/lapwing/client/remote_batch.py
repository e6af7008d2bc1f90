"""Batches of a server: several questions with one price, released as one charge, all or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lapwing.client.remote_answer import RemoteAnswer, read_cost
from lapwing.prices import Cost


class BatchOwner(Protocol):
    """The connection that releases batches."""

    def release_batch(self, batch: RemoteBatch) -> list[RemoteAnswer]:
        """Release a batch."""


@dataclass(frozen=True, repr=False)
class RemoteBatch:
    """Several planned questions with one price. The server keeps them under `id`.

    Args:
        id: Its name on the server. It is charged once, however often it is released.
        cost: The price of the whole.
        charged: The places of the questions that will be charged: neither stored nor repeated.
        described: The batch as the server sent it.

    Example:
        >>> count, average = "SELECT COUNT(*) FROM visits", "SELECT AVG(stay) FROM visits"
        >>> batch = visits.batch([count, average], epsilon=1)
        >>> print(batch.cost)
        ε 1
        >>> counted, average = batch.release()
    """

    id: str
    cost: Cost
    charged: tuple[int, ...]
    described: Mapping[str, Any] = field(compare=False)
    _owner: BatchOwner = field(compare=False)

    @classmethod
    def read(cls, told: Mapping[str, Any], owner: BatchOwner) -> RemoteBatch:
        """Return the batch of a reply."""
        cost = read_cost(told["cost"])
        assert cost is not None, "every batch has a price"
        return cls(str(told["id"]), cost, tuple(told["charged"]), told, owner)

    def release(self) -> list[RemoteAnswer]:
        """Charge the batch once, and return its answers.

        Returns:
            The answers, in the order of the questions.

        Raises:
            OverBudget: If an account has too little left. Nothing is charged.
            LapwingError: As `RemotePlan.release` does.

        Example:
            >>> answers = batch.release()
        """
        return self._owner.release_batch(self)

    def to_json(self) -> dict[str, Any]:
        """Return the batch as the server sent it. ε and δ are decimal text.

        Returns:
            The price, the blocks that pay it, and each plan.

        Example:
            >>> batch.to_json()["cost"]
            {'epsilon': '1', 'delta': '0'}
        """
        return dict(self.described)

    def __str__(self) -> str:
        plans = self.described["plans"]
        free = len(plans) - len(self.charged)
        some = f" {free} of them cost nothing: they are stored, or stand here twice." if free else ""
        lines = [f"{len(plans)} questions cost {self.cost} together, as one charge.{some}"]
        return "\n".join([*lines, *(str(plan["sql"]) for plan in plans)])

    __repr__ = __str__
