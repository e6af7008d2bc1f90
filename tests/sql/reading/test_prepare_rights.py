"""A PostgreSQL role that may only read: the missing right is named before anything is done (case C20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from lapwing.engines.engine import MissingRight
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.reading.prepare import UNPREPARED_NOTE, can_prepare
from lapwing.sql.reading.prepared_copy import last_copy, prepared_folder
from support.postgres import server

POLICY = """
[dataset]
name = "visits"
[budget]
epsilon = 10.0
delta = 1e-6
[tables.visits]
source = "{url}#{name}.visits"
unit = "who"
rows_per_unit = 2
[tables.visits.columns.stay]
low = 0
high = 10
"""
COUNT = "SELECT COUNT(*) AS n FROM visits"


def run(*statements: str) -> None:
    with psycopg.connect(server(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a schema with a table, and of a role that may read it."""
    name = f"rights_{uuid4().hex[:8]}"
    url = server()
    if "postgres@" not in url:
        pytest.skip("this server does not let the role in")
    run(
        f"CREATE SCHEMA {name}",
        f"CREATE TABLE {name}.visits AS SELECT n % 40 AS who, n % 10 AS stay FROM generate_series(1, 99) n",
        f"CREATE ROLE {name} LOGIN",
        f"GRANT USAGE ON SCHEMA {name} TO {name}",
        f"GRANT SELECT ON {name}.visits TO {name}",
    )
    yield name
    run(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}", f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def dataset(name: str, tmp_path: Path) -> Iterator[Dataset]:
    url = server().replace("postgres@", f"{name}@", 1)
    (tmp_path / "visits.toml").write_text(POLICY.format(url=url, name=name))
    found = Dataset(load_policy(tmp_path / "visits.toml"), analyst="ann")
    yield found
    found.close()


def test_the_missing_right_is_named_and_nothing_is_done(dataset: Dataset, name: str) -> None:
    policy = dataset.policy
    with pytest.raises(MissingRight, match=f'GRANT CREATE ON DATABASE ".*" TO "{name}"') as raised:
        dataset.prepare()
    assert "Nothing was done" in str(raised.value)
    assert not can_prepare(policy)
    assert not prepared_folder(policy).exists()
    assert not dataset.curator.has_ledger
    answer = dataset.ask(COUNT, epsilon=1)  # from the source, with the right to read alone
    assert UNPREPARED_NOTE in answer.notes


def test_the_grant_of_the_message_is_enough(dataset: Dataset, name: str) -> None:
    with pytest.raises(MissingRight) as raised:
        dataset.prepare()
    run(str(raised.value).rpartition("run: ")[2])
    assert can_prepare(dataset.policy)
    assert dataset.prepare()
    with dataset.curator.reading() as reader:
        assert reader.is_prepared
    run(f"REVOKE CREATE ON DATABASE postgres FROM {name}")
    assert dataset.prepare()  # its own schema is there


def test_a_schema_of_somebody_else_needs_its_own_grant(dataset: Dataset, name: str) -> None:
    run(f"GRANT CREATE ON DATABASE postgres TO {name}")
    dataset.prepare()
    copy = last_copy(dataset.policy)
    assert copy is not None
    run(f'ALTER SCHEMA "{copy.place}" OWNER TO postgres')
    with pytest.raises(
        MissingRight, match=f'GRANT USAGE, CREATE ON SCHEMA "{copy.place}" TO "{name}"'
    ) as raised:
        dataset.prepare()
    assert last_copy(dataset.policy) == copy
    run(str(raised.value).rpartition("run: ")[2])
    assert dataset.prepare()
    run(f'DROP SCHEMA "{copy.place}" CASCADE')
