"""What is left of a budget, for people: by block, by person, over time, and in questions like this.

All numbers are the ledger's own. What is left is rounded down, what is promised is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from lapwing.core.beliefs import belief_bounds, beliefs_under
from lapwing.core.explanation import even_odds
from lapwing.errors import BadParameter
from lapwing.ledger import Ledger
from lapwing.ledger.budget_history import BudgetHistory
from lapwing.ledger.request_log import block_name
from lapwing.ledger.spending import how_many_more
from lapwing.server.data.forecast import Forecast, forecast_of
from lapwing.sql import policy_ledger
from lapwing.sql.curator import Curator
from lapwing.sql.policy.policy import CheckedPolicy, account_label
from lapwing.sql.pricing.plan import Plan
from lapwing.sql.releasing import ReleaseSession


@dataclass(frozen=True, slots=True)
class BlockLeft:
    """Budget that is left of one block, or of one person's quota."""

    name: str
    epsilon: Fraction  # the largest ε that one more answer without δ may cost
    of: Fraction  # the ε for life
    delta: Fraction
    is_open: bool = True  # otherwise it was lost, and counts as spent

    @property
    def used(self) -> Fraction:
        """The share that is used, from 0 to 1: of the largest next ε, as the ledger counts it."""
        return max(Fraction(0), 1 - self.epsilon / self.of)


@dataclass(frozen=True, slots=True)
class BudgetView:
    """The budget of a data set, as one person may see it."""

    data: str
    account: str
    epsilon: Fraction  # for life, with all raises
    delta: Fraction
    unit: str
    blocks: tuple[BlockLeft, ...]
    people: tuple[BlockLeft, ...]  # quotas: all for stewards and officers, else the own one
    forecast: Forecast | None
    odds: tuple[str, ...]  # sentences about the whole budget

    @property
    def least(self) -> BlockLeft:
        """The block in which least is left."""
        return min(self.blocks, key=lambda block: block.epsilon)


def budget_view(curator: Curator, *, people: str | None, with_forecast: bool = True) -> BudgetView:
    """Return the budget of a data set.

    Args:
        curator: The curator of the data. Without a ledger, nothing is spent.
        people: The only person whose quota is shown; None shows all.
        with_forecast: Whether to read the history, which takes long for a long one.
    """
    policy = curator.policy
    label = account_label(policy)
    if not curator.has_ledger:
        blocks: tuple[BlockLeft, ...] = (
            BlockLeft("everyone", policy.epsilon, policy.epsilon, Fraction(0)),
        )
        quotas = tuple(
            BlockLeft(name, epsilon, epsilon, Fraction(0)) for name, (epsilon, _) in _quotas(policy, people)
        )
        total, forecast, unit = (policy.epsilon, policy.delta), None, curator.unit.value
    else:
        ledger = curator.ledger
        blocks = _blocks(ledger, label)
        quotas = tuple(_quota(ledger, policy, name) for name, _ in _quotas(policy, people))
        family = [line for line in ledger.accounts() if line.root == ledger.account(label).number]
        terms = [line.terms for line in family] or [ledger.account(label).terms]
        total = (
            sum((each.epsilon for each in terms), Fraction(0)),
            sum((each.delta for each in terms), Fraction(0)),
        )
        forecast = _forecast(ledger, label) if with_forecast and family else None
        unit = curator.unit.value
    return BudgetView(policy.name, label, *total, unit, blocks, quotas, forecast, odds_of(*total))


def odds_of(epsilon: Fraction, delta: Fraction) -> tuple[str, ...]:
    """Return what an (ε, δ) can do to somebody's belief about one unit, as sentences."""
    relation = policy_ledger.RELATION
    bounds = [
        (belief.value, belief_bounds(epsilon, delta, belief=belief, relation=relation))
        for belief in beliefs_under(relation)
    ]
    return tuple(
        f"{text[:1].upper()}{text[1:]}." for text in (even_odds(*bounds_of) for bounds_of in bounds)
    )


def how_many_like(session: ReleaseSession, plan: Plan) -> int:
    """Return how many more answers at a plan's price the budget and the analyst's quota admit now."""
    curator = session.curator
    try:
        spending = session.spending(plan, plan.request)
    except BadParameter:  # the data is not known to the ledger yet: nothing was charged for it
        return min(
            terms.how_many(terms.price(plan.shares.loss))
            for terms in policy_ledger.declared_terms(curator.policy, session.analyst)
        )
    return how_many_more(curator.ledger, spending)


def _quotas(policy: CheckedPolicy, people: str | None) -> list[tuple[str, tuple[Fraction, Fraction]]]:
    own = people if people in policy.quotas else policy_ledger.EVERYBODY_ELSE
    return [(name, terms) for name, terms in policy.quotas.items() if people is None or name == own]


def _quota(ledger: Ledger, policy: CheckedPolicy, name: str) -> BlockLeft:
    [block] = _blocks(ledger, policy_ledger.quota_label(policy, name))
    return BlockLeft(name, block.epsilon, block.of, block.delta, block.is_open)


def _blocks(ledger: Ledger, label: str) -> tuple[BlockLeft, ...]:
    root, blocks = ledger.account(label), []
    for block in ledger.blocks(label):
        terms = ledger.numbered(block.account).terms  # as raised, if it was
        delta = terms.largest_delta(block.taken(terms)) if block.is_open else Fraction(0)
        name = block_name(block.label, root.slices)
        blocks.append(BlockLeft(name, block.left(terms), terms.epsilon, delta, block.is_open))
    return tuple(blocks)


def _forecast(ledger: Ledger, label: str) -> Forecast | None:
    return forecast_of(BudgetHistory.of(ledger, label), datetime.now(UTC))
