"""Fact 11: a person's budget is for life. The reset attack works on a ledger that refills, and not on ours.

The attacker wants one person's answer, yes or no, and thinks both equally likely. If all that he ever gets
is (ε, δ)-private, his best guess is right with probability at most (e^ε + δ) / (1 + e^ε). All probabilities
here are exact (60 digits); where something is drawn, a false alarm has a chance below 1e-9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import count

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, dec, exp, precise
from lapwing.core.budget import PrivacyFilter, Terms
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Loss, Pure
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import OverBudget
from lapwing.ledger import Ledger, entry
from lapwing.ledger.gate import ChargedRelease, Gate
from support.clocks import Clock
from support.ledgers import Home, open_account, release, spending
from support.streams import SeededStream

FALSE_ALARM = Decimal("1e-9")
YES = 1


@precise
def bound(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Decimal:
    """What no guess from (ε, δ)-private answers exceeds, if both truths were equally likely."""
    return (exp(epsilon) + dec(delta)) / (1 + exp(epsilon))


@precise
def best_guess(epsilons: Iterable[Fraction]) -> Decimal:
    """How often the best guess from randomized responses at these ε is right: half of Σ max(P, Q).

    All that counts in the answers is the sum of their log-ratios, which are ±ε.
    """
    laws = {Fraction(0): (Decimal(1), Decimal(1))}
    for epsilon in epsilons:
        truth = bound(epsilon)
        after: dict[Fraction, tuple[Decimal, Decimal]] = {}
        for ratio, (p, q) in laws.items():
            for by, if_yes in ((epsilon, truth), (-epsilon, 1 - truth)):
                one, other = after.get(ratio + by, (Decimal(0), Decimal(0)))
                after[ratio + by] = one + p * if_yes, other + q * (1 - if_yes)
        laws = after
    return sum((max(p, q) for p, q in laws.values()), Decimal(0)) / 2


# A ledger that refills


class RefillsDaily:
    """What one vendor did: the budget of a day is gone at midnight, and the next one is whole."""

    def __init__(self, epsilon: int) -> None:
        self._terms, self._today = Terms.of(epsilon, 0), -1
        self._filter = PrivacyFilter(self._terms)

    def charge(self, loss: Loss, day: int) -> None:
        if day != self._today:
            self._today, self._filter = day, PrivacyFilter(self._terms)
        self._filter.admit(self._terms.price(loss))


def test_fact_11_the_bound_is_reached_by_one_day_and_broken_by_the_third() -> None:
    epsilon = Fraction(1)
    assert abs(best_guess([epsilon]) - bound(epsilon)) < SLACK
    assert best_guess([epsilon] * 3) > bound(epsilon) + Decimal("0.05")
    assert best_guess([epsilon] * 30) > Decimal("0.995")


def test_fact_11_a_ledger_that_refills_gives_the_answer_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A year of daily randomized responses at ε 1, each within its day's budget: the majority is true."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(1101))
    mechanism, ledger, heard = RandomizedResponse.for_epsilon(1), RefillsDaily(1), []
    for day in range(365):
        ledger.charge(mechanism.loss, day)
        heard.append(int(mechanism.sample([YES])[0]))
    with pytest.raises(OverBudget):
        ledger.charge(mechanism.loss, day)  # it does hold what it promises for a day
    assert 1 - best_guess([Fraction(1)] * 365) < FALSE_ALARM
    assert 2 * sum(heard) > len(heard)


@precise
def chance_of_a_wrong_mean(scale: Fraction, days: int) -> Decimal:
    """At most how often the mean of so much discrete Laplace noise is 1/2 off: Chernoff, both sides."""
    q, t = exp(-1 / scale), dec(1 / (3 * scale))
    mean_of_e_to_t = (1 - q) ** 2 / ((1 - q * t.exp()) * (1 - q * (-t).exp()))
    return 2 * (mean_of_e_to_t * (-t / 2).exp()) ** days


def test_fact_11_a_ledger_that_refills_gives_a_count_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 42 people, or of 41 without her: after three years the average of daily counts tells."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(1102))
    mechanism, ledger, days = Laplace.for_epsilon(1, l1=1), RefillsDaily(1), 3 * 365
    for day in range(days):
        ledger.charge(mechanism.loss, day)
    assert chance_of_a_wrong_mean(mechanism.scale, days) < FALSE_ALARM
    for truth in (41, 42):
        assert round(float(np.mean(mechanism.sample(np.full(days, truth))))) == truth


# Our ledger


def days(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Tomorrow, next year, last century: every midnight at which somebody may hope for a refill."""
    monkeypatch.setattr(entry, "time_ns", Clock.time_ns)
    start = datetime(2026, 11, 15, tzinfo=UTC)
    for day in count():
        jump = (timedelta(days=day), timedelta(days=365 * day % 30_000), -timedelta(days=day * 97 % 20_000))
        monkeypatch.setattr(Clock, "told", start + jump[day % 3])
        yield day


def answers_got(
    home: Home, ledger: Ledger, wanted: list[Fraction], most: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Fraction], Ledger]:
    """The ε of all answers that a patient attacker gets: every day he asks for each size that he wants."""
    got: list[Fraction] = []
    for day in days(monkeypatch):
        if day == most:
            break
        if day % 10 == 9:
            ledger.close()
            ledger = home.open()
        for epsilon in wanted:
            try:
                release(ledger, epsilon, principal=f"analyst {day % 3}")
                got.append(epsilon)
            except OverBudget:
                continue
    return got, ledger


@pytest.mark.parametrize(
    ("wanted", "answers"),
    [(["1"], 1), (["0.1"], 10), (["0.7", "0.2", "0.1", "0.05"], 3)],
    ids=["at once", "in ten parts", "in odd parts"],
)
def test_fact_11_our_ledger_gives_what_one_lifetime_allows(
    home: Home, monkeypatch: pytest.MonkeyPatch, wanted: list[str], answers: int
) -> None:
    """A month of asking, with clocks that jump and restarts: one budget, however it is cut up."""
    ledger = home.create()
    open_account(ledger, delta=0)
    got, ledger = answers_got(home, ledger, [Fraction(text) for text in wanted], 31, monkeypatch)
    assert len(got) == answers
    assert sum(got) == 1
    assert best_guess(got) <= bound(Fraction(1)) + SLACK
    assert ledger.verify().findings == ()


@pytest.mark.parametrize("each", ["1/10", "1/20"])
def test_fact_11_also_with_a_delta_and_the_tighter_filters(
    file_home: Home, monkeypatch: pytest.MonkeyPatch, each: str
) -> None:
    """Small answers add up to more than ε, since their noise does, too. The guess still is no better."""
    ledger = file_home.create()
    open_account(ledger, epsilon=1, delta="1e-3")
    got, _ = answers_got(file_home, ledger, [Fraction(each)], 60, monkeypatch)
    assert 1 < sum(got) < 60 * Fraction(each), "more than the pure sum, and not without end"
    assert best_guess(got) <= bound(Fraction(1), Fraction(1, 1000))


def test_fact_11_what_is_raised_is_said_and_adds_up(
    file_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A curator may raise; then the promise is the sum, in every statement, and it holds."""
    ledger = file_home.create()
    open_account(ledger, delta=0)
    got, ledger = answers_got(file_home, ledger, [Fraction(1, 4)], 12, monkeypatch)
    ledger.raise_budget("visits", epsilon="0.5", delta=0, curator=file_home.curator)
    more, ledger = answers_got(file_home, ledger, [Fraction(1, 4)], 12, monkeypatch)
    assert sum(got) + sum(more) == Fraction(3, 2)
    assert best_guess([*got, *more]) <= bound(Fraction(3, 2))
    assert sum(account.terms.epsilon for account in ledger.accounts()) == Fraction(3, 2)


def test_fact_11_asking_again_for_the_same_answer_tells_nothing_new(file_home: Home) -> None:
    """The same question under the same key has the same noise, on every day."""
    ledger = file_home.create()
    open_account(ledger, delta=0)
    mechanism = RandomizedResponse.for_epsilon(1)
    plan = ChargedRelease(spending(Pure(Fraction(1))), lambda: bytes(mechanism.sample([YES]).tolist()))
    heard = {Gate(ledger, principal="analyst").release(plan, key="daily").answer for _ in range(100)}
    assert len(heard) == 1
