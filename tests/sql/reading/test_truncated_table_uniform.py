"""Truncation is a uniform choice among the rows of a unit, whatever they contain (case C17).

Each test draws the kept rows of many people, with a fixed key: a run always gives the same result. Over
keys, each fails by chance with probability 1e-6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, groupby
from math import comb, prod
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from lapwing.sql.policy.kinds import Kind, Moment, Text
from support.private_tables import KEY, OTHER_KEY, coded_rows, policy_of, store, table_of, whole

FALSE_ALARM = 1e-6
PEOPLE = 6000
Kept = tuple[object, ...]


def is_uniform(found: Mapping[Kept, int], weights: Mapping[Kept, float]) -> bool:
    """Compare counts with a law by a chi-square test. Outcomes that cannot be must not be there."""
    assert set(found) <= set(weights)
    total, share = sum(found.values()), sum(weights.values())
    expected = {kept: total * weight / share for kept, weight in weights.items()}
    assert min(expected.values()) > 20  # else the statistic has another law
    distance = sum((found.get(kept, 0) - mean) ** 2 / mean for kept, mean in expected.items())
    return bool(chi2.sf(distance, len(expected) - 1) > FALSE_ALARM)


def kept_of(
    folder: Path, values: Sequence[object], kind: Kind, *,
    most: int, ids: Sequence[object] = range(PEOPLE), key: bytes = KEY, primary_key: bool = False,
) -> Counter[Kept]:  # fmt: skip
    """How many of people with the same rows keep which ones. `most` is the contribution bound."""
    file = store(
        folder / "v.parquet",
        {
            "who": [who for who in ids for _ in values],
            "x": [*values] * len(ids),
            "id": [*range(len(ids) * len(values))],
        },
    )
    table = table_of(file, {"x": kind}, rows=most, primary_key=("id",) if primary_key else ())
    rows = [row for row in coded_rows(policy_of(folder, table), "x", key=key) if row[1] <= most]
    by_person = groupby(sorted(rows, key=lambda row: repr(row[0])), lambda row: repr(row[0]))
    return Counter(tuple(sorted(row[2] for row in own)) for _, own in by_person)


def all_choices(values: Sequence[object], most: int) -> Counter[Kept]:
    """In how many ways each multiset of values is chosen."""
    return Counter(tuple(sorted(chosen)) for chosen in combinations(values, most))  # type: ignore[type-var]


SKEWED = [1] * 9 + [2]
CASES: dict[str, tuple[Sequence[object], Kind, int]] = {
    "one of ten, nine alike": (SKEWED, whole(0, 9), 1),
    "one of ten, skewed": ([1] * 5 + [2] * 3 + [3, 4], whole(0, 9), 1),
    "one of ten different": (range(10), whole(0, 9), 1),
    "days in a row": (range(8), whole(0, 30_000), 1),
    "two of six, some alike": ([1, 1, 1, 2, 2, 3], whole(0, 9), 2),
    "pairs of different ones": (range(6), whole(0, 9), 2),
    "three of eight, skewed": ([1] * 4 + [2] * 3 + [3], whole(0, 9), 3),
    "texts": (["Bern"] * 4 + ["Z\u00fcrich"], Text(), 1),
}


@pytest.mark.parametrize("primary_key", [False, True], ids=["content", "primary key"])
@pytest.mark.parametrize("case", CASES)
def test_every_row_of_a_person_is_equally_likely(tmp_path: Path, case: str, primary_key: bool) -> None:
    values, kind, most = CASES[case]
    found = kept_of(tmp_path, values, kind, most=most, primary_key=primary_key)
    assert is_uniform(found, all_choices(values, most))


@pytest.mark.parametrize(
    "ids",
    [range(PEOPLE), [n * n * 7919 for n in range(PEOPLE)], [f"person {n}" for n in range(PEOPLE)]],
    ids=["in a row", "spread", "texts"],
)
@pytest.mark.parametrize("key", [KEY, OTHER_KEY, bytes(32)], ids=["a", "b", "c"])
def test_it_is_so_for_ids_and_keys_of_all_kinds(tmp_path: Path, ids: Sequence[object], key: bytes) -> None:
    found = kept_of(tmp_path, SKEWED, whole(0, 9), most=1, ids=ids, key=key)
    assert is_uniform(found, all_choices(SKEWED, 1))


def test_the_share_of_a_value_does_not_depend_on_which_columns_are_declared(tmp_path: Path) -> None:
    """People have different numbers of rows, and each prefers one town."""
    chance = np.random.default_rng(3)
    people = np.repeat(np.arange(PEOPLE), chance.integers(1, 12, PEOPLE))
    home = chance.integers(0, 4, PEOPLE)[people]
    town = np.where(chance.random(len(people)) < 0.8, home, chance.integers(0, 4, len(people)))
    day = chance.integers(0, 365, len(people))
    file = store(tmp_path / "v.parquet", {"who": people, "town": town, "day": day})
    rows = np.bincount(people)
    shares = np.bincount(people, weights=(town == 0)) / rows
    mean, spread = shares.sum(), np.sqrt((shares * (1 - shares)).sum())
    few: dict[str, Kind] = {"town": whole(0, 3)}
    for columns in (few, {**few, "day": whole(0, 364)}, {**few, "day": Moment(86400, 0, 364)}):
        policy = policy_of(tmp_path, table_of(file, columns, rows=1))
        kept = sum(row[1] == 1 and row[2] == 0 for row in coded_rows(policy, "town"))
        assert abs(kept - mean) < 4.9 * spread  # two-sided 1e-6, normal


def test_the_law_of_the_cases_is_the_hypergeometric_one() -> None:
    counted = all_choices([1, 1, 1, 2, 2, 3], 2)
    pools = {1: 3, 2: 2, 3: 1}
    assert counted == {
        kept: prod(comb(pools[value], kept.count(value)) for value in set(kept))
        for kept in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
    }


def test_the_test_would_notice_equal_rows_that_stand_or_fall_together() -> None:
    assert not is_uniform({(1,): PEOPLE // 2, (2,): PEOPLE // 2}, all_choices(SKEWED, 1))
