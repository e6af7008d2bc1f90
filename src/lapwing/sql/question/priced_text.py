"""SQL with its price inside: `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(…) …`, in the words of BigQuery.

The clause is taken out of the text before anything else reads it. What is left is the plain SELECT: it is
the same question, has the same price at the same options, and finds the same stored answers. Lines and
columns stay where they are, so that refusals point at the text as it was written.

Claim    a clause is the price of the whole query, or the query is refused; no option is ignored.
Because  a clause may follow only the SELECT of the whole query; `parse` refuses every text that still has
         one; options are read word by word from a table, and a value of another form is refused.
Test     tests/sql/question/test_priced_text.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from lapwing.config.values import shortened_list
from lapwing.errors import BadParameter
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.parse import CLAUSE, clauses_in, place_of, words_of
from lapwing.sql.question.refusal import Refused, SqlPosition
from lapwing.sql.question.relation import scans_of

NUMBERS = ("epsilon", "delta", "within", "confidence")
WHOLE_NUMBERS = ("rows", "n")
SWITCHES = ("where_first", "sampling")
MOST_ROWS, UNIT_COLUMN = "max_rows_contributed", "privacy_unit_column"
OPTIONS = (*NUMBERS, "noise", *WHOLE_NUMBERS, *SWITCHES, MOST_ROWS, UNIT_COLUMN)
INSTEAD = {  # options of BigQuery that mean nothing exactly here
    "max_groups_contributed": "Write rows = 3, for example: of a person with 3 rows at most 3 groups tell",
    "min_privacy_units_per_group": "Leave it out: keys that are not declared are selected privately, by "
    "how many people they have. To hide small groups, write HAVING COUNT(*) >= 20, for example",
    "group_selection_strategy": "Leave it out: all keys that the policy declares are answered, and others "
    "are selected privately",
}
_LONGEST_VALUE = 60
_OPENING, _CLOSING = TokenType.L_PAREN, TokenType.R_PAREN
_NUMBER_PARTS = (TokenType.NUMBER, TokenType.DOT, TokenType.DASH, TokenType.PLUS)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


@dataclass(frozen=True, slots=True)
class PricedText:
    """A question without its clause, and what the clause says.

    Args:
        question: The plain SQL.
        options: The options of `Dataset.plan` that the clause has.
        most_rows: The most rows of a person that may count in the query; None if the clause says nothing.
        unit_column: The column that the clause names as the privacy unit; None if it names none.
    """

    question: str
    options: Mapping[str, Any]
    most_rows: int | None = None
    unit_column: str | None = None

    def with_given(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the clause and of the call together. False is not given.

        Raises BadParameter for an option in both.
        """
        if both := [name for name in self.options if given.get(name, False) is not False]:
            raise BadParameter(both[0], "stands in the SQL (OPTIONS) and beside it: give it in one place")
        return {**given, **self.options}

    def priced(self, sql: str, **changed: Any) -> str:
        """Return other SQL with the options of this clause; as it is, if there was none.

        `changed` are other values of these options. A changed ε also takes the place of `within`.
        """
        other = {"within": "epsilon"} if "epsilon" in changed else {}
        options = {other.get(name, name): value for name, value in self.options.items()}
        options |= {name: changed[name] for name in changed if name in options}
        if self.unit_column is not None:
            options[UNIT_COLUMN] = self.unit_column
        if not options:
            return sql
        words = words_of(sql)
        at = words[_outermost(words) or 0].end + 1
        listed = ", ".join(f"{name} = {_written(value)}" for name, value in options.items())
        return f"{sql[:at]} WITH {CLAUSE} OPTIONS({listed}){sql[at:]}"

    def require_meant(self, policy: CheckedPolicy, query: BoundQuery) -> None:
        """Refuse a clause whose words about rows and units are not true of the bound query."""
        if self.most_rows is not None and query.rows > self.most_rows:
            raise Refused(
                f"{MOST_ROWS} = {self.most_rows}, but in this query up to {query.rows} rows of a person "
                "count",
                "Joins, UNION ALL and GROUPING SETS count a row several times: leave the option out",
            )
        if self.unit_column is None:
            return
        units = [(scan.table, policy.tables[scan.table].unit) for scan in scans_of(query.source)]
        others = {
            table: unit.column if unit is not None and unit.column else "(one row)"
            for table, unit in units
            if unit is None or unit.column != self.unit_column
        }
        if others:
            table, column = min(others.items())
            raise Refused(
                f'{UNIT_COLUMN}: the policy protects by {column} in "{table}", and not by this column',
                "Leave it out: the policy alone says who is protected",
            )


def priced_text(question: Any) -> PricedText | None:
    """Return a question without its `WITH DIFFERENTIAL_PRIVACY` clause, and its options; None without one.

    Args:
        question: SQL, or a question of another form, which has none.

    Raises:
        Refused: If a clause follows another SELECT than that of the whole query, or an option is not known
            or has no value of its form.
    """
    if not isinstance(question, str) or CLAUSE.lower() not in question.lower():
        return None
    sql = question
    words = words_of(sql)
    places = clauses_in(words)
    if not places:  # it is a text or a name
        return None
    first = _outermost(words)
    for at in places:
        if at != first:
            raise Refused(
                f"WITH {CLAUSE} may follow the first SELECT of the whole query only",
                "Write it once, at the SELECT whose columns are shown",
                place_of(words[at + 1]),
            )
    options, end = _options(words, places[0] + 3)
    start, stop = words[places[0] + 1].start, words[end - 1].end + 1
    blank = "".join(letter if letter in "\r\n" else " " for letter in sql[start:stop])
    plain = f"{sql[:start]}{blank}{sql[stop:]}"
    most, unit = options.pop(MOST_ROWS, None), options.pop(UNIT_COLUMN, None)
    if most is not None:
        if "rows" in options:
            raise Refused(
                f"rows and {MOST_ROWS} say the same", "Write one of them", place_of(words[end - 1])
            )
        options["rows"] = most
    return PricedText(plain, options, most, unit)


def _outermost(words: Sequence[Token]) -> int | None:
    """Return the place of the SELECT of the whole query: the first one outside of sub-queries and CTEs."""
    base = 0
    while base < len(words) and words[base].token_type is _OPENING:
        base += 1
    depth = base
    for place in range(base, len(words)):
        kind = words[place].token_type
        depth += (kind is _OPENING) - (kind is _CLOSING)
        if depth == base and kind is TokenType.SELECT:
            return place
    return None


def _options(words: Sequence[Token], at: int) -> tuple[dict[str, Any], int]:
    """Return the options of a clause after `WITH DIFFERENTIAL_PRIVACY`, from `at` on, and its end."""
    options: dict[str, Any] = {}
    if not _is(words, at, "OPTIONS") or _kind(words, at + 1) is not _OPENING:
        return options, at
    at += 2
    while _kind(words, at) is not _CLOSING:
        if options:
            if _kind(words, at) is not TokenType.COMMA:
                raise _misread(words, at)
            at += 1
        if _kind(words, at + 1) is not TokenType.EQ:
            raise _misread(words, at)
        name, place = words[at].text.lower(), place_of(words[at])
        start = at = at + 2
        while _kind(words, at) not in (TokenType.COMMA, _CLOSING):
            if _kind(words, at) in (None, _OPENING):
                raise _misread(words, at)
            at += 1
        _require_known(name, place)
        if name in options:
            raise Refused(f"{name} is given twice", "Write it once", place)
        options[name] = _value(name, words[start:at], place)
    return options, at + 1


def _require_known(name: str, place: SqlPosition | None) -> None:
    if name in INSTEAD:
        raise Refused(f"the option {name} has no exact meaning here", INSTEAD[name], place)
    if name not in OPTIONS:
        shown = name[:_LONGEST_VALUE] if name.isidentifier() else "of this name"
        raise Refused(f"there is no option {shown}", f"Options: {shortened_list(list(OPTIONS), 12)}", place)


def _value(name: str, words: Sequence[Token], place: SqlPosition | None) -> Any:
    kinds = [word.token_type for word in words]
    text = "".join(word.text for word in words)
    is_joined = all(word.end + 1 == after.start for word, after in pairwise(words))  # `1 5` is not 15
    if len(text) > _LONGEST_VALUE:
        raise Refused(f"the value of {name} is too long", "Write a shorter one", place)
    is_text = kinds == [TokenType.STRING]
    is_number = is_joined and bool(kinds) and all(kind in _NUMBER_PARTS for kind in kinds)
    if name in NUMBERS and (is_number or is_text):
        return text
    if name in (*WHOLE_NUMBERS, MOST_ROWS) and kinds == [TokenType.NUMBER] and text.isdecimal():
        return int(text)
    if name in SWITCHES and kinds in ([TokenType.TRUE], [TokenType.FALSE]):
        return kinds == [TokenType.TRUE]
    if name == "noise" and (is_text or kinds == [TokenType.VAR]):
        return text.lower()
    is_name = all((kind in _NAMES, kind is TokenType.DOT)[place % 2] for place, kind in enumerate(kinds))
    if name == UNIT_COLUMN and is_name and len(kinds) % 2:
        return words[-1].text
    wanted = {
        **dict.fromkeys(NUMBERS, "a number, such as 0.5"),
        **dict.fromkeys((*WHOLE_NUMBERS, MOST_ROWS), "a whole number, such as 3"),
        **dict.fromkeys(SWITCHES, "TRUE or FALSE"),
        "noise": "'auto', 'laplace' or 'gaussian'",
        UNIT_COLUMN: "the name of a column",
    }
    raise Refused(f"the value of {name} has another form", f"Write {wanted[name]}", place)


def _written(value: Any) -> str:
    text = str(value).upper() if isinstance(value, bool) else str(value)
    is_plain = isinstance(value, bool | int) or bool(
        re.fullmatch(r"\d*\.?\d+(e-?\d+)?|[a-z_][a-z_0-9]*", text)
    )
    return text if is_plain else "'{}'".format(text.replace("'", "''"))


def _kind(words: Sequence[Token], at: int) -> TokenType | None:
    return words[at].token_type if at < len(words) else None


def _is(words: Sequence[Token], at: int, text: str) -> bool:
    return at < len(words) and words[at].token_type is TokenType.VAR and words[at].text.upper() == text


def _misread(words: Sequence[Token], at: int) -> Refused:
    place = place_of(words[min(at, len(words) - 1)])
    return Refused(
        "the OPTIONS cannot be read", "Write OPTIONS(epsilon = 0.5, delta = 1e-6), for example", place
    )
