"""Corrected questions: what can be asked instead of a question that is refused, or that does not fit.

Claim    each correction can be planned, fits the budgets as they are now, is not held, and is free to see.
Because  every rewritten text is planned, and its charge compared with the accounts, before it is offered.
         Rules only suggest: none of them is trusted.
Test     tests/sql/test_corrections.py

Claim    corrections depend on the text, the policy, released values, the ledger's sums, and on which of the
         analyst's questions are held: whoever asks them is told that as well.
Because  they are made by planning and looking up, which read nothing else.
Test     tests/sql/test_corrections.py
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlglot import exp

from lapwing.core.budget import EPSILON_UNIT, text_up
from lapwing.core.exact import round_down, round_up
from lapwing.errors import BadParameter
from lapwing.sql.next_prices import how_many_more
from lapwing.sql.planning import least_shares, plan_in_words
from lapwing.sql.policy.kinds import Choice
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question.parse import parse
from lapwing.sql.question.priced_text import PricedText, priced_text
from lapwing.sql.question.refusal import Refused
from lapwing.sql.releasing import ReleaseSession, SessionPlan

MOST_OFFERED = 3
MOST_TRIED = 40  # rewritten texts; planning one takes milliseconds
MOST_STEPS = 3  # rules that are applied one after another
_DIGITS = 10**4  # an ε that fits is told in steps of 0.0001
_MOST_BLOCKS = 64  # that are tried one by one
_ALIKE = 0.6  # how alike a name must be that is offered instead
_RELATING = ("limit", "offset", "order", "distinct")  # parts of a SELECT
_Rewriting = tuple[exp.Query, str]


@dataclass(frozen=True, slots=True)
class Correction:
    """A question that can be asked instead. It was planned.

    Args:
        sql: The SQL, with its OPTIONS if the question had some.
        why: What was changed, in words.
        epsilon: The price in ε to ask with; None: as before, or as the OPTIONS say.

    Example:
        >>> corrections(dataset.session, "SELECT * FROM visits LIMIT 5", epsilon="0.1")[0].sql
        'SELECT COUNT(*) FROM visits'
    """

    sql: str
    why: str
    epsilon: Fraction | None = None


def corrections(session: ReleaseSession, question: Any, **options: Any) -> tuple[Correction, ...]:
    """Return what can be asked instead of a question that is refused, or whose price does not fit.

    Args:
        session: The session of the analyst, such as `dataset.session`.
        question: SQL, or an object that can be turned into SQL.
        options: The options of `Dataset.plan`.

    Returns:
        At most three questions, the nearest first. Empty if the question can be asked as it is, or if no
        correction is known.

    Raises:
        BadParameter: If an option stands in the SQL and beside it.

    Example:
        >>> for one in corrections(dataset.session, "SELECT ward, COUNT(*) FROM visits", epsilon=1):
        ...     print(one.sql)
        SELECT ward, COUNT(*) FROM visits GROUP BY ward
    """
    try:
        text = priced_text(question)
        tree = parse(question if text is None else text.question)
    except Refused:
        return ()  # an unknown option, or nothing that can be read
    given = {name: value for name, value in options.items() if value is not None}
    return _Search(session, text, given if text is None else text.with_given(given)).found(tree)


class _Search:
    """The search for corrections of one question."""

    def __init__(self, session: ReleaseSession, text: PricedText | None, options: dict[str, Any]) -> None:
        self._session, self._text, self._options = session, text, options
        self._tried = self._steps = 0

    def found(self, tree: exp.Query) -> tuple[Correction, ...]:
        """Return the corrections, after as few rules as possible."""
        offered: dict[str, Correction] = {}
        waiting: list[tuple[exp.Query, tuple[str, ...]]] = [(tree, ())]
        seen = {_sql(tree)}
        while waiting and self._tried < MOST_TRIED:
            now, steps = waiting.pop(0)
            if offered and len(steps) > self._steps:
                break
            offers = self._answerable(now, steps)
            if not steps and any(correction.why == "" for correction in offers):
                return ()  # it can be asked as it is
            if offers:
                self._steps = len(steps)
                offered |= {correction.sql + correction.why: correction for correction in offers}
            elif len(steps) < MOST_STEPS:
                for other, why in _rewritings(now, self._session.curator.policy):
                    if (sql := _sql(other)) not in seen:
                        seen.add(sql)
                        waiting.append((other, (*steps, why)))
        return tuple(list(offered.values())[:MOST_OFFERED])

    def _answerable(self, tree: exp.Query, steps: tuple[str, ...]) -> list[Correction]:
        """Return a question as corrections: at its price or another one, or about one block."""
        self._tried += 1
        sql = _sql(tree)
        try:
            plan = self._plan(sql)
        except Refused:
            return []
        except BadParameter as error:
            least = self._least(sql) if error.name == "epsilon" else None
            if least is None:
                return []
            return [self._offer(sql, (*steps, f"ε {text_up(least)} is the least that is sold"), least)]
        if self._session.is_held(plan):
            return []
        if plan.is_stored or how_many_more(plan):
            return [self._offer(sql, steps)]
        offers = []
        fitting = self._fitting(sql, plan)
        if fitting is not None:
            offers.append(
                self._offer(sql, (*steps, f"ε {text_up(fitting)} still fits the budget"), fitting)
            )
        for other, words in _one_block(tree, plan):
            with suppress(BadParameter):  # a sub-query may not show the column of blocks
                if how_many_more(self._plan(_sql(other))):
                    offers.append(self._offer(_sql(other), (*steps, words)))
                    break
        return offers

    def _offer(self, sql: str, steps: tuple[str, ...], epsilon: Fraction | None = None) -> Correction:
        if self._text is None:
            return Correction(sql, "; ".join(steps), epsilon)
        changed = {} if epsilon is None else {"epsilon": text_up(epsilon)}
        is_written = not self._text.options.keys().isdisjoint(("epsilon", "within"))
        priced = self._text.priced(sql, **changed)
        return Correction(priced, "; ".join(steps), None if is_written else epsilon)

    def _plan(self, sql: str, **changed: Any) -> SessionPlan:
        plan = plan_in_words(self._session, sql, **{**self._options, **changed})
        if self._text is not None:
            self._text.require_meant(self._session.curator.policy, plan.question)
        return plan

    def _least(self, sql: str) -> Fraction | None:
        """Return the least ε that the policy sells for a question; None if this is not what is wrong."""
        curator, options = self._session.curator, self._options
        if "epsilon" not in options or "within" in options:
            return None
        delta = options.get("delta", curator.policy.delta_per_query)
        where_first = options.get("where_first", False)
        (_, bound), *_ = curator.bind(sql, options.get("rows"), where_first=where_first)
        if not curator.policy.least_epsilon:
            return None
        epsilon = least_shares(bound, curator.policy, delta, options.get("noise", "auto")).epsilon
        least = Fraction(round_up(epsilon, EPSILON_UNIT), EPSILON_UNIT)  # as it is written
        try:
            plan = self._plan(sql, epsilon=least)
        except BadParameter:
            return None
        return least if how_many_more(plan) else None

    def _fitting(self, sql: str, plan: SessionPlan) -> Fraction | None:
        """Return about the largest ε at which one more answer fits; None if it is less than is sold."""
        low, high = 0, round_down(plan.shares.epsilon, _DIGITS)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._fits(sql, Fraction(middle, _DIGITS))
            low, high = (low, middle) if fits is False else (middle, high)
        fitting = Fraction(low, _DIGITS)
        return fitting if low and self._fits(sql, fitting) else None

    def _fits(self, sql: str, epsilon: Fraction) -> bool | None:
        """Return whether one more answer at this price fits; None if the price is less than is sold."""
        options = {name: value for name, value in self._options.items() if name != "within"}
        try:
            plan = plan_in_words(self._session, sql, **{**options, "epsilon": epsilon})
        except BadParameter:
            return None
        return bool(plan.is_stored or how_many_more(plan))


def _sql(tree: exp.Query) -> str:
    return tree.sql("duckdb", comments=False)


def _rewritings(tree: exp.Query, policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Yield a question with something changed, as each rule suggests it.

    Names and values that the policy has not come first, and alone: no other rule can help before.
    """
    for rule in (_rule_names, _rule_values):
        copy = tree.copy()
        if changes := rule(copy, policy):
            yield copy, "; ".join(dict.fromkeys(changes))
            return
    for one in _RULES:
        yield from one(tree.copy(), policy)


def _rule_names(tree: exp.Query, policy: CheckedPolicy) -> list[str]:
    """Write the names of tables and columns that are most alike to those that the policy has not."""
    called = {named.alias.lower() for kind in (exp.Alias, exp.CTE) for named in tree.find_all(kind)}
    columns, changes = [*_columns(policy), *called], []
    for table in tree.find_all(exp.Table):
        if table.args.get("db"):
            table.set("db", None)
            table.set("catalog", None)
            changes.append(f'the policy names its tables without a schema: "{table.name}"')
        if near := _nearest(table.name, [*policy.tables, *called]):
            table.set("this", exp.to_identifier(near))
            changes.append(f'the table is called "{near}"')
    for column in tree.find_all(exp.Column):
        if near := _nearest(column.name, columns):
            column.set("this", exp.to_identifier(near))
            changes.append(f'the column is called "{near}"')
    return changes


def _rule_values(tree: exp.Query, policy: CheckedPolicy) -> list[str]:
    """Write the declared values that are most alike to those that are not declared."""
    declared = {
        column.name: [str(value) for value in column.kind.values]
        for table in policy.tables.values()
        for column in table.columns.values()
        if isinstance(column.kind, Choice)
    }
    changes = []
    for literal in list(tree.find_all(exp.Literal)):
        beside = literal.parent.find(exp.Column) if literal.parent is not None else None
        values = declared.get(beside.name, []) if beside is not None else []
        if literal.is_string and (near := _nearest(literal.name, values)):
            literal.replace(exp.Literal.string(near))
            changes.append(f'the declared value is "{near}"')
    return changes


def _rule_rows(tree: exp.Query, _policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Suggest counts of rows by their values, where single rows are asked for."""
    if not isinstance(tree, exp.Select) or tree.args.get("group") or _aggregates(tree):
        return
    names = [
        column
        for column in tree.expressions
        if isinstance(column, exp.Column) and not column.find(exp.Star)
    ]
    for part in ("distinct", "limit", "offset", "order", "having"):
        tree.set(part, None)
    keys = [exp.column(column.name, table=column.table or None) for column in names]
    for some in [keys, *([key] for key in keys if len(keys) > 1)]:
        if some:
            other = tree.copy()
            other.set("expressions", [*(column.copy() for column in some), _count()])
            other.set("group", exp.Group(expressions=[column.copy() for column in some]))
            yield other, "rows are never shown: they are counted, by their values"
    tree.set("expressions", [_count()])
    yield tree, "rows are never shown: they are counted"


def _rule_group_by(tree: exp.Query, _policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Suggest to group by the columns that stand beside aggregates."""
    if not isinstance(tree, exp.Select) or not _aggregates(tree):
        return
    plain = [item for item in tree.expressions if item.unalias().find(exp.AggFunc) is None]
    grouped = tree.args.get("group")
    if plain and not (grouped and len(grouped.expressions) >= len(plain)):
        tree.set("group", exp.Group(expressions=[item.unalias().copy() for item in plain]))
        named = ", ".join(item.unalias().sql("duckdb") for item in plain)
        yield tree, f"GROUP BY {named}, which stands beside aggregates"


def _rule_fewer_keys(tree: exp.Query, _policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Suggest to group by fewer keys: one of them may not be declared, or name the unit."""
    grouped = tree.args.get("group") if isinstance(tree, exp.Select) else None
    if grouped is None:
        return
    for key in list(grouped.expressions):
        other = tree.copy()
        name = key.name
        kept = [item for item in grouped.expressions if item is not key]
        other.set("group", exp.Group(expressions=[item.copy() for item in kept]) if kept else None)
        shown = [item for item in other.expressions if item.unalias() != key and item.alias_or_name != name]
        other.set("expressions", shown or [_count()])
        for part in ("order", "limit"):
            other.set(part, None)
        yield other, f"without the key {key.sql('duckdb')[:60]}"


def _rule_queries(tree: exp.Query, _policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Suggest to ask a sub-query of an expression by itself first: its answer is then a public number."""
    for node in tree.find_all(exp.Subquery):
        if isinstance(node.this, exp.Select) and not isinstance(node.parent, exp.From | exp.Join | exp.CTE):
            yield node.this.copy(), "ask the sub-query first; then write its answer as a number"


def _rule_clauses(tree: exp.Query, _policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Suggest to leave out clauses and words that relate rows of different people."""
    inner = [one for one in tree.find_all(exp.Select) if one is not tree]
    limited = [
        one for one in inner if any(one.args.get(part) for part in ("limit", "offset", "order", "distinct"))
    ]
    for select in limited:
        for part in ("limit", "offset", "order", "distinct"):
            select.set(part, None)
    if limited:
        yield tree.copy(), "without LIMIT, ORDER BY and DISTINCT in a sub-query"
    for window in (windows := list(tree.find_all(exp.Window))):
        window.replace(window.this)
    if windows:
        yield tree.copy(), "without windows"
    for union in (unions := [one for one in tree.find_all(exp.Union) if one.args.get("distinct")]):
        union.set("distinct", False)
    if unions:
        yield tree.copy(), "UNION ALL instead of UNION"
    if isinstance(tree, exp.Select) and tree.args.get("distinct"):
        tree.set("distinct", None)
        yield tree.copy(), "without DISTINCT"


def _rule_aggregates(tree: exp.Query, _policy: CheckedPolicy) -> Iterator[_Rewriting]:
    """Suggest aggregates without DISTINCT, which only COUNT can have."""
    for node in list(tree.find_all(exp.AggFunc)):
        if isinstance(node.this, exp.Distinct) and not isinstance(node, exp.Count):
            other = tree.copy()
            for same in other.find_all(type(node)):
                if isinstance(same.this, exp.Distinct):
                    same.set("this", same.this.expressions[0])
            yield other, f"without DISTINCT in {type(node).__name__.upper()}"


def _one_block(tree: exp.Query, plan: SessionPlan) -> Iterator[_Rewriting]:
    """Yield the question about each single block, where units are divided into cohorts."""
    declared = plan.session.curator.policy.blocks
    if declared is None or not declared.cohorts or not isinstance(tree, exp.Select):
        return
    for block in (plan.blocks or ())[:_MOST_BLOCKS]:
        narrowed = tree.where(f"{declared.column} = {block}", dialect="duckdb")
        yield narrowed, f"about the people of {declared.column} {block} alone"


_RULES: tuple[Callable[[Any, CheckedPolicy], Iterator[_Rewriting]], ...] = (
    _rule_group_by, _rule_clauses, _rule_rows, _rule_queries, _rule_aggregates, _rule_fewer_keys,
)  # fmt: skip


def _count() -> exp.Count:
    return exp.Count(this=exp.Star())


def _aggregates(tree: exp.Select) -> bool:
    return any(item.find(exp.AggFunc) is not None for item in tree.expressions)


def _columns(policy: CheckedPolicy) -> list[str]:
    names = [name for table in policy.tables.values() for name in table.columns]
    names += [
        table.unit.column for table in policy.private_tables if table.unit is not None and table.unit.column
    ]
    return [*dict.fromkeys(names), *([policy.blocks.column] if policy.blocks is not None else [])]


def _nearest(name: str, known: list[str]) -> str | None:
    """Return the known name that is most alike to one that is not known."""
    by_small = {one.lower(): one for one in known}
    if name in known or not name:
        return None
    near = difflib.get_close_matches(name.lower(), by_small, 1, _ALIKE)
    return by_small[near[0]] if near else None
