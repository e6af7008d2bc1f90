"""The built-in policy of a small clinic, whose people are generated, and plans of questions to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from lapwing.audit.generated_sources import GeneratedSources
from lapwing.sql.planning import plan_question
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, CheckedTable, Column, Source, UnitBy
from lapwing.sql.pricing.plan import Plan
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.public_tables import PublicTable

EPSILON = Fraction(1)
DELTA = Fraction(1, 10**6)
NOWHERE = Path("/lapwing/audit")  # the built-in policies have no files: all of their people are generated
FIRST_DAY, LAST_DAY = 20_089, 20_453  # 2025
VISITS: Mapping[str, Kind] = {
    "ward": Choice(("A", "B", "C")),
    "stay": Numeric(Fraction(1), 0, 60),
    "cost": Numeric(Fraction(1, 100), -500, 100_000),
    "admitted": Moment(86400, FIRST_DAY, LAST_DAY),
    "urgent": Truth(),
    "name": Text(),
}
PATIENTS: Mapping[str, Kind] = {"sex": Choice(("f", "m")), "age": Numeric(Fraction(1), 0, 120)}
BILLS: Mapping[str, Kind] = {"paid": Numeric(Fraction(1), 0, 100)}
WARDS = PublicTable(
    "wards", {"ward": ["A", "B", "B", "Z"], "region": ["n", "s", "n", "s"], "beds": [10, 20, 30, 5]}
)


# Forms of the built-in policy: its blocks, and what is different about the table of visits.
FORMS: Mapping[str, tuple[BlockRule | None, Mapping[str, Any]]] = {
    "people": (None, {}),
    "cohorts": (BlockRule("unit", cohorts=3), {}),
    "arrivals": (BlockRule("unit", cohorts=0, every="month"), {}),
    "periods": (BlockRule("row", column="admitted", every="month", first=660, last=671), {}),
    "rows": (None, {"unit": UnitBy(""), "rows_per_unit": 1}),
    "through": (None, {"unit": UnitBy("patient", "patients", "number")}),
    "folded": (None, {"primary_key": ("number",)}),
}


def planned_question(
    sources: GeneratedSources,
    question: BoundQuery,
    text: str,
    *,
    noise: str = "auto",
    rows: int | None = None,
) -> Plan:
    """Return the plan of a question to generated people, at the price of all cases of SQL."""
    session = sources.dataset().session
    return plan_question(session, question, text, epsilon=EPSILON, delta=DELTA, noise=noise, rows=rows)


def with_other_noise(sources: GeneratedSources, plan: Plan) -> tuple[Plan, ...]:
    """Return the plan of the same question with the other kind of noise; none if it adds no noise."""
    if not plan.question.parts:
        return ()
    noise = "laplace" if plan.shares.noise == "gaussian" else "gaussian"
    return (
        planned_question(sources, plan.question, plan.request.sql, noise=noise, rows=plan.request.rows),
    )


@lru_cache(maxsize=8)
def built_in_sources(form: str) -> GeneratedSources:
    """Return generated people of a built-in policy. They are stored once for all cases."""
    return GeneratedSources(built_in_policy(form), {"wards": WARDS})


def built_in_policy(form: str) -> CheckedPolicy:
    """Return the policy of a small clinic, whose files do not exist. `form` is one of `FORMS`."""
    visits, patients = _table("visits", VISITS, 3), _table("patients", PATIENTS, 1)
    wards = CheckedTable("wards", Source("duckdb", str(NOWHERE / "wards.csv"), "", "csv"), {}, None, 0)
    blocks, changed = FORMS[form]
    tables = {"visits": replace(visits, **changed), "wards": wards}
    if blocks is None and form not in ("rows", "folded"):
        tables["patients"] = patients
        tables["bills"] = _table("bills", BILLS, 4)
    protects = {"rows": "row", "periods": "person-period"}.get(form, "person")
    return CheckedPolicy(
        NOWHERE / "clinic.toml", "clinic", Fraction(10), DELTA, DELTA, tables, blocks,
        str(NOWHERE / "clinic.ledger"), {}, protects, folds_ids=form == "folded",
    )  # fmt: skip


def _table(name: str, columns: Mapping[str, Kind], rows: int) -> CheckedTable:
    source = Source("duckdb", str(NOWHERE / f"{name}.parquet"), "", "parquet")
    declared = {column: Column(column, kind) for column, kind in columns.items()}
    return CheckedTable(name, source, declared, UnitBy("who"), rows)
