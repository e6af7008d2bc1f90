"""What reaches the mechanisms differs between neighbours by no more than was declared, on every engine.

S6, S9, S1, S3, S4, S10: one person with many rows is removed from all tables, rows come in another order,
and every sum, every count of units and every counted code is compared.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.sql.policy.policy import BlockRule, CheckedPolicy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery, NoisySumPair
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader
from support.hospital import ENGINES, FIRST_DAY, QUESTIONS, WARDS, Hospital, invented, policy_for
from support.slowly import first, slow

Found = list[tuple[BoundQuery, list[ExactGrouping]]]
KEY = bytes(range(32))
PERIODS = BlockRule("row", column="admitted", every="month", first=660, last=671)
COHORTS = BlockRule("unit", cohorts=3)
_EPOCH, _DAY = date(1970, 1, 1), timedelta(days=1)


def found(policy: CheckedPolicy, questions: tuple[str, ...], *, prepared: bool) -> Found:
    """What the engine gives for each question."""
    if prepared:
        prepare(policy, KEY)
    catalog = Catalog(policy, {"wards": WARDS})
    reader = Reader.open(policy, KEY, catalog.public)
    try:
        assert reader.is_prepared is prepared
        return [(bound, reader.exact(bound)) for bound in (bind(sql, catalog) for sql in questions)]
    finally:
        reader.close()


def by_key(exact: ExactGrouping) -> dict[object, tuple[NDArray[Any], int]]:
    """The values and the number of units of each group."""
    keys = range(len(exact.values)) if exact.keys is None else exact.keys
    units = np.zeros(len(exact.values), dtype=np.int64) if exact.units is None else exact.units
    return {key: (exact.values[n], int(units[n])) for n, key in enumerate(keys)}


def counted(exact: ExactGrouping, spectrum: int) -> dict[object, int]:
    """Rows by group and code."""
    one = exact.spectra[spectrum]
    keys = None if exact.keys is None else list(exact.keys)
    cells = [cell if keys is None else keys[cell] for cell in one.cells.tolist()]
    return dict(zip(zip(cells, one.codes.tolist(), strict=True), one.rows.tolist(), strict=True))


def require_close(question: BoundQuery, here: list[ExactGrouping], there: list[ExactGrouping]) -> None:
    for one, other in zip(here, there, strict=True):
        left, right = by_key(one), by_key(other)
        nothing = (np.zeros(question.numbers, dtype=object), 0)
        pairs = [(left.get(key, nothing), right.get(key, nothing)) for key in left.keys() | right.keys()]
        first = 0
        for part in question.parts:  # all numbers of a part are one vector
            mine = range(first, first := first + len(part.numbers))
            moved = [abs(int(a[0][place]) - int(b[0][place])) for a, b in pairs for place in mine]
            assert sum(moved) <= part.l1, part.label
            assert sum(distance**2 for distance in moved) <= part.l2_squared, part.label
        units = [abs(a[1] - b[1]) for a, b in pairs]
        assert max(units, default=0) <= 1
        assert sum(units) <= question.rows
        for place, spectrum in enumerate(question.spectra):
            a, b = counted(one, place), counted(other, place)
            assert sum(abs(a.get(k, 0) - b.get(k, 0)) for k in a.keys() | b.keys()) <= spectrum.rows


def require_all_close(here: Found, there: Found) -> None:
    for (question, mine), (_, theirs) in zip(here, there, strict=True):
        require_close(question, mine, theirs)


def require_same(question: BoundQuery, here: list[ExactGrouping], there: list[ExactGrouping]) -> None:
    for one, other in zip(here, there, strict=True):
        left, right = by_key(one), by_key(other)
        assert left.keys() == right.keys()
        for key, (values, units) in left.items():
            assert (list(map(int, values)), units) == (list(map(int, right[key][0])), right[key][1])
        for place in range(len(question.spectra)):
            assert counted(one, place) == counted(other, place)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("hospital")
    return found(policy_for(invented(1), "duckdb", folder), QUESTIONS, prepared=False)


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_all_engines_find_the_same(engine: str, prepared: bool, tmp_path: Path, expected: Found) -> None:
    """S1: to the last digit, in any order of rows, prepared or not."""
    policy = policy_for(invented(1), engine, tmp_path, order=7)
    other = found(policy, QUESTIONS, prepared=prepared)
    for (question, here), (_, there) in zip(expected, other, strict=True):
        require_same(question, here, there)


@pytest.mark.slow
def test_spark_too_in_short(tmp_path: Path, expected: Found) -> None:
    """The others are for `make test-all`: each question is a job that Spark plans for a second."""
    some = (0, 1, 4, 13)
    policy = policy_for(invented(1), "spark", tmp_path, order=7)
    other = found(policy, tuple(QUESTIONS[k] for k in some), prepared=False)
    for k, (_, there) in zip(some, other, strict=True):
        require_same(expected[k][0], expected[k][1], there)


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_S6_S9_one_person_moves_nothing_further_than_declared(
    engine: str, prepared: bool, tmp_path: Path
) -> None:
    everybody = invented(2)
    policy = policy_for(everybody, engine, tmp_path / "all", blocks=COHORTS)
    here = found(policy, QUESTIONS, prepared=prepared)
    for person in ("p0", "p3"):
        other = policy_for(everybody.without(person), engine, tmp_path / person, order=3, blocks=COHORTS)
        require_all_close(here, found(other, QUESTIONS, prepared=prepared))


@pytest.mark.parametrize("seeds", [range(1), slow(range(1, 20))])
def test_rows_of_many_invented_hospitals(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        everybody = invented(100 + seed)
        here = found(policy_for(everybody, "duckdb", tmp_path / f"{seed}"), QUESTIONS, prepared=False)
        without = everybody.without("p0")
        other = policy_for(without, "duckdb", tmp_path / f"{seed}w", order=seed)
        require_all_close(here, found(other, QUESTIONS, prepared=False))


def test_a_bound_that_was_too_small_would_be_seen(tmp_path: Path) -> None:
    """The comparison itself can fail: with twice the rows of a person it does."""
    everybody = invented(2)
    wide = found(policy_for(everybody, "duckdb", tmp_path / "a", rows=9), QUESTIONS[:2], prepared=False)
    catalog = Catalog(policy_for(everybody, "duckdb", tmp_path / "b"))
    narrow = [bind(sql, catalog) for sql in QUESTIONS[:2]]
    without = policy_for(everybody.without("p0"), "duckdb", tmp_path / "c", rows=9)
    others = found(without, QUESTIONS[:2], prepared=False)
    for question, (_, mine), (_, theirs) in zip(narrow, wide, others, strict=True):
        with pytest.raises(AssertionError):
            require_close(question, mine, theirs)


def test_a_pair_that_was_charged_for_one_of_its_numbers_would_be_seen(tmp_path: Path) -> None:
    """Each number alone moves by less than both together."""
    everybody = invented(2)
    sql = ("SELECT AVG(stay) FROM visits",)
    ((question, here),) = found(policy_for(everybody, "duckdb", tmp_path / "a"), sql, prepared=False)
    without = policy_for(everybody.without("p0"), "duckdb", tmp_path / "b")
    ((_, there),) = found(without, sql, prepared=False)
    (pair,) = question.parts
    assert isinstance(pair, NoisySumPair)
    require_close(question, here, there)
    most = max(abs(int(a) - int(b)) for a, b in zip(here[0].values[0], there[0].values[0], strict=True))
    assert most < pair.l1
    for narrow in (replace(pair, l1=most), replace(pair, l2_squared=most**2)):
        with pytest.raises(AssertionError):
            require_close(replace(question, parts=(narrow,)), here, there)


def _in_month(rows: list[dict[str, Any]], month: int) -> list[dict[str, Any]]:
    def block(row: dict[str, Any]) -> int | None:
        day = row["admitted"]
        if day is None:
            return None
        clamped = min(max((day - _EPOCH).days, FIRST_DAY), FIRST_DAY + 364)
        moved = _EPOCH + (_DAY * clamped)
        return int((moved.year - 1970) * 12 + moved.month - 1)

    return [row for row in rows if block(row) != month]


def test_where_rows_are_sliced_one_period_of_a_person_is_protected(tmp_path: Path) -> None:
    everybody = invented(5, most=40)
    related = ("patients", "who =", "WITH")  # a person's periods among themselves: refused there
    questions = tuple(sql for sql in QUESTIONS if not any(word in sql for word in related))
    here = found(policy_for(everybody, "duckdb", tmp_path / "a", blocks=PERIODS), questions, prepared=False)
    for month in (660, 664, 671):
        visits = {**everybody.visits, "p0": _in_month(everybody.visits["p0"], month)}
        other = policy_for(
            Hospital(visits, everybody.patients), "duckdb", tmp_path / f"{month}", order=1, blocks=PERIODS
        )
        require_all_close(here, found(other, questions, prepared=False))
