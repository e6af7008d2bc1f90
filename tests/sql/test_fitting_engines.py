"""Fits of data with blocks, in servers, and in files that are read otherwise than before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest

from lapwing.errors import BadParameter, ClassNotSeen, OverBudget
from lapwing.learn import NaiveBayes
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import Source
from lapwing.sql.policy.policy_file import load_policy
from sql.conftest import Open, write_visits
from support.postgres import server
from support.slowly import slow
from support.spark import spark

ROWS = "SELECT stay, ward FROM visits"
COHORTS = '[blocks]\nby = "unit"\ncohorts = 4\n'
MONTHS = '[blocks]\nby = "unit"\nevery = "month"\n'


def spent(dataset: Dataset) -> dict[str, float]:
    blocks = dataset.ledger.blocks("visits")
    return {block.label: block.spent[1] / 1e9 for block in blocks if block.label != "*"}


def fit(dataset: Dataset, question: str = ROWS, epsilon: int = 1, **more: Any) -> NaiveBayes:
    return dataset.fit(NaiveBayes(), question, epsilon=epsilon, delta="1e-7", **more)


def counted(model: NaiveBayes) -> float:
    return float(model.class_counts_.sum())


def error(model: NaiveBayes) -> float:
    """Eight σ of the sum of two counts: noise alone exceeds it once in 10^15 fits."""
    return float(8 * 2**0.5 * model.class_counts_sigma_)


def test_a_fit_charges_the_blocks_that_it_reads_and_reads_these_alone(opened: Open) -> None:
    dataset = opened(more=COHORTS)
    models = [fit(dataset, f"{ROWS} WHERE cohort = {code}", 9) for code in range(3)]
    cost = spent(dataset)
    assert cost["3"] == 0
    assert len({cost[label] for label in "012"}) == 1
    assert cost["0"] > 8
    assert all(counted(model) < 150 for model in models)  # of 300 people in 4 cohorts
    with pytest.raises(OverBudget):
        fit(dataset, epsilon=9)  # of all blocks
    rest = fit(dataset, f"{ROWS} WHERE cohort = 3", 9)
    people = sum(map(counted, [*models, rest]))
    assert abs(people - 300) < sum(map(error, [*models, rest]))
    assert fit(dataset, f"{ROWS} WHERE cohort = 1", 9).receipt_.position == models[1].receipt_.position
    assert spent(dataset)["1"] == cost["1"]


def test_a_filter_that_is_no_block_charges_them_all(opened: Open) -> None:
    dataset = opened(more=COHORTS)
    fit(dataset, f"{ROWS} WHERE cohort = 1 OR stay > 3")
    fit(dataset, "SELECT stay, ward FROM (SELECT *, cohort + 0 AS part FROM visits) AS v WHERE part = 1")
    assert len(set(spent(dataset).values())) == 1
    assert min(spent(dataset).values()) > 1


def test_a_block_that_arrives_makes_another_fit(opened: Open, tmp_path: Path) -> None:
    dataset = opened(more=MONTHS)
    with pytest.raises(BadParameter):
        fit(dataset)  # nobody arrived yet
    dataset.prepare(today=date(2026, 1, 15))
    first = fit(dataset, epsilon=8)
    assert spent(dataset).keys() == {"2026-01"}
    write_visits(tmp_path, range(300, 500), "visits-2")
    with pytest.raises(BadParameter):
        fit(dataset, epsilon=8)  # the source changed
    dataset.prepare(today=date(2026, 2, 15))
    with pytest.raises(OverBudget):
        fit(dataset, epsilon=8)  # January cannot pay again
    before = spent(dataset)
    assert before["2026-02"] == 0
    both = fit(dataset)
    assert both.receipt_.position != first.receipt_.position
    assert all(spent(dataset)[label] > before[label] for label in before)


@pytest.fixture
def in_a_server(request: pytest.FixtureRequest, opened: Open, tmp_path: Path) -> Iterator[Dataset]:
    """The same rows in a server, with cohorts."""
    opened(more=COHORTS)
    policy, files = load_policy(tmp_path / "visits.toml"), tmp_path / "visits.parquet"
    name = f"fits_{uuid4().hex[:8]}"
    if request.param == "spark":
        spark()  # the session that all tests share
        source = Source("spark", "", str(files), "spark-parquet")
    else:
        with psycopg.connect(server()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {name}")
            cursor.execute(
                f"CREATE TABLE {name}.visits "
                "(patient_id int, ward text, stay int, admitted date, name text)"
            )
            rows = pq.read_table(files).select(["patient_id", "ward", "stay", "admitted", "name"])
            cursor.executemany(
                f"INSERT INTO {name}.visits VALUES (%s, %s, %s, %s, %s)",
                [tuple(row.values()) for row in rows.to_pylist()],
            )
        source = Source("postgres", server(), f"{name}.visits", "postgres")
    table = replace(policy.tables["visits"], source=source)
    moved = replace(policy, tables={"visits": table}, path=tmp_path / f"{request.param}.toml")
    with Dataset(moved, analyst="ann") as dataset:
        yield dataset


@pytest.mark.parametrize("in_a_server", ["postgres", slow("spark")], indirect=True)
@pytest.mark.parametrize("prepared", [True, False])
def test_servers_fit_the_same_people_at_the_same_price(in_a_server: Dataset, prepared: bool) -> None:
    dataset = in_a_server
    dataset.curator.prepares = prepared
    if not prepared:
        dataset.register()
    model = fit(dataset, f"{ROWS} WHERE cohort = 1", 9)
    cost = spent(dataset)
    assert [label for label, price in cost.items() if price] == ["1"]
    assert cost["1"] > 8
    rest = [fit(dataset, f"{ROWS} WHERE cohort = {code}", 9) for code in (0, 2, 3)]
    assert abs(sum(map(counted, [model, *rest])) - 300) < sum(map(error, [model, *rest]))
    again = fit(dataset, f"{ROWS} WHERE cohort = 1", 9)
    assert again.receipt_.position == model.receipt_.position
    assert np.array_equal(again.class_counts_, model.class_counts_)
    with pytest.raises(OverBudget):
        fit(dataset, f"{ROWS} WHERE cohort = 1", 9, fresh=True)
    assert spent(dataset)["1"] == cost["1"]


def test_files_that_are_read_otherwise_are_other_data(opened: Open, tmp_path: Path) -> None:
    """The key of a fit says nothing of the form of CSV files. A changed form is a new version."""
    opened()
    lines = [f"{n};{'AB'[n % 2]};{n % 11};2025-01-01;x" for n in range(300)]
    text = "patient_id;ward;stay;admitted;name\n" + "\n".join(lines) + "\n"
    (tmp_path / "visits.csv").write_text(text)
    policy = (tmp_path / "visits.toml").read_text()

    def read_as(form: str) -> Dataset:
        source = f'"visits.csv"\ncsv = {{ delimiter = ";"{form} }}'
        (tmp_path / "visits.toml").write_text(policy.replace('"visits*.parquet"', source))
        return opened(rewrite=False)

    dataset = read_as("")
    first = fit(dataset, epsilon=4)
    assert abs(counted(first) - 300) < error(first)
    dataset.close()
    other = read_as(', null = "A"')
    with pytest.raises(BadParameter):
        fit(other, epsilon=4)
    assert other.prepare()
    with pytest.raises(ClassNotSeen) as seen:  # every second row has no ward now
        fit(other, epsilon=4)
    assert seen.value.classes == ("'A'",)
    other.close()
    back = read_as("")
    with pytest.raises(BadParameter):
        fit(back, epsilon=4)
