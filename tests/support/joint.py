"""Small members of a consortium: the same table in three files, and what a plain query finds in all."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics.statistic import Noise, Statistic
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy

POLICY = """
[dataset]
name = "visits"
[budget]
epsilon = {epsilon}
delta = 1e-6
[tables.visits]
source = "{source}"
unit = "patient_id"
rows_per_unit = {rows}
[tables.visits.columns.ward]
values = ["A", "B", "C"]
[tables.visits.columns.stay]
low = 0
high = 20
[tables.visits.columns.cost]
low = 0
high = 100
step = 0.5
[tables.visits.columns.urgent]
type = "bool"
[tables.visits.columns.name]
type = "text"
{more}
"""
_ROWS = (
    "SELECT p AS patient_id, ['A', 'B', 'C'][1 + CAST(p % 3 AS INTEGER)] AS ward, "
    "CAST(p * 7 % 21 AS INTEGER) AS stay, CAST((p * 7 % 21) * 3 + p * 5 % 11 AS DOUBLE) AS cost, "
    "p % 4 = 0 AS urgent, 'secret' || p AS name "
    "FROM range({start}, {stop}) AS t(p), range(1 + p % 2) AS u(k)"
)


def member(
    folder: Path,
    people: range,
    *,
    form: str = "parquet",
    rows: int = 2,
    epsilon: float = 10.0,
    more: str = "",
) -> Dataset:
    """A member's data set in a folder of its own. Odd people have two rows, even ones have one."""
    folder.mkdir(parents=True, exist_ok=True)
    select = _ROWS.format(start=people.start, stop=people.stop)
    source = f"visits.{form}"
    if form == "duckdb":
        source += "#visits"
        with duckdb.connect(str(folder / "visits.duckdb")) as connection:
            connection.execute(f"CREATE TABLE visits AS {select}")
    else:
        duckdb.execute(f"COPY ({select}) TO '{folder / source}'")
    text = POLICY.format(source=source, rows=rows, epsilon=epsilon, more=more)
    (folder / "visits.toml").write_text(text)
    return Dataset(load_policy(folder / "visits.toml"), analyst="ann")


def plain(people: Sequence[range], sql: str) -> list[tuple[Any, ...]]:
    """What SQL finds in all members' rows together."""
    rows = " UNION ALL ".join(_ROWS.format(start=one.start, stop=one.stop) for one in people)
    return duckdb.execute(f"WITH visits AS ({rows}) {sql}").fetchall()


def laplace(statistic: Statistic, epsilon: float | Fraction, *, of: int = 1) -> list[LaplaceShares]:
    """ε of all stages, in equal parts for every stage and block."""
    each = Fraction(epsilon) / (statistic.stages * len(statistic.blocks))
    return [LaplaceShares.for_epsilon(each, l1=block.l1, of=of) for block in statistic.blocks]


def gaussian(statistic: Statistic, rho: float | Fraction, *, of: int = 1) -> list[GaussianShares]:
    """ρ of all stages, in equal parts."""
    each = Fraction(rho) / (statistic.stages * len(statistic.blocks))
    return [
        GaussianShares.for_rho(each, l2_squared=block.l2_squared, dimension=block.length, of=of)
        for block in statistic.blocks
    ]


def opened(vectors: Sequence[NDArray[np.int64]]) -> OpenedSum:
    """Their sum, as a protocol would open it."""
    return OpenedSum(np.sum(vectors, axis=0), tuple(range(len(vectors))))


def totals(shares: Sequence[LaplaceShares | GaussianShares], found: OpenedSum) -> list[Noise]:
    """The noise in an opened sum."""
    return [share.total(len(found.contributors)) for share in shares]
