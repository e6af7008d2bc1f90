"""Which losses add: those of accounts that were charged apart, and of no others."""

from __future__ import annotations

from pathlib import Path

from lapwing.core.exact import Number
from lapwing.ledger import Ledger
from lapwing.ledger.accountant.guarantee import Guarantee
from lapwing.ledger.accountant.replay import replay_from, state_bytes
from lapwing.ledger.budget_history import adding_accounts, overview, overview_json
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from support.ledgers import Home, open_account, release


def opened(home: Home, **caps: Number) -> Ledger:
    ledger = home.create()
    for label, epsilon in caps.items():
        open_account(ledger, label, epsilon=epsilon)
    return ledger


def adding(ledger: Ledger) -> list[int]:
    """Return the accounts whose losses add, by the second accountant, after its state was stored."""
    report = ledger.verify()
    assert not report.findings
    stored = state_bytes(report.replay)
    assert stored is not None
    guarantee = Guarantee.of(report.replay)
    assert Guarantee.of(replay_from(stored)).families == guarantee.families
    shown = [family.adds for family in overview(ledger).families]
    assert shown == [family.adds for family in guarantee.families]
    return [family.root for family in guarantee.families if family.adds]


def test_a_quota_is_a_part_of_its_account(home: Home) -> None:
    """ε 3 with quotas of 1 and 0.5 is ε 3, not 4.5; an account that nothing was charged to is nothing."""
    with opened(home, data=3, ann=1, bob="0.5", unused=3) as ledger:
        assert adding(ledger) == []
        for quota in ("ann", "bob", "ann"):
            release(ledger, "0.1", Target("data"), Target(quota))
        assert adding(ledger) == [1]
        assert not overview_json(overview(ledger))["losses_add"]
        assert adding_accounts(ledger) == ["data"]
        lines = list(Guarantee.of(ledger.verify().replay).lines())
        assert sum("a part of account 1" in line for line in lines) == 2
        assert not any("add up" in line for line in lines)
        release(ledger, "0.1", Target("data"))
        assert adding(ledger) == [1]


def test_an_account_that_was_once_charged_alone_adds_for_ever(home: Home) -> None:
    with opened(home, data=3, ann=1) as ledger:
        release(ledger, "0.1", Target("ann"))
        release(ledger, "0.1", Target("data"), Target("ann"))
        assert adding(ledger) == [1, 2]
        assert any("add up" in line for line in Guarantee.of(ledger.verify().replay).lines())
        assert overview_json(overview(ledger))["losses_add"]


def test_lost_entries_may_have_charged_it_alone(file_home: Home) -> None:
    with opened(file_home, data=3, ann=1) as ledger:
        release(ledger, "0.1", Target("data"), Target("ann"))
        assert adding(ledger) == [1]
    Path(file_home.anchor).unlink()
    recover(file_home.where, curator=file_home.curator, keys=file_home.keys, anchor=file_home.anchor)
    with file_home.open() as ledger:
        assert adding(ledger) == [1, 2]
