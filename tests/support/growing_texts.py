"""Short questions that engines would have to compute terabytes or millions of terms for, some of them only
for rows that pass a predicate.
"""

from __future__ import annotations

from collections.abc import Callable

LONG = "x" * 1000


def chained(first: str, grown: str, levels: int, *, grouped: bool = False) -> str:
    """Sub-queries on sub-queries: each makes n of the n below."""
    ctes = [f"a0 AS ({first})"]
    for level in range(1, levels):
        columns, group = f"who, {grown} AS n", ""
        if grouped:
            columns, group = f"{columns}, COUNT(*) AS c", f" GROUP BY who, {grown}"
        ctes.append(f"a{level} AS (SELECT {columns} FROM a{level - 1}{group})")
    return f"WITH {', '.join(ctes)} SELECT COUNT(DISTINCT n) AS c FROM a{levels - 1}"


def _long(predicate: str) -> str:
    text = f"CASE WHEN {predicate} THEN '{LONG}' ELSE '' END"
    return f"SELECT who, {text} AS n FROM visits WHERE {predicate}"


def _named(predicate: str) -> str:
    return f"SELECT who, CASE WHEN {predicate} THEN name ELSE '' END AS n FROM visits"


def _times(what: str, word: str = ", ", times: int = 64) -> str:
    return word.join([what] * times)


def _stay(predicate: str) -> str:
    return f"SELECT who, CASE WHEN {predicate} THEN stay ELSE 0 END AS n FROM visits"


GROWING: dict[str, Callable[[str], str]] = {
    "concat, grouped": lambda p: chained(_long(p), f"CONCAT({_times('n')})", 5, grouped=True),
    "concat": lambda p: chained(_long(p), f"CONCAT({_times('n')})", 5),
    "pipes": lambda p: chained(_named(p), _times("n", " || ", 8), 7),
    "a person's own text": lambda p: chained(_named(p), f"CONCAT({_times('n')})", 5),
    "case": lambda p: chained(_named(p), f"CASE WHEN n > 'a' THEN {_times('n', ' || ', 8)} ELSE n END", 7),
    "coalesce": lambda p: chained(_named(p), f"COALESCE({_times('n', ' || ', 8)}, n, '')", 7),
    "union": lambda p: chained(
        f"{_named(p)} UNION ALL {_long(p)}", f"UPPER({_times('n', ' || ', 8)})", 7
    ),
    "one long text": lambda p: chained(_long(p).replace(LONG, 20 * LONG), "LOWER(n || name)", 2).replace(
        "AS n FROM visits", "AS n, name FROM visits"
    ),
    "lower": lambda p: chained(_named(p), "LOWER(UPPER(LOWER(UPPER(n))))", 8),
    "numbers": lambda p: chained(_stay(p), f"CASE WHEN n > 1 THEN GREATEST({_times('n')}) ELSE n END", 6),
    "calendar": lambda p: chained(
        f"SELECT who, admitted AS n FROM visits WHERE {p}",
        "CASE WHEN DAYOFYEAR(n) > MONTH(n) THEN n ELSE n END",
        12,
    ),
    "sub-queries": lambda p: chained(_stay(p), "n", 300),
    "columns": lambda p: (
        f"SELECT COUNT(*) FROM (SELECT who, {', '.join(f'stay + {n} AS x{n}' for n in range(1500))} "
        f"FROM visits WHERE {p}) v"
    ),
    "joins below a grouping": lambda p: (
        f"SELECT SUM(c) FROM (SELECT v.who, COUNT(*) AS c FROM (SELECT who FROM visits WHERE {p}) v "
        + " ".join(f"JOIN visits v{n} ON v.who = v{n}.who" for n in range(18))
        + " GROUP BY v.who) j"
    ),
    "a pattern": lambda p: f"SELECT COUNT(*) FROM visits WHERE {p} AND name LIKE '{'%a' * 5000}'",
}  # fmt: skip
