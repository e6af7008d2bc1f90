"""Planned accounts and data sets are written with the first charge that fits, or not at all."""

from __future__ import annotations

import pytest

from lapwing.core import Relation
from lapwing.errors import BadParameter, OverBudget, Unavailable
from lapwing.ledger import Ledger, Slices, Unit, register
from lapwing.ledger.data_sets import find_data_set, has_data_sets, plan_register
from lapwing.ledger.gate import targets
from support.ledgers import Home, open_account, release

AT = "2026-01-01T00:00:00.000000Z"


def planned(ledger: Ledger, label: str = "new", epsilon: int = 1) -> list[str]:
    told: list[str] = []
    ledger.plan_account(
        label,
        epsilon=epsilon,
        delta="1e-6",
        unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE,
        tell=told.append,
    )
    return told


def labels(ledger: Ledger) -> list[str]:
    return [account.label for account in ledger.accounts()]


def test_a_charge_opens_and_registers_in_one_transaction(home: Home) -> None:
    ledger = home.create()
    told = planned(ledger)
    data = plan_register(ledger, "data", origin="here", account="new", units=["ann"], at=AT)
    assert (data.number, data.version) == (1, 1)
    assert (labels(ledger), has_data_sets(ledger), told) == ([], False, [])
    with pytest.raises(OverBudget):
        release(ledger, "2", *targets(ledger, "data"))
    assert (labels(ledger), has_data_sets(ledger), told) == ([], False, [])
    release(ledger, "1", *targets(ledger, "data"))
    assert (labels(ledger), has_data_sets(ledger)) == (["new"], True)
    assert told == ['New account "new" with ε 1 and δ 1e-6, for life.']
    assert find_data_set(ledger, "data").accounts == (1,)
    assert ledger.verify().findings == ()


def test_two_that_planned_the_same_share_it(home: Home) -> None:
    one, two = home.create(), home.open()
    for ledger in (one, two):
        planned(ledger)
        plan_register(ledger, "data", origin="here", account="new", units=["ann"], at=AT)
    release(one, "0.75", *targets(one, "data"))
    with pytest.raises(OverBudget, match=r"0\.25"):
        release(two, "0.5", *targets(two, "data"))
    release(two, "0.25", *targets(two, "data"))
    assert labels(two) == ["new"]
    assert two.verify().findings == ()


def test_other_terms_meanwhile_are_refused(home: Home) -> None:
    one, two = home.create(), home.open()
    planned(two, epsilon=5)
    plan_register(two, "data", origin="here", account="new", units=["ann"], at=AT)
    open_account(one, "new")
    with pytest.raises(BadParameter, match="other terms"):
        release(two, "2", *targets(two, "data"))


def test_people_who_became_known_meanwhile_are_never_charged_without_their_account(home: Home) -> None:
    """The data was planned under one account, and would have joined another by now."""
    one, two = home.create(), home.open()
    open_account(one, "first")
    planned(two)
    plan_register(two, "data", origin="here", account="new", units=["ann", "bob"], at=AT)
    register(one, "others", origin="there", account="first", units=["ann"])
    with pytest.raises(Unavailable, match="ask again"):
        release(two, "0.5", *targets(two, "data"))
    assert labels(two) == ["first"]
    with pytest.raises(BadParameter, match="not known"):  # it is planned anew
        find_data_set(two, "data")
    plan_register(two, "data", origin="here", account="new", units=["ann", "bob"], at=AT)
    assert [target.account for target in targets(two, "data")] == ["new", "first"]
    release(two, "0.5", *targets(two, "data"))
    assert find_data_set(two, "data").accounts == (1, 2)
    assert two.verify().findings == ()


def test_what_writes_an_account_s_number_opens_it_first(home: Home) -> None:
    ledger = home.create()
    ledger.plan_account(
        "new", epsilon=1, delta="1e-6", unit=Unit.PERSON, relation=Relation.ADD_REMOVE,
        slices=Slices.UNITS, rule="by day", blocks=["a"],
    )  # fmt: skip
    assert [block.label for block in ledger.blocks("new")] == ["*", "a"]
    assert labels(ledger) == []
    ledger.open_blocks("new", ["b"])
    assert [block.label for block in ledger.blocks("new")] == ["*", "a", "b"]
    assert labels(ledger) == ["new"]
    assert ledger.verify().findings == ()
