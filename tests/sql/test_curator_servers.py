"""A data set on a server: nobody outside sees its rows change, and several policies may lie over it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import CheckedPolicy, Source
from lapwing.sql.reading.prepare import PREPARED_NOTE, UNPREPARED_NOTE, prepare, unit_ids
from lapwing.sql.reading.prepared_copy import PreparedCopy
from lapwing.sql.reading.reader import Reader
from support.clocks import PaddingClock
from support.postgres import server
from support.private_tables import KEY, policy_of, table_of, whole
from support.reached import reaching

COUNT = "SELECT COUNT(*) AS n, SUM(stay) AS s FROM visits"


def run(sql: str) -> None:
    with psycopg.connect(server()) as connection:
        connection.execute(sql)


@pytest.fixture
def policy(tmp_path: Path) -> CheckedPolicy:
    schema = f"clinic_{uuid4().hex[:8]}"
    run(f"CREATE SCHEMA {schema}")
    run(f"CREATE TABLE {schema}.visits AS SELECT n AS who, 900 AS stay FROM generate_series(1, 50) AS t(n)")
    table = table_of("", {"stay": whole(0, 10)}, rows=2)
    table = replace(table, source=Source("postgres", server(), f"{schema}.visits", "postgres"))
    made = policy_of(tmp_path, table)
    return replace(made, epsilon=Fraction(100), delta=Fraction(1, 10**6), ledger=str(tmp_path / "c.ledger"))


def exact(policy: CheckedPolicy) -> list[int]:
    with Dataset(policy, analyst="ann") as dataset:
        question = dataset.plan(COUNT, epsilon=1).question
    reader = Reader.open(policy, KEY, {})
    try:
        assert reader.is_prepared
        return list(map(int, reader.exact(question)[0].values[0]))
    finally:
        reader.close()


def test_S6_a_policy_of_the_same_name_does_not_write_over_the_copy(
    policy: CheckedPolicy, tmp_path: Path
) -> None:
    """Its bounds may be wider: the sums of the first would then move further than they were charged for."""
    prepare(policy, KEY)
    wide = replace(table_of("", {"stay": whole(0, 1000)}, rows=2), source=policy.tables["visits"].source)
    (tmp_path / "other").mkdir()
    other = replace(policy, tables={"visits": wide}, path=tmp_path / "other" / "clinic.toml")
    prepare(other, KEY)
    assert exact(policy) == [50, 500]
    assert exact(other) == [50, 45_000]
    prepare(policy, KEY)
    assert exact(policy) == [50, 500]


def test_long_names_are_not_taken_for_one(policy: CheckedPolicy) -> None:
    """PostgreSQL cuts names off after 63 bytes."""
    own = policy.tables["visits"]
    names = [f"{'v' * 62}{end}" for end in "ab"]
    tables = {
        name: replace(own, name=name, columns=table_of("", {"stay": whole(0, 10**n)}).columns)
        for n, name in enumerate(names)
    }
    both = replace(policy, tables=tables)
    for _ in range(2):
        made = prepare(both, KEY)
        assert sorted(np.concatenate(list(unit_ids(both, made)))) == sorted([*range(1, 51)] * 2)
    with Dataset(both, analyst="ann") as dataset:
        questions = [dataset.plan(COUNT.replace("visits", name), epsilon=1).question for name in names]
    reader = Reader.open(both, KEY, {})
    found = [list(map(int, reader.exact(question)[0].values[0])) for question in questions]
    reader.close()
    assert found == [[50, 50], [50, 500]]


def test_who_comes_while_it_is_prepared_is_registered_or_not_read(
    policy: CheckedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People are registered from the copy itself; until they are, nothing is answered."""
    where = policy.tables["visits"].source.table
    with Dataset(policy, analyst="ann") as dataset, reaching() as reached:
        dataset.prepare()
        dataset.ask(COUNT, epsilon=1)
        told: list[set[int]] = []

        def ids(
            policy: CheckedPolicy, copy: PreparedCopy | None = None, **more: Any
        ) -> list[NDArray[np.int64]]:
            run(f"INSERT INTO {where} VALUES (777, 1)")  # too late for the copy
            with (
                Dataset(policy, analyst="bob") as other,
                pytest.raises(BadParameter, match="changed since"),
            ):
                other.ask(COUNT, epsilon=1)
            found = list(unit_ids(policy, copy, **more))
            told.append({int(number) for array in found for number in array})
            return found

        run(f"INSERT INTO {where} VALUES (555, 1)")
        monkeypatch.setattr("lapwing.sql.reading.prepare.unit_ids", ids)
        dataset.prepare()
        dataset.ask(COUNT, epsilon=1)
        assert told == [{*range(1, 51), 555}]
        assert [one.values[0] for one in reached][::2] == [50, 51]


def test_another_table_must_be_registered(policy: CheckedPolicy) -> None:
    with Dataset(policy, analyst="ann") as dataset:
        dataset.ask(COUNT, epsilon=1)
    source = policy.tables["visits"].source
    run(f"CREATE TABLE {source.table}2 AS SELECT * FROM {source.table}")
    moved = replace(policy.tables["visits"], source=replace(source, table=f"{source.table}2"))
    with (
        Dataset(replace(policy, tables={"visits": moved}), analyst="ann") as dataset,
        pytest.raises(BadParameter, match="changed since the ledger last saw it"),
    ):
        dataset.ask(COUNT, epsilon=1)


def test_the_first_question_stores_its_copy_in_the_server(policy: CheckedPolicy) -> None:
    with Dataset(policy, analyst="ann") as dataset, Dataset(policy, analyst="bob") as other:
        assert PREPARED_NOTE.format("clinic.prepared") in dataset.ask(COUNT, epsilon=1).notes
        assert not other.curator.reads_source()
        other.ask("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        assert other.version() == 1


def test_a_role_that_may_only_read_reads_the_source_padded(
    policy: CheckedPolicy, padding_clock: PaddingClock
) -> None:
    if "postgres@" not in server():
        pytest.skip("this server does not let the role in")
    table = policy.tables["visits"]
    schema = table.source.table.partition(".")[0]
    run(f"CREATE ROLE {schema} LOGIN")
    run(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
    run(f"GRANT SELECT ON {schema}.visits TO {schema}")
    url = server().replace("postgres@", f"{schema}@", 1)
    source = replace(table.source, location=url)
    reading = replace(policy, tables={"visits": replace(table, source=source)})
    with Dataset(reading, analyst="ann") as dataset:
        answer = dataset.ask(COUNT, epsilon=1)
        assert UNPREPARED_NOTE in answer.notes
        assert len(padding_clock.waits) == 2  # whether all rows can be read, and the answer
        assert dataset.ask(COUNT, epsilon=1).is_replay
        assert dataset.version() == 1
