"""Removing one unit moves everything that reaches a mechanism within the distance that was priced.

All releases are made to give the same values for both data sets, so that both runs go the same way;
then each sum is compared, in whole numbers. This is what the price of an adaptive run rests on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone  # type: ignore[import-untyped]

from lapwing.learn.payer import PublicData
from lapwing.learn.trainers import (
    PCA,
    AdditiveTrees,
    Binned,
    Category,
    KMeans,
    LinearRegression,
    LogisticRegression,
    NaiveBayes,
    Real,
    kmeans,
    linear_models,
)
from lapwing.learn.trainers.priced_releases import PricedReleases

Seen = list[tuple[PricedReleases, int, NDArray[np.int64]]]
PAID: dict[str, Any] = {"epsilon": 1, "delta": 1e-5, "payer": PublicData()}
REAL = (Real(-1, 1), Real(0, 10), Category([0, 1, 2]), Binned([0.5, 1]))
CODED = (Binned([-0.5, 0, 0.5]), Binned([2, 5]), Category([0, 1, 2]), Binned([0.5, 1]))
TRAINERS: dict[str, Any] = {
    "logistic": LogisticRegression(columns=REAL, classes=(0, 1), size=50, steps=12, **PAID),
    "logistic of three": LogisticRegression(
        columns=REAL, classes=(0, 1, 2), size=50, steps=12, pace=40, **PAID
    ),
    "logistic of few columns": LogisticRegression(columns=REAL, classes=(0, 1), size=9, radius=5, **PAID),
    "linear": LinearRegression(columns=REAL, target=Real(0, 2), **PAID),
    "linear, shortened": LinearRegression(columns=REAL, target=Real(0, 2), radius=0.7, **PAID),
    "components": PCA(columns=REAL, n_components=2, **PAID),
    "components, shortened": PCA(columns=REAL, n_components=2, radius=0.3, **PAID),
    "k-means": KMeans(columns=REAL, n_clusters=3, **PAID),
    "naive Bayes": NaiveBayes(columns=CODED, classes=(0, 1, 2), **PAID),
    "additive": AdditiveTrees(columns=CODED, classes=(0, 1), **PAID),
    "additive of three": AdditiveTrees(columns=CODED, classes=(0, 1, 2), passes=2, stride=3, **PAID),
}


def data(seed: int, rows: int = 60) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ordinary rows, and some at the ends, beyond them, missing or undeclared."""
    rng = np.random.default_rng(seed)
    table = np.column_stack(
        [
            rng.normal(size=rows),
            rng.uniform(-1, 12, rows),
            rng.integers(0, 4, rows),
            rng.uniform(0, 2, rows),
        ]
    )
    ends = [-1, 1, 0, 10, 1e9, -1e9, math.inf, -math.inf, math.nan]
    table[::3] = rng.choice(ends, (len(table[::3]), 4))
    return table, rng.integers(0, 4, rows)


def watch(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What reaches the mechanism. Emptied, it makes the mechanism give the same values again."""
    sums: Seen = []
    given: list[NDArray[np.int64]] = []
    real = PricedReleases.release

    def release(self: PricedReleases, part: int, values: NDArray[np.int64]) -> NDArray[np.int64]:
        sums.append((self, part, values.copy()))
        if len(given) < len(sums):
            given.append(real(self, part, values))
        return given[len(sums) - 1]

    monkeypatch.setattr(PricedReleases, "release", release)
    centres = kmeans.initial_centres(3, 8)
    monkeypatch.setattr(kmeans, "initial_centres", lambda *_: centres)
    return sums


def fitted_state(model: Any) -> str:
    """All that a model learned."""
    learned = {name: value for name, value in vars(model).items() if name.endswith("_")}
    return repr({name: np.asarray(value).tolist() for name, value in sorted(learned.items())})


@pytest.mark.parametrize("name", TRAINERS)
def test_one_unit_moves_every_sum_within_its_price(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = watch(monkeypatch)
    table, truth = data(1)
    model = fitted_state(TRAINERS[name].fit(table, truth))
    whole = list(sums)
    assert len(whole) == sum(part.count for part in whole[0][0].parts)
    largest = 0.0
    for gone in range(0, 60, 1 if len(whole) < 20 else 4):
        sums.clear()
        other = TRAINERS[name].fit(np.delete(table, gone, axis=0), np.delete(truth, gone))
        assert fitted_state(other) == model  # made of what was released, and of nothing else
        for (run, part, with_unit), (_, _, without) in zip(whole, sums, strict=True):
            moved = sum(int(step) ** 2 for step in with_unit - without)
            assert moved <= run.parts[part].l2_squared
            largest = max(largest, moved / run.parts[part].l2_squared)
    assert largest > 0.2  # the price is not far from what happens


@pytest.mark.parametrize("name", TRAINERS)
def test_order_and_place_of_rows_change_no_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Floats that depended on where a row lies would let one unit move the others' numbers."""
    sums = watch(monkeypatch)
    table, truth = data(2)
    TRAINERS[name].fit(table, truth)
    whole = list(sums)
    sums.clear()
    order = np.random.default_rng(3).permutation(60)
    TRAINERS[name].fit(np.asfortranarray(table[order]), truth[order])
    for (_, _, one), (_, _, other) in zip(whole, sums, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("name", TRAINERS)
def test_a_unit_with_many_rows_counts_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = watch(monkeypatch)
    table, truth = data(4)
    table, truth = (
        np.vstack([table, np.tile(table[:1], (500, 1))]),
        np.append(truth, np.tile(truth[:1], 500)),
    )
    units = np.append(np.arange(60), np.zeros(500, dtype=np.int64))
    TRAINERS[name].fit(table, truth, units=units)
    whole = list(sums)
    sums.clear()
    TRAINERS[name].fit(table[1:60], truth[1:60], units=units[1:60])
    for (run, part, with_unit), (_, _, without) in zip(whole, sums, strict=True):
        assert sum(int(step) ** 2 for step in with_unit - without) <= run.parts[part].l2_squared


@pytest.mark.slow
def test_one_unit_moves_every_sum_of_a_sample_within_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other units are drawn or not by the same coins."""
    sums = watch(monkeypatch)
    table, truth = data(6)
    coins = np.random.default_rng(8).random((12, 60)) < 0.3
    kept, tossed = list(range(60)), iter(coins)
    monkeypatch.setattr(linear_models, "bernoulli", lambda *_: next(tossed)[kept])
    trainer = clone(TRAINERS["logistic of three"]).set_params(rate="0.3")
    trainer.fit(table, truth)
    whole = list(sums)
    for gone in (0, 1, 2, 30):
        sums.clear()
        kept, tossed = [row for row in range(60) if row != gone], iter(coins)
        trainer.fit(table[kept], truth[kept])
        for (run, part, with_unit), (_, _, without) in zip(whole, sums, strict=True):
            moved = sum(int(step) ** 2 for step in with_unit - without)
            assert moved <= run.parts[part].l2_squared


@pytest.mark.parametrize("name", TRAINERS)
def test_training_works_without_any_row(name: str) -> None:
    model = TRAINERS[name].fit(np.zeros((0, 4)), np.zeros(0, dtype=int))
    table, _ = data(5)
    if hasattr(model, "predict"):
        assert len(model.predict(table)) == 60
    else:
        assert np.isfinite(model.transform(table)).all()


def test_a_bound_that_is_too_small_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naive Bayes reaches its price exactly: half of it would be broken by every complete row."""
    sums = watch(monkeypatch)
    table, truth = np.zeros((5, 4)), np.zeros(5, dtype=int)
    TRAINERS["naive Bayes"].fit(table, truth)
    run, part, with_unit = sums[-1]
    sums.clear()
    TRAINERS["naive Bayes"].fit(table[1:], truth[1:])
    assert sum(int(step) ** 2 for step in with_unit - sums[-1][2]) == run.parts[part].l2_squared


def test_no_row_is_seen_before_it_is_paid() -> None:
    """Every use of a row is inside the work: a payer that never runs it sees no cell read."""
    seen: list[str] = []

    class Cell:
        def __float__(self) -> float:
            seen.append("read")
            return 0.0

    class Broke(PublicData):
        def pay(self, *_: Any, **__: Any) -> Any:
            raise InterruptedError

    table = np.array([[Cell()] * 4] * 3, dtype=object)
    model = LogisticRegression(columns=Real(0, 1), classes=(0, 1), size=3, **{**PAID, "payer": Broke()})
    with pytest.raises(InterruptedError):
        model.fit(table, [0, 1, 0])
    assert not seen


@pytest.mark.parametrize("odd", ["?", None, [1], 0.5])
@pytest.mark.parametrize("as_frame", [False, True])
def test_an_odd_cell_of_one_unit_moves_no_other(
    odd: Any, as_frame: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one array, a text would make texts of all cells, and a float would round whole numbers."""
    sums, huge = watch(monkeypatch), 2**53 + 1
    rows, truth = [[huge, True]] * 40 + [[1, False]] * 20, [0] * 30 + [1] * 30
    trainer = NaiveBayes(columns=(Category([1, huge]), Category([True, False])), classes=(0, 1), **PAID)

    def fit(cells: list[Any], classes: list[Any]) -> Any:
        sums.clear()
        trainer.fit(pd.DataFrame(cells, columns=["a", "b"]) if as_frame else cells, classes)
        return [(run.parts[part], values) for run, part, values in sums]

    whole = fit(rows, truth)
    assert len(whole) == 2
    for more, its_class in (([1, odd], 0), ([1, True], odd)):
        for (part, one), (_, other) in zip(fit([*rows, more], [*truth, its_class]), whole, strict=True):
            assert sum(int(step) ** 2 for step in one - other) <= part.l2_squared
