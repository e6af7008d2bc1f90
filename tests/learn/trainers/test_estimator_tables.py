"""Tables by name, units by any id, and a payer in `fit`: what users of scikit-learn have at hand."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone  # type: ignore[import-untyped]
from sklearn.model_selection import cross_val_score  # type: ignore[import-untyped]

from lapwing.errors import BadParameter, BadValue
from lapwing.learn import (
    EACH_ROW,
    AdditiveTrees,
    Category,
    KMeans,
    LedgerPayer,
    LinearRegression,
    LogisticRegression,
    NaiveBayes,
    PublicData,
    Real,
)
from lapwing.ledger import Ledger
from support.ledgers import Home, open_account
from support.raised import named

ROWS = 400
NUMBERS = np.random.default_rng(9).uniform(0, 100, ROWS)
FRAME = pd.DataFrame(
    {
        "who": [f"person {n // 2}" for n in range(ROWS)],
        "churned": np.where(NUMBERS > 50, "yes", "no"),
        "city": np.where(np.arange(ROWS) % 2 == 0, "Oslo", "Bergen"),
        "age": NUMBERS,
    }
)
COLUMNS: dict[str, Any] = {"age": Real(0, 100), "city": Category(["Oslo", "Bergen"])}
LIKE = {"pandas": FRAME, "polars": pl.from_pandas(FRAME), "arrow": pa.Table.from_pandas(FRAME)}
PAID: dict[str, Any] = {"epsilon": 4, "delta": "1e-5"}
MODEL = LogisticRegression(columns=COLUMNS, classes=("no", "yes"), size=200, **PAID)


@pytest.fixture
def ledger(file_home: Home) -> Ledger:
    made = file_home.create()
    open_account(made, epsilon=50, delta="1e-3")
    return made


def payer(ledger: Ledger) -> LedgerPayer:
    return LedgerPayer.for_account(ledger, "visits", analyst="ann", request="churn, version 1")


@pytest.mark.parametrize("kind", LIKE)
def test_columns_label_and_units_are_found_by_name(kind: str, ledger: Ledger) -> None:
    model = clone(MODEL).fit(LIKE[kind], "churned", "who", payer=payer(ledger))
    assert model.feature_names_in_.tolist() == ["age", "city"]
    assert model.n_features_in_ == 2
    assert abs(model.class_counts_.sum() - ROWS / 2) < 8 * model.class_counts_sigma_
    assert model.get_params()["payer"] is None
    for other in LIKE.values():
        assert np.array_equal(model.predict(other), model.predict(LIKE[kind]))
    assert model.score(FRAME, FRAME["churned"]) > 0.6


def test_the_order_of_columns_changes_nothing() -> None:
    model = clone(MODEL).fit(FRAME, FRAME["churned"], payer=PublicData())
    turned = FRAME[["city", "age", "who"]]
    assert np.array_equal(model.predict_proba(turned), model.predict_proba(FRAME))


def test_columns_in_another_order_are_refused_where_they_are_declared_in_order() -> None:
    numbers = pd.DataFrame({"a": NUMBERS, "b": 100 - NUMBERS})
    model = LogisticRegression(columns=Real(0, 100), classes=("no", "yes"), size=200, **PAID)
    model.fit(numbers, FRAME["churned"], payer=PublicData())
    with pytest.raises(ValueError, match="order"):
        model.predict(numbers[["b", "a"]])


@pytest.mark.parametrize(
    ("table", "y", "units"),
    [
        (FRAME.drop(columns="age"), "churned", "who"),
        (FRAME[["age", "city"]].to_numpy(), FRAME["churned"], EACH_ROW),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), "churned", "who"),
        (FRAME, "Churned", "who"),
        (FRAME, "churned", "whom"),
        (FRAME, FRAME["churned"][:5], "who"),
        (FRAME, "churned", FRAME["who"][:5]),
        (FRAME, "churned", NUMBERS),
        (FRAME, "churned", FRAME[["who", "city"]]),
    ],
)
def test_wrong_tables_and_names_are_refused_before_anything_is_charged(
    table: Any, y: Any, units: Any, ledger: Ledger
) -> None:
    with pytest.raises(BadValue):
        clone(MODEL).fit(table, y, units, payer=payer(ledger))
    assert ledger.blocks("visits")[0].spent[1] == 0


@pytest.mark.parametrize("name", ["epsilon", "delta", "columns", "classes", "size"])
def test_what_is_missing_is_named_before_anything_is_charged(name: str, ledger: Ledger) -> None:
    with pytest.raises(BadParameter, check=named(name)):
        clone(MODEL).set_params(**{name: None}).fit(FRAME.assign(), "churned", "who", payer=payer(ledger))
    assert ledger.blocks("visits")[0].spent[1] == 0


def test_a_payer_must_be_there() -> None:
    with pytest.raises(BadParameter, check=named("payer")):
        clone(MODEL).fit(FRAME, "churned", "who")


def test_weights_are_refused() -> None:
    for weights in ([1.0] * ROWS, np.ones(ROWS)):
        with pytest.raises(BadParameter, check=named("sample_weight")):
            clone(MODEL).fit(FRAME, "churned", payer=PublicData(), sample_weight=weights)
    clone(MODEL).fit(FRAME, "churned", payer=PublicData(), sample_weight=None)
    with pytest.raises(TypeError, match="weight"):
        clone(MODEL).fit(FRAME, "churned", payer=PublicData(), weight=1)


def test_a_search_of_scikit_learn_finds_columns_by_name() -> None:
    assert (
        len(cross_val_score(clone(MODEL).set_params(payer=PublicData()), FRAME, FRAME["churned"], cv=2))
        == 2
    )


# Units


@pytest.mark.parametrize(
    "units",
    [
        FRAME["who"],
        FRAME["who"].astype("category"),
        FRAME["who"].tolist(),
        FRAME["who"].to_numpy(dtype=str),
        pl.Series(FRAME["who"]),
        pa.array(FRAME["who"]),
        pa.chunked_array([pa.array(FRAME["who"])]),
        np.arange(ROWS) // 2,
        pd.Series(np.arange(ROWS) // 2, dtype="Int64"),
        [UUID(int=n // 2) for n in range(ROWS)],
    ],
    ids=lambda units: type(units).__name__,
)
def test_each_id_trains_once(units: Any) -> None:
    """Of two rows each, in every kind of column."""
    model = clone(MODEL).set_params(epsilon=40).fit(FRAME, "churned", units, payer=PublicData())
    assert abs(model.class_counts_.sum() - ROWS / 2) < 8 * model.class_counts_sigma_


def test_rows_without_an_id_train_nothing() -> None:
    units = [None if n >= 100 else math.nan if n >= 50 else str(n) for n in range(ROWS)]
    model = clone(MODEL).set_params(epsilon=40).fit(FRAME, "churned", units, payer=PublicData())
    assert abs(model.class_counts_.sum() - 50) < 8 * model.class_counts_sigma_


# Hostile cells


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None, "?", 10**400, [1], object()])
def test_an_odd_cell_is_no_error(odd: Any) -> None:
    frame = FRAME.astype(object)
    for column in ("age", "city", "churned", "who"):
        frame.at[0, column] = odd
    model = clone(MODEL).fit(frame, "churned", "who", payer=PublicData())
    assert np.isfinite(model.predict_proba(frame)).all()
    assert set(model.predict(frame)) <= {"no", "yes"}


def test_no_row_at_all_is_no_error() -> None:
    model = clone(MODEL).fit(FRAME[:0], "churned", "who", payer=PublicData())
    assert len(model.predict(FRAME)) == ROWS


# Attributes


def test_slopes_and_intercept_give_the_scores_of_rows_near_the_centre() -> None:
    wide = clone(MODEL).set_params(radius=10)
    model = wide.fit(FRAME, "churned", payer=PublicData())
    assert model.coef_names_ == ["age", "city = Oslo", "city = Bergen"]
    features = np.column_stack([FRAME["age"], FRAME["city"] == "Oslo", FRAME["city"] == "Bergen"])
    linear = features @ model.coef_.T + model.intercept_
    assert np.allclose(linear[:, 0], model.decision_function(FRAME), atol=0.02)


def test_three_classes_have_slopes_each() -> None:
    three = clone(MODEL).set_params(classes=("no", "yes", "maybe"), class_check=0, radius=10)
    model = three.fit(FRAME, "churned", payer=PublicData())
    features = np.column_stack([FRAME["age"], FRAME["city"] == "Oslo", FRAME["city"] == "Bergen"])
    assert model.coef_.shape == (3, 3)
    assert np.allclose(
        features @ model.coef_.T + model.intercept_, model.decision_function(FRAME), atol=0.02
    )


def test_a_line_is_its_slopes_and_intercept() -> None:
    model = LinearRegression(columns=COLUMNS, target=Real(-50, 250), **PAID)
    model.fit(FRAME, 2 * NUMBERS, payer=PublicData())
    features = np.column_stack([FRAME["age"], FRAME["city"] == "Oslo", FRAME["city"] == "Bergen"])
    linear = np.clip(features @ model.coef_ + model.intercept_, -50, 250)
    assert np.allclose(linear, model.predict(FRAME), atol=0.03)
    assert 1.5 < model.coef_[0] < 2.5


def test_importances_follow_from_the_curves() -> None:
    trees = AdditiveTrees(
        columns={"late": Category(["yes", "no"]), "city": Category(["Oslo", "Bergen"])},
        classes=("no", "yes"), **PAID,
    )  # fmt: skip
    trees.fit(FRAME.assign(late=FRAME["churned"]), "churned", payer=PublicData())
    assert trees.feature_importances_.sum() == pytest.approx(1)
    assert trees.feature_importances_[0] > 0.7


@pytest.mark.parametrize("name", ["coef_", "intercept_", "coef_names_", "feature_importances_"])
def test_attributes_are_there_after_a_fit(name: str) -> None:
    unfitted = AdditiveTrees(columns=Category([1])) if name == "feature_importances_" else MODEL
    assert not hasattr(unfitted, name)


def test_classes_of_several_types_stay_apart() -> None:
    model = NaiveBayes(columns=Category([0, 1]), classes=(1, "1"), class_check=0, **PAID)
    model.fit([[0]] * 300 + [[1]] * 300, [1] * 300 + ["1"] * 300, payer=PublicData())
    assert model.predict([[0], [1]]).tolist() == [1, "1"]


def test_a_second_fit_forgets_the_first() -> None:
    model = clone(MODEL).fit(FRAME, "churned", payer=PublicData())
    plain = KMeans(columns=COLUMNS, n_clusters=2, **PAID).fit(FRAME, payer=PublicData())
    model.set_params(columns=Real(0, 100)).fit(
        FRAME[["age"]].to_numpy(), FRAME["churned"], payer=PublicData()
    )
    assert not hasattr(model, "feature_names_in_")
    assert len(plain.predict(FRAME)) == ROWS
