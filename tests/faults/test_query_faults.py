"""The S, Q, E and X cases of private SQL, end to end on every engine. Spark's are in `make test-all`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, LapwingError
from lapwing.ledger.publishing import export_statement
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.refusal import Refused
from support.hospital import ENGINES, Hospital, invented, policy_for
from support.reached import reaching
from support.slowly import first

Ask = Callable[[Hospital], Dataset]
CANARY = "Alice Canary"
NOBODIES = tuple({"who": who} for who in (None, "", "  "))
PEOPLE = "SELECT COUNT(*) AS n, COUNT(DISTINCT who) AS people FROM visits"


@pytest.fixture(params=first(2, ENGINES))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ask]:
    sets: list[Dataset] = []

    def open_hospital(hospital: Hospital) -> Dataset:
        policy = policy_for(hospital, request.param, tmp_path / f"{len(sets)}", order=len(sets))
        sets.append(Dataset(policy, analyst="ann"))
        return sets[-1]

    yield open_hospital
    for one in sets:
        one.close()


def visits(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    usual = {"who": "p", "ward": "A", "stay": 5, "cost": 1.0, "admitted": None, "urgent": True, "name": "n"}
    return [{**usual, **row} for row in rows]


def crowd(count: int, **values: object) -> Hospital:
    return Hospital({f"p{n}": visits({"who": f"p{n}", **values}) for n in range(count)}, {})


def spent(dataset: Dataset) -> int:
    [block] = dataset.ledger.blocks(dataset.policy.name)
    return block.spent[1]


def test_S7_every_aggregate_is_paid_for(opened: Ask) -> None:
    dataset = opened(crowd(50))
    plan = dataset.plan("SELECT COUNT(*), AVG(stay), SUM(cost), MEDIAN(stay) FROM visits", epsilon=2)
    shares = [added.mechanism.loss.pure for added in plan.shares.added]
    shares += [chosen.mechanism.loss.pure for chosen in plan.shares.chosen]
    assert len(shares) == 4  # the count, the pair of the average, the sum, the choice
    assert plan.question.numbers == 4
    assert sum(share for share in shares if share is not None) == 2
    plan.release()
    assert abs(spent(dataset) - 2 * 10**9) <= 5  # each of them is rounded up by itself


def test_S10_ids_are_told_apart_exactly_and_no_id_is_nobody(opened: Ask) -> None:
    spellings = ["A ", "a", " a", "A", "a b", "a  b", "é", "É"]
    people = {who: visits({"who": who}) for who in spellings} | {"nobody": visits(*NOBODIES)}
    found = reached(opened(Hospital(people, {})), PEOPLE)
    assert found == [[len(spellings)]] * 2


def test_S10_where_the_policy_folds_ids_spellings_are_one_person(tmp_path: Path) -> None:
    rows = visits(*[{"who": who} for who in ("A ", "a", " a", "A")], *NOBODIES)
    for engine in ("duckdb", "postgres"):
        policy = policy_for(Hospital({"a": rows}, {}), engine, tmp_path / engine, folds_ids=True)
        with Dataset(policy, analyst="ann") as dataset:
            assert sorted(reached(dataset, PEOPLE)) == [[1], [3]]  # three rows of a person count


def test_S12_an_average_of_nothing_is_an_answer_within_the_bounds(opened: Ask) -> None:
    dataset = opened(crowd(5))
    answer = dataset.ask(
        "SELECT AVG(stay) AS m, VARIANCE(stay), MAX(stay) FROM visits WHERE stay > 50", epsilon=1
    )
    assert 0 <= answer.columns[0].values[0] <= 60
    assert len(answer) == 1


def reached(dataset: Dataset, question: str) -> list[list[int]]:
    """What reached each mechanism, before any noise. Codes come in no order."""
    with reaching() as found:
        dataset.ask(question, epsilon=1)
    return [sorted(one.values) for one in found]


def test_S4_S3_infinite_huge_and_missing_values_count_at_the_bounds_or_not_at_all(opened: Ask) -> None:
    odd = [float("inf"), float("-inf"), float("nan"), 1e308, -1e308, None]
    people = {f"p{n}": visits({"who": f"p{n}", "cost": cost}) for n, cost in enumerate(odd)}
    dataset = opened(Hospital(people, {}))
    found = reached(dataset, "SELECT SUM(cost) AS s, COUNT(cost) AS n FROM visits")
    assert sorted(found) == [[4], [2 * (100_000 - 500)]]  # in steps of 1/100


def test_Q1_S11_a_key_of_one_person_stays_hidden_and_empty_declared_keys_are_shown(opened: Ask) -> None:
    people = crowd(400, name="many").visits | {"x": visits({"who": "x", "name": CANARY})}
    dataset = opened(Hospital(people, {}))
    shown = dataset.ask("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon=5)
    assert list(shown.columns[0].values) == ["many"]
    declared = dataset.ask("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", epsilon=5)
    assert list(declared.columns[0].values) == ["A", "B", "C"]


def test_Q3_the_order_of_answers_tells_nothing_of_the_order_of_rows(opened: Ask) -> None:
    names = ["b", "a", "c"]
    people = {f"{n}{k}": visits({"who": f"{n}{k}", "name": n}) for n in names for k in range(300)}
    answer = opened(Hospital(people, {})).ask("SELECT name, COUNT(*) FROM visits GROUP BY name", epsilon=5)
    assert list(answer.columns[0].values) == ["a", "b", "c"]


def test_Q4_Q7_looking_twice_gives_the_same_numbers_and_fresh_ones_cost(opened: Ask) -> None:
    dataset = opened(crowd(80))
    sql = "SELECT COUNT(*) AS n FROM visits"
    answer = dataset.ask(sql, epsilon="0.1")
    assert answer.to_arrow().equals(answer.to_arrow())
    before = spent(dataset)
    assert dataset.ask(sql, epsilon="0.1").to_arrow().equals(answer.to_arrow())
    assert spent(dataset) == before
    noises = {
        int(dataset.ask(sql, epsilon="0.1", fresh=True).columns[0].values[0] * 1000) for _ in range(6)
    }
    assert len(noises) > 1
    assert spent(dataset) == 7 * before


def test_Q6_differencing_is_paid_twice(opened: Ask) -> None:
    dataset = opened(crowd(80))
    dataset.ask("SELECT COUNT(*) FROM visits", epsilon="0.1")
    dataset.ask("SELECT COUNT(*) FROM visits WHERE name <> 'x'", epsilon="0.1")
    assert spent(dataset) == 2 * 10**8


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM visits",  # cases Q2, Q10
        "SELECT who, name FROM visits",
        "SELECT ANY_VALUE(name), FIRST(name), LIST(name), STRING_AGG(name, ',') FROM visits",
        "SELECT HISTOGRAM(stay) FROM visits",
        "SELECT COUNT(*) FROM visits; DROP TABLE visits",  # Q9
        "SELECT COUNT(*) FROM pg_stats",  # E6
        "SELECT COUNT(*) FROM pg_catalog.pg_class",
        "SELECT COUNT(*) FROM information_schema.columns",
        "SELECT COUNT(*) FROM '~/visits.parquet'",  # case E8
        "SELECT COUNT(*) FROM read_csv('/etc/passwd')",  # E1
        "SELECT COUNT(*) FROM query('SELECT 1')",  # E2
        "SELECT COUNT(*) FROM dataset",  # E3: a name of this process
        "SET enable_external_access = true",  # E4
        "SELECT COUNT(*) FROM visits WHERE reflect('java.lang.System', 'exit') = 1",  # E9
        "SELECT COUNT(*) FROM visits WHERE sleep_ms(300) = 1",  # case X3
        "SELECT COUNT(*) FROM visits WHERE pg_sleep(1) IS NULL",
        "SELECT COUNT(*) FROM visits WHERE error(name) = 'x'",  # X2
        "CREATE FUNCTION f AS 1",  # case X5
        "SELECT COUNT(*) FROM visits WHERE ctid = '(0,1)'",
        "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits",
    ],
)
def test_hostile_sql_is_refused_before_anything_is_read(tmp_path: Path, sql: str) -> None:
    """It is the same on all engines: no text of an analyst reaches one."""
    dataset = Dataset(policy_for(crowd(3), "duckdb", tmp_path), analyst="ann")
    with pytest.raises(Refused):
        dataset.ask(sql, epsilon=1)
    assert not list(tmp_path.glob("*.ledger*"))


def test_X1_X2_no_row_can_cause_an_error(opened: Ask) -> None:
    people = {
        f"p{n}": visits({"who": f"p{n}", "name": name, "stay": stay, "cost": cost})
        for n, (name, stay, cost) in enumerate(
            [
                (CANARY, 0, 0.0),
                ("99999999999999999999", None, 1e300),
                ("7", 60, float("nan")),
                (None, -9, None),
            ]
        )
    }
    found = reached(
        opened(Hospital(people, {})),
        "SELECT COUNT(*) AS n, SUM(CLAMP(CAST(name AS INTEGER), 0, 9)) AS s, "
        "SUM(ROUND(cost / stay, 1)) AS q, SUM(stay % 7) AS r, MEDIAN(stay * stay) AS m "
        "FROM visits WHERE CAST(name AS INTEGER) > 5 OR stay >= 0",
    )
    # Of four people three are counted; 7 in names; no quotient; 60 % 7; squares of stays within 0 .. 60.
    assert found == [[3], [7], [0], [4], [0, 3600]]


def test_X6_H7_plans_prices_and_refusals_are_the_same_for_neighbours(opened: Ask) -> None:
    everybody = invented(4)
    both = [opened(everybody), opened(everybody.without("p0"))]
    for sql in (
        "SELECT ward, AVG(cost) FROM visits GROUP BY ward",
        "SELECT name, COUNT(*) FROM visits GROUP BY 1",
    ):
        here, there = (dataset.plan(sql, epsilon=1).to_json() for dataset in both)
        assert here == there
    complaints = []
    for dataset in both:
        dataset.ask("SELECT COUNT(*) FROM visits", epsilon=90)
        with pytest.raises(LapwingError) as refusal:
            dataset.ask("SELECT COUNT(*) FROM visits", epsilon=20)
        complaints.append(str(refusal.value).replace(dataset.policy.name, "the data"))
    assert complaints[0] == complaints[1]


def test_X7_no_private_value_is_in_logs_files_or_statements(
    opened: Ask, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    people = crowd(30).visits | {"x": visits({"who": CANARY, "name": CANARY, "cost": 123.45})}
    dataset = opened(Hospital(people, {}))
    dataset.ask("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon=1)
    with pytest.raises(BadParameter):
        dataset.ask("SELECT SUM(name) FROM visits", epsilon=1)
    dataset.prepare()
    dataset.ask("SELECT COUNT(*) AS n FROM visits WHERE CAST(name AS INTEGER) = 1", epsilon=1)
    statement = tmp_path / "statement"
    export_statement(dataset.ledger, statement)
    seen = caplog.text + "".join(capfd.readouterr()) + statement.read_text()
    ledger = Path(dataset.policy.ledger)
    dataset.close()
    files = [path for path in ledger.parent.glob("h.ledger*") if path.is_file()]
    files += list(ledger.parent.rglob("*.json"))
    assert files
    for content in [seen.encode(), *(path.read_bytes() for path in files)]:
        for value in (CANARY, CANARY.lower(), "123.45"):
            assert value.encode() not in content
