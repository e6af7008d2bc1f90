"""WHERE before the bound: the rows that are asked about are counted up to K, on every engine."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.sql.cell_check import check_noisily
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Numeric
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.preliminary_questions import policy_with_column
from lapwing.sql.question.relation import expressions_of, scans_of, undo_where_first, where_first
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.reader import Reader
from sql.reading.test_reader_neighbours import Found, require_all_close, require_same
from support.hospital import ENGINES, WARDS, Hospital, invented, policy_for
from support.reached import reaching
from support.slowly import first

KEY = bytes(range(32))
QUESTIONS = (
    "SELECT COUNT(*), SUM(stay) FROM visits WHERE ward = 'B'",
    "SELECT ward, COUNT(*), AVG(cost), MEDIAN(stay) FROM visits WHERE stay > 10 AND urgent GROUP BY ward",
    "SELECT name, COUNT(*) FROM visits WHERE cost > 100 OR ward = 'A' GROUP BY name",
    "WITH p AS (SELECT who, COUNT(*) AS n FROM visits WHERE stay < 30 GROUP BY who) SELECT SUM(n) FROM p",
)


def asked(policy: CheckedPolicy, sql: str) -> BoundQuery:
    bound = bind(sql, Catalog(policy, {"wards": WARDS}))
    return replace(bound, source=where_first(bound.source))


def found(policy: CheckedPolicy) -> Found:
    reader = Reader.open(policy, KEY, {"wards": WARDS}, from_source=True)
    try:
        return [
            (question, reader.exact(question)) for question in (asked(policy, sql) for sql in QUESTIONS)
        ]
    finally:
        reader.close()


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_neighbours_differ_by_no_more_than_declared_and_engines_by_nothing(
    engine: str, tmp_path: Path
) -> None:
    everybody = invented(3)
    here = found(policy_for(everybody, engine, tmp_path / "all"))
    there = found(policy_for(everybody.without("p0"), engine, tmp_path / "less", order=5))
    require_all_close(here, there)
    on_files = found(policy_for(everybody, "duckdb", tmp_path / "files", order=2))
    for (question, mine), (_, theirs) in zip(here, on_files, strict=True):
        require_same(question, mine, theirs)


def test_no_row_is_wasted_on_what_is_not_asked_about(tmp_path: Path) -> None:
    """Person p has 40 rows of ward A and 3 of ward B; K is far below 40."""
    row = {"who": "p", "stay": 1, "cost": 1.0, "admitted": None, "urgent": True, "name": "n"}
    rows = [{**row, "ward": "A", "cost": float(n)} for n in range(40)] + [
        {**row, "ward": "B", "stay": n} for n in (1, 2, 3)
    ]
    policy = policy_for(Hospital({"p": rows}, {}), "duckdb", tmp_path)
    most = policy.tables["visits"].rows_per_unit
    assert 3 <= most < 40
    reader = Reader.open(policy, KEY, {"wards": WARDS}, from_source=True)
    counts = [
        reader.exact(asked(policy, f"SELECT COUNT(*) FROM visits WHERE ward = '{ward}'")) for ward in "AB"
    ]
    reader.close()
    assert [int(count[0].values[0, 0]) for count in counts] == [most, 3]


def test_both_ways_are_different_questions_also_with_a_copy(tmp_path: Path) -> None:
    policy = policy_for(invented(2), "duckdb", tmp_path)
    with Dataset(policy, analyst="ann") as dataset, reaching() as reached:
        dataset.prepare()
        sql = "SELECT COUNT(*) AS n FROM visits WHERE stay > 20"
        plain = dataset.ask(sql, epsilon=1)
        plan = dataset.plan(sql, epsilon=1, where_first=True)
        assert "among those that WHERE keeps" in plan.bounds[0]
        assert len(plan.dry_run()) == 1
        del reached[1:]  # the dry run's
        first = plan.release()
        assert not first.is_replay
        assert plan.release().is_replay
        assert dataset.ask(sql, epsilon=1).receipt == plain.receipt
    assert len(reached) == 2
    assert reached[1].values >= reached[0].values


def test_without_where_it_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    dataset = Dataset(policy_for(invented(1), "duckdb", tmp_path), analyst="ann")
    with pytest.raises(BadParameter, match="needs a WHERE directly on a private table"):
        dataset.plan("SELECT COUNT(*) FROM visits", epsilon=1, where_first=True)
    assert not list(tmp_path.glob("*.ledger*"))


def test_there_and_back(tmp_path: Path) -> None:
    policy = policy_for(invented(1), "duckdb", tmp_path)
    for sql in QUESTIONS:
        bound = bind(sql, Catalog(policy, {"wards": WARDS}))
        moved = where_first(bound.source)
        assert all(scan.where is not None for scan in scans_of(moved))
        assert undo_where_first(moved) == bound.source
        assert set(map(repr, expressions_of(moved))) == set(map(repr, expressions_of(bound.source)))


def test_a_server_with_a_copy_is_not_read_behind_the_ledgers_back(tmp_path: Path) -> None:
    """Who came since the copy was made is not registered, and a server's tables are not compared."""
    with Dataset(policy_for(invented(1), "postgres", tmp_path), analyst="ann") as dataset:
        plan = dataset.plan("SELECT COUNT(*) FROM visits WHERE stay > 3", epsilon=1, where_first=True)
        plan.release()  # without a copy every question reads the source
        dataset.prepare()
        before = dataset.ledger.blocks(dataset.policy.name)
        with pytest.raises(BadParameter, match="may differ from its copy"):
            plan.release()
        with pytest.raises(BadParameter, match="may differ from its copy"):
            dataset.truncated("visits", epsilon=1, beyond=10)
        with pytest.raises(BadParameter, match="may differ from its copy"):
            dataset.search_bounds("visits", "stay", epsilon=1, step=1)
        with pytest.raises(BadParameter, match="may differ from its copy"):
            check_noisily(dataset, 1)
        other = policy_with_column(dataset.policy, "visits", "stay", Numeric(Fraction(1), 0, 7))
        with (
            Dataset(other, analyst="ann") as edited,
            pytest.raises(BadParameter, match="may differ from its copy"),
        ):
            edited.ask("SELECT SUM(stay) FROM visits", epsilon=1)
        assert dataset.ledger.blocks(dataset.policy.name) == before
        (line,) = dataset.ask("SELECT COUNT(*) FROM visits", epsilon=1).truncation
        assert line.endswith("can be bought: `lapwing truncated postgres.toml visits --epsilon …`")
