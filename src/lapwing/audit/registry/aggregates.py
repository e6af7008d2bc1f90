"""The cases of SQL: each aggregate, each form of a query, and each form of a policy, on generated people.

A test fails if the binder knows an aggregate that no query here has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from lapwing.audit.case import AuditCase
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import AUDITOR, query_case
from lapwing.sql.binding.aggregates import AGGREGATES
from lapwing.sql.binding.bind import bind_with_text
from lapwing.sql.binding.parse import parse
from lapwing.sql.binding.public_tables import PublicTable
from lapwing.sql.binding.scope import Catalog
from lapwing.sql.dataset import Dataset
from lapwing.sql.expression import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.plan import Plan, plan_question
from lapwing.sql.policy import BlockRule, Column, Policy, Source, Table, UnitBy

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


@dataclass(frozen=True, slots=True)
class AuditedQuery:
    """A query of a case: its name, its SQL, and how it is asked."""

    name: str
    sql: str
    noise: str = "auto"
    where_first: bool = False
    rows: int | None = None
    policy: str = "people"

    @property
    def aggregates(self) -> tuple[type, ...]:
        """The aggregates that the query has, as the binder knows them."""
        tree = parse(self.sql)
        return tuple(kind for kind in AGGREGATES if any(type(node) is kind for node in tree.find_all(kind)))


QUERIES = (
    AuditedQuery("COUNT(*)", "SELECT COUNT(*) FROM visits"),
    AuditedQuery("COUNT(x)", "SELECT ward, COUNT(stay) FROM visits GROUP BY ward"),
    AuditedQuery("COUNT of people", "SELECT ward, COUNT(DISTINCT who) FROM visits GROUP BY ward"),
    AuditedQuery("COUNT of distinct values", "SELECT COUNT(DISTINCT name) FROM visits WHERE stay > 3"),
    AuditedQuery("COUNT_IF and FILTER",
        "SELECT COUNT_IF(ward = 'A' OR urgent), SUM(stay) FILTER (WHERE NOT urgent) FROM visits"),
    AuditedQuery("SUM", "SELECT ward, SUM(cost) FROM visits GROUP BY ward"),
    AuditedQuery("SUM with Gaussian noise",
        "SELECT ward, SUM(cost), COUNT(*) FROM visits GROUP BY ward", noise="gaussian"),
    AuditedQuery("SUM of an expression",
        "SELECT SUM(ROUND(cost / stay, 1)), SUM(CLAMP(CAST(name AS INTEGER), -5, 5)) FROM visits"),
    AuditedQuery("AVG", "SELECT AVG(cost) FROM visits"),
    AuditedQuery("AVG beside a count", "SELECT urgent, AVG(stay), COUNT(*) FROM visits GROUP BY urgent"),
    AuditedQuery("variance and deviation",
        "SELECT VARIANCE(stay), VAR_POP(stay), STDDEV(cost), STDDEV_SAMP(cost), STDDEV_POP(cost) "
        "FROM visits"),
    AuditedQuery("covariance and correlation",
        "SELECT COVAR_POP(stay, cost), COVAR_SAMP(stay, cost), CORR(stay, cost) FROM visits"),
    AuditedQuery("MEDIAN", "SELECT ward, MEDIAN(stay) FROM visits GROUP BY ward"),
    AuditedQuery("QUANTILE", "SELECT QUANTILE(cost, [0.1, 0.9]), APPROX_QUANTILE(stay, 0.25) FROM visits"),
    AuditedQuery("PERCENTILE",
        "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY stay), "
        "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY cost) FROM visits"),
    AuditedQuery("MIN and MAX", "SELECT urgent, MIN(cost), MAX(admitted) FROM visits GROUP BY urgent"),
    AuditedQuery("undeclared keys", "SELECT name, COUNT(*), SUM(cost) FROM visits GROUP BY name"),
    AuditedQuery("undeclared keys with Gaussian noise",
        "SELECT name, COUNT(*), AVG(stay) FROM visits GROUP BY name", noise="gaussian"),
    AuditedQuery("undeclared keys with a median", "SELECT name, MEDIAN(stay) FROM visits GROUP BY name"),
    AuditedQuery("GROUPING SETS",
        "SELECT ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)"),
    AuditedQuery("GROUPING SETS of undeclared keys",
        "SELECT ward, name, COUNT(*) FROM visits GROUP BY GROUPING SETS ((ward), (name), ())"),
    AuditedQuery("HAVING, ORDER BY and LIMIT",
        "SELECT name, AVG(stay) FROM visits GROUP BY name HAVING COUNT(*) > 2 ORDER BY 2 LIMIT 3"),
    AuditedQuery("join with a public table",
        "SELECT region, COUNT(*), AVG(beds * stay) FROM visits JOIN wards USING (ward) GROUP BY region"),
    AuditedQuery("join of private tables",
        "SELECT sex, COUNT(*), AVG(age + stay) FROM visits v JOIN patients p ON v.who = p.who "
        "GROUP BY sex"),
    AuditedQuery("left join", "SELECT sex, COUNT(*), SUM(stay) FROM patients p LEFT JOIN visits v "
        "ON p.who = v.who GROUP BY sex"),
    AuditedQuery("sub-query of each person",
        "WITH p AS (SELECT who, COUNT(*) AS n, AVG(cost) AS c, MAX(stay) AS m FROM visits GROUP BY who "
        "HAVING COUNT(*) > 1) SELECT COUNT(*), AVG(n), SUM(c), MEDIAN(m) FROM p"),
    AuditedQuery("UNION ALL",
        "SELECT COUNT(*), SUM(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT age FROM patients) u"),
    AuditedQuery("where first",
        "SELECT COUNT(*), SUM(stay) FROM visits WHERE stay > 20", where_first=True),
    AuditedQuery("a lower contribution bound", "SELECT COUNT(*), SUM(stay) FROM visits", rows=1),
    AuditedQuery("cohorts", "SELECT cohort, COUNT(*), SUM(stay) FROM visits GROUP BY cohort",
        policy="cohorts"),
    AuditedQuery("periods of rows", "SELECT COUNT(*), SUM(stay) FROM visits", policy="periods"),
    AuditedQuery("months of arrival", "SELECT COUNT(*), SUM(stay) FROM visits", policy="arrivals"),
    AuditedQuery("each row a unit", "SELECT name, COUNT(*), SUM(cost) FROM visits GROUP BY name",
        policy="rows"),
    AuditedQuery("units through another table",
        "SELECT ward, COUNT(*), SUM(stay) FROM visits GROUP BY ward", policy="through"),
    AuditedQuery("folded ids and a primary key", "SELECT COUNT(DISTINCT who), SUM(cost) FROM visits",
        policy="folded"),
)  # fmt: skip


def aggregate_cases() -> list[AuditCase]:
    """Return the cases of SQL."""
    return [query_case(f"SQL: {query.name}", *planned(query), covers=query.aggregates) for query in QUERIES]


def planned(query: AuditedQuery) -> tuple[Plan, GeneratedSources]:
    """Return the plan of a query, and generated people of its policy."""
    sources = built_in_sources(query.policy)
    catalog = Catalog(sources.policy, sources.public, query.rows)
    text, bound = bind_with_text(query.sql, catalog, where_first=query.where_first)
    session = Dataset(sources.policy, analyst=AUDITOR).session
    plan = plan_question(
        session, bound, text, epsilon=EPSILON, delta=DELTA, noise=query.noise, rows=query.rows
    )
    return plan, sources


@lru_cache(maxsize=8)
def built_in_sources(form: str) -> GeneratedSources:
    """Return generated people of a built-in policy. They are stored once for all cases."""
    return GeneratedSources(built_in_policy(form), {"wards": WARDS})


def built_in_policy(form: str) -> Policy:
    """Return the policy of a small clinic, whose files do not exist. `form` is one of `FORMS`."""
    visits, patients = _table("visits", VISITS, 3), _table("patients", PATIENTS, 1)
    wards = Table("wards", Source("duckdb", str(NOWHERE / "wards.csv"), "", "csv"), {}, None, 0)
    blocks, changed = FORMS[form]
    tables = {"visits": replace(visits, **changed), "wards": wards}
    if blocks is None and form not in ("rows", "folded"):
        tables["patients"] = patients
    protects = {"rows": "row", "periods": "person-period"}.get(form, "person")
    return Policy(
        NOWHERE / "clinic.toml", "clinic", Fraction(10), DELTA, DELTA, tables, blocks,
        str(NOWHERE / "clinic.ledger"), {}, protects, folds_ids=form == "folded",
    )  # fmt: skip


def _table(name: str, columns: Mapping[str, Kind], rows: int) -> Table:
    source = Source("duckdb", str(NOWHERE / f"{name}.parquet"), "", "parquet")
    declared = {column: Column(column, kind) for column, kind in columns.items()}
    return Table(name, source, declared, UnitBy("who"), rows)
