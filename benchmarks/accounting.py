"""How long it takes to decide whether one more charge fits, beside dp-accounting.

Both sides take the same 10,000 distinct events, half Laplace and half Gaussian, in turns of 250, so that
a slow moment of the machine hits both; medians of several rounds are shown.

    .venv/bin/python benchmarks/accounting.py
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from dp_accounting import DpEvent, GaussianDpEvent, LaplaceDpEvent
from dp_accounting.rdp import RdpAccountant

from lapwing.core.budget import Charge, PrivacyFilter, Terms
from lapwing.core.losses import GaussianNoise, LaplaceNoise, Loss, Pure

EVENTS = 10_000
TURN = 250
ROUNDS = 7
HISTORIES = [1, 10, 100, 1_000, 10_000, 100_000]
WANTED = {"decided": 50, "priced and decided": 20}


def losses() -> list[Loss]:
    """Distinct scales from 1,000 up: everything fits the budget of ε = 20."""
    found: list[Loss] = []
    for k in range(EVENTS // 2):
        found += [
            LaplaceNoise(Fraction(1000 + k), 1),
            GaussianNoise(Fraction(2 * k + 2001, 2), Fraction(1), 1),
        ]
    return found


def events() -> list[DpEvent]:
    """The same for dp-accounting."""
    found: list[DpEvent] = []
    for k in range(EVENTS // 2):
        found += [LaplaceDpEvent(1000.0 + k), GaussianDpEvent(k + 1000.5)]
    return found


class Decided:
    """Charges that are priced already."""

    def __init__(self, terms: Terms, charges: list[Charge]) -> None:
        self.account, self.charges = PrivacyFilter(terms), charges

    def take(self, some: slice) -> None:
        """Admit some of the charges."""
        admit = self.account.admit
        for charge in self.charges[some]:
            admit(charge)


class Priced:
    """Losses, priced one by one."""

    def __init__(self, terms: Terms, what: list[Loss]) -> None:
        self.account, self.price, self.losses = PrivacyFilter(terms), terms.price, what

    def take(self, some: slice) -> None:
        """Price and admit some of the losses."""
        admit, price = self.account.admit, self.price
        for loss in self.losses[some]:
            admit(price(loss))


class Composed:
    """The other side."""

    def __init__(self, what: list[DpEvent]) -> None:
        self.accountant, self.events = RdpAccountant(), what

    def take(self, some: slice) -> None:
        """Compose some of the events."""
        compose = self.accountant.compose
        for event in self.events[some]:
            compose(event)


def seconds(work: Callable[[], None]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_round(
    terms: Terms, charges: list[Charge], ours: list[Loss], theirs: list[DpEvent]
) -> dict[str, float]:
    """All events once through every side, in turns of `TURN` events."""
    gc.collect()
    sides: dict[str, Decided | Priced | Composed] = {
        "decided": Decided(terms, charges),
        "priced and decided": Priced(terms, ours),
        "dp-accounting composes": Composed(theirs),
    }
    times = dict.fromkeys(sides, 0.0)
    for first in range(0, EVENTS, TURN):
        some = slice(first, first + TURN)
        for name, side in sides.items():
            times[name] += seconds(partial(side.take, some))
    return times


def beside_dp_accounting() -> bool:
    """Print both sides and the ratios; whether these are as wanted."""
    terms, ours, theirs = Terms.of(20, "1e-6"), losses(), events()
    assert len(set(ours)) == len(set(theirs)) == EVENTS
    charges = [terms.price(loss) for loss in ours]
    rounds = [one_round(terms, charges, ours, theirs) for _ in range(ROUNDS)]
    print(f"{EVENTS:,} distinct events, half Laplace, half Gaussian; median of {ROUNDS} rounds, one core")
    for name in rounds[0]:
        found = sorted(times[name] / EVENTS * 1e6 for times in rounds)
        middle = statistics.median(found)
        print(f"  {name:24} {middle:8.2f} µs each   ({found[0]:.2f} to {found[-1]:.2f})")
    good = True
    for name, wanted in WANTED.items():
        ratio = statistics.median(times["dp-accounting composes"] / times[name] for times in rounds)
        good = good and ratio >= wanted
        print(f"  {name:24} {ratio:8.1f} times as fast (wanted: {wanted})")
    return good


def after_a_history() -> None:
    """One more charge costs the same after any history: eight whole numbers are added."""
    terms = Terms.of(1, "1e-6")
    small, one_more = terms.price(Pure(Fraction(1, 10**7))), terms.price(LaplaceNoise(Fraction(10**5), 1))
    print("one more charge after so many earlier ones")
    for history in HISTORIES:
        account = PrivacyFilter(terms)
        for _ in range(history):
            account.admit(small)
        spent = account.spent
        rounds = [seconds(partial(_many, terms, spent, one_more)) for _ in range(ROUNDS)]
        print(f"  {history:>7,} {statistics.median(rounds) / EVENTS * 1e6:8.2f} µs")


def _many(terms: Terms, spent: tuple[int, ...], charge: Charge) -> None:
    for _ in range(EVENTS):
        terms.after(spent, charge)


if __name__ == "__main__":
    as_wanted = beside_dp_accounting()
    after_a_history()
    sys.exit(not as_wanted)
