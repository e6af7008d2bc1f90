"""What is bought about truncation: how many rows are left out, how far one person moves it, finding it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lapwing.core.laplace import Laplace
from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.planning import plan_truncation
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.question.truncation_questions import ROWS_BEYOND, truncated_rows_question
from lapwing.sql.reading.reader import Reader
from sql.conftest import Open, write_visits
from sql.reading.test_reader_neighbours import PERIODS, require_close
from sql.test_dataset import spent
from support.hospital import ENGINES, WARDS, Hospital, invented, policy_for
from support.reached import reaching
from support.slowly import first

KEY = bytes(range(32))
COUNT = "SELECT COUNT(*) AS n FROM visits"


def exact(policy: CheckedPolicy, beyond: int, rows: int | None = None) -> Any:
    question = truncated_rows_question(policy, "visits", beyond, rows)
    reader = Reader.open(policy, KEY, {"wards": WARDS}, from_source=True)
    try:
        return question, reader.exact(question)
    finally:
        reader.close()


def truth(hospital: Hospital, bound: int, beyond: int) -> list[int]:
    sizes = [len(rows) for name, rows in hospital.visits.items() if name != "nobody"]
    left = [min(max(size - bound, 0), beyond) for size in sizes]
    return [sum(left), sum(min(size, bound) for size in sizes), sum(size > bound for size in sizes)]


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_one_person_moves_what_is_left_out_by_no_more_than_declared(engine: str, tmp_path: Path) -> None:
    """One person has 60 rows where 3 count: without a bound on what is counted they would move it by 57."""
    everybody = invented(3, most=60)
    policy = policy_for(everybody, engine, tmp_path / "all")
    bound = policy.tables["visits"].rows_per_unit
    question, here = exact(policy, 10)
    _, there = exact(policy_for(everybody.without("p0"), engine, tmp_path / "less", order=5), 10)
    require_close(question, here, there)
    assert [part.l1 for part in question.parts] == [10, bound, 1]
    assert here[0].values[0].tolist() == truth(everybody, bound, 10)
    assert here[0].values[0][0] - there[0].values[0][0] == 10  # and the bound is reached
    for beyond, rows in ((100, None), (10, 1)):
        _, found = exact(policy, beyond, rows)
        assert found[0].values[0].tolist() == truth(everybody, rows or bound, beyond)


def test_where_a_person_in_a_month_is_protected_each_month_has_its_bound(tmp_path: Path) -> None:
    everybody = invented(4, most=60)
    own = everybody.visits["p0"]
    month = next(row["admitted"].month for row in own if row["admitted"] is not None)
    others = [row for row in own if row["admitted"] is None or row["admitted"].month != month]
    less = Hospital({**everybody.visits, "p0": others}, everybody.patients)
    here, there = (
        replace(policy_for(hospital, "duckdb", tmp_path / name), blocks=PERIODS, protects="person-period")
        for name, hospital in (("all", everybody), ("less", less))
    )
    question, mine = exact(here, 10, 1)
    require_close(question, mine, exact(there, 10, 1)[1])
    months = {
        (name, row["admitted"].month)
        for name, rows in everybody.visits.items()
        for row in rows
        if name != "nobody" and row["admitted"] is not None and row["admitted"].year == 2025
    }
    assert mine[0].values[0][1] == len(months)  # one row of each person in each month counts


def test_rows_left_out_are_bought_and_every_answer_says_so(opened: Open) -> None:
    """300 people have three rows each, of which two count."""
    dataset = opened()
    bought = dataset.truncated("visits", epsilon=5, beyond=10)
    left, counted, people = (column.values[0] for column in bought.columns)
    shares = plan_truncation(dataset.session, "visits", 5, None, 10).shares
    for value, real, added in zip((left, counted, people), (300, 600, 300), shares.added, strict=True):
        assert isinstance(added.mechanism, Laplace)
        assert abs(value - real) <= 21 * added.mechanism.scale  # each is beyond with less than 1e-9
    assert "at most 10 of each" in str(bought)
    answer = dataset.ask(COUNT, epsilon=1)
    (line,) = answer.truncation
    assert line.startswith('Uses at most 2 rows of each person in "visits". Of the whole table, about ')
    assert f"about {left:,} rows (" in line
    assert f") of {left + counted:,} are left out (receipt {bought.receipt.position})." in line
    assert line.endswith("at most 10 more of each person: if some have still more, more are left out.")
    assert line in str(answer)
    assert "Uses at most 2 rows of each person" in answer._repr_html_()
    assert answer.to_json()["truncation"] == [line]
    assert dataset.plan(COUNT, epsilon=1).bounds == (line,)
    assert dataset.truncated("visits", epsilon=5, beyond=10).is_replay


def test_the_interval_is_the_answers_and_the_newest_purchase_is_told(opened: Open) -> None:
    dataset = opened()
    dataset.truncated("visits", epsilon=1, beyond=100)
    dataset.truncated("visits", epsilon=2, beyond=10)
    wide, narrow = (
        dataset.plan(COUNT, epsilon=1, confidence=level).bounds[0] for level in ("0.999", "0.5")
    )
    assert "at most 10 more" in wide
    assert wide != narrow
    assert spent(dataset) == 3 * 10**9


def test_people_alone_are_told_as_before_and_how_to_buy_rows(opened: Open) -> None:
    dataset = opened()
    (nothing,) = dataset.ask(COUNT, epsilon=1).truncation
    command = "`lapwing truncated visits.toml visits --beyond 100 --epsilon …`"
    assert nothing.endswith(f"What that leaves out can be bought: {command}")
    bought = dataset.truncated("visits", epsilon=2)
    (line,) = dataset.ask(COUNT, epsilon=1).truncation  # the stored answer, with what is known now
    assert f"About {bought.columns[0].values[0]:,} people (" in line
    assert command in line
    assert 'Counts who has more than 2 rows in "visits".' in str(bought)


def test_a_lower_bound_has_its_own_estimate(opened: Open) -> None:
    dataset = opened()
    dataset.truncated("visits", epsilon=1, beyond=10)
    plan = dataset.plan(COUNT, epsilon=1, rows=1)
    assert "visits --rows 1 --beyond 100" in plan.bounds[0]
    bought = dataset.truncated("visits", epsilon=3, rows=1, beyond=10)
    assert "beyond the first 1 row of each person" in str(bought)
    assert f"(receipt {bought.receipt.position})" in plan.release().truncation[0]
    assert dataset.truncated("visits", epsilon=1, rows=2, beyond=10).is_replay  # the policy's own bound
    assert dataset.truncated("visits", epsilon=1, rows=9, beyond=10).is_replay  # a bound is never raised


def test_other_data_and_other_analysts_have_nothing_bought(opened: Open, tmp_path: Path) -> None:
    opened().truncated("visits", epsilon=1, beyond=10)
    write_visits(tmp_path, range(300, 310), "visits2")
    dataset = opened(rewrite=False)
    dataset.prepare()
    assert "can be bought" in dataset.ask(COUNT, epsilon=1).truncation[0]


def test_a_prepared_copy_gives_the_same_as_the_source(opened: Open) -> None:
    """The copy holds K + 1 rows of a person: rows beyond are counted in the source."""
    dataset = opened()
    dataset.prepare()
    with reaching() as reached:
        dataset.truncated("visits", epsilon=1, beyond=10)
    assert [one.values for one in reached] == [[300], [600], [300]]


@pytest.mark.parametrize("beyond", [0, 7, -10, True, 10**6])
def test_a_bad_bound_is_refused_before_anything_is_charged(opened: Open, beyond: int) -> None:
    dataset = opened()
    with pytest.raises(BadParameter, match="must be one of 10, 100"):
        dataset.truncated("visits", epsilon=1, beyond=beyond)
    with pytest.raises(BadParameter, match="no private table"):
        dataset.truncated("wards", epsilon=1, beyond=10)
    assert len(ROWS_BEYOND) == 5
    assert dataset.curator._ledger is None


def test_where_each_row_is_protected_there_is_nothing_to_buy(tmp_path: Path) -> None:
    duckdb.execute(f"COPY (SELECT 1 AS x FROM range(9)) TO '{tmp_path / 'v.parquet'}'")
    (tmp_path / "v.toml").write_text(
        'dataset = { name = "v", protects = "row", population = "x" }\n'
        "budget = { epsilon = 1, delta = 1e-6 }\n"
        '[tables.v]\nsource = "v.parquet"\ncolumns.x = { low = 0, high = 1 }\n'
    )
    with Dataset(load_policy(tmp_path / "v.toml"), analyst="ann") as dataset:
        with pytest.raises(BadParameter, match="each row is protected by itself"):
            dataset.truncated("v", epsilon=1, beyond=10)
        answer = dataset.ask("SELECT COUNT(*) FROM v WHERE x = 1", epsilon="0.5")
    assert answer.truncation == ('Uses every row of "v": each row is protected by itself.',)


def test_where_blocks_are_arrivals_people_can_be_bought_and_rows_cannot(opened: Open) -> None:
    dataset = opened(more='[blocks]\nby = "unit"\nevery = "month"')
    dataset.prepare()
    with pytest.raises(BadParameter, match="only the copy knows who arrived when"):
        dataset.truncated("visits", epsilon=1, beyond=10)
    assert "--beyond" not in dataset.ask(COUNT, epsilon=1).truncation[0]
    dataset.truncated("visits", epsilon=1)
    (line,) = dataset.ask(COUNT, epsilon=1).truncation
    assert "people (" in line
    assert "--beyond" not in line
