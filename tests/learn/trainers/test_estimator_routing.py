"""Units reach trainers through scikit-learn's tools, and are never left out by mistake."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context  # type: ignore[import-untyped]
from sklearn.model_selection import GridSearchCV, cross_val_score  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]

from lapwing.core.losses import Relation
from lapwing.errors import BadFile, BadParameter, LapwingError, OverBudget
from lapwing.learn.payer import EACH_ROW, LedgerPayer
from lapwing.learn.trainers import PCA, Category, LogisticRegression, NaiveBayes, Real
from lapwing.learn.trainers.priced_releases import PricedReleases
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import Gate
from lapwing.ledger.spending import Target
from support.raised import named

TABLE = np.random.default_rng(3).integers(0, 2, (60, 2))
Y = TABLE[:, 0]
UNITS = np.arange(60) // 3


def bayes(tmp_path: Path, unit: Unit = Unit.PERSON) -> tuple[Any, Ledger]:
    ledger = Ledger.create(tmp_path / "visits.ledger")
    ledger.open_account("visits", epsilon=100, delta="1e-3", unit=unit, relation=Relation.ADD_REMOVE)
    payer = LedgerPayer(
        Gate(ledger, principal="builder"),
        targets=(Target("visits"),),
        unit=unit,
        relation=Relation.ADD_REMOVE,
        request=b"a model of visits",
    )
    made = NaiveBayes(columns=Category([0, 1]), classes=(0, 1), epsilon=1, delta="1e-5", payer=payer)
    return made, ledger


def spent(ledger: Ledger) -> int:
    return int(ledger.blocks("visits")[0].spent[1])


def test_rows_of_nobody_are_refused_where_persons_are_protected(tmp_path: Path) -> None:
    """500 rows of one person, charged as one, would move the counts 500 times as far as was paid."""
    trainer, ledger = bayes(tmp_path)
    with pytest.raises(BadParameter, match="units=EACH_ROW"):
        trainer.fit(TABLE, Y)
    assert spent(ledger) == 0


def test_an_account_about_rows_needs_no_units(tmp_path: Path) -> None:
    trainer, ledger = bayes(tmp_path, Unit.ROW)
    trainer.fit(TABLE, Y)
    assert spent(ledger) > 0


def test_a_unit_moves_no_more_than_is_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = bayes(tmp_path)
    seen: list[Any] = []

    def release(run: PricedReleases, part: int, sums: Any) -> Any:
        seen.append((np.array(sums), run.parts[part].l2_squared))
        return sums

    monkeypatch.setattr(PricedReleases, "release", release)
    whose = np.where(np.arange(60) < 30, 7, 100 + np.arange(60))
    trainer.fit(TABLE, Y, units=whose)
    trainer.fit(TABLE[30:], Y[30:], units=whose[30:])
    assert len(seen) == 4
    for (whole, reach), (less, _) in zip(seen[:2], seen[2:], strict=True):
        assert ((whole - less) ** 2).sum() <= reach


@pytest.mark.parametrize("units", [UNITS, EACH_ROW], ids=["units", "each row"])
def test_units_go_through_cross_validation(tmp_path: Path, units: Any) -> None:
    trainer, ledger = bayes(tmp_path)
    assert len(cross_val_score(trainer, TABLE, Y, cv=3, params={"units": units})) == 3
    assert spent(ledger) >= 3 * 0.99 * 10**9
    GridSearchCV(trainer, {"epsilon": [1, 2]}, cv=2).fit(TABLE, Y, units=units)


def test_units_are_routed(tmp_path: Path) -> None:
    trainer, _ = bayes(tmp_path)
    with config_context(enable_metadata_routing=True):
        routed = trainer.set_fit_request(units=True)
        GridSearchCV(routed, {"epsilon": [1]}, cv=2).fit(TABLE, Y, units=UNITS)
        assert len(cross_val_score(routed, TABLE, Y, cv=2, params={"units": UNITS})) == 2


def test_units_go_to_each_step_of_a_pipeline(tmp_path: Path) -> None:
    trainer, ledger = bayes(tmp_path)
    common: dict[str, Any] = {"epsilon": 1, "delta": "1e-5", "payer": trainer.payer}
    first = PCA(columns=Real(0, 1), n_components=1, **common)
    second = LogisticRegression(columns=Real(-2, 2), classes=(0, 1), size=60, **common)
    both = make_pipeline(first, second)
    with pytest.raises(BadParameter, check=named("units")):
        both.fit(TABLE, Y)
    assert spent(ledger) == 0
    both.fit(TABLE, Y, pca__units=UNITS, logisticregression__units=UNITS)


def test_names_of_columns_are_refused_before_paying(tmp_path: Path) -> None:
    trainer, ledger = bayes(tmp_path)
    mixed = pd.DataFrame(TABLE, columns=["a", 1])
    with pytest.raises(TypeError, match="names"):
        trainer.fit(mixed, Y, units=UNITS)
    assert spent(ledger) == 0


@pytest.mark.parametrize(
    "error",
    [
        BadParameter("units", "must be there"),
        BadFile(["line 3"]),
        OverBudget("ε 1", "ε 0", "Wait", where="v"),
    ],
)
def test_errors_come_whole_out_of_a_worker(error: LapwingError) -> None:
    """Else a pool of processes is said to be broken, whatever went wrong."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_in_worker_processes_there_is_no_payer_and_the_error_says_so(tmp_path: Path) -> None:
    trainer, ledger = bayes(tmp_path)
    with pytest.raises(BadParameter, match="n_jobs=1"):
        cross_val_score(trainer, TABLE, Y, cv=3, params={"units": EACH_ROW}, n_jobs=2, error_score="raise")
    assert spent(ledger) == 0
    assert math.isfinite(trainer.fit(TABLE, Y, units=UNITS).score(TABLE, Y))
