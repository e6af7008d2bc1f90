"""Removing one person at one member moves that member's numbers within the bounds of every block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics import Statistic, statistic_of
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.reading.open_sources import read_public_tables
from lapwing.sql.reading.reader import Reader
from support.hospital import Hospital, invented, policy_for
from support.private_tables import KEY

SPECS: tuple[dict[str, Any], ...] = (
    {"kind": "question", "sql": "SELECT ward, COUNT(*), SUM(stay), AVG(cost) FROM visits GROUP BY ward"},
    {"kind": "question", "sql": "SELECT ward, COUNT(DISTINCT who) FROM visits GROUP BY ROLLUP (ward)"},
    {"kind": "question", "sql": "SELECT VARIANCE(stay), CORR(stay, cost) FROM visits WHERE stay > 3"},
    {"kind": "regression", "table": "visits", "y": "cost", "x": ["stay", "urgent"]},
    {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "0.5"},
    {"kind": "quantile", "table": "visits", "column": "admitted", "fraction": "0.9"},
    {"kind": "question", "sql": "SELECT ward, AVG(stay), AVG(urgent) FROM visits GROUP BY ROLLUP (ward)"},
)


class Pinned(Curator):
    """A curator whose rows are ranked by a known key: neighbours keep the same rows of everybody else."""

    @contextmanager
    def reading(self, question: Any = None, *, plans: bool = False) -> Iterator[Reader]:
        public = read_public_tables(self.policy)
        with self._readers.lent(KEY, lambda: Reader.open(self.policy, KEY, public)) as reader:
            yield reader


def vectors(
    hospital: Hospital,
    folder: Path,
    engine: str,
    specs: Sequence[dict[str, Any]],
    earlier: Sequence[OpenedSum],
) -> list[tuple[Statistic, np.ndarray[Any, Any]]]:
    policy = policy_for(hospital, engine, folder)
    with Pinned(policy) as curator:
        dataset = Dataset(curator, analyst="ann")
        found = [statistic_of(spec, dataset) for spec in specs]
        return [(one, one.exact(min(len(earlier), one.stages - 1), earlier)) for one in found]


def check(tmp_path: Path, engine: str, specs: Sequence[dict[str, Any]], people: Sequence[str]) -> None:
    hospital = invented(4)
    earlier = [OpenedSum(np.array([3, 9]), (0,)), OpenedSum(np.array([10, 2]), (0,))]
    whole = vectors(hospital, tmp_path / "all", engine, specs, earlier)
    for person in people:
        rest = vectors(hospital.without(person), tmp_path / person, engine, specs, earlier)
        for (statistic, before), (_, after) in zip(whole, rest, strict=True):
            start = 0
            for block in statistic.blocks:
                moved = np.abs(before - after)[start : start + block.length]
                assert moved.sum() <= block.l1
                assert (moved**2).sum() <= block.l2_squared
                start += block.length


def test_a_person_moves_no_block_further_than_it_says(tmp_path: Path) -> None:
    check(tmp_path, "duckdb", SPECS, ["p0", "p1", "p2"])


def test_so_it_is_in_postgres(tmp_path: Path) -> None:
    check(tmp_path, "postgres", SPECS[:1] + SPECS[3:5], ["p0"])


@pytest.mark.slow
def test_so_it_is_for_everybody(tmp_path: Path) -> None:
    check(tmp_path, "duckdb", SPECS, [f"p{n}" for n in range(9)])


def test_members_on_different_engines_mean_the_same(tmp_path: Path) -> None:
    hospital = invented(4)
    found = {
        engine: [one.meaning for one, _ in vectors(hospital, tmp_path / engine, engine, SPECS, ())]
        for engine in ("duckdb", "postgres")
    }
    assert found["duckdb"] == found["postgres"]
    assert len(set(found["duckdb"])) == len(SPECS)


def test_the_fraction_of_a_quantile_is_in_the_spec_and_the_rows_in_the_meaning(tmp_path: Path) -> None:
    (one, _), (other, _) = vectors(
        invented(4),
        tmp_path,
        "duckdb",
        [{**SPECS[4], "fraction": "0.5"}, {**SPECS[4], "fraction": "0.25"}],
        (),
    )
    assert one.spec != other.spec
    assert one.meaning == other.meaning
    assert one.spec["fraction"] == str(Fraction(1, 2))
