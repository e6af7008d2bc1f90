"""The cases of SQL: each aggregate, each form of a query, and each form of a policy, on generated people.

A test fails if the binder knows an aggregate that no query here has.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapwing.audit.case import AuditCase
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import batch_case, query_case
from lapwing.audit.registry.clinic import built_in_sources, planned_question, with_other_noise
from lapwing.sql.pricing.plan import Plan
from lapwing.sql.question.aggregates import AGGREGATES
from lapwing.sql.question.bind import bind_with_text
from lapwing.sql.question.parse import parse
from lapwing.sql.question.scope import Catalog


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
        "SELECT SUM(ROUND(cost / stay, 1)), SUM(CLAMP(CAST(name AS INTEGER), -5, 5)), SUM(2 - stay) "
        "FROM visits"),
    AuditedQuery("AVG", "SELECT AVG(cost) FROM visits"),
    AuditedQuery("AVG beside a count", "SELECT urgent, AVG(stay), COUNT(*) FROM visits GROUP BY urgent"),
    AuditedQuery("variance and deviation",
        "SELECT VARIANCE(stay), VAR_POP(stay), STDDEV(cost), STDDEV_SAMP(cost), STDDEV_POP(cost) "
        "FROM visits"),
    AuditedQuery("covariance and correlation",
        "SELECT COVAR_POP(stay, cost), COVAR_SAMP(stay, cost), CORR(stay, cost) FROM visits"),
    AuditedQuery("numbers far from 0",
        "SELECT SUM(stay + 1000), AVG(cost + 1000000), VARIANCE(stay + 1000), MEDIAN(stay + 1000), "
        "COVAR_POP(stay, cost + 1000000), COVAR_POP(stay + 1000, cost) FROM visits"),
    AuditedQuery("MEDIAN", "SELECT ward, MEDIAN(stay) FROM visits GROUP BY ward"),
    AuditedQuery("QUANTILE", "SELECT QUANTILE(cost, [0.1, 0.9]), APPROX_QUANTILE(stay, 0.25) FROM visits"),
    AuditedQuery("PERCENTILE",
        "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY stay), "
        "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY cost) FROM visits"),
    AuditedQuery("MIN and MAX", "SELECT urgent, MIN(cost), MAX(admitted) FROM visits GROUP BY urgent"),
    AuditedQuery("dates", "SELECT SUM(DATE_DIFF('day', DATE '2025-01-01', admitted)) FROM visits"),
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
    AuditedQuery("join of tables with several rows of a person",
        "SELECT COUNT(*), SUM(v.stay) FROM visits v JOIN bills b ON v.who = b.who"),
    AuditedQuery("sub-query of each person and key",
        "SELECT COUNT(*), SUM(n) FROM (SELECT who, ward, COUNT(*) AS n FROM visits GROUP BY who, ward) p"),
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
    cases = []
    for query in QUERIES:
        plan, sources = planned(query)
        others = with_other_noise(sources, plan)
        cases.append(
            query_case(f"SQL: {query.name}", plan, sources, covers=query.aggregates, others=others)
        )
    return cases


BATCH = ("COUNT(*)", "AVG", "QUANTILE", "undeclared keys", "a lower contribution bound")


def batch_cases() -> list[AuditCase]:
    """Return the cases of several questions as one release, with either noise."""
    sources, found = built_in_sources("people"), []
    for noise in ("laplace", "gaussian"):
        named = {query.name: query for query in QUERIES}
        asked = [
            (named[name].sql, {"noise": noise, "epsilon": "0.2", "delta": "1e-7", "rows": named[name].rows})
            for name in BATCH
        ]
        batch = sources.dataset().batch(asked)
        found.append(
            batch_case(f"SQL: a batch with {noise} noise", batch.plans, batch.loss, batch.cost, sources)
        )
    return found


def planned(query: AuditedQuery) -> tuple[Plan, GeneratedSources]:
    """Return the plan of a query, and generated people of its policy."""
    sources = built_in_sources(query.policy)
    catalog = Catalog(sources.policy, sources.public, query.rows)
    text, bound = bind_with_text(query.sql, catalog, where_first=query.where_first)
    return planned_question(sources, bound, text, noise=query.noise, rows=query.rows), sources
