"""A trainer is charged before it runs, its work is stored before it leaves, and done once under one key."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.core.losses import Pure, Relation
from lapwing.errors import BadParameter, OverBudget, WorkEnded
from lapwing.learn.payer import EACH_ROW, LedgerPayer, NoPayer, PaidResult, Payer, PublicData, StoredPayer
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import Gate
from lapwing.ledger.spending import Target
from support.ledgers import open_sliced

LOSS = Pure(Fraction(1, 2))


def payer_of(ledger: Ledger, key: str | None) -> LedgerPayer:
    return LedgerPayer(
        Gate(ledger, principal="builder"),
        targets=(Target("visits"),),
        unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE,
        request=b"a model of visits, version 1",
        key=key,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "visits.ledger")
    made.open_account("visits", epsilon=1, delta=0, unit=Unit.PERSON, relation=Relation.ADD_REMOVE)
    return made


def spent(ledger: Ledger) -> Fraction:
    return Fraction(ledger.blocks("visits")[0].spent[1], 10**9)


def test_it_is_charged_when_it_runs(ledger: Ledger) -> None:
    seen = []

    def train() -> bytes:
        seen.append(spent(ledger))
        return b"model"

    paid = payer_of(ledger, None).pay(LOSS, train, mechanism="training", parameters={"steps": 1})
    assert seen == [Fraction(1, 2)]
    assert paid.result == b"model"
    assert paid.receipt is not None


def test_the_same_key_gives_the_stored_model_and_trains_once(ledger: Ledger) -> None:
    runs = []

    def train() -> bytes:
        runs.append(1)
        return b"model %d" % len(runs)

    payer = payer_of(ledger, "attempt 1")
    first = payer.pay(LOSS, train, mechanism="training", parameters={"steps": 1})
    again = payer.pay(LOSS, train, mechanism="training", parameters={"steps": 1})
    assert (again.result, again.is_replay, len(runs)) == (first.result, True, 1)
    assert spent(ledger) == Fraction(1, 2)


def test_over_budget_trains_nothing(ledger: Ledger) -> None:
    payer = payer_of(ledger, None)
    with pytest.raises(OverBudget):
        payer.pay(Pure(Fraction(2)), lambda: pytest.fail("trained"), mechanism="training", parameters={})
    assert spent(ledger) == 0


def test_what_failed_stays_charged_and_is_not_tried_again(ledger: Ledger) -> None:
    payer = payer_of(ledger, "attempt 1")
    with pytest.raises(WorkEnded):
        payer.pay(LOSS, lambda: 1 // 0, mechanism="training", parameters={})  # type: ignore[arg-type,return-value]
    with pytest.raises(WorkEnded):
        payer.pay(LOSS, lambda: b"model", mechanism="training", parameters={})
    assert spent(ledger) == Fraction(1, 2)


def test_copies_pay_from_the_same_payer(ledger: Ledger) -> None:
    payer = payer_of(ledger, None)
    assert copy.deepcopy(payer) is payer
    assert copy.copy(payer) is payer


def test_public_data_costs_nothing() -> None:
    assert PublicData().pay(LOSS, lambda: b"model", mechanism="training", parameters={}).receipt is None


class Silent(Payer):
    """Does not say what it protects."""

    relation = Relation.ADD_REMOVE

    def pay(self, *_: Any, **__: Any) -> PaidResult:
        return PaidResult(b"", None)


def test_a_payer_knows_what_it_protects(ledger: Ledger) -> None:
    assert payer_of(ledger, None).unit is Unit.PERSON
    assert PublicData().unit is None
    assert Silent().unit is Unit.PERSON
    monthly = LedgerPayer(
        Gate(ledger, principal="builder"),
        targets=(),
        unit=Unit.PERSON_AND_PERIOD,
        relation=Relation.ADD_REMOVE,
        request=b"",
    )
    with pytest.raises(BadParameter, match="a person and period"):
        monthly.checked_units(None)


@pytest.mark.parametrize("make", [lambda ledger: payer_of(ledger, None), lambda _: Silent()])
def test_where_persons_are_protected_somebody_must_say_whose_rows_they_are(
    make: Any, ledger: Ledger
) -> None:
    payer = make(ledger)
    with pytest.raises(BadParameter, match="a person is protected"):
        payer.checked_units(None)
    assert payer.checked_units(EACH_ROW) is None
    assert payer.checked_units([1]) == [1]


def test_public_rows_are_anybodys() -> None:
    assert PublicData().checked_units(None) is None
    assert PublicData().checked_units(EACH_ROW) is None


def test_the_promise_stays_itself_in_copies() -> None:
    assert copy.deepcopy(EACH_ROW) is EACH_ROW
    assert pickle.loads(pickle.dumps(EACH_ROW)) is EACH_ROW


def test_what_was_stored_is_not_made_again() -> None:
    paid = StoredPayer(b"model").pay(
        LOSS, lambda: pytest.fail("trained"), mechanism="training", parameters={}
    )
    assert (paid.result, paid.is_replay) == (b"model", True)


def test_without_a_payer_nothing_is_made() -> None:
    with pytest.raises(BadParameter, match="n_jobs=1"):
        NoPayer().pay(LOSS, lambda: pytest.fail("trained"), mechanism="training", parameters={})


def test_a_payer_for_an_account_has_its_unit_and_neighbours(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "rows.ledger") as ledger:
        ledger.open_account("rows", epsilon=1, delta=0, unit=Unit.ROW, relation=Relation.REPLACE)
        payer = LedgerPayer.for_account(ledger, "rows", analyst="ann", request="a model")
        assert (payer.unit, payer.relation) == (Unit.ROW, Relation.REPLACE)
        assert payer.targets == (Target("rows"),)
        with pytest.raises(BadParameter):
            LedgerPayer.for_account(ledger, "persons", analyst="ann", request="a model")


def test_a_payer_for_an_account_with_blocks_charges_everyone(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "sliced.ledger") as ledger:
        open_sliced(ledger, 3)
        payer = LedgerPayer.for_account(ledger, "visits", analyst="ann", request="a model")
        assert payer.targets == (Target("visits", everyone=True),)
