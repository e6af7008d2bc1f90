"""Offers to one analyst: what can be asked instead, and what other prices would buy. All of it is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lapwing.core.exact import Number
from lapwing.sql import corrections, next_prices
from lapwing.sql.batches import BatchPlan
from lapwing.sql.releasing import ReleaseSession, SessionPlan


@dataclass(frozen=True, slots=True)
class Offers:
    """The offers to the analyst of a session.

    Args:
        session: The session.

    Example:
        >>> [one.sql for one in dataset.offers.corrections("SELECT * FROM visits", epsilon=1)]
        ['SELECT COUNT(*) FROM visits']
    """

    session: ReleaseSession

    def corrections(self, question: Any, **options: Any) -> tuple[corrections.Correction, ...]:
        """Return what can be asked instead of a question that is refused, or whose price does not fit.

        See `lapwing.sql.corrections.corrections`.
        """
        return corrections.corrections(self.session, question, **options)

    def sharpening(self, plan: SessionPlan, epsilons: Iterable[Number]) -> list[next_prices.Sharpening]:
        """Return the further releases of a question at some prices, of which each narrows an interval.

        See `lapwing.sql.next_prices.sharpening`.
        """
        return next_prices.sharpening(plan, epsilons)

    def price_choices(
        self, plan: SessionPlan, epsilons: Iterable[Number], *, noise: str = "auto"
    ) -> list[next_prices.PriceChoice]:
        """Return what a question would cost, be off by and promise at several prices.

        See `lapwing.sql.next_prices.price_choices`.
        """
        return next_prices.price_choices(plan, epsilons, noise=noise)

    def how_many_more(self, plan: SessionPlan | BatchPlan) -> int:
        """Return how many releases at the price of a plan the accounts would admit now.

        See `lapwing.sql.next_prices.how_many_more`.
        """
        return next_prices.how_many_more(plan)
