"""What other prices would buy: for a plan, and for an answer that was released before. It is free.

Claim    nothing is charged, and no private row is read.
Because  all follows from the question, the policy, the scales of earlier releases (which the analyst may
         see), and the sums of the accounts.
Test     tests/sql/test_next_prices.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lapwing.core.beliefs import belief_bounds, beliefs_under
from lapwing.core.exact import Number
from lapwing.core.explanation import even_odds
from lapwing.core.losses import Loss, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.ledger import Target
from lapwing.ledger.spending import how_many_fit
from lapwing.sql import policy_ledger
from lapwing.sql.batches import BatchPlan
from lapwing.sql.policy.policy import account_label
from lapwing.sql.pricing import accuracy
from lapwing.sql.pricing.combined_widths import can_combine, half_widths
from lapwing.sql.pricing.cost import Cost
from lapwing.sql.pricing.noise_shares import BudgetShares, divide_budget
from lapwing.sql.pricing.plan import costs_enough
from lapwing.sql.releasing import SessionPlan


@dataclass(frozen=True, slots=True)
class Sharpening:
    """A further release of a question, and what it does to the half-width of each column.

    Args:
        epsilon: The price of the further release, in ε.
        now: The half-width of each count or sum, by column, as all releases so far give it.
        then: The half-width that they and the further release give together.
        fresh: Whether there is a stored answer at this price: then release with `fresh=True`.
    """

    epsilon: Fraction
    now: dict[str, float]
    then: dict[str, float]
    fresh: bool


def sharpening(plan: SessionPlan, epsilons: Iterable[Number]) -> list[Sharpening]:
    """Return the further releases of a question at some prices, of which each narrows an interval.

    Args:
        plan: A plan of the question at any price. Its kind of noise and its confidence are taken.
        epsilons: The prices to try, in ε.

    Returns:
        Those that narrow a column and that the policy sells, in the order of the prices. Empty if nothing
        was released, or if releases of this question are not combined.

    Raises:
        BadParameter: If a price is no ε.

    Example:
        >>> plan = dataset.plan("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
        >>> answer = plan.release()
        >>> again = dataset.plan("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
        >>> [one.then["n"] < one.now["n"] for one in sharpening(again, ["0.01", "0.1", "0.2"])]
        [True, True]
    """
    question, before = plan.question, plan.before
    if not before or plan.sampling or not can_combine(question):
        return []
    now, offers = half_widths(before, plan.confidence), []
    for epsilon in epsilons:
        shares = _shares(plan, epsilon, plan.shares.noise)
        if shares is None:
            continue
        then = half_widths([*before, shares], plan.confidence)
        if any(then[name] < now[name] for name in now):
            is_stored = any(
                (earlier.epsilon, earlier.delta, earlier.noise) == _price(shares) for earlier in before
            )
            offers.append(Sharpening(shares.epsilon, now, then, is_stored))
    return offers


@dataclass(frozen=True, slots=True)
class PriceChoice:
    """What one price gives and promises.

    Args:
        cost: The price.
        spread: The error of each column, alone, without earlier releases.
        odds: What can become of a guess at even odds about a person, in words.
        at_most: The most that a belief of one half can become, by what the belief says; δ excepted.
    """

    cost: Cost
    spread: dict[str, accuracy.Spread]
    odds: tuple[str, ...]
    at_most: dict[str, Fraction]


def price_choices(
    plan: SessionPlan, epsilons: Iterable[Number], *, noise: str = "auto"
) -> list[PriceChoice]:
    """Return what a question would cost, be off by and promise at several prices.

    Args:
        plan: A plan of the question at any price.
        epsilons: The prices to try, in ε.
        noise: "auto", "laplace" or "gaussian".

    Returns:
        Those that the policy sells, in the order of the prices.

    Raises:
        BadParameter: If a price is no ε, or `noise` is not valid.

    Example:
        >>> plan = dataset.plan("SELECT COUNT(*) AS n FROM visits", epsilon="0.5")
        >>> [one.spread["n"].half for one in price_choices(plan, ["0.1", 1])]
        [150.0, 15.0]
    """
    choices = []
    for epsilon in epsilons:
        shares = _shares(plan, epsilon, noise)
        if shares is None:
            continue
        needs_delta = shares.noise == "gaussian" or bool(shares.selected)
        cost = Cost(shares.epsilon, shares.delta if needs_delta else Fraction(0))
        moved = {
            belief.value: belief_bounds(cost.epsilon, cost.delta, belief=belief)
            for belief in beliefs_under(policy_ledger.RELATION)
        }
        choices.append(
            PriceChoice(
                cost,
                accuracy.spread(plan.question, shares, plan.confidence, n=plan.n),
                tuple(even_odds(belief, bounds) for belief, bounds in moved.items()),
                {belief: bounds.after(Fraction(1, 2))[1] for belief, bounds in moved.items()},
            )
        )
    return choices


def how_many_more(plan: SessionPlan | BatchPlan) -> int:
    """Return how many releases at the price of a plan, each charged, the accounts would admit now.

    It counts the data's account in all blocks that are reached, and the analyst's quota. Somebody else may
    spend meanwhile. A failed question counts, too.

    Args:
        plan: The plan of a question or a batch.

    Returns:
        The number of releases. 10**18 if nothing would be charged.

    Raises:
        BadParameter: If the analyst has no quota where quotas are declared.

    Example:
        >>> how_many_more(dataset.plan("SELECT COUNT(*) FROM visits", epsilon="0.5"))
        6
    """
    curator, analyst = plan.session.curator, plan.session.analyst
    loss: Loss = plan.loss if isinstance(plan, BatchPlan) else plan.shares.loss
    quota = policy_ledger.quota_of(curator.policy, analyst)
    if not curator.has_ledger:
        terms = policy_ledger.declared_terms(curator.policy, analyst)
        return min(budget.how_many(budget.price(loss)) for budget in terms)
    if policy_ledger.find_data_set(curator.ledger, curator.policy) is None:  # nothing was asked of it yet
        own = Target(account_label(curator.policy), plan.blocks or ())
        targets: Sequence[Target] = [own, *([Target(quota)] if quota else [])]
    else:
        targets = curator.targets_of_blocks(analyst, plan.blocks)
    return how_many_fit(curator.ledger, targets, lambda account: account.costs(loss))


def _price(shares: BudgetShares) -> tuple[Fraction, Fraction, str]:
    return shares.epsilon, shares.delta, shares.noise


def _shares(plan: SessionPlan, epsilon: Number, noise: str) -> BudgetShares | None:
    """Return the mechanisms at a price, or None if it is too small for them or for the policy."""
    price = checked_epsilon(epsilon)
    try:
        shares = divide_budget(plan.question, epsilon=price, delta=plan.request.delta, noise=noise)
    except BadParameter as error:
        if error.name != "epsilon":
            raise
        return None  # a share of ε, or the noise, is out of bounds
    return shares if costs_enough(shares, plan.session.curator.policy) else None
