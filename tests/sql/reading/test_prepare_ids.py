"""Units are told apart by their exact ids; what earlier versions knew of people stays true of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.errors import BadParameter
from lapwing.ledger.unit_ids import Sketch
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, Source, UnitBy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.prepare import ARRIVALS, prepare, unit_ids
from lapwing.sql.reading.prepared_copy import (
    MANIFEST,
    PreparedCopy,
    current_copy,
    last_copy,
    prepared_folder,
)
from lapwing.sql.reading.reader import Reader
from support.hospital import ENGINES, Hospital, policy_for
from support.postgres import server
from support.private_tables import KEY, coded_rows, policy_of, store, table_of, whole
from support.raised import named
from support.slowly import first
from support.spark import spark

LOW, HIGH = -99, 100
KINDS: dict[str, tuple[list[Any], pa.DataType, str]] = {
    "text": (["Ab", "aB", "ab ", " ab", "a b", "a  b", "é", "É"], pa.string(), "text"),
    "tenths": ([Decimal(n) for n in ("1.2", "1.4", "1", "-1.5", "0.5")], pa.decimal128(10, 1), "numeric"),
    "long": (
        [Decimal(f"1234567890123456789{n}.{k}") for n in (0, 1) for k in (1, 2)],
        pa.decimal128(38, 1), "numeric(38,1)",
    ),
    "whole": ([2**53, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1], pa.int64(), "bigint"),
    "unsigned": ([2**64 - 1, 2**64 - 2, 2**63], pa.uint64(), "numeric(20,0)"),
}  # fmt: skip
QUESTION = "SELECT SUM(code) AS s, COUNT(DISTINCT who) AS n FROM visits"
BY_ARRIVAL = BlockRule("unit", every="month")


def stored(engine: str, folder: Path, ids: Sequence[Any], kind: str) -> Source:
    """A row of each id, in turn at the low and the high bound: the row of another id would be seen."""
    _, arrow, sql = KINDS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    codes = [LOW if n % 2 else HIGH for n in range(len(ids))]
    if engine == "postgres":
        name = f"ids_{uuid4().hex[:8]}"
        with psycopg.connect(server()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} (who {sql}, code int)")
            cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s)", list(zip(ids, codes, strict=True)))
        return Source("postgres", server(), f"public.{name}", "postgres")
    path = folder / "v.parquet"
    pq.write_table(pa.table({"who": pa.array(ids, arrow), "code": codes}), path)
    if engine == "spark":
        spark()  # the session that all tests share
        return Source("spark", "", str(path), "spark-parquet")
    return Source("duckdb", str(path), "", "parquet")


def policy_at(source: Source, folder: Path, **changes: Any) -> CheckedPolicy:
    table = replace(table_of("", {"code": whole(LOW, HIGH)}, rows=1), source=source)
    return replace(policy_of(folder, table), **changes)


def asked(policy: CheckedPolicy) -> list[int]:
    """The sum and the number of people, before any noise."""
    reader = Reader.open(policy, KEY, {})
    try:
        (found,) = reader.exact(bind(QUESTION, Catalog(policy, {})))
    finally:
        reader.close()
    return [int(value) for value in found.values[0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_removing_one_id_moves_nothing_further_than_declared(
    engine: str, kind: str, tmp_path: Path
) -> None:
    ids = KINDS[kind][0]
    everybody = asked(policy_at(stored(engine, tmp_path / "all", ids, kind), tmp_path / "all"))
    assert everybody[-1] == len(ids)
    for gone in range(len(ids)):
        folder = tmp_path / str(gone)
        left = policy_at(stored(engine, folder, ids[:gone] + ids[gone + 1 :], kind), folder)
        # Of whoever is left each has one row, which counts: none was held back by another's.
        codes = [LOW if n % 2 else HIGH for n in range(len(ids) - 1)]
        assert asked(left) == [sum(codes), len(ids) - 1]


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_what_is_folded_is_what_is_said(engine: str, tmp_path: Path) -> None:
    """docs/reference/policy.md: spaces (U+0020) around ids, and A to Z, if the policy says so."""
    one = ["a", " a", "a ", "A", "  A "]
    others = ["\u00a0a", "a\u00a0", "a\u2003", "\u3000a", "\ufeffa", "a\t", "\na", "a a", "ä", "Ä"]
    source = stored(engine, tmp_path, [*one, *others, "  "], "text")
    assert asked(policy_at(source, tmp_path))[-1] == len(one) + len(others)
    folded = policy_at(source, tmp_path, folds_ids=True)
    assert asked(folded)[-1] == 1 + len(others)
    for policy in (folded, replace(folded, folds_ids=False)):  # sketches fold whatever the policy says
        assert set(unit_ids(policy)) == {"a", *others}


def test_the_other_spelling_does_not_take_the_place(tmp_path: Path) -> None:
    """What was found: removing one raw id moved a SUM by 199 where 100 is declared."""
    rows = {"Ab": {"who": "Ab", "code": 100}, "aB": {"who": "aB", "code": -99}}
    sums = {}
    for name, kept in (("both", ["Ab", "aB"]), ("one", ["aB"]), ("other", ["Ab"])):
        store(tmp_path / f"{name}.parquet", {c: [rows[who][c] for who in kept] for c in ("who", "code")})
        sums[name] = asked(
            policy_at(Source("duckdb", str(tmp_path / f"{name}.parquet"), "", "parquet"), tmp_path)
        )
    assert sums == {"both": [1, 2], "one": [-99, 1], "other": [100, 1]}


@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_floats_are_refused_before_anything_is_charged(engine: str, tmp_path: Path) -> None:
    KINDS["float"] = ([1.2, 1.4, 2.0**53, 2.0**53 + 2], pa.float64(), "double precision")
    try:
        source = stored(engine, tmp_path, KINDS["float"][0], "float")
    finally:
        del KINDS["float"]
    policy = policy_at(source, tmp_path, ledger=str(tmp_path / "all.ledger"))
    with Dataset(policy, analyst="ann") as dataset:
        for work in (dataset.prepare, dataset.register, lambda: dataset.ask(QUESTION, epsilon="0.1")):
            with pytest.raises(
                BadParameter, match=r"tables\.visits\.unit: 'who' is of a floating-point type"
            ):
                work()
        assert all(not any(block.spent) for block in dataset.ledger.blocks("clinic"))


def in_database(folder: Path, kind: str, values: Sequence[str]) -> Source:
    folder.mkdir(exist_ok=True)
    with duckdb.connect(str(folder / "v.duckdb")) as connection:
        connection.execute(f"CREATE TABLE v (who {kind}, code INTEGER)")
        for n, value in enumerate(values):
            connection.execute(f"INSERT INTO v VALUES ({value}, {LOW if n % 2 else HIGH})")
    return Source("duckdb", str(folder / "v.duckdb"), "v", "duckdb")


@pytest.mark.parametrize(
    ("collation", "ids"),
    [
        ("NOCASE", ["'Ab'", "'aB'"]),
        ("NOACCENT", ["'e'", "'\u00e9'"]),
        ("NFC", ["'\u00e9'", "'e\u0301'"]),
    ],
)
def test_a_collation_of_the_column_makes_nobody_one(
    tmp_path: Path, collation: str, ids: Sequence[str]
) -> None:
    """As DuckDB can declare it, and keeps it in copies."""
    policy = policy_at(in_database(tmp_path, f"VARCHAR COLLATE {collation}", ids), tmp_path)
    assert asked(policy) == [LOW + HIGH, 2]
    prepare(policy, KEY)
    assert asked(policy) == [LOW + HIGH, 2]


def test_types_whose_texts_do_not_tell_values_apart_are_refused(tmp_path: Path) -> None:
    """In Spark, ['a', 'b'] and ['a, b'] are one text; in DuckDB, 1 and '1' of a union are."""
    union = "UNION(n INTEGER, s VARCHAR)"
    for kind, values in ((union, [f"1::{union}", f"'1'::{union}"]), ("VARCHAR[]", ["['a']"])):
        policy = policy_at(in_database(tmp_path / kind[:3], kind, values), tmp_path / kind[:3])
        with pytest.raises(BadParameter, match="is of a nested type"):
            asked(policy)
    assert asked(policy_at(in_database(tmp_path / "bit", "BIT", ["'01'", "'1'"]), tmp_path / "bit"))[1] == 2


def test_texts_of_a_million_bytes_are_nobodys(tmp_path: Path) -> None:
    """They would be cut, and two of them be one."""
    store(tmp_path / "v.parquet", {"who": ["x" * (1 << 20), "x" * (1 << 20) + "y", "z"], "code": [1, 2, 3]})
    found = coded_rows(
        policy_at(Source("duckdb", str(tmp_path / "v.parquet"), "", "parquet"), tmp_path), "code"
    )
    assert {code for *_, code in found} == {1, 3}


def test_keys_are_compared_exactly_also_where_gaps_made_them_floats(tmp_path: Path) -> None:
    store(tmp_path / "v.parquet", {"key": [1.0, 2.5, None, 3.0], "code": [1, 2, 3, 4]})
    store(tmp_path / "p.parquet", {"key": [1, 2, 3], "who": ["A", "a", "A "]})
    policy = policy_of(
        tmp_path,
        table_of(tmp_path / "v.parquet", {"code": whole(0, 9)}, unit=UnitBy("key", "people", "key")),
        table_of(tmp_path / "p.parquet", {}, name="people"),
    )
    assert coded_rows(policy, "code") == [("A ", 1, 4), ("A", 1, 1)]


# What earlier versions knew


def with_ids(folder: Path, ids: Sequence[Any], kind: pa.DataType, **changes: Any) -> CheckedPolicy:
    folder.mkdir(exist_ok=True)
    store(folder / "v.parquet", {"who": pa.array(ids, kind), "code": list(range(len(ids)))})
    table = table_of(folder / "v.parquet", {"code": whole(0, 99)}, rows=9)
    return replace(policy_of(folder, table), **changes)


def test_everybody_stays_in_their_cohort(tmp_path: Path) -> None:
    """Cohorts go by the folded id, as they always did, also of decimals that were rounded."""
    cohorts = BlockRule("unit", cohorts=97)
    spelled = ["Ab", " ab", "aB ", "7", " 7 ", "1.5", "É", "123456789012345678"]
    old = with_ids(tmp_path / "a", spelled, pa.string(), blocks=cohorts, folds_ids=True)
    new = replace(old, folds_ids=False)
    before, after = ({row[2]: row[3] for row in coded_rows(p, "code", "lapwing_block")} for p in (old, new))
    assert before == after
    assert len({before[0], before[1], before[2]}) == 1
    numbers = [1, 2, -1, 0, 1, 123456789012345678]
    broken = [Decimal(n) for n in ("1.2", "1.5", "-1.5", "-0.5", "0.9", "123456789012345678")]
    whole_ids = with_ids(tmp_path / "b", numbers, pa.int64(), blocks=cohorts)
    decimals = with_ids(tmp_path / "c", broken, pa.decimal128(38, 1), blocks=cohorts)
    expected, found = (
        {row[2]: row[3] for row in coded_rows(p, "code", "lapwing_block")} for p in (whole_ids, decimals)
    )
    assert found == expected


@pytest.mark.parametrize("copied", [True, False])
def test_sketches_know_people_by_the_folded_id(tmp_path: Path, copied: bool) -> None:
    texts = with_ids(tmp_path / "a", ["Ab", "aB", " É "], pa.string())
    tenths = with_ids(tmp_path / "b", [Decimal("1.2"), Decimal("2")], pa.decimal128(10, 1))
    found = [set(unit_ids(policy, prepare(policy, KEY) if copied else None)) for policy in (texts, tenths)]
    assert found == [{"ab", "É"}, {"1", "2"}]
    assert Sketch.of(iter(["1"]), KEY).overlaps(Sketch.of(unit_ids(tenths), KEY))


def as_before(policy: CheckedPolicy, *, drop: bool = False) -> PreparedCopy:
    """A copy as the first version made it: ids folded, which nobody noted."""
    made = prepare(replace(policy, folds_ids=True), KEY, today=date(2026, 1, 5))
    if drop:
        with duckdb.connect(str(made.file)) as connection:
            connection.execute(f"ALTER TABLE {ARRIVALS} DROP COLUMN lapwing_folded")
    path = prepared_folder(policy) / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["noted_folds"]
    path.write_text(json.dumps(manifest))
    found = last_copy(policy)
    assert found is not None
    return found


def test_copies_of_folded_ids_are_not_asked_and_those_of_whole_numbers_are(tmp_path: Path) -> None:
    texts = with_ids(tmp_path / "a", ["Ab", "aB"], pa.string())
    numbers = with_ids(tmp_path / "b", [1, 2], pa.int64())
    for policy, is_used in ((texts, False), (numbers, True)):
        made = as_before(policy)
        assert current_copy(replace(policy, folds_ids=True), KEY) == made
        assert (current_copy(policy, KEY) is not None) is is_used
        reader = Reader.open(policy, KEY, {})
        assert reader.is_prepared is is_used
        reader.close()
    prepare(texts, KEY)
    assert current_copy(texts, KEY) is not None
    assert current_copy(replace(texts, folds_ids=True), KEY) is None


def arrived(copy: PreparedCopy) -> dict[Any, int]:
    with duckdb.connect(str(copy.file), read_only=True) as connection:
        rows = connection.execute("SELECT DISTINCT lapwing_unit, lapwing_block FROM visits").fetchall()
        (repeated,) = connection.execute(
            "SELECT count(*) - count(DISTINCT code) FROM visits"
        ).fetchone() or (1,)
    assert not repeated
    return dict(rows)


def test_who_arrived_before_keeps_the_block_under_every_spelling(tmp_path: Path) -> None:
    january, may, june = (12 * 56 + month - 1 for month in (1, 5, 6))
    policy = with_ids(tmp_path / "a", ["Ab", " x "], pa.string(), blocks=BY_ARRIVAL)
    as_before(policy, drop=True)
    with_ids(tmp_path / "a", ["Ab", "aB", "New"], pa.string())
    made = prepare(policy, KEY, today=date(2026, 5, 5))
    assert arrived(made) == {"Ab": january, "aB": january, "New": may}
    with_ids(tmp_path / "a", ["AB", "aB", "NEW", "X", "New"], pa.string())
    made = prepare(policy, KEY, today=date(2026, 6, 5))
    assert arrived(made) == {"AB": january, "aB": january, "NEW": june, "X": january, "New": may}
    with pytest.raises(BadParameter, match=r"dataset\.ids: cannot become folded"):
        prepare(replace(policy, folds_ids=True), KEY, today=date(2026, 6, 6))


def test_whole_numbers_keep_their_blocks_and_rows_stand_once(tmp_path: Path) -> None:
    """In the first version a row stood in such a copy as often as its unit has rows."""
    january, may = (12 * 56 + month - 1 for month in (1, 5))
    policy = with_ids(tmp_path / "a", [1, 1, 1, 2], pa.int64(), blocks=BY_ARRIVAL)
    as_before(policy, drop=True)
    assert current_copy(policy, KEY) is None  # its rows may stand several times
    with_ids(tmp_path / "a", [1, 1, 1, 3], pa.int64())
    assert arrived(prepare(policy, KEY, today=date(2026, 5, 5))) == {1: january, 3: may}
    with_ids(tmp_path / "a", [2, 3], pa.int64())
    assert arrived(prepare(policy, KEY, today=date(2026, 6, 5))) == {2: january, 3: may}


def test_decimals_are_found_again_by_the_ledger_and_keep_their_blocks(tmp_path: Path) -> None:
    """The ledger is told the rounded ones: everybody seemed lost, and nothing could be prepared again."""
    ids = [Decimal(n) for n in ("1.2", "1.4", "2")]
    ledger = str(tmp_path / "all.ledger")
    policy = with_ids(tmp_path / "a", ids, pa.decimal128(10, 1), blocks=BY_ARRIVAL, ledger=ledger)
    with Dataset(policy, analyst="ann") as dataset:
        for month in (1, 2):
            dataset.prepare(today=date(2026, month, 5))
        with_ids(tmp_path / "a", ["1.2", "1.4", "2"], pa.string())
        for month in (3, 4):
            dataset.prepare(today=date(2026, month, 5))
    copy = last_copy(policy)
    assert copy is not None
    assert arrived(copy) == dict.fromkeys(["1.2", "1.4", "2"], 12 * 56)


def test_decimals_cannot_be_folded(tmp_path: Path) -> None:
    """They would be found again by the rounded one, whose block is another person's or new."""
    policy = with_ids(tmp_path / "a", [Decimal("1.2")], pa.decimal128(10, 1), folds_ids=True)
    with pytest.raises(BadParameter, match=r'dataset\.ids: "folded" is for texts'):
        asked(policy)
    with pytest.raises(BadParameter, check=named("dataset.ids")):
        prepare(policy, KEY)


def test_texts_that_become_decimals_keep_the_block_of_their_folded_id(tmp_path: Path) -> None:
    policy = with_ids(tmp_path / "a", ["1.2", "1.5", "2"], pa.string(), blocks=BY_ARRIVAL)
    prepare(replace(policy, folds_ids=True), KEY, today=date(2026, 1, 5))
    with_ids(tmp_path / "a", [Decimal(n) for n in ("1.2", "1.5", "2")], pa.decimal128(10, 1))
    made = prepare(policy, KEY, today=date(2026, 5, 5))
    assert arrived(made) == dict.fromkeys(["1.2", "1.5", "2"], 12 * 56)


def test_the_answer_says_which_ids_are_meant(tmp_path: Path) -> None:
    people = Hospital({"a": [], "b": []}, {})
    policy = policy_for(people, "duckdb", tmp_path)
    with (
        Dataset(policy, analyst="ann") as exact,
        Dataset(replace(policy, folds_ids=True), analyst="ann") as folded,
    ):
        sql = "SELECT COUNT(*) AS n FROM visits"
        exact.ask(sql, epsilon="0.1")
        assert not folded.ask(sql, epsilon="0.1").is_replay
        assert exact.ask(sql, epsilon="0.1").is_replay


def test_people_of_a_copy_with_a_collation_keep_their_blocks(tmp_path: Path) -> None:
    """As the first version made it of such a column."""
    ids = ["'Ab'", "'aB'"]
    source = in_database(tmp_path, "VARCHAR COLLATE NOCASE", ids)
    policy = policy_at(source, tmp_path, blocks=BY_ARRIVAL)
    made = as_before(policy, drop=True)
    with duckdb.connect(str(made.file)) as connection:
        connection.execute(f"ALTER TABLE {ARRIVALS} ALTER lapwing_unit TYPE VARCHAR COLLATE NOCASE")
    again = prepare(policy, KEY, today=date(2026, 5, 5))
    assert arrived(again) == {"Ab": 12 * 56, "aB": 12 * 56}
