"""SQL from a grammar over the clinic's policy: sound, unsound and hostile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

NUMBERS = ("stay", "cost")
ALIAS = "t"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must come of a text: `sound` ones are answered, with at most `rows` rows of a person."""

    sound: bool
    rows: int = 0


def question(random: Random) -> tuple[str, Expectation | None]:
    """A text, and what must come of it: None where it must be refused; not sound: either may come."""
    chance = random.random()
    if chance < 0.5:
        return sound(random)
    if chance < 0.75:
        return unsound(random), None
    if chance < 0.9:
        return hostile(random), None
    return broken(random), Expectation(False)


# Sound


def sound(random: Random) -> tuple[str, Expectation]:
    """A question that is answered."""
    source, rows = random.choice(_SOURCES)(random)
    keys = random.sample(_KEYS, random.choice((0, 0, 1, 1, 2)))
    wanted = [f"{_aggregate(random)} AS a{n}" for n in range(random.randint(1, 3))]
    columns = [f"{key} AS k{n}" for n, key in enumerate(keys)]
    text = f"SELECT {', '.join([*columns, *wanted])} FROM {source}"
    if random.random() < 0.6:
        text += f" WHERE {condition(random, 2)}"
    if keys:
        listed = ", ".join(f"k{n}" for n in range(len(keys)))
        text += random.choice((f" GROUP BY {listed}", " GROUP BY ALL", f" GROUP BY ROLLUP ({listed})"))
    if random.random() < 0.3 and "QUANTILE(" not in wanted[0]:
        text += f" HAVING a0 > {random.randint(-5, 50)}"
    if random.random() < 0.3 and "QUANTILE(" not in wanted[0]:
        text += random.choice((" ORDER BY a0 DESC", " ORDER BY 1", " ORDER BY a0 NULLS FIRST LIMIT 3"))
    return _disguised(random, text), Expectation(True, rows)


def _visits(_: Random) -> tuple[str, int]:
    return f"visits {ALIAS}", 5


def _narrowed(random: Random) -> tuple[str, int]:
    return f"(SELECT * FROM visits WHERE cohort < {random.randint(0, 70)}) {ALIAS}", 5


def _united(random: Random) -> tuple[str, int]:
    columns = "ward, stay, cost, admitted, urgent, name"
    other = f"SELECT {columns.replace('stay', f'stay + {random.randint(0, 9)}')} FROM visits"
    return f"(SELECT {columns} FROM visits UNION ALL {other}) {ALIAS}", 10


def _public(random: Random) -> tuple[str, int]:
    side = random.choice(("JOIN", "LEFT JOIN", "INNER JOIN"))
    return f"visits {ALIAS} {side} wards w ON {ALIAS}.ward = w.ward", 5


def _private(random: Random) -> tuple[str, int]:
    side = random.choice(("JOIN", "LEFT JOIN"))
    return f"visits {ALIAS} {side} patients p ON {ALIAS}.patient_id = p.patient_id", 5


def _self(_: Random) -> tuple[str, int]:
    other = "(SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)"
    return f"visits {ALIAS} JOIN {other} o ON {ALIAS}.patient_id = o.patient_id", 5


def _per_person(random: Random) -> tuple[str, int]:
    ward = random.choice(("ward", "UPPER(ward)", "CASE WHEN urgent THEN ward ELSE 'A' END"))
    columns = f"{ward} AS ward, SUM(stay) AS stay, MAX(cost) AS cost, MIN(admitted) AS admitted"
    more = f"MAX(urgent) = {random.choice(('1', '0'))} AS urgent, name"
    return (
        f"(SELECT patient_id, {columns}, {more} FROM visits GROUP BY patient_id, {ward}, name) {ALIAS}",
        5,
    )


_SOURCES: Sequence[Callable[[Random], tuple[str, int]]] = (
    _visits, _visits, _narrowed, _united, _public, _private, _self, _per_person,
)  # fmt: skip
_KEYS = (
    f"{ALIAS}.ward", f"{ALIAS}.urgent", f"FLOOR({ALIAS}.stay / 7)",
    f"DATE_TRUNC('month', {ALIAS}.admitted)",
    f"UPPER({ALIAS}.name)", f"CASE WHEN {ALIAS}.stay > 3 THEN 'long' ELSE 'short' END",
    f"EXTRACT(isodow FROM {ALIAS}.admitted)", f"WIDTH_BUCKET({ALIAS}.cost, 0, 1000, 7)",
)  # fmt: skip


def _aggregate(random: Random) -> str:
    name = random.choice(
        ("COUNT(*)", "COUNT({x})", "SUM({x})", "AVG({x})", "MEDIAN({x})", "MIN({x})", "MAX({x})",
         "VARIANCE({x})", "STDDEV_POP({x})", "QUANTILE({x}, 0.9)", "COUNT(DISTINCT {x})", "CORR({x}, {y})",
         "COVAR_SAMP({x}, {y})", "SUM({x}) FILTER (WHERE {c})", "COUNT_IF({c})", "AVG({c})",
         "ROUND(SUM({x}) / COUNT(*), 2)", "100 * AVG({c})")
    )  # fmt: skip
    return str(name).format(x=number(random, 2), y=number(random, 1), c=condition(random, 1))


def number(random: Random, depth: int) -> str:
    """A number with bounds; its size stays far below what is refused."""
    column = f"{ALIAS}.stay" if depth else f"LEAST({ALIAS}.stay, {random.randint(1, 9)})"
    if depth == 0 or random.random() < 0.4:
        return str(random.choice((column, column, f"({ALIAS}.urgent + 0)", "5", "(-2.5)")))
    inner, other = number(random, depth - 1), number(random, 0)
    text = random.choice(
        ("({a} + {b})", "({a} - {b})", "({a} * {b})", "(- {a})", "ABS({a})", "ROUND({a}, 1)", "FLOOR({a})",
         "CEIL({a})", "COALESCE({a}, 0)", "CASE WHEN {c} THEN {a} ELSE {b} END", "({a} / 4)", "({a} % 3)",
         "GREATEST({a}, {b})", "CLAMP({a}, -3, 30)", "CLAMP(CAST(t.name AS INT), 0, 9)", "NULLIF({a}, {b})",
         "FLOOR({a} / {b})", "LENGTH(t.ward)", "DATEDIFF('day', t.admitted, DATE '2026-01-01')")
    )  # fmt: skip
    return str(text).format(a=inner, b=other, c=condition(random, 0))


def condition(random: Random, depth: int) -> str:
    """A condition on one row."""
    if depth and random.random() < 0.5:
        one, other = condition(random, depth - 1), condition(random, depth - 1)
        return str(random.choice((f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})")))
    return str(
        random.choice(
            (f"t.stay > {random.randint(-5, 70)}", "t.ward = 'A'", "t.ward IN ('A', 'C')", "t.urgent",
             "t.urgent IS NOT TRUE", "t.cost BETWEEN 1.5 AND 300", "t.stay NOT BETWEEN 2 AND 5",
             "t.admitted >= '2026-01-01'", "t.name LIKE 'A%'", "t.name NOT ILIKE '%x_'",
             "t.name = 'O''Hara'",
             "t.stay IN (1, 2.5, NULL)", "YEAR(t.admitted) = 2026", "t.name IS NULL",
             "LOWER(t.ward) <> 'b'",
             "t.admitted + INTERVAL 7 DAY < DATE '2026-06-01'", "TRUE", "NULL")
        )
    )  # fmt: skip


def _disguised(random: Random, text: str) -> str:
    """The same in other letters: spaces, comments, capitals of keywords."""
    if random.random() < 0.3:
        text = text.replace(" FROM ", "\n/* FROM wards; */ FROM\t", 1)
    if random.random() < 0.2:
        text = text.replace("SELECT", "select").replace("COUNT", "Count")
    if random.random() < 0.2:
        text = text.replace(" WHERE ", " -- WHERE 1=0\n WHERE ", 1) + " ; -- the end"
    return text.replace("visits", '"Visits"') if random.random() < 0.1 else text


# Unsound: it relates rows of different people, or shows what is theirs


_UNSOUND = (
    "SELECT {c} FROM visits", "SELECT * FROM visits", "SELECT DISTINCT {c} FROM visits",
    "SELECT {c}, COUNT(*) FROM visits", "SELECT patient_id, COUNT(*) FROM visits GROUP BY 1",
    "SELECT COUNT(*) FROM visits WHERE {n} > (SELECT MAX({n}) FROM visits)",
    "SELECT COUNT(*) FROM visits WHERE {n} IN (SELECT {n} FROM visits)",
    "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.{n} = v.{n})",
    "SELECT SUM(r) FROM (SELECT RANK() OVER (ORDER BY {n}) AS r FROM visits) x",
    "SELECT COUNT(*) FROM (SELECT DISTINCT {c} FROM visits) x",
    "SELECT COUNT(*) FROM (SELECT {c} FROM visits ORDER BY {n} LIMIT {k}) x",
    "SELECT COUNT(*) FROM (SELECT {c} FROM visits UNION SELECT {c} FROM visits) x",
    "SELECT COUNT(*) FROM (SELECT {c} FROM visits EXCEPT SELECT {c} FROM visits) x",
    "SELECT COUNT(*) FROM (SELECT {c} FROM visits INTERSECT ALL SELECT {c} FROM visits) x",
    "SELECT SUM(n) FROM (SELECT {c}, COUNT(*) AS n FROM visits GROUP BY {c}) x",
    "SELECT COUNT(*) FROM visits a JOIN visits b ON a.{c} = b.{c}",
    "SELECT COUNT(*) FROM visits a JOIN patients b ON a.patient_id <> b.patient_id",
    "SELECT COUNT(*) FROM visits a JOIN patients b ON a.patient_id = b.patient_id OR a.{n} > {k}",
    "SELECT COUNT(*) FROM visits a, patients b WHERE a.patient_id = b.patient_id",
    "SELECT COUNT(*) FROM visits a FULL OUTER JOIN patients b USING (patient_id)",
    "SELECT COUNT(*) FROM visits a ANTI JOIN patients b USING (patient_id)",
    "SELECT COUNT(*) FROM visits a POSITIONAL JOIN patients b",
    "SELECT COUNT(*) FROM visits TABLESAMPLE {k}%",
    "SELECT COUNT(*) FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY {c}) = 1",
    "WITH RECURSIVE r AS (SELECT {n} AS x FROM visits UNION ALL SELECT x FROM r) SELECT COUNT(*) FROM r",
    "SELECT COUNT(*) FROM visits v, LATERAL (SELECT {k}) l", "SELECT SUM(DISTINCT {n}) FROM visits",
    "SELECT ANY_VALUE({c}) FROM visits", "SELECT LIST({c}) FROM visits", "SELECT FIRST({n}) FROM visits",
    "SELECT STRING_AGG(name, ',') FROM visits", "SELECT ARG_MAX(name, {n}) FROM visits",
    "SELECT MAX(name) FROM visits", "SELECT SUM(name) FROM visits",
    "SELECT SUM(CAST(name AS INT)) FROM visits",
    "SELECT SUM(diagnosis) FROM visits", "SELECT COUNT(*) FROM visits WHERE patient_id = 'p{k}'",
    "SELECT COUNT(*) FROM visits WHERE patient_id LIKE 'p%'", "SELECT MIN(patient_id) FROM visits",
    "SELECT COUNT(*) FROM visits GROUP BY patient_id || 'x'", "SELECT AVG(cost / {n}) FROM visits",
    "SELECT COUNT(*) FROM visits ORDER BY name", "SELECT COUNT(*) FROM visits HAVING {n} > {k}",
    "SELECT SUM(cost * cost * cost * {n}) FROM visits", "SELECT COUNT(*) FROM wards",
    "SELECT COUNT(*) FROM visits UNION ALL SELECT COUNT(*) FROM visits",
)  # fmt: skip


def unsound(random: Random) -> str:
    """A question that must be refused."""
    column = random.choice(("ward", "stay", "cost", "admitted", "urgent", "name"))
    text = random.choice(_UNSOUND)
    return text.format(c=column, n=random.choice(NUMBERS), k=random.randint(1, 99))


# Hostile: what an engine must never see

_CALLS = (
    "sleep_ms(300)", "pg_sleep(5)", "error('x')", "query('SELECT 1')", "getenv('HOME')", "version()",
    "current_setting('x')", "read_text('/etc/passwd')", "reflect('java.lang.System', 'exit', '1')",
    "java_method('java.util.UUID', 'randomUUID')", "random()", "uuid()", "nextval('s')", "now()",
    "pg_read_file('x')", "lo_import('x')", "md5(name)", "hash(name)", "regexp_matches(name, '(a+)+')",
    "repeat(name, 1000000000)", "range(1000000000)", "generate_series(1, 10)", "unnest([1, 2])",
    "list_aggregate([1], 'max')", "json_execute_serialized_sql('x')", "ctid", "rowid", "xmin", "@@version",
    "$1", "?", ":x", "name COLLATE nocase", "name::BLOB", "CAST(name AS STRUCT(a INT))", "stay::VARCHAR",
    "name ~ 'a'", "name SIMILAR TO 'a'", "stay ** 99", "stay << 63", "stay[1]", "{'a': stay}", "x -> x + 1",
    "try(stay)", "struct_pack(a := stay)", "columns('.*')", "stay AT TIME ZONE 'UTC'",
)  # fmt: skip
_TABLES = (
    "read_csv('x.csv')", "read_parquet('*')", "'visits.parquet'", "duckdb_settings()",
    "pg_catalog.pg_stats",
    "information_schema.tables", "sqlite_master", "glob('*')", "query_table('visits')", "visits.visits",
    "main.visits", "VALUES (1)", "(VALUES (1)) v", "range(10)", "unnest([1]) u",
    '"visits; DROP TABLE visits"',
    "visits FOR UPDATE", "visits AT (VERSION => 1)", "lapwing_visits",
    "visits PIVOT (SUM(stay) FOR ward IN ('A'))",
    "postgres_scan('x', 'y', 'z')", "parquet_metadata('x')", "df", "visits WITH ORDINALITY",
    "ONLY (visits)",
)  # fmt: skip
_STATEMENTS = (
    "DROP TABLE visits", "COPY visits TO 'x'", "ATTACH 'x'", "INSTALL httpfs", "LOAD httpfs",
    "SET threads = 1",
    "PRAGMA version", "CALL pg_reload_conf()", "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits", "VACUUM",
    "CREATE TABLE x AS SELECT COUNT(*) FROM visits", "INSERT INTO visits VALUES (1)", "DELETE FROM visits",
    "UPDATE visits SET stay = 1", "SELECT COUNT(*) FROM visits; DROP TABLE visits", "DESCRIBE visits",
    "EXPORT DATABASE 'x'", "SHOW TABLES", "BEGIN; SELECT COUNT(*) FROM visits; COMMIT", "SUMMARIZE visits",
    "SELECT COUNT(*) INTO x FROM visits", "MERGE INTO visits USING wards ON TRUE WHEN MATCHED THEN DELETE",
    "PREPARE p AS SELECT COUNT(*) FROM visits", "EXECUTE p", "WITH x AS (DELETE FROM visits) SELECT 1",
)  # fmt: skip


def hostile(random: Random) -> str:
    """A text that must be refused before an engine sees any of it."""
    chance = random.random()
    if chance < 0.3:
        return random.choice(_STATEMENTS)
    if chance < 0.6:
        return f"SELECT COUNT(*) FROM {random.choice(_TABLES)}"
    call = random.choice(_CALLS)
    place = random.choice(
        ("SELECT COUNT(*) FROM visits WHERE {} = 1", "SELECT SUM({}) FROM visits", "SELECT {} FROM visits",
         "SELECT COUNT(*), {} FROM visits", "SELECT COUNT(*) FROM visits GROUP BY {}",
         "SELECT COUNT(*) FROM visits HAVING {} = 1", "SELECT COUNT(*) FROM (SELECT {} AS x FROM visits) v")
    )  # fmt: skip
    return str(place).replace("{}", call)


# Broken: whatever comes, it must be an answer or a refusal

_SCRAPS = (
    "'", '"', "`", "--", "/*", "*/", ";", "(", ")", "[", "]", "{", "}", ",", "::", "||", "$$", "\\",
    "\u202e",
    "\u00a0", "ﬀ", "é", "💥", "\u0000", "\ud800", "0x1F", "1e999", "1e-999", "9" * 400, ".5", "5.", "NULL",
    "SELECT", "FROM", "WHERE", "GROUP BY", "CASE", "WHEN", "END", "NOT", "IN", "BETWEEN", "INTERVAL",
    "DISTINCT",
    "UNION ALL", "WITH", "AS", "OVER", "FILTER", "LIMIT", "'2026-02-30'", "DATE '0001-01-01'", "COUNT(*)",
    "visits", "wards", "stay", "patient_id", "cohort", "AND", "OR", "=", "<", "/ 0", "% 0", "- -", "!",
    "~", "@",
)  # fmt: skip


def broken(random: Random) -> str:
    """A text with pieces moved, doubled, lost or put in."""
    start = random.choice((sound(random)[0], unsound(random), hostile(random)))
    words = start.split(" ")
    for _ in range(random.randint(1, 5)):
        place = random.randrange(len(words) + 1)
        chance = random.random()
        if chance < 0.5:
            words.insert(place, random.choice(_SCRAPS))
        elif chance < 0.7 and words:
            del words[min(place, len(words) - 1)]
        elif chance < 0.85:
            words[place:place] = words[: random.randint(0, 6)]
        else:
            other = random.randrange(len(words) + 1)
            words[place:place], words = words[other:], words[: max(place, other)]
    text = " ".join(words)
    return text[: random.randint(1, len(text))] if text and random.random() < 0.2 else text
