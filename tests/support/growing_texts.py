"""Short questions that engines would have to compute terabytes or millions of terms for, some of them only
for rows that pass a predicate.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

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


def grown(random: Random, predicate: str) -> str:
    """A question that makes texts and numbers of others, level upon level, for the rows that pass."""
    level = f"SELECT who, name AS n, stay AS x, admitted AS d FROM visits WHERE {predicate}"
    ctes = [f"a0 AS ({level})"]
    for number in range(1, random.randint(2, 6)):
        text, count = _text(random, 3), _count(random, 3)
        below = f"a{number - 1}"
        chance = random.random()
        if chance < 0.3:
            grouped = f"SELECT who, {text} AS n, MAX(x) AS x, MIN(d) AS d FROM {below} GROUP BY who, {text}"
            ctes.append(f"a{number} AS ({grouped})")
        elif chance < 0.4:
            side = f"SELECT who, {text} AS n, {count} AS x, d FROM {below}"
            ctes.append(f"a{number} AS ({side} UNION ALL SELECT who, n, x, d FROM {below})")
        else:
            where = random.choice(("", f" WHERE {text} <> 'a'", " WHERE x > 1 AND n IS NOT NULL"))
            ctes.append(f"a{number} AS (SELECT who, {text} AS n, {count} AS x, d FROM {below}{where})")
    counted = ("COUNT(DISTINCT n)", "SUM(CLAMP(x, 0, 99))", "SUM(CLAMP(LENGTH(n), 0, 9))")
    end = random.choice((*counted, "n, COUNT(*)", "MEDIAN(x)"))
    group = " GROUP BY n" if end.startswith("n,") else ""
    return f"WITH {', '.join(ctes)} SELECT {end} FROM a{len(ctes) - 1}{group}"


def _text(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.2:
        return random.choice(("n", "n", f"'{'xyé' * random.choice((1, 1, 9, 100, 400))}'"))

    def below() -> str:
        return _text(random, depth - 1)

    forms = (
        f"CONCAT({', '.join(below() for _ in range(random.choice((1, 2, 3, 8))))})",
        f"({below()} || {below()})",
        f"CASE WHEN x > {random.randint(0, 60)} THEN {below()} ELSE {below()} END",
        f"COALESCE(NULLIF({below()}, 'a'), {below()})",
        f"{random.choice(('LOWER', 'UPPER', 'TRIM'))}({below()})",
        f"SUBSTRING({below()}, {random.randint(1, 9)}, {random.choice((1, 50, 500, 99999))})",
        f"NULLIF({below()}, {below()})",
    )
    return random.choice(forms)


def _count(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        return random.choice(("x", "3", "CLAMP(LENGTH(n), 0, 99)", "EXTRACT(doy FROM d)"))
    form = random.choice(
        ("GREATEST({a}, {b})", "CLAMP({a} * {b}, 0, 99)", "CASE WHEN n LIKE '%a_b%' THEN {a} ELSE {b} END",
         "FLOOR({a} / 3)", "({a} % 7)", "CLAMP({a} + {b}, -9, 99)", "COALESCE({a}, {b})")
    )  # fmt: skip
    return form.format(a=_count(random, depth - 1), b=_count(random, depth - 1))
