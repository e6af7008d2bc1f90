"""One charged read: the charge comes first, the version is compared after, the result is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.core.losses import Pure, Relation
from lapwing.errors import KeyReused, OverBudget, WorkEnded
from lapwing.ledger import ChargedRead, Gate, Ledger, Spending, Target, Unit
from lapwing.ledger.request_status import RequestState


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(str(tmp_path / "one.ledger")) as made:
        made.open_account("people", epsilon=2, delta=0, unit=Unit.PERSON, relation=Relation.ADD_REMOVE)
        yield made


def read_of(ledger: Ledger, versions: list[int]) -> ChargedRead:
    """A read at ε = 1 whose data has these versions, one after the other."""
    return ChargedRead(
        gate=Gate(ledger, principal="ann"),
        key="one",
        version=1,
        current_version=lambda: versions.pop(0),
        spending=Spending(
            targets=(Target("people"),),
            loss=Pure(Fraction(1)),
            unit=Unit.PERSON,
            relation=Relation.ADD_REMOVE,
            mechanism="a test",
            parameters={"number": 1},
            request=b"a request",
        ),
    )


def never() -> int:
    raise AssertionError("rows are read before they are paid for, or twice")


def test_rows_are_read_after_the_charge_and_once(ledger: Ledger) -> None:
    charged = read_of(ledger, [1])
    assert charged.find() is None

    def read() -> int:
        found = charged.find()
        assert found is not None
        assert found.state is RequestState.OPEN
        return 7

    done = charged.release(read, lambda found: b"noisy %d" % found)
    assert (done.answer, done.is_replay) == (b"noisy 7", False)
    again = charged.release(never, lambda _: b"")
    assert (again.answer, again.is_replay) == (b"noisy 7", True)
    assert again.receipt.position == done.receipt.position


def test_data_that_changed_meanwhile_gives_nothing_and_stays_charged(ledger: Ledger) -> None:
    charged = read_of(ledger, [2])
    with pytest.raises(WorkEnded):
        charged.release(lambda: 7, lambda _: pytest.fail("noise was drawn for other data"))
    found = charged.find()
    assert found is not None
    assert found.state not in (RequestState.OPEN, RequestState.ANSWERED)


def test_a_key_stands_for_one_request(ledger: Ledger) -> None:
    charged = read_of(ledger, [1, 1])
    charged.release(lambda: 7, lambda _: b"noisy")
    other = replace(charged.spending, request=b"another version")
    with pytest.raises(KeyReused):
        replace(charged, spending=other).release(never, lambda _: b"")


def test_what_cannot_be_paid_is_not_read(ledger: Ledger) -> None:
    charged = read_of(ledger, [1])
    charged = replace(charged, spending=replace(charged.spending, loss=Pure(Fraction(3))))
    with pytest.raises(OverBudget):
        charged.release(never, lambda _: b"")


def test_without_a_key_each_read_is_another(ledger: Ledger) -> None:
    charged = replace(read_of(ledger, [1, 1]), key=None)
    assert charged.find() is None
    positions = {charged.release(lambda: 7, lambda _: b"noisy").receipt.position for _ in range(2)}
    assert len(positions) == 2
