"""Spending over time: prices by person, and what of them counts, for pictures and tables.

Claim    the sums by person are the sums of the prices that the ledger's requests have, exactly; what counts
         ends at what the ledger counts as spent now, where least is left.
Because  each request of the account is added once, as a fraction, and the second accountant has rebuilt the
         history of what is left.
Test     tests/server/data/test_spending.py
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction

import numpy as np

from lapwing.ledger.budget_history import BudgetHistory
from lapwing.ledger.request_log import LoggedRequest, each_request
from lapwing.sql.curator import Curator
from lapwing.sql.policy.policy import account_label

MOST_PEOPLE = 4  # of whom each has a series of its own; the rest are one together


@dataclass(frozen=True, slots=True)
class Payment:
    """The price of one request. `person` is the place of who paid it in `PastSpending.people`."""

    time: datetime
    person: int
    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class MonthSpending:
    """Prices that each person paid in a month, and the loss that counted as spent at its end."""

    first: date
    prices: tuple[Fraction, ...]
    counted: float


@dataclass(frozen=True, slots=True)
class PastSpending:
    """What was paid from one account.

    Args:
        people: Who paid: whoever paid most comes first. The last can stand for several.
        everybody: The sum of each of them, without anybody left out.
        payments: All prices that are an ε, in the order of time.
        others: How many requests have a price of another form. It is in what counts alone.
        counted: What counted as spent where least is left now, from each moment on.
        cap: The ε for life, with all raises.
    """

    people: tuple[str, ...] = ()
    everybody: tuple[tuple[str, Fraction], ...] = ()
    payments: tuple[Payment, ...] = ()
    others: int = 0
    counted: tuple[tuple[datetime, float], ...] = ()
    cap: Fraction = Fraction(0)

    @property
    def totals(self) -> tuple[Fraction, ...]:
        """The sum of each person's prices."""
        sums = [Fraction(0)] * len(self.people)
        for one in self.payments:
            sums[one.person] += one.epsilon
        return tuple(sums)

    @property
    def spent(self) -> float:
        """What counts as spent now."""
        return self.counted[-1][1] if self.counted else 0.0

    @property
    def months(self) -> tuple[MonthSpending, ...]:
        """The months in which something was paid."""
        found: dict[date, list[Fraction]] = {}
        for one in self.payments:
            first = one.time.date().replace(day=1)
            found.setdefault(first, [Fraction(0)] * len(self.people))[one.person] += one.epsilon
        return tuple(
            MonthSpending(first, tuple(sums), self._at_end(first)) for first, sums in found.items()
        )

    def _at_end(self, first: date) -> float:
        before = [
            spent for time, spent in self.counted if (time.year, time.month) <= (first.year, first.month)
        ]
        return before[-1] if before else 0.0


def spending_of(curator: Curator, *, people: str | None) -> PastSpending:
    """Return what was paid from a policy's account.

    Args:
        curator: The curator of the data. Before the first charge, nothing was paid.
        people: The only person whose prices are shown; None shows all.
    """
    policy = curator.policy
    label = account_label(policy)
    if not curator.has_ledger or not _is_open(curator, label):
        return PastSpending(cap=policy.epsilon)
    requests: list[LoggedRequest] = []
    each_request(curator.ledger, requests.append, words_of=lambda _: None, account=label)
    counted, cap = counted_steps(BudgetHistory.of(curator.ledger, label))
    return PastSpending(*payments_of(requests, people), counted, cap)


def _is_open(curator: Curator, label: str) -> bool:
    """Return whether an account is open: a planned one has no history."""
    root = curator.ledger.account(label).number
    return any(one.root == root for one in curator.ledger.accounts())


def payments_of(
    requests: Iterable[LoggedRequest], people: str | None
) -> tuple[tuple[str, ...], tuple[tuple[str, Fraction], ...], tuple[Payment, ...], int]:
    """Return who paid, how much each of them, all prices that are an ε, and how many others there are."""
    shown = [one for one in requests if people is None or one.line.principal == people]
    priced = [one for one in shown if one.price.epsilon is not None]
    sums: dict[str, Fraction] = {}
    for one in priced:
        sums[one.line.principal] = sums.get(one.line.principal, Fraction(0)) + (one.price.epsilon or 0)
    names = sorted(sums, key=lambda name: (-sums[name], name))
    kept = names if len(names) <= MOST_PEOPLE else names[: MOST_PEOPLE - 1]
    rest = len(names) - len(kept)
    places = {name: min(place, len(kept)) for place, name in enumerate(names)}
    payments = [
        Payment(_moment(one.line.time), places[one.line.principal], one.price.epsilon or Fraction(0))
        for one in priced
    ]
    series = (*kept, *([f"{rest} others"] if rest else []))
    everybody = tuple((name, sums[name]) for name in names)
    return series, everybody, tuple(sorted(payments, key=lambda one: one.time)), len(shown) - len(priced)


def counted_steps(history: BudgetHistory) -> tuple[tuple[tuple[datetime, float], ...], Fraction]:
    """Return what counted as spent over time in the block where least is left now, and the ε for life."""
    cap = sum((grant.epsilon for grant in history.grants), Fraction(0))
    if not history.times or not history.blocks:
        return (), cap
    column = int(np.nanargmin(history.left[-1]))
    steps = []
    for time, left in zip(history.times, history.left[:, column], strict=True):
        given = float(sum((one.epsilon for one in history.grants if one.time <= time), Fraction(0)))
        steps.append((_aware(time), 0.0 if np.isnan(left) else max(given - float(left), 0.0)))
    return tuple(steps), cap


def _moment(text: str) -> datetime:
    return _aware(datetime.fromisoformat(text))


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
