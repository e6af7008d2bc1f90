"""C13: joins cannot multiply one person's rows until time, memory or failure tells that they are there.

The attacks ask for work that only the rows of one person cause. They are refused by their text, with the
same words whoever passes, and nothing is charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.question.refusal import Refused
from support.cases import each

POLICY = """
dataset.name = "o"
budget = {epsilon = 1.0, delta = 1e-6}
[tables.t]
source = "d.parquet"
unit = "person"
rows_per_unit = 10
[tables.t.columns]
k = {low = 0, high = 9}
age = {low = 0, high = 120}
income = {low = 0, high = 100000}
ward = {values = ["N", "S", "E", "W"]}
note = {type = "text"}
[tables.services]
source = "services.parquet"
public = true
"""
NOBODY, SOMEBODY = "t.age = 119", "t.age = 37 AND t.income > 99000"
SERVICES = "FROM t JOIN services AS p ON t.ward = p.ward JOIN services AS q ON t.ward = q.ward"


def keys(count: int) -> str:
    return ", ".join(f"CONCAT('{'x' * 1900}{n}', p.label, q.label)" for n in range(count))


SELF = " ".join(f"JOIN t {c} ON t.person = {c}.person" for c in "bcdef")
MIXED = "(t.k * 3 + b.k * c.k + d.k * e.k + f.k) % 7"
BY_NOTE = "FROM t JOIN t b ON t.person = b.person JOIN t c ON t.person = c.person"
ATTACKS = {
    "time by self-joins": f"SELECT COUNT_IF({MIXED} = 3) AS c FROM t {SELF} WHERE {{}}",
    "time by a public table": f"SELECT COUNT_IF((p.code * q.code) % 7 = 3) AS c {SERVICES} WHERE {{}}",
    "failure by disk": f"SELECT COUNT(*) AS c FROM (SELECT t.person, COUNT(*) AS n {SERVICES} WHERE {{}} "
    f"GROUP BY t.person, {keys(8)}) AS x",
    "memory of keys": f"SELECT {keys(4)}, COUNT(*) AS c {SERVICES} WHERE {{}} GROUP BY {keys(4)}",
    "memory of texts": f"SELECT t.note, b.note AS n, COUNT(*) AS c {BY_NOTE} WHERE {{}} GROUP BY 1, 2",
}
ROWS = """SELECT i // 10 AS person, i % 10 AS k, (i // 10) % 90 AS age,
((i // 10) * 7919) % 100001 AS income, ['N', 'S', 'E', 'W'][1 + (i // 10) % 4] AS ward, 'note ' || i AS note
FROM range(3000) t(i)"""
PUBLIC = """SELECT w AS ward, i AS code, 'service ' || i AS label
FROM range(1024) t(i), (VALUES ('N'), ('S'), ('E'), ('W')) v(w)"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder = tmp_path_factory.mktemp("oracle")
    for name, rows in (("d", ROWS), ("services", PUBLIC)):
        duckdb.execute(f"COPY ({rows}) TO '{folder / name}.parquet' (FORMAT parquet)")
    (folder / "p.toml").write_text(POLICY)
    with Dataset(load_policy(Path(folder / "p.toml")), analyst="eve") as opened:
        opened.prepare()
        yield opened


@each("attack", ATTACKS.values())
def test_C13_work_of_one_person_is_refused_before_the_charge(dataset: Dataset, attack: str) -> None:
    complaints = set()
    for predicate in (NOBODY, SOMEBODY):
        with pytest.raises(Refused, match="the rows of one person could") as refused:
            dataset.ask(attack.format(predicate), epsilon="0.01")
        complaints.add((refused.value.construct.split(" could ")[0], refused.value.instead))
    assert len(complaints) == 1
    [block] = dataset.ledger.blocks(dataset.policy.name)
    assert not any(block.spent)
