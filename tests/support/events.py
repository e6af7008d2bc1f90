"""A ledger in which nearly everything has happened."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.core.losses import GaussianNoise, Repeated
from lapwing.errors import OverBudget, WorkEnded
from lapwing.ledger import Ledger, append, register
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.spending import Target
from support.ledgers import Home, open_account, open_sliced, release, spending

GAUSSIAN = GaussianNoise(Fraction(100), Fraction(1), 1)


def eventful(home: Home) -> Ledger:
    """A ledger with an entry of every kind but one."""
    ledger = home.create()
    open_sliced(ledger, 6)
    open_account(ledger, "survey")
    release(ledger, "0.1", Target("visits", ["b0", "b1", "b2", "b4"]), principal="Ana")
    with pytest.raises(WorkEnded):
        Gate(ledger, principal="Ben").release(
            ChargedRelease(spending("0.2", Target("survey")), lambda: bytes(-1))
        )
    with pytest.raises(OverBudget):
        release(ledger, "5", Target("survey"), principal="Greedy")
    work = Gate(ledger, principal="Cem").reserve(spending(Repeated(GAUSSIAN, 4), Target("visits", ["b3"])))
    work.step(GAUSSIAN)
    work.settle(stopping_was_decided_from_released_values=True)
    register(ledger, "clinic", origin="hospital", account="visits", units=["p1"])
    register(
        ledger,
        "office",
        origin="town",
        account="survey",
        units=["p1"],
        people_differ_from=["visits"],
        curator=home.curator,
    )
    append(ledger, "clinic", units=["p2"])
    ledger.raise_budget("survey", epsilon="0.5", delta="1e-8", curator=home.curator)
    return ledger
