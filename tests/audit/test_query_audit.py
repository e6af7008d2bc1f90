"""A query is audited without a charge or a private row, and planted errors are found by name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from lapwing.audit.case import Stage, StageBudget, Witness
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import case_of_query, query_case
from lapwing.audit.registry.aggregates import AuditedQuery, aggregate_cases, planned
from lapwing.audit.registry.clinic import WARDS, built_in_policy, built_in_sources
from lapwing.engines.dialects import DuckDbDialect
from lapwing.errors import BadParameter, LapwingError
from lapwing.sql.answering import noisy_numbers
from lapwing.sql.answering.noisy_numbers import NoisyGrouping, add_noise
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.noise_shares import divide_budget
from lapwing.sql.pricing.plan import Plan
from lapwing.sql.question import aggregates
from lapwing.sql.question.aggregates import AggregateCollector
from lapwing.sql.question.bound_query import NoisyAggregate
from lapwing.sql.question.relation import Scan
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.truncated_table import TruncatedTable

QUICKLY = StageBudget(is_thorough=False)
POLICY = """dataset.name = "visits"
budget = { epsilon = 10, delta = 1e-6 }
[tables.visits]
source = "visits.parquet"
unit = "patient"
rows_per_unit = 2
columns.ward = { values = ["A", "B"] }
columns.stay = { low = 0, high = 10 }
columns.name = { type = "text" }
"""
SUM = "SELECT ward, SUM(stay), COUNT(*) FROM visits GROUP BY ward"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    rows = "SELECT p AS patient, 'A' AS ward, 3 AS stay, 'x' AS name FROM range(50) AS rows(p)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path / 'visits.parquet'}'")
    (tmp_path / "visits.toml").write_text(POLICY)
    return tmp_path / "visits.toml"


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_nothing_is_charged_or_written_and_no_private_row_is_read(policy: Path) -> None:
    with Dataset(load_policy(policy), analyst="ann") as dataset:
        dataset.ask("SELECT COUNT(*) FROM visits", epsilon=1)
    # Whoever opened the source now would fail: these are no rows at all.
    (policy.parent / "visits.parquet").write_bytes(b"neither rows nor a schema")
    before = digests(policy.parent)
    case = case_of_query(policy, SUM, epsilon="0.5")
    assert (case.epsilon, case.delta) == (Fraction(1, 2), Fraction(0))
    found = case.stages[Stage.REPLAY](StageBudget())
    assert found.holds, found.witness
    assert found.notes[1] == "largest distance: 1 of the declared one"
    assert digests(policy.parent) == before


def test_a_policy_without_a_ledger_is_refused_and_makes_none(policy: Path) -> None:
    before = digests(policy.parent)
    with pytest.raises(BadParameter, match="has no ledger yet"):
        case_of_query(policy, SUM)
    assert digests(policy.parent) == before


def test_bad_queries_and_options_are_refused(policy: Path) -> None:
    with Dataset(load_policy(policy), analyst="ann") as dataset:
        dataset.ask("SELECT COUNT(*) FROM visits", epsilon=1)
    for sql, options in (
        ("SELECT stay FROM visits", {}),
        ("SELECT COUNT(*) FROM nowhere", {}),
        (SUM, {"epsilon": 0}),
        (SUM, {"delta": 1}),
        (SUM, {"noise": "none"}),
        (SUM, {"rows": 0}),
    ):
        with pytest.raises(LapwingError):
            case_of_query(policy, sql, **options)


# Planted errors

Release = Callable[[Plan, list[ExactGrouping]], list[NoisyGrouping]]


def violation(
    sql: str, release: Release | None = None, *, change: Callable[[Plan], Plan] | None = None,
    sources: GeneratedSources | None = None, **options: Any,
) -> Witness:  # fmt: skip
    plan, usual = planned(AuditedQuery("planted", sql, **options))
    case = query_case("planted", (change or (lambda one: one))(plan), sources or usual, release=release)
    found = case.stages[Stage.REPLAY](QUICKLY)
    assert found.witness is not None
    return found.witness


def test_keys_from_the_data_without_selection_are_found() -> None:
    def all_keys(plan: Plan, exact: list[ExactGrouping]) -> list[NoisyGrouping]:
        (found,) = exact
        assert found.keys is not None
        parts = tuple(added.mechanism.sample(found.values[:, added.part]) for added in plan.shares.added)
        return [NoisyGrouping(parts, {}, list(found.keys), len(found.keys))]

    witness = violation("SELECT name, COUNT(*) FROM visits GROUP BY name", all_keys)
    assert "rare keys" in witness.pair
    assert "values on one side" in witness.event


def test_keys_that_are_dropped_by_their_exact_count_are_found() -> None:
    """A threshold on exact counts, before the noise."""

    def large(plan: Plan, exact: list[ExactGrouping]) -> list[NoisyGrouping]:
        kept = [
            replace(one, units=np.where(one.units > 1, one.units, 0))
            for one in exact
            if one.units is not None
        ]
        return add_noise(plan.shares, kept)

    assert (
        "move of one key's count"
        in violation("SELECT name, COUNT(*) FROM visits GROUP BY name", large).event
    )


def test_rank_by_row_position_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TruncatedTable.ranked

    def by_position(table: TruncatedTable, codes: str, passing: str = "") -> str:
        return re.sub(r"ORDER BY lapwing_h[^)]*\)", ")", real(table, codes, passing))

    monkeypatch.setattr(TruncatedTable, "ranked", by_position)
    sources = GeneratedSources(built_in_policy("people"), {"wards": WARDS})
    witness = violation("SELECT SUM(cost), SUM(stay) FROM visits", sources=sources)
    assert witness.pair == "generated people, stored in another order"
    assert witness.numbers["declared"] == "0"
    sources.close()


def test_rows_beyond_the_contribution_bound_are_found() -> None:
    policy = built_in_policy("people")
    visits = replace(policy.tables["visits"], rows_per_unit=4)  # than 3, which the plan was made for
    sources = GeneratedSources(
        replace(policy, tables={**policy.tables, "visits": visits}), {"wards": WARDS}
    )

    def all_rows(plan: Plan) -> Plan:
        question = plan.question
        assert question.rows == 3
        assert isinstance(question.source, Scan)
        return replace(plan, question=replace(question, source=replace(question.source, rows=4)))

    witness = violation("SELECT COUNT(*) FROM visits", sources=sources, change=all_rows)
    assert (witness.numbers["found"], witness.numbers["declared"]) == ("4", "3")
    sources.close()


def test_a_sum_that_is_not_clamped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = DuckDbDialect.clamped_steps

    def wide(dialect: DuckDbDialect, *args: Any, **bounds: Any) -> str:
        return real(dialect, *args, **{**bounds, "first": -(10**6), "last": 10**6})

    monkeypatch.setattr(DuckDbDialect, "clamped_steps", wide)
    monkeypatch.setattr(DuckDbDialect, "stored", lambda _self, sql, _first, _last: f"CAST({sql} AS BIGINT)")
    sources = GeneratedSources(built_in_policy("people"), {"wards": WARDS})
    assert "beyond all bounds" in violation("SELECT SUM(stay) FROM visits", sources=sources).pair
    sources.close()


def test_an_understated_sensitivity_is_found() -> None:
    def halved(plan: Plan) -> Plan:
        parts = tuple(replace(part, l1=max(part.l1 // 2, 1)) for part in plan.question.parts)
        question = replace(plan.question, parts=parts)
        return replace(plan, shares=divide_budget(question, epsilon=1, delta=0, noise="laplace"))

    witness = violation("SELECT SUM(stay) FROM visits", change=halved)
    assert (witness.numbers["found"], witness.numbers["declared"]) == ("180", "90")


def test_a_charge_above_what_the_plan_costs_is_found() -> None:
    """Each of two parts gets all of ε, and the user reads one ε."""

    def doubled(plan: Plan) -> Plan:
        shares = divide_budget(plan.question, epsilon=2, delta=0, noise="laplace")
        return replace(plan, shares=replace(shares, epsilon=plan.cost.epsilon))

    witness = violation("SELECT SUM(stay), COUNT(*) FROM visits", change=doubled)
    assert witness.event == "the charge is more than the claim"
    assert (witness.numbers["claimed ε"], witness.numbers["ε of the charge"]) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("sql", "event"),
    [
        ("SELECT COUNT(*) FROM visits", "add up to more than what is charged"),
        (
            "SELECT ward, MEDIAN(stay) FROM visits GROUP BY ward",
            "farther apart than declared: changed rows",
        ),
        ("SELECT name, COUNT(*) FROM visits GROUP BY name", "add up to more than what is charged"),
    ],
)
def test_a_release_that_is_charged_once_and_made_twice_is_found(sql: str, event: str) -> None:
    def twice(plan: Plan, exact: list[ExactGrouping]) -> list[NoisyGrouping]:
        add_noise(plan.shares, exact)
        return add_noise(plan.shares, exact)

    assert event in violation(sql, twice).event


def test_groups_that_exist_only_in_the_data_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declared groups without rows are left out."""

    def only_there(plan: Plan, exact: list[ExactGrouping]) -> list[NoisyGrouping]:
        (found,) = exact
        there = found.values[found.values.any(axis=1)]
        monkeypatch.setattr(noisy_numbers, "number_of_groups", lambda *_: len(there))
        return add_noise(plan.shares, [replace(found, values=there)])

    witness = violation("SELECT ward, COUNT(*) FROM visits GROUP BY ward", only_there)
    assert "only the run on" in witness.event or "values on one side" in witness.event


def test_the_same_data_is_stored_once_for_all_cases() -> None:
    assert built_in_sources("people") is built_in_sources("people")


@pytest.mark.parametrize("kept", ["<=", ">="])
def test_whole_numbers_that_are_not_clamped_are_found(
    policy: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """Each stored type has its own clamps: numbers are generated as whole numbers, too."""
    right = DuckDbDialect.exact_steps

    def one_clamp(self: DuckDbDialect, column: str, *given: Any) -> str:
        steps = right(self, column, *given)
        return re.sub(
            rf" WHEN {re.escape(column)} {'>=' if kept == '<=' else '<='} \S+ THEN \S+", "", steps
        )

    monkeypatch.setattr(DuckDbDialect, "exact_steps", one_clamp)
    with Dataset(load_policy(policy), analyst="curator") as dataset:
        dataset.prepare()
    case = case_of_query(policy, "SELECT SUM(stay) FROM visits")
    found = case.stages[Stage.REPLAY](QUICKLY)
    assert found.witness is not None
    assert "stored as integer" in found.witness.pair


# Both kinds of noise, and neighbours that a single kind of rows does not show


def stage_of(name: str) -> Any:
    return next(case for case in aggregate_cases() if case.name == name).stages[Stage.REPLAY](QUICKLY)


def test_a_distance_that_only_gaussian_noise_uses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AggregateCollector.count_units

    def understated(self: AggregateCollector) -> NoisyAggregate:
        found = right(self)
        self.parts[found.parts[0]] = replace(self.parts[found.parts[0]], l2_squared=1)
        return found

    monkeypatch.setattr(AggregateCollector, "count_units", understated)
    found = stage_of("SQL: COUNT of people")
    assert found.witness is not None
    assert found.witness.event.endswith("squared L2")


def test_rows_that_lack_one_of_two_columns_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "_where_known", lambda value, _other: value)
    found = stage_of("SQL: covariance and correlation")
    assert found.witness is not None
    assert "which lack" in found.witness.pair


def test_ids_that_are_not_folded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDbDialect, "lower", lambda _self, sql: sql)
    built_in_sources.cache_clear()
    try:
        found = stage_of("SQL: folded ids and a primary key")
    finally:
        built_in_sources.cache_clear()
    assert found.witness is not None
    assert "in several ways" in found.witness.pair
