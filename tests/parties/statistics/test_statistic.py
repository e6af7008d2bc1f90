"""Statistics by their specs, blocks, answers that can be read and printed, vectors."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter, BadValue
from lapwing.parties.protocols.protocol import LARGEST_VALUE, OpenedSum
from lapwing.parties.statistics import CellBlock, statistic_of
from lapwing.parties.statistics.statistic import VectorStatistic, clamp_to_range
from support.joint import laplace, member, opened, totals
from support.raised import named

LEVEL = Fraction(19, 20)
HISTOGRAM = {"kind": "question", "sql": "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"}
SPECS: tuple[dict[str, Any], ...] = (
    HISTOGRAM,
    {"kind": "regression", "table": "visits", "y": "cost", "x": ["stay", "urgent"]},
    {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "1/2"},
)
VECTOR = {"kind": "vector", "length": 3, "l1": 2, "l2_squared": 4, "labels": ["a", "b", "c"]}


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_is_the_statistic(spec: dict[str, Any], tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        made = statistic_of(spec, dataset)
        again = statistic_of(json.loads(json.dumps(made.spec)), dataset)
        assert made.spec == spec
        assert (made.meaning, made.blocks, made.stages) == (again.meaning, again.blocks, again.stages)
        assert made.length == sum(block.length for block in made.blocks)
        assert made.source is not None
        assert "policy" in made.why_not_local
        assert len(made.exact(0, ())) == made.length
    assert "secret" not in made.title


def test_a_vector_is_planned_without_numbers() -> None:
    made = statistic_of(VECTOR, None)
    assert made.spec == VECTOR
    assert made.meaning == statistic_of(VECTOR, [1, 2, 3]).meaning
    assert made.meaning != statistic_of({**VECTOR, "l1": 3}, None).meaning
    assert made.source is None
    with pytest.raises(BadParameter, match="only be planned"):
        made.exact(0, ())


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"kind": "mode"},
        {"kind": ["question"]},
        {"kind": "question"},
        {"kind": "question", "sql": "SELECT COUNT(*) FROM visits", "more": 1},
        {"kind": "question", "sql": 3},
        {"kind": "regression", "table": "visits", "y": "cost", "x": "stay"},
        {"kind": "regression", "table": "visits", "y": "cost", "x": []},
        {"kind": "regression", "table": "visits", "y": "cost", "x": ["cost"]},
        {"kind": "regression", "table": "visits", "y": "cost", "x": ["ward"]},
        {"kind": "regression", "table": "visits", "y": "cost", "x": ["name"]},
        {"kind": "regression", "table": "visits", "y": "cost", "x": [3]},
        {"kind": "regression", "table": "wards", "y": "cost", "x": ["stay"]},
        {"kind": "quantile", "table": "visits", "column": "name", "fraction": "0.5"},
        {"kind": "quantile", "table": "visits", "column": "stays", "fraction": "0.5"},
        {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "1"},
        {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "half"},
        {"kind": "quantile", "table": "visits", "column": "stay", "fraction": 0.5},
    ],
)
def test_bad_specs_are_refused_before_anything_is_made(spec: Any, tmp_path: Path) -> None:
    with member(tmp_path, range(3)) as dataset, pytest.raises(BadParameter):
        statistic_of(spec, dataset)
    assert not list(tmp_path.glob("*.ledger"))


def test_a_misspelled_column_gets_a_suggestion(tmp_path: Path) -> None:
    spec = {"kind": "quantile", "table": "visits", "column": "stayy", "fraction": "0.5"}
    with member(tmp_path, range(3)) as dataset, pytest.raises(BadParameter, match='Did you mean "stay"'):
        statistic_of(spec, dataset)


@pytest.mark.parametrize("spec", SPECS)
def test_a_question_needs_a_data_set_and_a_vector_an_array(spec: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="data set"):
        statistic_of(spec, None)
    with member(tmp_path, range(3)) as dataset, pytest.raises(BadParameter, match="array"):
        statistic_of(VECTOR, dataset)


@pytest.mark.parametrize(
    "bad",
    [{"length": 0}, {"l1": 0}, {"l2_squared": 5}, {"l1": LARGEST_VALUE + 1}, {"length": 20_000_001}],
)
def test_a_block_is_checked_at_birth(bad: dict[str, int]) -> None:
    good = {"label": "rows", "length": 3, "l1": 2, "l2_squared": 4}
    assert CellBlock(**good).to_json()["weight"] == "1"  # type: ignore[arg-type]
    with pytest.raises(BadParameter):
        CellBlock(**{**good, **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", ["abc", ["a", "b"], ["a", "b", ""], ["a", "b", 3]])
def test_labels_name_every_cell(labels: Any) -> None:
    with pytest.raises(BadParameter, check=named("labels")):
        VectorStatistic(None, length=3, l1=1, l2_squared=1, labels=labels)


@pytest.mark.parametrize("values", [[1, 2], [0.5, 1, 2], [[1, 2, 3]], ["a", "b", "c"]])
def test_a_vector_is_whole_numbers_for_every_cell(values: Any) -> None:
    with pytest.raises(BadValue):
        VectorStatistic(values, length=3, l1=1, l2_squared=1)


def test_numbers_are_clamped_and_never_refused_for_their_size() -> None:
    huge = np.array([10**30, -(10**30), 7], dtype=object)
    assert clamp_to_range(huge).tolist() == [LARGEST_VALUE, -LARGEST_VALUE, 7]
    assert clamp_to_range(np.array([1 << 60, -5])).tolist() == [LARGEST_VALUE, -5]


def test_the_answer_of_a_vector_has_its_cells_and_intervals() -> None:
    members = [statistic_of(VECTOR, [1, 20, 300]), statistic_of(VECTOR, [1, 1, 1])]
    shares = laplace(members[0], 200)
    found = opened([one.exact(0, ()) for one in members])
    answer = members[0].answer([found], [totals(shares, found)], confidence=LEVEL)
    assert list(answer.column("cell").values) == ["a", "b", "c"]
    assert list(answer.column("value").values) == [2, 21, 301]
    assert answer.contributors == 2
    assert len(answer) == 3
    with pytest.raises(BadParameter):
        answer.column("other")


def test_an_answer_can_be_printed_and_written(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        made = statistic_of(HISTOGRAM, dataset)
        shares = laplace(made, 1, of=2)
        found = opened([made.exact(0, ())] * 3)
    answer = made.answer([found], [totals(shares, found)], confidence=LEVEL)
    plain = json.loads(json.dumps(answer.to_json()))
    assert [column["name"] for column in plain["columns"]] == ["ward", "visits"]
    assert plain["columns"][1]["low"][0] < plain["columns"][1]["values"][0] < plain["columns"][1]["high"][0]
    assert plain["contributors"] == 3
    headings, cells = answer.table()
    assert headings == ["ward", "visits"]
    assert cells[0][0] == "A"
    assert " to " in cells[0][1]
    text = str(answer)
    assert text.startswith(HISTOGRAM["sql"])
    assert "0.95 confidence" in text
    assert "3 members" in text


def test_ten_thousand_bins_are_one_block(tmp_path: Path) -> None:
    sql = "SELECT stay, cost, ward, COUNT(*) AS n FROM visits GROUP BY stay, cost, ward"
    with member(tmp_path, range(200)) as dataset:
        made = statistic_of({"kind": "question", "sql": sql}, dataset)
        assert [block.length for block in made.blocks] == [21 * 201 * 3]
        exact = made.exact(0, ())
        found = opened([laplace(made, 1)[0].sample(exact)])
        answer = made.answer([found], [totals(laplace(made, 1), found)], confidence=LEVEL)
    assert exact.sum() == 300
    assert len(answer) == 21 * 201 * 3


# The local model


def test_reports_are_turned_into_unbiased_counts() -> None:
    response = RandomizedResponse.for_epsilon(1, options=3)
    made = VectorStatistic(None, length=3, l1=1, l2_squared=1)
    assert made.why_not_local == ""
    assert "l1 = 1" in VectorStatistic(None, length=3, l1=2, l2_squared=4).why_not_local
    truth = np.array([100_000, 50_000, 0])
    reports = response.sample(np.repeat(np.arange(3), truth))
    found = OpenedSum(np.bincount(reports, minlength=3), (0, 1))
    answer = made.answer([found], [[response]], confidence=1 - Fraction(1, 10**9))
    column = answer.column("value")
    assert column.values.sum() == pytest.approx(150_000)
    assert column.low is not None
    assert column.high is not None
    assert all(column.low <= truth)
    assert all(truth <= column.high)
    assert answer.notes == ("150,000 rows reported.",)


def test_only_a_vector_is_read_from_reports(tmp_path: Path) -> None:
    response = RandomizedResponse.for_epsilon(1, options=3)
    with member(tmp_path, range(3)) as dataset:
        made = statistic_of(HISTOGRAM, dataset)
    found = OpenedSum(np.array([1, 2, 3]), (0,))
    with pytest.raises(BadParameter, check=named("noises")):
        made.answer([found], [[response]], confidence=LEVEL)
    with pytest.raises(BadValue):
        VectorStatistic(None, length=3, l1=1, l2_squared=1).answer(
            [OpenedSum(np.zeros(3, dtype=np.int64), (0,))], [[response]], confidence=LEVEL
        )
