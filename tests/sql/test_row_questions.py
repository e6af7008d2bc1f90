"""Bounded rows for trainers: bound as questions are, of the blocks that were charged, of this version."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from lapwing.core.losses import Pure
from lapwing.core.losses import Relation as Neighbours
from lapwing.errors import BadParameter, WorkEnded
from lapwing.ledger import ChargedRead, Gate, Spending, Unit
from lapwing.sql import row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Choice, Numeric
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, UnitBy
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.relation import blocks_of, only_blocks
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader
from lapwing.sql.row_questions import PrivateRows, RowQuestion, bind_rows, decode_rows, read_rows
from sql.conftest import Open, write_visits
from support.hospital import ENGINES, WARDS, id_of, invented, policy_for
from support.raised import named

TESTERS = {id_of("p0"), id_of("p4")}
KEY = bytes(range(32))
PERIODS = BlockRule("row", column="admitted", every="month", first=660, last=671)
COHORTS = BlockRule("unit", cohorts=3)
BLOCKS = '[blocks]\nby = "unit"\ncohorts = 4\n'
ROWS = (
    "SELECT ward, stay, cost, urgent, admitted FROM visits",
    "SELECT stay * 2 AS twice, CASE WHEN urgent THEN 1 ELSE 0 END AS u FROM visits WHERE stay > 3",
    "SELECT region, beds, stay FROM visits JOIN wards USING (ward)",
    "SELECT region, stay FROM visits LEFT JOIN wards ON visits.ward = wards.ward",
    "SELECT sex, age, stay FROM visits v JOIN patients p ON v.who = p.who",
    "SELECT who_n, m FROM (SELECT who, COUNT(*) AS who_n, MAX(stay) AS m FROM visits GROUP BY who) AS p",
    "SELECT stay AS x FROM visits UNION ALL SELECT age FROM patients",
    "WITH p AS (SELECT who, ward, AVG(cost) AS c FROM visits GROUP BY who, ward) SELECT ward, c FROM p",
)
OF_PERIODS = tuple(sql for sql in ROWS if "patients" not in sql and "GROUP" not in sql)


def question(sql: str, policy: CheckedPolicy) -> RowQuestion:
    return bind_rows(sql, Catalog(policy, {"wards": WARDS}))


def found(
    policy: CheckedPolicy, sqls: tuple[str, ...], *, prepared: bool, codes: Any = None
) -> list[PrivateRows]:
    if prepared:
        prepare(policy, KEY)
    reader = Reader.open(policy, KEY, {"wards": WARDS})
    try:
        asked = [question(sql, policy) for sql in sqls]
        return [
            decode_rows(
                policy, one,
                reader.rows(one.relation if codes is None else only_blocks(one.relation, frozenset(codes))),
            )
            for one in asked
        ]  # fmt: skip
    finally:
        reader.close()


def by_person(found: PrivateRows) -> dict[object, Counter[tuple[Any, ...]]]:
    """What each person's rows hold, with their blocks."""
    values: dict[object, Counter[tuple[Any, ...]]] = {}
    columns = list(found.columns.values())
    for n in range(len(found)):
        row = tuple(int(one.codes[n]) if one.known[n] else None for one in columns)
        who = found.ids[found.people[n]]
        values.setdefault(who, Counter())[(int(found.blocks[n]), *row)] += 1
    return values


def same(one: PrivateRows, other: PrivateRows) -> bool:
    return by_person(one) == by_person(other)


# Binding


def test_kinds_and_the_bound_are_known_before_anything_is_read(opened: Open) -> None:
    asked = row_questions.row_question(opened(), "SELECT ward, stay + 1 AS longer FROM visits")
    assert isinstance(asked.columns["ward"], Choice)
    longer = asked.columns["longer"]
    assert isinstance(longer, Numeric)
    assert (longer.first, longer.last) == (1, 11)
    assert asked.rows == 2


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT name FROM visits", "text without declared values"),
        ("SELECT patient_id FROM visits", "tells people apart"),
        ("SELECT * FROM visits", "no feature"),
        ("SELECT stay FROM visits ORDER BY stay", "ORDER BY"),
        ("SELECT stay FROM visits LIMIT 1", "LIMIT"),
        ("SELECT DISTINCT stay FROM visits", "DISTINCT"),
        ("SELECT ward, COUNT(*) FROM visits GROUP BY ward", "unit"),
        ("SELECT hidden FROM visits", "hidden"),
        ("DROP TABLE visits", "SELECT"),
    ],
)
def test_what_is_no_feature_is_refused(sql: str, why: str, opened: Open) -> None:
    dataset = opened()
    with pytest.raises(Refused, match=why):
        row_questions.row_question(dataset, sql)


# Neighbours


@pytest.mark.parametrize("blocks", [None, COHORTS, PERIODS])
@pytest.mark.parametrize("prepared", [True, False])
def test_removing_a_person_leaves_all_other_rows(
    prepared: bool, blocks: BlockRule | None, tmp_path: Path
) -> None:
    everybody = invented(3)
    sqls = OF_PERIODS if blocks is PERIODS else ROWS
    policy = policy_for(everybody, "duckdb", tmp_path / "all", blocks=blocks)
    here = found(policy, sqls, prepared=prepared)
    other = policy_for(everybody.without("p0"), "duckdb", tmp_path / "p0", order=5, blocks=blocks)
    for sql, one, two in zip(sqls, here, found(other, sqls, prepared=prepared), strict=True):
        mine, theirs = by_person(one), by_person(two)
        mine.pop(id_of("p0"), None)
        assert mine == theirs, sql
        counts = np.bincount(one.units)
        assert counts.max(initial=0) <= question(sql, policy).rows, sql


def test_some_person_reaches_the_bound(tmp_path: Path) -> None:
    policy = policy_for(invented(3), "duckdb", tmp_path)
    (one,) = found(policy, ROWS[:1], prepared=False)
    assert np.bincount(one.units).max() == question(ROWS[0], policy).rows == 3


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "spark"])
@pytest.mark.parametrize("blocks", [COHORTS, PERIODS])
def test_engines_read_the_same_rows(engine: str, blocks: BlockRule, tmp_path: Path) -> None:
    sqls = OF_PERIODS if blocks is PERIODS else ROWS
    here = found(policy_for(invented(4), "duckdb", tmp_path / "a", blocks=blocks), sqls, prepared=False)
    there = policy_for(invented(4), engine, tmp_path / "b", order=2, blocks=blocks)
    for sql, one, two in zip(sqls, here, found(there, sqls, prepared=True), strict=True):
        assert same(one, two), sql


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [True, False])
def test_spark_reads_the_same_rows(prepared: bool, tmp_path: Path) -> None:
    here = found(policy_for(invented(4), "duckdb", tmp_path / "a", blocks=COHORTS), ROWS, prepared=False)
    there = policy_for(invented(4), "spark", tmp_path / "b", order=2, blocks=COHORTS)
    for one, two in zip(here, found(there, ROWS, prepared=prepared), strict=True):
        assert same(one, two)


# Blocks


@pytest.mark.parametrize("blocks", [COHORTS, PERIODS])
def test_only_named_blocks_are_read_and_together_they_are_all(blocks: BlockRule, tmp_path: Path) -> None:
    policy = policy_for(invented(6), "duckdb", tmp_path, blocks=blocks)
    sqls = OF_PERIODS if blocks is PERIODS else ROWS
    whole = found(policy, sqls, prepared=True)
    codes = range(3) if blocks is COHORTS else range(660, 672)
    parts = [found(policy, sqls, prepared=False, codes=[code]) for code in codes]
    for n, everything in enumerate(whole):
        together: dict[object, Counter[tuple[Any, ...]]] = {}
        for code, part in zip(codes, parts, strict=True):
            assert set(part[n].blocks.tolist()) <= {code}
            for who, own in by_person(part[n]).items():
                together[who] = together.get(who, Counter()) + own
        assert together == by_person(everything)


def test_where_rows_are_sliced_a_unit_is_a_person_in_one_period(tmp_path: Path) -> None:
    policy = policy_for(invented(6), "duckdb", tmp_path, blocks=PERIODS)
    (one,) = found(policy, ROWS[:1], prepared=False)
    pairs = set(zip(one.people.tolist(), one.blocks.tolist(), strict=True))
    assert len(set(one.units.tolist())) == len(pairs) > len(set(one.people.tolist()))
    assert np.bincount(one.units).max() <= 3


def test_a_condition_on_the_block_narrows_what_is_charged(opened: Open) -> None:
    dataset = opened(more=BLOCKS)
    dataset.prepare()
    asked = row_questions.row_question(dataset, "SELECT stay FROM visits WHERE cohort IN (1, 2)")
    assert row_questions.blocks_to_charge(dataset, asked, None) == ["1", "2"]
    assert row_questions.blocks_to_charge(dataset, asked, ["0", "1"]) == ["1"]
    (target,) = row_questions.targets(dataset, asked, ["0", "1"])
    assert tuple(target.blocks) == ("1",)
    with pytest.raises(BadParameter, match="nothing to learn"):
        row_questions.targets(dataset, asked, ["0", "3"])


@pytest.mark.parametrize(
    ("blocks", "labels", "codes"),
    [
        (COHORTS, ["0", "2"], [0, 2]),
        (PERIODS, ["2025-01", "2025-12"], [660, 671]),
        (BlockRule("unit", every="month"), ["2031-07"], [738]),
        (BlockRule("row", column="d", every="day", first=20_089, last=20_453), ["2025-01-03"], [20_091]),
        (BlockRule("row", column="d", every="quarter", first=220, last=223), ["2025-04"], [221]),
        (BlockRule("row", column="d", every="year", first=55, last=56), ["2026"], [56]),
        (BlockRule("row", column="d", every="week", first=2869, last=2921), ["2024-12-26"], [2869]),
    ],
)
def test_names_of_blocks_are_read_back(blocks: BlockRule, labels: list[str], codes: list[int]) -> None:
    assert row_questions.codes_of_block_labels(blocks, labels) == codes


@pytest.mark.parametrize(
    ("blocks", "label"),
    [
        (COHORTS, "3"), (COHORTS, "01"), (COHORTS, "x"), (COHORTS, "-1"),
        (PERIODS, "2026-01"), (PERIODS, "2025"), (PERIODS, "2025-01-02"), (PERIODS, "*"),
        (BlockRule("row", column="d", every="quarter", first=220, last=223), "2025-05"),
    ],
)  # fmt: skip
def test_no_other_name_is_a_block(blocks: BlockRule, label: str) -> None:
    with pytest.raises(BadParameter, match="no such block"):
        row_questions.codes_of_block_labels(blocks, [label])


def test_a_block_is_named_once_and_only_where_there_are_blocks(opened: Open) -> None:
    dataset = opened()
    asked = row_questions.row_question(dataset, "SELECT stay FROM visits")
    with pytest.raises(BadParameter, match="there are none"):
        row_questions.blocks_to_charge(dataset, asked, ["0"])
    with pytest.raises(BadParameter, match="once"):
        row_questions.codes_of_block_labels(COHORTS, ["1", "1"])
    with pytest.raises(BadParameter, match="several names"):
        row_questions.codes_of_block_labels(COHORTS, "12")
    assert row_questions.blocks_to_charge(dataset, asked, None) is None


# Reading


def charged_rows(dataset: Dataset, asked: row_questions.RowQuestion, version: int) -> bytes:
    spending = Spending(
        targets=row_questions.targets(dataset, asked),
        loss=Pure(Fraction(1, 100)),
        unit=Unit.PERSON,
        relation=Neighbours.ADD_REMOVE,
        mechanism="a test",
        parameters={},
        request=b"rows",
    )
    gate = Gate(dataset.ledger, principal="ann")
    charged = ChargedRead(gate=gate, spending=spending, version=version, current_version=dataset.version)
    return charged.release(lambda: read_rows(dataset, asked), lambda rows: b"%d rows" % len(rows)).answer


def test_rows_are_read_of_the_blocks_and_the_version(opened: Open, tmp_path: Path) -> None:
    dataset = opened(more=BLOCKS)
    asked = row_questions.row_question(dataset, "SELECT ward, stay FROM visits")
    version = row_questions.checked_version(dataset, asked)
    before = read_rows(dataset, asked)
    assert len(before) == 600
    dataset.prepare()
    version = row_questions.checked_version(dataset, asked)
    after = read_rows(dataset, asked, ["0", "3"])
    assert set(after.blocks.tolist()) == {0, 3}
    assert blocks_of(asked.relation) is None
    with pytest.raises(WorkEnded):
        charged_rows(dataset, asked, version - 1)
    assert charged_rows(dataset, asked, version) == b"600 rows"
    write_visits(tmp_path, range(300, 310), "visits2")
    with pytest.raises(WorkEnded):
        charged_rows(dataset, asked, version)


def test_codes_and_missing_values_are_told_apart(tmp_path: Path) -> None:
    policy = policy_for(invented(3), "duckdb", tmp_path)
    (one,) = found(policy, ROWS[:1], prepared=False)
    for column in one.columns.values():
        assert column.codes.dtype == np.int64
        assert (column.codes[~column.known] == 0).all()
    assert not one.columns["ward"].known.all()
    assert set(one.columns["ward"].codes[one.columns["ward"].known].tolist()) <= {0, 1, 2}
    assert set(one.columns["urgent"].codes.tolist()) == {0, 1}
    kept = one.where(one.columns["ward"].known)
    assert len(kept) == int(one.columns["ward"].known.sum())
    assert kept.columns["ward"].known.all()


def test_nothing_private_is_shown(opened: Open) -> None:
    dataset = opened()
    asked = row_questions.row_question(dataset, "SELECT ward, stay FROM visits")
    found_rows = read_rows(dataset, asked)
    assert repr(found_rows) == object.__repr__(found_rows)
    assert "stay" not in repr(found_rows.columns["stay"])


# Halves


def test_a_half_is_decided_by_the_person_alone(tmp_path: Path) -> None:
    policy = policy_for(invented(3), "duckdb", tmp_path / "all")
    here, joined = found(policy, (ROWS[0], ROWS[4]), prepared=False)

    def decide(ids: Any) -> NDArray[np.bool_]:
        assert len(set(ids)) == len(ids)
        return np.array([who in TESTERS for who in ids], dtype=np.bool_)

    for one in (here, joined):
        tests = one.tests(decide)
        assert tests.any()
        assert {one.ids[who] for who in one.people[tests]} <= TESTERS
        assert not {one.ids[who] for who in one.people[~tests]} & TESTERS
    with pytest.raises(BadParameter, check=named("halves")):
        here.tests(lambda _: np.zeros(1, np.bool_))


def test_where_each_row_is_a_unit_another_row_does_not_move_it(tmp_path: Path) -> None:
    """Rows of one hash are numbered, and the numbers depend on each other: halves must not."""
    policy = policy_for(invented(3), "duckdb", tmp_path)
    asked = question("SELECT stay FROM visits", policy)
    table = replace(policy.tables["visits"], unit=UnitBy(""), rows_per_unit=1)
    each = replace(policy, tables={"visits": table}, protects="row")

    def of(units: list[int]) -> PrivateRows:
        return decode_rows(each, asked, pa.table({"u": units, "c0": [1] * len(units)}))

    first, second = (5 << 31) + 1, (5 << 31) + 2
    alone, both = of([first]), of([second, first])
    assert list(both.ids) == list(alone.ids) == [5]
    assert len(set(both.units.tolist())) == 2


def test_the_key_of_halves_lives_with_the_ledger(opened: Open) -> None:
    dataset = opened()
    key = row_questions.half_key(dataset.ledger)
    assert len(key) == 32
    again = opened(rewrite=False)
    dataset.close()
    assert row_questions.half_key(again.ledger) == key


def test_the_meaning_covers_the_question_and_the_declared_columns(opened: Open) -> None:
    dataset = opened()
    one, other = (row_questions.row_question(dataset, f"SELECT {c} FROM visits") for c in ("stay", "ward"))
    assert row_questions.meaning_digest(dataset, one) == row_questions.meaning_digest(dataset, one)
    assert row_questions.meaning_digest(dataset, one) != row_questions.meaning_digest(dataset, other)
