"""Numbers, times and SQL in the words of the console.

Prices are rounded up, what is left is rounded down. ε, δ and ± never part from their numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction

from lapwing.core.exact import grouped, short_down, short_up

SPACE = "\N{NO-BREAK SPACE}"
_KEYWORDS = (
    "all and as asc between by case count cross desc distinct else end false from group having in "
    "inner is join left like limit not null on or order over outer right select sum avg min max then "
    "true union using when where with median quantile quantile_cont stddev variance filter rollup "
    "cube grouping sets"
)
KEYWORDS = frozenset(_KEYWORDS.split())
_WORD = re.compile(r"('(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_][A-Za-z_0-9]*)")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def price_text(epsilon: Fraction, delta: Fraction = Fraction(0)) -> str:
    """Return a price such as "ε 0.2, δ 1e-9", rounded up."""
    small = f", δ{SPACE}{short_up(delta, 3)}" if delta else ""
    return f"ε{SPACE}{short_up(epsilon)}{small}"


def left_text(epsilon: Fraction) -> str:
    """Return what is left, such as "ε 0.8", rounded down."""
    return f"ε{SPACE}{short_down(epsilon)}"


def plain_number(number: Fraction) -> str:
    """Return a budget or quota without its sign: "1.5"."""
    return short_down(number, 6)


def within_text(half: float) -> str:
    """Return a half-width such as "± 75"."""
    return f"±{SPACE}{rounded(half)}"


def rounded(half: float) -> str:
    """Return a half-width with three digits."""
    return grouped(half, 3 if abs(half) < 1000 else 4)


def per_cent(share: Fraction) -> str:
    """Return a share in per cent, rounded up to one decimal: "55 %"."""
    tenths = -((-share * 1000) // 1)
    whole, tenth = divmod(int(tenths), 10)
    return f"{whole}{f'.{tenth}' if tenth else ''}{SPACE}%"


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: "1 answer", "1,204 answers"."""
    return f"{number:,}{SPACE}{one if number == 1 else several or one + 's'}"


def moment(text: str) -> datetime:
    """Return the time of an ISO text, in UTC."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def day_text(day: date) -> str:
    """Return a day such as "17 Nov 2026"."""
    return f"{day.day}{SPACE}{MONTHS[day.month - 1]}{SPACE}{day.year}"


def time_text(time: datetime) -> str:
    """Return a time such as "17 Nov 2026, 09:12 UTC"."""
    return f"{day_text(time)}, {time:%H:%M}{SPACE}UTC"


def when_text(time: datetime, now: datetime) -> str:
    """Return a time as people say it: "today, 09:12", "13 Nov", "3 Jun 2025"."""
    if time.date() == now.date():
        return f"today, {time:%H:%M}"
    text = day_text(time)
    return text.rpartition(SPACE)[0] if time.year == now.year else text


@dataclass(frozen=True, slots=True)
class SqlPiece:
    """A piece of SQL, and whether it is a keyword."""

    text: str
    is_keyword: bool = False


def sql_pieces(sql: str) -> tuple[SqlPiece, ...]:
    """Return SQL in pieces, so that a page can print its keywords bold."""
    found: list[SqlPiece] = []
    for text in _WORD.split(sql):
        if not text:
            continue
        is_keyword = text.lower() in KEYWORDS
        if found and not is_keyword and not found[-1].is_keyword:
            found[-1] = SqlPiece(found[-1].text + text)
        else:
            found.append(SqlPiece(text, is_keyword))
    return tuple(found)


_SELECTED = re.compile(r"^\s*select\s+(.*?)\s+from\s+(\w+)", re.IGNORECASE | re.DOTALL)
_GROUPED = re.compile(r"\bgroup\s+by\s+(.*?)(?:\s+(?:having|order|limit)\b|;|$)", re.IGNORECASE | re.DOTALL)
_ALIAS = re.compile(r"\bas\s+(\w+)\s*$", re.IGNORECASE)
_TITLE = 60


def title_of(sql: str) -> str:
    """Return a short heading for a question: "visits by ward"; else its first words.

    The heading uses the question's own names: the alias of its first number, and its GROUP BY.
    """
    selected = _SELECTED.match(sql)
    if selected:
        group = _GROUPED.search(sql)
        keys = _split(group[1]) if group else []
        numbers = [term for term in _split(selected[1]) if term not in keys] or _split(selected[1])
        alias = _ALIAS.search(numbers[0])
        name = alias[1].replace("_", " ") if alias else _function_words(numbers[0], selected[2])
        if name:
            more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
            by = f" by {', '.join(one.replace('_', ' ') for one in keys)}" if keys else ""
            some = ", some rows" if re.search(r"\bwhere\b", sql, re.IGNORECASE) else ""
            title = f"{name}{more}{by}{some}"
            if len(title) <= _TITLE:
                return title[0].upper() + title[1:]
    text = " ".join(sql.split())
    return text if len(text) <= _TITLE else text[: _TITLE - 1].rstrip() + "…"


_FUNCTIONS = {
    "avg": "mean",
    "sum": "sum of",
    "median": "median",
    "stddev": "spread of",
    "min": "least",
    "max": "most",
}


def _function_words(term: str, table: str) -> str:
    found = re.fullmatch(r"(\w+)\s*\(\s*(?:(distinct)\s+)?([\w.*]+)\s*\)", term.strip(), re.IGNORECASE)
    if not found:
        return ""
    function, _, inside = found.groups()
    inside = inside.rpartition(".")[2].replace("_", " ")
    if function.lower() == "count":
        return table.replace("_", " ") if inside == "*" else f"number of {inside}"
    word = _FUNCTIONS.get(function.lower())
    return f"{word} {inside}" if word else ""


def _split(terms: str) -> list[str]:
    """Split at the commas that are outside of parentheses."""
    parts, depth = [""], 0
    for letter in terms:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
