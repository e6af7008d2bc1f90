"""A question that is made of Python values: a table, conditions, keys and aggregates, without SQL.

It holds values only: no data, no session and no price. Its text takes the way of every question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from lapwing.errors import BadParameter
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question.terms import EXAMPLE, Term, all_of, column, quoted_name, require_term, shown_sql

_WORDS = {  # of SQL, for what such questions have not
    "filter": "WHERE …", "select": "SELECT …", "distinct": "GROUP BY …", "having": "HAVING …",
    "order_by": "ORDER BY …", "sort": "ORDER BY …", "limit": "LIMIT …", "head": "LIMIT …",
    "union": "UNION ALL …", "rollup": "GROUP BY ROLLUP (…)", "cube": "GROUP BY CUBE (…)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Join:
    table: str
    on: str
    left: bool


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BuiltQuestion:
    """A question about a table, for `plan` and `ask`. Each method returns a new one.

    Begin with `table`, or with `group_by`, `where` or `agg` of a `Dataset`.

    Args:
        table: The table.

    Example:
        >>> from lapwing.questions import column, count, mean, table
        >>> long = table("visits").where(column("stay") >= 2)
        >>> question = long.group_by("ward").agg(n=count(), days=mean("stay"))
        >>> print(question)  # the SQL that it stands for
        SELECT "ward", COUNT(*) AS "n", AVG("stay") AS "days" FROM "visits" WHERE "stay" >= 2 GROUP BY ...
        >>> answer = dataset.ask(question, epsilon="0.1")
    """

    table: str
    joins: tuple[_Join, ...] = ()
    conditions: tuple[Term, ...] = ()
    keys: tuple[tuple[str, Term], ...] = ()  # each with the name that it was given, or ""
    aggregates: tuple[tuple[str, Term], ...] = ()

    def __post_init__(self) -> None:
        quoted_name(self.table, "table")
        for join in self.joins:
            quoted_name(join.table, "table")
            quoted_name(
                join.on, "on", "of a column that both tables have. Else write SQL: JOIN … ON a.x = b.y"
            )
        known: set[str] = set()
        for name, term in (*self.keys, *self.aggregates):
            shown = name or term.tree.name
            if shown.lower() in known:
                raise BadParameter(shown[:60], "is the name of two columns. Give one of them another name")
            known.add(shown.lower())

    def join(self, table: str, *, on: str, left: bool = False) -> BuiltQuestion:
        """Join a table by a column that both have.

        Args:
            table: A public table; or a private one, by the column of the unit.
            on: The column.
            left: Keep rows that have no match.

        Returns:
            The question about the joined rows.

        Raises:
            BadParameter: If a name is not a text.

        Example:
            >>> from lapwing.questions import count, table
            >>> question = table("visits").join("wards", on="ward").group_by("head").agg(n=count())
        """
        return replace(self, joins=(*self.joins, _Join(table, on, left)))

    def where(self, *conditions: Term) -> BuiltQuestion:
        """Use only rows for which all conditions hold.

        Args:
            conditions: Such as `column("stay") >= 2`.

        Returns:
            The question about these rows.

        Raises:
            BadParameter: If something else is given.

        Example:
            >>> from lapwing.questions import column, table
            >>> question = table("visits").where(column("stay") >= 2, column("ward").is_in(["A", "B"]))
        """
        return replace(self, conditions=(*self.conditions, *map(require_term, conditions)))

    def group_by(self, *keys: str | Term, **named: Term) -> BuiltQuestion:
        """Answer for each group.

        Args:
            keys: Columns.
            named: What is computed from columns, under the name of its column in the answer.

        Returns:
            The question for each group.

        Raises:
            BadParameter: If something else is given, or a name is there already.

        Example:
            >>> from lapwing.questions import column, count, table
            >>> question = table("visits").group_by("ward", long=column("stay") > 7).agg(n=count())
        """
        given = [("", key if isinstance(key, Term) else column(key)) for key in keys]
        if any(not isinstance(key._tree, exp.Column) for _, key in given):
            raise BadParameter("group_by", f"needs a name for what is computed: group_by(adult={EXAMPLE})")
        given += [(name, require_term(key)) for name, key in named.items()]
        return replace(self, keys=(*self.keys, *given))

    def agg(self, **aggregates: Term) -> BuiltQuestion:
        """Ask for aggregates, each under the name of its column in the answer.

        Args:
            aggregates: Such as `n=count()`. Arithmetic over aggregates is possible.

        Returns:
            The question.

        Raises:
            BadParameter: If something else is given, or a name is there already.

        Example:
            >>> from lapwing.questions import column, count, table
            >>> question = table("visits").agg(n=count(), share=count(where=column("stay") > 7) / count())
        """
        for name, value in aggregates.items():
            if not isinstance(value, Term):
                raise BadParameter(name[:60], 'must be an aggregate, such as count() or mean("amount")')
        return replace(self, aggregates=(*self.aggregates, *aggregates.items()))

    @property
    def sql(self) -> str:
        """The SQL that it stands for."""
        return self._tree().sql("duckdb")

    def _tree(self) -> exp.Select:
        columns = [
            exp.Alias(this=value.tree, alias=quoted_name(name, "name")) if name else value.tree
            for name, value in (*self.keys, *self.aggregates)
        ]
        tree = exp.Select(
            expressions=columns or [exp.Star()],
            from_=exp.From(this=exp.Table(this=quoted_name(self.table, "table"))),
        )
        for join in self.joins:
            tree.append(
                "joins",
                exp.Join(
                    this=exp.Table(this=quoted_name(join.table, "table")),
                    using=[quoted_name(join.on, "on")],
                    **({"side": "LEFT"} if join.left else {}),
                ),
            )
        if self.conditions:
            tree.set("where", exp.Where(this=all_of(self.conditions)))
        if self.keys:
            tree.set("group", exp.Group(expressions=[key.tree for _, key in self.keys]))
        return tree

    def __str__(self) -> str:
        return self.sql

    def __repr__(self) -> str:
        return f"<BuiltQuestion {self.sql}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f'questions in Python have no "{name[:60]}". Write SQL, beginning with: {shown_sql(self.sql)} '
            f"{_WORDS.get(name, '…')}"
        )


def question_of_only_table(policy: CheckedPolicy) -> BuiltQuestion:
    """Return the question about a policy's one private table. Raises BadParameter if there are several."""
    names = [table.name for table in policy.private_tables]
    if len(names) != 1:
        shown = ", ".join(names)[:200]
        why = f"is not clear: the policy has {len(names)} private tables ({shown})"
        raise BadParameter("table", f'{why}. Begin with lapwing.questions.table("{names[0]}")')
    return BuiltQuestion(names[0])
