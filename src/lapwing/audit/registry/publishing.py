"""The cases of publishing: each method with its steps, on generated people, and single steps of them.

A test fails if a method of release files has no case here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.publishing_audit import release_case
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.mechanisms import Exponential, Gaussian
from lapwing.publish.measured.private_marginals import GRID, Candidate, choosing, measuring, score
from lapwing.publish.release_file import CENSUS, METHODS, CensusSettings, ColumnSettings, ReleasePlanFile
from lapwing.sql.policy.kinds import Choice, Kind, Numeric, Truth
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column, Source, UnitBy
from lapwing.sql.question.public_tables import PublicTable

EPSILON, DELTA = Fraction(1), Fraction(1, 100)
ROWS = 3  # the contribution bound K
CHECK = Fraction(1, 5)  # the share of ρ for a check
NOWHERE = Path("/lapwing/audit")  # the built-in policy has no files: all of its people are generated
PEOPLE: Mapping[str, Kind] = {
    "block": Choice(("B0", "B1", "B2", "B3")),
    "race": Choice(("a", "b", "c")),
    "age": Numeric(Fraction(1), 0, 99),
    "working": Truth(),
}
BLOCKS = PublicTable(
    "blocks",
    {
        "state": ["S", "S", "S", "S"], "county": ["C0", "C0", "C1", "C1"],
        "block": ["B0", "B1", "B2", "B3"], "empty": [False, False, False, True],
    },
)  # fmt: skip
_SHARES = {
    "state": {"total": Fraction(1, 5)},
    "county": {"total": Fraction(1, 5), "race": Fraction(1, 5)},
    "block": {"race*working": Fraction(1, 5), "cells": Fraction(1, 5)},
}
_SPINE = ("state", "county", "block")


def publishing_cases() -> list[AuditCase]:
    """Return the cases of publishing."""
    whole = [_release(method, Fraction(0)) for method in METHODS]
    checked = [_release(method, CHECK) for method in METHODS if method != CENSUS]
    return [*whole, *checked, *_steps()]


def _release(method: str, check: Fraction) -> AuditCase:
    """Return the case of a whole release by one method, with a check or without."""
    name = f"publish: {method}{' with a check' if check else ''}"
    return release_case(name, _file(method, check), built_in_people(), covers=(method,))


@lru_cache(maxsize=1)
def built_in_people() -> GeneratedSources:
    """Return generated people of the built-in policy. They are stored once for all cases."""
    declared = {name: Column(name, kind) for name, kind in PEOPLE.items()}
    source = Source("duckdb", str(NOWHERE / "people.parquet"), "", "parquet")
    public = Source("duckdb", str(NOWHERE / "blocks.csv"), "", "csv")
    tables = {
        "people": CheckedTable("people", source, declared, UnitBy("person"), ROWS),
        "blocks": CheckedTable("blocks", public, {}, None, 0),
    }
    policy = CheckedPolicy(
        NOWHERE / "people.toml", "people", Fraction(10), DELTA, DELTA, tables, None,
        str(NOWHERE / "people.ledger"), {},
    )  # fmt: skip
    return GeneratedSources(policy, {"blocks": BLOCKS})


def _file(method: str, check: Fraction) -> ReleasePlanFile:
    is_census = method == CENSUS
    columns = ["block", "race", "working"] if is_census else ["race", "age", "working"]
    known = {name: ColumnSettings(unknown=False) for name in ("race", "working")}
    return ReleasePlanFile(
        path=NOWHERE / "release.toml",
        text=b"",
        name=f"audit of {method}",
        policy=NOWHERE / "people.toml",
        sql=f"SELECT {', '.join(columns)} FROM people",  # noqa: S608 (names of this file)
        method=method,
        epsilon=None,
        delta=DELTA,
        rho=Fraction(1, 10),
        columns=known if is_census else {"age": ColumnSettings(bins=4)},
        impossible=(),
        workload=None,
        model_bytes=1 << 20,
        check=check,
        census=CensusSettings("blocks", _SPINE, "block", _SHARES, "empty") if is_census else None,
    )


# Single steps, drawn: a person with K rows, all in one cell, is there or not.


def _steps() -> list[AuditCase]:
    sigma = Gaussian.for_budget(EPSILON, DELTA, l2_squared=ROWS**2, dimension=1).sigma
    # The person's rows move the first marginal away from the model, and the second towards it.
    candidates = [
        Candidate(("a",), np.array([4 * GRID, 0])),
        Candidate(("b",), np.array([4 * GRID, 8 * GRID])),
    ]
    tables = ([np.array([4, 0]), np.array([4, 8 - ROWS])], [np.array([4, ROWS]), np.array([4, 8])])
    scores, others = (
        [score(counts, candidate) for counts, candidate in zip(table, candidates, strict=True)]
        for table in tables
    )
    measure, choose = measuring(sigma, ROWS, 1), choosing(EPSILON, ROWS, candidates)
    return [
        _step(
            "publish: a measured marginal (independent, tree, adaptive)", measuring, measure, [0], [ROWS]
        ),
        _step("publish: a chosen marginal (tree, adaptive)", choosing, choose, scores, others),
        _step("publish: one query of one level (census)", measuring, measure, [7], [7 + ROWS]),
    ]


def _step(
    name: str, made_by: object, mechanism: Gaussian | Exponential, first: list[int], second: list[int]
) -> AuditCase:
    """Return the case of one step. `made_by` is the function that makes its mechanism."""
    delta = DELTA if isinstance(mechanism, Gaussian) else Fraction(0)

    def draws(values: list[int]) -> Callable[[int], NDArray[Any]]:
        if isinstance(mechanism, Gaussian):  # one sample of many counts is as many samples of one
            return lambda size: replace(mechanism, dimension=size).sample(np.full(size, values[0]))
        return lambda size: np.array([mechanism.sample(np.array(values)) for _ in range(size)])

    def once(values: list[int]) -> Callable[[], object]:
        return lambda: mechanism.sample(np.array(values))

    words = f"{first} and {second}"

    def sampled(budget: StageBudget) -> StageResult:
        from lapwing.audit.stages.sampled import SampledPair, sampled_stage  # noqa: PLC0415 (when it runs)

        return sampled_stage([SampledPair(words, draws(first), draws(second))], EPSILON, delta)(budget)

    pair = ReplayPair(words, once(first), once(second))
    replayed = replay_stage([pair], mechanism.loss, epsilon=EPSILON, delta=delta)
    stages = {Stage.REPLAY: replayed, Stage.SAMPLED: sampled}
    return AuditCase(name, Family.PUBLISHING, (made_by,), EPSILON, delta, stages)
