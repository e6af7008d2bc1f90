"""Columns that SQL cannot name: the policy says what the source calls them, and every engine quotes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Choice, Text
from lapwing.sql.policy.policy import CheckedPolicy, Column, Source, UnitBy
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.meaning import query_digests
from lapwing.sql.question.preliminary_questions import policy_with_searched_column
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.open_sources import read_public_tables
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.prepared_copy import copy_digest
from lapwing.sql.reading.reader import Reader
from lapwing.sql.reading.registration import unit_locations
from support.policy_files import draft
from support.postgres import server
from support.private_tables import KEY, policy_of, table_of, whole
from support.slowly import first
from support.spark import spark

# Quotes of all engines, what would end a statement, comments, letters beyond ASCII, spaces around.
NAMES = [
    "Customer ID", "discount %", "Größe", 'a"b', "a'b", "a`b", "a.b", "a\\b", "${x}", "%s {0} ?",
    " around ", "x'; DROP TABLE secret; --", 'x"; DROP TABLE secret; --', "x`; DROP TABLE secret; --",
    "/* x", "$$ x", "select", "ü" * 30,
]  # fmt: skip
ENGINES = ("duckdb", "postgres", "spark")


def source_of(engine: str, folder: Path) -> Source:
    """One row of each of ten people, with the number of the column in each of them."""
    columns = {
        "Who is it?": [f"p{n}" for n in range(10)],
        **{name: [n] * 10 for n, name in enumerate(NAMES)},
    }
    if engine == "postgres":
        table = f"renamed_{uuid4().hex[:8]}"
        with psycopg.connect(server(), autocommit=True) as connection:
            names = ['"' + name.replace('"', '""').replace("%", "%%") + '"' for name in columns]
            kinds = ", ".join(f"{name} {'int' if n else 'text'}" for n, name in enumerate(names))
            connection.execute(f"CREATE TABLE {table} ({kinds})".replace("%%", "%").encode())
            rows = list(zip(*columns.values(), strict=True))
            marks = ", ".join(["%s"] * len(names))
            connection.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        return Source("postgres", server(), f"public.{table}", "postgres")
    path = folder / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    if engine == "spark":
        spark()
        return Source("spark", "", str(path), "spark-parquet")
    return Source("duckdb", str(path), "", "parquet")


def policy_at(source: Source, folder: Path) -> CheckedPolicy:
    table = table_of("", {}, rows=1)
    columns = {f"c{n}": Column(f"c{n}", whole(0, 99), source=name) for n, name in enumerate(NAMES)}
    unit = UnitBy("who", source="Who is it?")
    changed = replace(table, source=source, columns=columns, unit=unit, primary_key=("Größe",))
    return policy_of(folder, changed)


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_every_name_of_the_source_is_read_as_it_is(engine: str, tmp_path: Path) -> None:
    policy = policy_at(source_of(engine, tmp_path), tmp_path)
    sums = ", ".join(f"SUM(c{n}) AS s{n}" for n in range(len(NAMES)))
    question = bind(f"SELECT COUNT(DISTINCT who) AS people, {sums} FROM visits", Catalog(policy, {}))
    for _ in range(2):
        reader = Reader.open(policy, KEY, {})
        try:
            (found,) = reader.exact(question)
            assert found.values[0].tolist() == [10, *[10 * n for n in range(len(NAMES))]]
        finally:
            reader.close()
        prepare(policy, KEY)  # and now from the copy


CSV = "Customer ID;discount %;Größe;Ward;plain\n" + "".join(f"{n};{n % 7};{n};A;1\n" for n in range(100))
POLICY = """
[dataset]
name = "sales"
[budget]
epsilon = 10.0
delta = 1e-6
[tables.sales]
source = "sales.csv"
unit = { name = "customer", source = "Customer ID" }
rows_per_unit = 1
[tables.sales.columns.discount]
source = "discount %"
low = 0
high = 100
[tables.sales.columns.size]
source = "größe"
low = 0
high = 100
[tables.sizes]
source = "sizes.csv"
public = true
[tables.sizes.columns.size]
source = "Größe"
low = 0
high = 100
[tables.sizes.columns.word]
source = "Das Wort"
values = ["small", "large"]
"""


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    (tmp_path / "sales.csv").write_text(CSV)
    sizes = "".join(f"{n},{'small' if n < 50 else 'large'}\n" for n in range(100))
    (tmp_path / "sizes.csv").write_text(f"Größe,Das Wort\n{sizes}")
    (tmp_path / "sales.toml").write_text(POLICY)
    return tmp_path / "sales.toml"


def test_a_policy_file_names_them_and_questions_use_the_alias(sales: Path) -> None:
    policy = load_policy(sales)
    public = read_public_tables(policy)
    sql = (
        "SELECT word, COUNT(DISTINCT customer) AS n, SUM(discount) AS d "
        "FROM sales JOIN sizes USING (size) GROUP BY word"
    )
    reader = Reader.open(policy, KEY, public)
    try:
        (found,) = reader.exact(bind(sql, Catalog(policy, public)))
    finally:
        reader.close()
    halves = (range(50), range(50, 100))
    assert found.values.tolist() == [[50, sum(n % 7 for n in half)] for half in halves]
    with Dataset(policy, analyst="ann") as dataset:
        assert len(dataset.ask(sql, epsilon=1)) == 2


@pytest.mark.parametrize(("there", "here"), [("Discount %", "discount"), ("customer ID", "customer")])
def test_a_question_with_a_name_of_the_source_is_told_the_alias(sales: Path, there: str, here: str) -> None:
    policy = load_policy(sales)
    with pytest.raises(Refused, match=f'there is no column "{there}". The policy calls it "{here}"'):
        bind(f'SELECT COUNT("{there}") AS n FROM sales', Catalog(policy, read_public_tables(policy)))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('source = "discount %"', 'source = "customer id"', "is the unit: it can be counted, never shown"),
        ("columns.discount]", "columns.customer]", "is the unit: it can be counted, never shown"),
        ('source = "discount %"', 'source = ""', "must be what the source calls the column"),
        ('source = "discount %"', "source = 3", "must be a text in quotes"),
        ('name = "customer", source', 'name = "customer id", source', "must name a column"),
        (
            '{ name = "customer", source = "Customer ID" }',
            '"Customer ID"',
            'Give it a name: unit = { name = "Customer_ID", source = "Customer ID" }',
        ),
        (
            "columns.discount]",
            'columns."Größe €"]',
            'Choose a name for queries, and add source = "Größe €"',
        ),
        ('name = "customer", source = "Customer ID"', 'source = "Customer ID"', 'name = "customer"'),
        ('source = "Customer ID"', 'through = "x"', "cannot stand beside name and source"),
        (
            "[tables.sizes]",
            '[tables.sales.columns.x]\nhidden = true\nsource = "Discount %"\n[tables.sizes]',
            "reads a column that is declared as hidden",
        ),
    ],
)
def test_what_cannot_be_meant_is_told(sales: Path, old: str, new: str, told: str) -> None:
    assert old in POLICY
    sales.write_text(POLICY.replace(old, new, 1))
    with pytest.raises(BadFile, match=told):
        load_policy(sales)


def test_a_name_that_the_source_does_not_have_is_told_before_anything_is_charged(sales: Path) -> None:
    sales.write_text(POLICY.replace("discount %", "discount"))
    with Dataset(load_policy(sales), analyst="ann") as found:
        with pytest.raises(BadParameter, match="the source has no column 'discount'"):
            found.ask("SELECT SUM(discount) FROM sales", epsilon=1)
        assert str(found.left()).startswith("ε 10 of 10")


@pytest.mark.parametrize("column", ["customer", "Secret", "x", "CUSTOMER"])
def test_a_search_reads_neither_people_nor_what_is_hidden_under_any_name(sales: Path, column: str) -> None:
    more = '[tables.sales.columns.x]\nhidden = true\nsource = "secret"\n[tables.sizes]'
    sales.write_text(POLICY.replace("[tables.sizes]", more, 1))
    with pytest.raises(BadParameter, match="hidden by the policy, tells people apart"):
        policy_with_searched_column(load_policy(sales), "sales", column, 1)


def test_the_source_s_name_of_the_unit_cannot_be_searched(sales: Path) -> None:
    sales.write_text(POLICY.replace("Customer ID", "plain"))
    with pytest.raises(BadParameter, match="tells people apart"):
        policy_with_searched_column(load_policy(sales), "sales", "Plain", 1)


def test_a_search_goes_by_the_alias(sales: Path) -> None:
    searched = policy_with_searched_column(load_policy(sales), "sales", "DISCOUNT", 1)
    assert searched.tables["sales"].columns["DISCOUNT"].source == "discount %"


def test_what_was_digested_before_is_digested_alike(tmp_path: Path) -> None:
    """Prepared copies and stored answers are found by these texts."""
    assert (
        repr(Column("ward", Choice(("A",))))
        == "Column(name='ward', kind=Choice(values=('A',)), missing=None)"
    )
    assert repr(Column("t", Text(), None, 5)) == "Column(name='t', kind=Text(), missing=None, longest=5)"
    assert repr(UnitBy("who")) == "UnitBy(column='who', through='', key='')"
    assert Column("t", Text(), None, 5).coding == (Text(), None, 5)


def test_another_column_of_the_source_is_another_question(sales: Path) -> None:
    one = load_policy(sales)
    sales.write_text(POLICY.replace("discount %", "plain"))
    other = load_policy(sales)
    assert copy_digest(one, KEY) != copy_digest(other, KEY)
    meanings = {
        query_digests(policy, bind("SELECT SUM(discount) FROM sales", Catalog(policy, {})), {})
        for policy in (one, other)
    }
    assert len(meanings) == 2
    sales.write_text(POLICY.replace("Customer ID", "plain"))
    assert unit_locations(load_policy(sales)) != unit_locations(one)


def test_a_draft_gives_every_column_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = ", ".join('1 AS "' + name.replace('"', '""') + '"' for name in [*NAMES, "größe!", "grosse"])
    duckdb.execute(f"COPY (SELECT {listed}) TO 'odd.parquet'")
    text = draft("odd.parquet", unit="Customer ID")
    assert 'unit = { name = "customer_id", source = "Customer ID" }' in text
    written = text.replace("# epsilon = 3.0", "epsilon = 3.0").replace("# delta = 1e-7", "delta = 1e-7")
    written = (
        written.replace("# rows_per_unit", "rows_per_unit").replace('"TODO"', "7").replace("# [t", "[t")
    )
    for line in ("source = ", "low = ", "high = "):
        written = written.replace(f"# {line}", line)
    Path("odd.toml").write_text(written.replace("high = 7", "high = 9"))
    columns = load_policy("odd.toml").tables["odd"].columns
    assert {column.in_source for column in columns.values()} == {*NAMES, "größe!", "grosse"} - {
        "Customer ID"
    }
    assert columns["grosse"].source == ""
    assert columns["grosse_2"].source == "Größe"
