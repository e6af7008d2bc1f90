"""What a member reads before a run begins: it stays in memory, costs nothing, and its failures count."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.laplace import LaplaceShares
from lapwing.errors import Aborted, AllHeld, OverBudget
from lapwing.ledger.gate import ChargedRelease, Gate, Release
from lapwing.parties.contribution import CONTRIBUTED, READ
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics import Statistic, statistic_of
from lapwing.sql.dataset import Dataset
from support.contributing import HISTOGRAM, contribution, left
from support.joint import member, plain


class Counted:
    """How often a statistic's rows are read."""

    def __init__(self, statistic: Statistic, patch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._exact = statistic.exact
        patch.setattr(statistic, "exact", self.exact)

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
        self.times += 1
        return self._exact(stage, earlier)


def stored(folder: Path) -> list[bytes]:
    with sqlite3.connect(folder / "lapwing.ledger") as connection:
        found = [row[0] for row in connection.execute("SELECT bytes FROM answers")]
    connection.close()
    return found


def test_data_is_read_before_the_charge_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path, range(3000)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        read, brings = Counted(statistic, monkeypatch), contribution(statistic, dataset)
        before = left(dataset.ledger)
        brings.read()
        assert read.times == 1
        assert left(dataset.ledger) == before
        value = brings(0, ())
        assert read.times == 1
        assert before - left(dataset.ledger) == 1
    counts = [
        row[0] for row in plain([range(3000)], "SELECT COUNT(*) FROM visits GROUP BY ward ORDER BY ward")
    ]
    assert np.abs(value - counts).max() < 100  # a share at scale 2
    assert stored(tmp_path) == [READ, CONTRIBUTED]


def test_what_was_read_is_nowhere_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LaplaceShares, "sample", lambda *_: pytest.fail("noise was drawn"))
    with member(tmp_path, range(30_000)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        brings.read()
        exact = statistic.exact(0, ())
        assert not any(str(one) in repr(brings) for one in exact.tolist())
    assert stored(tmp_path) == [READ]


def test_after_a_crash_it_is_read_again_and_charged_once(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        before = left(dataset.ledger)
        contribution(statistic, dataset).read()  # and then the process is gone
        again = contribution(statistic, dataset)
        again.check()
        again.read()
        again(0, ())
        assert before - left(dataset.ledger) == 1


def test_data_that_changed_since_it_was_read_is_read_again_after_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is about people who are not those that are charged now."""
    with member(tmp_path, range(300)) as dataset:
        dataset.prepare()
        statistic = statistic_of(HISTOGRAM, dataset)
        read, brings = Counted(statistic, monkeypatch), contribution(statistic, dataset)
        brings.read()
        with Dataset(dataset.policy, analyst="bob") as other:
            other.prepare(again=True)
        brings(0, ())
        assert read.times == 2


def after_reading(patch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """It happens once: when the reading has its entry in the ledger, and before the member is ready."""
    release = Gate.release

    def then(gate: Gate, plan: ChargedRelease, **more: Any) -> Release:
        done = release(gate, plan, **more)
        patch.setattr(Gate, "release", release)
        happens()
        return done

    patch.setattr(Gate, "release", then)


def test_who_cannot_pay_any_more_after_it_has_read_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody asked a question meanwhile: better nobody begins."""
    with member(tmp_path, range(300), epsilon=1.5) as dataset:
        brings = contribution(statistic_of(HISTOGRAM, dataset), dataset)
        brings.check()
        after_reading(monkeypatch, lambda: dataset.ask("SELECT COUNT(*) FROM visits", epsilon=1))
        with pytest.raises(OverBudget):
            brings.read()
        assert left(dataset.ledger) == Fraction(1, 2)


def test_whose_data_changed_after_it_was_read_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read again on the clock, and the others would pay for it."""
    with member(tmp_path, range(300)) as dataset, Dataset(dataset.policy, analyst="bob") as other:
        dataset.prepare()
        brings = contribution(statistic_of(HISTOGRAM, dataset), dataset)
        before = left(dataset.ledger)
        after_reading(monkeypatch, lambda: other.prepare(again=True))
        with pytest.raises(Aborted, match="changed after it was read") as caught:
            brings.read()
        assert not caught.value.was_charged
        assert left(dataset.ledger) == before


def test_a_reading_that_fails_costs_nothing_tells_nothing_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it fails may depend on one row: as for every question, few failures are told."""

    def fail(_stage: int, _earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
        raise ValueError("patient 17 is odd")

    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        monkeypatch.setattr(statistic, "exact", fail)
        before = left(dataset.ledger)
        for _ in range(dataset.policy.failures):
            brings = contribution(statistic, dataset)
            with pytest.raises(Aborted, match="nothing was charged") as caught:
                brings.read()
            assert "17" not in str(caught.value)
            assert caught.value.__cause__ is None
        assert left(dataset.ledger) == before
        monkeypatch.undo()
        held = contribution(statistic, dataset)
        with pytest.raises(AllHeld):
            held.read()
