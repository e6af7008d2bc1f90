"""All features of a run: the description is public and complete, and comes back from its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lapwing.errors import BadParameter
from lapwing.learn.features import Feature, Features
from lapwing.learn.trainers.columns import checked_columns
from lapwing.sql.policy.kinds import Text
from lapwing.sql.row_questions import RowQuestion
from support.row_question import KINDS

VALUES: dict[str, list[Any]] = {
    "age": [10, None, 100],
    "cost": [1.5, 2.5, -5],
    "ward": ["A", "Z", "C"],
    "day": [None, None, None],
    "month": [None, None, None],
    "urgent": [True, False, None],
}


def test_the_matrix_is_as_described(question: RowQuestion) -> None:
    features = Features.of(question, label="urgent", missing={"cost": 0, "day": None})
    rows = features.coded(VALUES)
    matrix = features.matrix(rows)
    assert matrix.shape == (3, features.width) == (3, len(features.names))
    assert "age is missing" in features.names
    assert "cost is missing" not in features.names
    assert "day is missing" not in features.names
    assert ((matrix**2).sum(axis=1) <= len(features.columns)).all()
    table = features.table(rows)
    assert len(checked_columns(features.declared, table.shape[1])) == table.shape[1]


def test_without_indicators_there_is_one_column_each(question: RowQuestion) -> None:
    features = Features.of(question, label=None, indicators=False)
    assert features.width == len(KINDS) - 1 + 3  # a feature for each of three wards
    assert len(features.declared) == len(KINDS)


def test_classes_and_numbers_to_be_learned(question: RowQuestion) -> None:
    wards = Features.of(question, label="ward")
    rows = wards.coded(VALUES)
    assert wards.classes == (0, 1, 2)
    assert wards.class_values == ("A", "B", "C")
    assert wards.target(rows).tolist() == [0, -1, 2]
    assert wards.learnable(rows).tolist() == [True, False, True]
    costs = Features.of(question, label="cost")
    assert costs.target_bounds == (-5.0, 15.0)
    assert costs.target(costs.coded(VALUES)).tolist() == [1.5, 2.5, -5.0]
    assert Features.of(question, label="urgent").class_values == (False, True)
    with pytest.raises(BadParameter, match="no classes"):
        _ = costs.classes
    with pytest.raises(BadParameter, match="no bounds"):
        _ = wards.target_bounds
    with pytest.raises(BadParameter, match="there is nothing to learn"):
        Features.of(question, label=None).target(rows)


def test_the_description_comes_back_from_its_text(question: RowQuestion) -> None:
    features = Features.of(question, label="cost", missing={"age": 40})
    assert Features.from_json(json.loads(json.dumps(features.to_json()))) == features
    assert Features.from_json(json.loads(str(features))) == features
    without = Features.of(question, label=None)
    assert Features.from_json(without.to_json()) == without


def test_a_description_of_features_that_are_no_longer_made_is_refused(question: RowQuestion) -> None:
    told = Features.of(question, label="cost").to_json()
    for wrong in ({**told, "bias": True}, {**told, "columns": [{**told["columns"][0], "as_code": True}]}):
        with pytest.raises(BadParameter, match="of another form"):
            Features.from_json(wrong)


@pytest.mark.parametrize("bad", [None, {}, {"form": "other"}, {"form": "lapwing features 1"}])
def test_no_other_text_is_a_description(bad: object) -> None:
    with pytest.raises(BadParameter):
        Features.from_json(bad)


def test_columns_that_are_not_there_are_refused(question: RowQuestion) -> None:
    wrongs: list[dict[str, Any]] = [
        {"label": "x"},
        {"label": None, "missing": {"x": 1}},
    ]
    for wrong in wrongs:
        with pytest.raises(BadParameter, match="no column 'x'"):
            Features.of(question, **wrong)
    with pytest.raises(BadParameter, match="is no value of that column"):
        Features.of(question, label=None, missing={"ward": "Z"})


def test_a_description_that_exists_is_valid() -> None:
    age = Feature("age", KINDS["age"])
    wrongs: list[dict[str, Any]] = [
        {"columns": ()},
        {"columns": (age, age)},
        {"columns": (age,), "label": "age", "label_kind": KINDS["age"]},
        {"columns": (age,), "label": "x"},
        {"columns": (age,), "label": "x", "label_kind": Text()},
    ]
    for wrong in wrongs:
        with pytest.raises(BadParameter):
            Features(**wrong)


def test_values_to_predict_for_must_be_whole(question: RowQuestion) -> None:
    features = Features.of(question, label="urgent")
    with pytest.raises(BadParameter, match="one column for each"):
        features.coded({"age": [1]})
    with pytest.raises(BadParameter, match="one length"):
        features.coded({**VALUES, "age": [1]})
