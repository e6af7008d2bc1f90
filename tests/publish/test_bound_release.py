"""What cannot be published is refused by declarations alone: nothing is read, reserved or charged."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import duckdb
import numpy as np
import pytest

import lapwing
from lapwing.errors import BadParameter
from lapwing.publish.bound_release import BoundRelease, bind_release, impossible_cells
from lapwing.publish.measured.published_column import PublishedColumn, published_column
from lapwing.publish.release_file import load_release
from lapwing.sql.policy.kinds import Choice, Truth
from support.published import VISITS

RELEASE = """[release]
name = "visits-2026"
policy = "visits.toml"
rows = "SELECT ward, stay, urgent FROM visits"
method = "adaptive"
epsilon = 2.0
delta = 1e-9
[columns.urgent]
unknown = false
[synthetic]
workload = [["ward", "urgent"]]
[[impossible]]
ward = "c"
urgent = true
"""


def bound(folder: Path, release: str = RELEASE, policy: str = VISITS) -> BoundRelease:
    duckdb.execute(
        "COPY (SELECT 1 AS person, 'a' AS ward, 1 AS stay, true AS urgent, 'x' AS note) TO "
        f"'{folder / 'visits.parquet'}'"
    )
    (folder / "visits.toml").write_text(policy)
    (folder / "release.toml").write_text(release)
    with lapwing.open(folder / "visits.toml") as dataset:
        return bind_release(load_release(folder / "release.toml"), dataset)


def test_a_release_is_bound(tmp_path: Path) -> None:
    assert bound(tmp_path).impossible.keys() == {("ward", "urgent")}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ward, stay, urgent", "note", "text without declared values"),
        ("ward, stay, urgent", "COUNT(*) AS n", "aggregate"),
        ("[columns.urgent]", "[columns.cost]", "not a published column"),
        ('ward = "c"', 'ward = "z"', 'is no value of "ward"'),
        ('ward = "c"', "cost = 3", "not a published column"),
        ('"urgent"]]', '"urgnt"]]', '"urgnt" is not a published column'),
        ("epsilon = 2.0", "epsilon = 0.001", "epsilon: is too small"),
        ("delta = 1e-9", "delta = 1e-9\ncheck = 1e-40", "check: is too small"),
        ("[[impossible]]", "[[impossible]]\nurgent = false\n[[impossible]]\nurgent = true\n[[impossible]]",
         "leaves no row"),
    ],
)  # fmt: skip
def test_a_release_that_cannot_be_is_refused_before_data_is_read(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    assert old in RELEASE
    with pytest.raises(BadParameter, match=why):
        bound(tmp_path, RELEASE.replace(old, new, 1))
    assert not (tmp_path / "lapwing.ledger").exists()


def test_too_many_columns_are_refused(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(101)]
    policy = VISITS + "".join(f'columns.{name} = {{ type = "bool" }}\n' for name in names)
    release = RELEASE.split("[columns", maxsplit=1)[0].replace("ward, stay, urgent", ", ".join(names))
    with pytest.raises(BadParameter, match="selects 101 columns, and at most 100 are possible"):
        bound(tmp_path, release, policy)


def truths(*names: str) -> tuple[PublishedColumn, ...]:
    return tuple(published_column(name, Truth(), bins=None, has_unknown=False) for name in names)


@pytest.mark.parametrize(
    "rules",
    [
        [{"x": True}, {"x": False}],
        [{"x": True}, {"x": False, "y": True}, {"x": False, "y": False}],
        [{a: value, b: value} for a, b in combinations("xyz", 2) for value in (True, False)],
        [{"x": a, "y": b, "z": c} for a, b, c in product((True, False), repeat=3)],
    ],
)
def test_rules_that_leave_no_row_together_are_refused(rules: list[dict[str, bool]]) -> None:
    """Each rule by itself leaves cells. Without the last one, there is a row."""
    with pytest.raises(BadParameter, match="leaves no row"):
        impossible_cells(truths("x", "y", "z"), tuple(rules), model_cells=1000)
    assert impossible_cells(truths("x", "y", "z"), tuple(rules[:-1]), model_cells=1000)


def test_rules_leave_a_row_exactly_if_one_follows_them_all() -> None:
    draws, seen = np.random.default_rng(3), set[bool]()
    names = ("x", "y", "z", "w")
    for _ in range(150):
        rules = []
        for _ in range(int(draws.integers(4, 14))):
            chosen = draws.choice(names, size=int(draws.integers(1, 4)), replace=False)
            rules.append({str(name): bool(draws.integers(0, 2)) for name in chosen})
        rows = [dict(zip(names, row, strict=True)) for row in product((True, False), repeat=4)]
        is_possible = any(
            not any(all(row[name] == value for name, value in rule.items()) for rule in rules)
            for row in rows
        )
        seen.add(is_possible)
        try:
            impossible_cells(truths(*names), tuple(rules), model_cells=1000)
        except BadParameter:
            assert not is_possible
        else:
            assert is_possible
    assert seen == {True, False}


def test_rules_that_connect_too_many_columns_are_refused() -> None:
    names = [f"c{k}" for k in range(12)]
    kind = Choice(tuple(map(str, range(31))))
    columns = tuple(published_column(name, kind, bins=None, has_unknown=False) for name in names)
    rules = tuple({a: "30", b: "30"} for a, b in combinations(names, 2))
    with pytest.raises(BadParameter, match=r"a model of 7.88e\+17 cells, and at most 524,288"):
        impossible_cells(columns, rules, model_cells=1 << 19)
    assert len(impossible_cells(columns, rules[:3], model_cells=1 << 19)) == 3
