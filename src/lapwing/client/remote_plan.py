"""Plans of a server: what a question would compute, at which price and error. They are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lapwing.client.remote_answer import RemoteAnswer, float_above, read_cost
from lapwing.html_views import fragment, grid, html_view, note, notes, strong
from lapwing.prices import Cost


class PlanOwner(Protocol):
    """The connection that releases plans."""

    def release(self, plan: RemotePlan, *, fresh: bool = False) -> RemoteAnswer:
        """Release a plan."""

    def dry_run_of(self, plan: RemotePlan) -> RemoteAnswer:
        """Answer a plan from generated rows."""


@dataclass(frozen=True, slots=True)
class RemoteStep:
    """One mechanism of a plan, in words. `share` is its share of ε or ρ."""

    what: str
    mechanism: str
    share: str
    error: str


@dataclass(frozen=True, repr=False)
class RemotePlan:
    """A question with its mechanisms and price. The server keeps it for its owner under `id`.

    Print a plan to see its cost, the error of each column, and how many rows of a person are used.

    Args:
        id: Its name on the server. It is charged once, however often it is released.
        sql: The question.
        cost: The price that the release will be charged.
        is_stored: Whether it was released at this price before: releasing it costs nothing.
        confidence: The probability with which each interval holds.
        spread: The error of each column in words.
        steps: Every mechanism with its share of the price and its expected error.
        bounds: Sentences on how many rows of a person are used, and on what is known about the others.
        described: The plan as the server sent it.
        asked: The options that it was made with.

    Example:
        >>> plan = visits.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> print(plan)
        >>> plan.cost.epsilon
        0.5
    """

    id: str
    sql: str
    cost: Cost
    is_stored: bool
    confidence: float
    spread: Mapping[str, str]
    steps: tuple[RemoteStep, ...]
    bounds: tuple[str, ...]
    described: Mapping[str, Any]
    asked: Mapping[str, Any] = field(compare=False)
    _owner: PlanOwner = field(compare=False)

    @classmethod
    def read(cls, told: Mapping[str, Any], asked: Mapping[str, Any], owner: PlanOwner) -> RemotePlan:
        """Return the plan of a reply."""
        cost = read_cost(told["cost"])
        assert cost is not None, "every plan has a price"
        return cls(
            id=str(told["id"]),
            sql=str(told["sql"]),
            cost=cost,
            is_stored=bool(told["is_stored"]),
            confidence=float(told["confidence"]),
            spread={name: column["words"] for name, column in told["columns"].items() if column["words"]},
            steps=tuple(RemoteStep(**step) for step in told["steps"]),
            bounds=tuple(told["bounds"]),
            described=told,
            asked=asked,
            _owner=owner,
        )

    @property
    def headline(self) -> str:
        """The price in a sentence."""
        return str(self.described["headline"])

    @property
    def reason(self) -> str:
        """Why this noise was chosen, or an empty text."""
        return str(self.described.get("reason") or "")

    @property
    def blocks(self) -> tuple[str, ...] | None:
        """The blocks that will be charged, or None if the policy has no blocks."""
        blocks = self.described.get("blocks")
        return None if blocks is None else tuple(blocks)

    def release(self, *, fresh: bool = False) -> RemoteAnswer:
        """Charge the cost, compute, add noise, store and return the answer.

        A release that is repeated, here or after a lost connection, is charged once.

        Args:
            fresh: Release a new answer even if the same question has a stored one.

        Returns:
            The answer. The same question at the same price gives the stored answer, at no cost.

        Raises:
            OverBudget: If an account has too little left. Nothing is charged.
            TokenSpent: If the token may not spend so much. Nothing is charged.
            Held: If the question was charged and failed. It waits until the curator clears the hold.
            Unavailable: If the server cannot be reached. Release the same plan again.

        Example:
            >>> answer = plan.release()
        """
        return self._owner.release(self, fresh=fresh)

    def dry_run(self) -> RemoteAnswer:
        """Return an answer from generated rows of the same schema. It costs nothing and means nothing.

        Returns:
            An answer with `is_fake` set, in the form that the release will have.

        Example:
            >>> print(plan.dry_run())
        """
        return self._owner.dry_run_of(self)

    def to_json(self) -> dict[str, Any]:
        """Return the whole plan as plain values for JSON. The cost is rounded up.

        Returns:
            The cost, the columns with their errors, the mechanisms and the bounds.

        Example:
            >>> plan.to_json()["cost"]
            {'epsilon': 0.5, 'delta': 0.0}
        """
        cost = {"epsilon": float_above(self.cost.epsilon), "delta": float_above(self.cost.delta)}
        return {**self.described, "cost": cost}

    def notes(self) -> list[str]:
        """Return the sentences below the mechanisms.

        Returns:
            One text for each line.
        """
        blocks = [] if self.blocks is None else [f"Charged blocks: {', '.join(self.blocks)}"]
        return [*([self.reason] if self.reason else []), *self.bounds, *blocks]

    def __str__(self) -> str:
        lines = [self.headline, *(f"{name}: {words}" for name, words in self.spread.items())]
        lines += [f"- {step.what}: {step.mechanism}, {step.share}; {step.error}" for step in self.steps]
        return "\n".join([*lines, *self.notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_view(self)


@html_view.register
def remote_plan_html(plan: RemotePlan) -> str:
    """Return the price of a plan, the errors, the mechanisms and the contribution bounds."""
    steps = [[step.what, step.mechanism, step.share, step.error] for step in plan.steps]
    heading = f"error, with {plan.confidence:.4g} confidence each"
    return fragment(
        strong(plan.headline),
        note(plan.sql),
        *([grid(["column", heading], plan.spread.items())] if plan.spread else []),
        grid(["what", "mechanism", "share", "detail"], steps, wrapped=0),
        notes(plan.notes()),
    )
