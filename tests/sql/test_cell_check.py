"""`check`: exact counts for the curator alone, noisy ones for a price, and what statements say of both."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lapwing
from lapwing.core.laplace import Laplace
from lapwing.errors import BadParameter, OverBudget
from lapwing.ledger import CuratorKey
from lapwing.sql.cell_check import check_noisily, policy_of_states
from lapwing.sql.dataset import Dataset
from lapwing.sql.exact_check import _exact, check_exactly
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, Column, Source
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.noise_shares import divide_budget
from lapwing.sql.question.bind import bind
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.column_codes import STATES
from lapwing.sql.reading.open_sources import open_sources
from lapwing.sql.reading.reader import Reader
from support.postgres import server
from support.private_tables import KEY, policy_of, table_of, whole
from support.slowly import first
from support.spark import spark

# Texts as people write them into files; what each of them is under a declaration.
CELLS: dict[str, tuple[Kind, dict[str | None, str]]] = {
    "ward": (
        Choice(("A", "B")),
        {"A": "used", "B": "used", "C": "undeclared", " A": "undeclared", None: "missing"},
    ),
    "cost": (
        Numeric(Fraction(1, 10), 0, 1000),
        {"1.5": "used", "1,5": "unreadable", "0": "used", "100": "used", "101": "clamped", "-3": "clamped",
         "": "unreadable", "one": "unreadable", None: "missing", " 7 ": "used", "1e99": "clamped"},
    ),
    "level": (
        Choice((1, 2)),
        {"1": "used", "2": "used", "3": "undeclared", "x": "undeclared", None: "missing"},
    ),
    "flag": (
        Truth(),
        {"true": "used", "Y": "unreadable", "N": "unreadable", "no": "used", None: "missing"},
    ),
    "day": (
        Moment(86400, 19723, 20088),  # 2024
        {"2024-01-01": "used", "2024-12-31T23:59:59": "used", "2023-12-31": "clamped",
         "1.2.2024": "unreadable", "2025-01-01": "clamped", None: "missing"},
    ),
    "note": (Text(), {"abc": "used", "abcd": "clamped", "": "used", None: "missing"}),
}  # fmt: skip
PEOPLE, MOST = 9, 3
ENGINES = ("duckdb", "postgres", "spark")
Rows = list[dict[str, Any]]


def rows_of(people: int = PEOPLE) -> Rows:
    """Person n has n rows; the one without a name has two."""
    owners = [f"p{n}" for n in range(people) for _ in range(n)] + [None, "  "]
    rows: Rows = [{"who": who} for who in owners]
    for k, (name, (_, cells)) in enumerate(CELLS.items()):
        for n, row in enumerate(rows):
            row[name] = list(cells)[(n * 7 + k) % len(cells)]
    return rows


def policy_at(engine: str, folder: Path, rows: Rows, **changes: Any) -> CheckedPolicy:
    names = ["who", *CELLS]
    if engine == "postgres":
        table = f"checked_{uuid4().hex[:8]}"
        with psycopg.connect(server(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} text' for name in names)})")
            marks = ", ".join(["%s"] * len(names))
            given = [tuple(row[name] for name in names) for row in rows]
            connection.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})", given)
        source = Source("postgres", server(), f"public.{table}", "postgres")
    else:
        folder.mkdir(exist_ok=True, parents=True)
        path = folder / "rows.parquet"
        pq.write_table(
            pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names}), path
        )
        source = Source("duckdb", str(path), "", "parquet")
        if engine == "spark":
            spark()
            source = Source("spark", "", str(path), "spark-parquet")
    table_ = replace(
        table_of("", {name: kind for name, (kind, _) in CELLS.items()}, rows=MOST), source=source
    )
    columns = {**table_.columns, "note": Column("note", Text(), None, 3)}
    return replace(policy_of(folder, replace(table_, columns=columns)), **changes)


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_exact_counts_are_what_a_reader_would_count(engine: str, tmp_path: Path) -> None:
    rows = rows_of()
    policy = policy_at(engine, tmp_path, rows)
    opened = open_sources(policy)
    try:
        found = _exact(policy, policy.tables["visits"], opened)
    finally:
        opened.engine.close()
    known = [row for row in rows if row["who"] and row["who"].strip()]
    assert (found.rows, found.rows_without_id, found.units) == (len(rows), 2, PEOPLE - 1)
    over = [n for n in range(PEOPLE) if n > MOST]
    assert (found.units_beyond, found.rows_beyond) == (len(over), sum(n - MOST for n in over))
    for name, (_, states) in CELLS.items():
        expected = dict.fromkeys(STATES, 0)
        for row in known:
            expected[states[row[name]]] += 1
        assert found.cells[name] == expected, name


def test_a_person_in_one_period_is_counted_by_period(tmp_path: Path) -> None:
    blocks = BlockRule("row", column="day", every="year", first=54, last=54)
    policy = policy_at("duckdb", tmp_path, rows_of(), blocks=blocks, protects="person-period")
    opened = open_sources(policy)
    try:
        found = _exact(policy, policy.tables["visits"], opened)
    finally:
        opened.engine.close()
    inside = dict.fromkeys(range(PEOPLE), 0)
    for row in rows_of():
        if row["who"] and row["who"].strip() and CELLS["day"][1][row["day"]] == "used":
            inside[int(row["who"][1:])] += 1
    assert found.rows_beyond == sum(max(n - MOST, 0) for n in inside.values())


def exact_states(policy: CheckedPolicy) -> tuple[Any, list[list[int]]]:
    """The noisy question, and what reaches its mechanisms: the counts of each column."""
    checked, columns = policy_of_states(policy, "visits", CELLS)
    sets = ", ".join(f"({name})" for name in columns)
    sql = f"SELECT {', '.join(columns)}, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ({sets})"
    question = bind(sql, Catalog(checked, {}))
    reader = Reader.open(checked, KEY, {})
    try:
        return question, [[int(n) for n in one.values[:, 0]] for one in reader.exact(question)]
    finally:
        reader.close()


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_one_person_moves_all_noisy_counts_by_no_more_than_is_paid_for(engine: str, tmp_path: Path) -> None:
    rows = rows_of()
    question, whole_counts = exact_states(policy_at(engine, tmp_path / "all", rows))
    shares = divide_budget(question, epsilon=1, delta=0, noise="laplace")
    scales = [shares.mechanism(n, 0) for n in range(len(CELLS))]
    assert all(isinstance(one, Laplace) for one in scales)
    assert sum(Fraction(MOST) / one.scale for one in scales if isinstance(one, Laplace)) <= 1
    most = 0
    left_out = range(1, PEOPLE) if engine == "duckdb" else (2, PEOPLE - 1)
    for n in left_out:
        without = [row for row in rows if row["who"] != f"p{n}"]
        _, counts = exact_states(policy_at(engine, tmp_path / f"without{n}", without))
        moved = [
            sum(abs(a - b) for a, b in zip(one, other, strict=True))
            for one, other in zip(whole_counts, counts, strict=True)
        ]
        assert moved == [min(n, MOST)] * len(CELLS)  # every kept row is in one state of each column
        most = max(most, sum(moved))
    assert most == MOST * len(CELLS)


POLICY = """
[dataset]
name = "sales"
[budget]
epsilon = 10.0
delta = 1e-6
{more}
[tables.sales]
source = "sales.csv"
unit = "who"
rows_per_unit = 2
[tables.sales.columns.ward]
values = ["A", "B"]
[tables.sales.columns.cost]
low = 0
high = 100
"""


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    lines = "".join(f"{n},{'A' if n % 2 else 'X'},{'1;5' if n < 40 else 3}\n" for n in range(100))
    more = "0,X,3\n" * 5
    (tmp_path / "sales.csv").write_text(f"who,ward,cost\n{lines}{more}")
    (tmp_path / "sales.toml").write_text(POLICY.format(more=""))
    return tmp_path / "sales.toml"


def key_of(policy: Path) -> CuratorKey:
    return CuratorKey.load(policy.with_name("lapwing.ledger.curator"))


def prepared(policy: Path) -> Dataset:
    found = Dataset(load_policy(policy), analyst="curator")
    found.prepare()
    return found


def test_a_check_charges_nothing_and_is_signed_before_a_row_is_read(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prepared(sales) as found:
        left = found.left()
        monkeypatch.setattr("lapwing.sql.exact_check.open_sources", _fail)
        with pytest.raises(RuntimeError):
            check_exactly(found, key_of(sales))
        assert [check.is_change for check in found.ledger.checks] == [False]
        assert found.left() == left


def _fail(*_: object) -> None:
    raise RuntimeError


def test_without_a_ledger_there_is_no_curator(sales: Path, tmp_path: Path) -> None:
    key = CuratorKey.create(tmp_path / "key")
    found = Dataset(load_policy(sales), analyst="curator")
    with found, pytest.raises(BadParameter, match="has no ledger yet: `lapwing prepare`"):
        check_exactly(found, key)
    assert not sales.with_name("lapwing.ledger").exists()


def test_another_key_sees_nothing(sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.sql.exact_check.open_sources", _fail)
    with prepared(sales) as found:
        with pytest.raises(BadParameter, match="is not the key of this ledger's curator"):
            check_exactly(found, CuratorKey.create(tmp_path / "key"))
        assert found.ledger.checks == []


@pytest.mark.parametrize(
    ("old", "new", "is_change"),
    [
        ("high = 100", "high = 99", True),
        ("rows_per_unit = 2", "rows_per_unit = 3", True),
        ('values = ["A", "B"]', 'values = ["A", "B", "X"]', True),
        ("high = 100", "high = 100\nmissing = 7", True),
        ('unit = "who"', 'unit = "who"\nrows = 105', True),
        ('unit = "who"', 'unit = "who"\ncsv = { decimal = "," }', True),
        ("[tables.sales]", "[engine]\ntimeout = 7\n[tables.sales]", False),
        ("[tables.sales]", "# a comment\n[tables.sales]", False),
    ],
)
def test_a_changed_policy_is_noted_when_it_is_next_used(
    sales: Path, old: str, new: str, is_change: bool
) -> None:
    with prepared(sales) as found:
        check_exactly(found, key_of(sales))
    text = sales.read_text()
    assert old in text
    sales.write_text(text.replace(old, new))
    for _ in range(2):
        with Dataset(load_policy(sales), analyst="ann") as found:
            assert [check.is_change for check in found.ledger.checks] == [
                False,
                *([True] if is_change else []),
            ]
    assert found.policy.name == "sales"


def test_noisy_counts_are_charged_stored_and_within_their_intervals(sales: Path) -> None:
    with prepared(sales) as found:
        (made,) = check_noisily(found, 9)
        assert str(found.left()) == "ε 1 of 10"
        (again,) = check_noisily(found, 9)  # the stored answers
        assert str(found.left()) == "ε 1 of 10"
        with pytest.raises(OverBudget):
            check_noisily(found, 8)
    assert made.beyond is not None
    (cells,), (stored,) = made.cells, again.cells
    assert not cells.answer.notes  # such as to prepare, which was done and would not help
    counts = {(name, state): row for name, state, row in cells.listed(found.policy.tables["sales"])}
    assert set(counts) == {
        ("ward", "used"), ("ward", "missing"), ("ward", "undeclared"),
        ("cost", "used"), ("cost", "missing"), ("cost", "unreadable"), ("cost", "clamped"),
    }  # fmt: skip
    values = cells.answer.columns[-1].values
    assert list(values) == list(stored.answer.columns[-1].values)
    # 101 rows count; 51 wards are X, 40 costs are no numbers. The scale is 2 / 3: 20 is beyond 1e-12.
    for key, truth in (("ward", "undeclared"), 51), (("cost", "unreadable"), 40), (("cost", "used"), 61):
        assert abs(values[counts[key]] - truth) < 20
    assert abs(made.beyond.columns[0].values[0] - 1) < 10


def test_noisy_counts_of_rows_that_are_units(sales: Path) -> None:
    text = sales.read_text().replace(
        'name = "sales"', 'name = "sales"\nprotects = "row"\npopulation = "sales"'
    )
    sales.write_text(text.replace('unit = "who"\nrows_per_unit = 2\n', ""))
    with prepared(sales) as found:
        (made,) = check_noisily(found, 9)
        assert made.beyond is None
        (exact,) = check_exactly(found, key_of(sales))
        assert (exact.rows, exact.units, exact.units_beyond, exact.rows_beyond) == (105, 105, 0, 0)


def test_the_question_holds_for_cohorts_and_quotas(sales: Path) -> None:
    more = '[blocks]\nby = "unit"\ncohorts = 4\n[analysts.ann]\nepsilon = 1.0\ndelta = 1e-7'
    sales.write_text(POLICY.format(more=more))
    with prepared(sales) as found:
        (exact,) = check_exactly(found, key_of(sales))
        assert (exact.units_beyond, exact.rows_beyond) == (1, 4)
    with Dataset(load_policy(sales), analyst="ann") as found:
        check_noisily(found, 1)  # all of the quota, and no billionth more
        with pytest.raises(OverBudget):
            check_noisily(found, Fraction(1, 2))


def test_what_is_paid_for_is_shown_though_the_rest_is_refused(sales: Path) -> None:
    with prepared(sales) as found:
        (made,) = check_noisily(found, 12)  # 8 for the cells fits, 4 more does not
        assert made.cells
        assert made.beyond is None
        assert "asked ε 4, but ε 2 of 10 is left" in made.refused


def test_a_share_below_the_least_price_is_refused_before_any_is_charged(sales: Path) -> None:
    with prepared(sales) as found:
        with pytest.raises(BadParameter, match=r"asked ε 0\.008, but one question costs at least ε 0\.01"):
            check_noisily(found, "0.024")  # 0.016 for the cells is enough, 0.008 for the people is not
        assert str(found.left()) == "ε 10 of 10"


def test_many_columns_are_asked_for_in_parts_and_any_names_are_told_apart(sales: Path) -> None:
    """The unit is called like a column of ours, the table like a word of SQL."""
    names = [f"c{n}" for n in range(20)]
    duckdb.execute(
        f"COPY (SELECT i AS checked_0, {', '.join(f'i % 7 AS {name}' for name in names)} "
        f"FROM range(70) AS t(i)) TO '{sales.with_name('wide.parquet')}'"
    )
    text = POLICY.partition("[tables.sales]")[0].format(more="").replace("sales", "wide")
    text += '[tables.order]\nsource = "wide.parquet"\nunit = "checked_0"\nrows_per_unit = 1\n'
    sales.write_text(
        text + "".join(f"[tables.order.columns.{name}]\nlow = 0\nhigh = 5\n" for name in names)
    )
    with prepared(sales) as found:
        (exact,) = check_exactly(found, key_of(sales))
        assert all(exact.cells[name]["clamped"] == 10 for name in names)
        (made,) = check_noisily(found, 5)
        left = found.left().epsilon
        assert 5 <= left < 10  # many small answers cost less than their sum
    assert [len(some.columns) for some in made.cells] == [5] * 4
    assert [name for some in made.cells for name in some.columns] == names


def test_kinds_of_columns_that_are_no_texts(tmp_path: Path) -> None:
    duckdb.execute(
        "COPY (SELECT i AS who, CASE i WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf' ELSE i END AS f, "
        "i::SMALLINT AS w, (i / 10)::DECIMAL(9, 2) AS d, i % 2 = 0 AS b, "
        "TIMESTAMP '2023-12-31' + INTERVAL (i) DAY AS t FROM range(10) AS r(i)) "
        f"TO '{tmp_path / 'x.parquet'}'"
    )
    table = table_of(
        tmp_path / "x.parquet",
        {"f": whole(3, 5), "w": whole(3, 5), "d": Numeric(Fraction(1, 10), 3, 5), "b": Truth(),
         "t": Moment(86400, 19723, 20088)}, rows=1,
    )  # fmt: skip
    policy = policy_of(tmp_path, table)
    opened = open_sources(policy)
    try:
        found = _exact(policy, table, opened).cells
    finally:
        opened.engine.close()
    shown = {name: {state: n for state, n in states.items() if n} for name, states in found.items()}
    assert shown == {
        "f": {"unreadable": 1, "clamped": 6, "used": 3}, "w": {"clamped": 7, "used": 3},
        "d": {"clamped": 7, "used": 3}, "b": {"used": 10}, "t": {"clamped": 1, "used": 9},
    }  # fmt: skip


def test_no_server_can_check_exactly() -> None:
    """The one door to exact counts is the command."""
    root = Path(lapwing.__file__).parent
    named = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "check_exactly" in path.read_text()
    }
    assert named == {"sql/exact_check.py", "cli/query.py"}
