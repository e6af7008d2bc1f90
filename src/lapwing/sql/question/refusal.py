"""Refusing a query: the impossible construct, its position in the text, and what to write instead.

It also limits the work of binding one query. Work is counted, so that the limit depends on the text alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlglot import exp

from lapwing.errors import BadParameter

SqlPosition = tuple[int, int]  # line and column, from 1


class Refused(BadParameter):
    """A query that cannot be answered privately, or not at all. Nothing was read or charged.

    Attributes:
        construct: The part of the query that is not possible, in words.
        instead: What to write instead, or "".
        place: Line and column of the construct, from 1; None if the parser does not know them.

    Example:
        >>> import lapwing
        >>> try:
        ...     dataset.plan("SELECT * FROM visits", epsilon=1)
        ... except lapwing.Refused as error:
        ...     print(error.construct)
        rows are never shown
    """

    code = "refused"

    def __init__(self, construct: str, instead: str, place: SqlPosition | None = None) -> None:
        self.construct = construct
        self.instead = instead
        self.place = place
        where = f"SQL, line {place[0]}, column {place[1]}" if place else "SQL"
        super().__init__(where, f"{construct}. {instead}" if instead else construct)


def refused(node: exp.Expr | None, construct: str, instead: str = "") -> Refused:
    """Return the refusal of a syntax node, for the caller to raise."""
    return Refused(construct, instead, position_of(node))


def position_of(node: exp.Expr | None) -> SqlPosition | None:
    """Return the position of the first name in a node, or None if the parser kept none."""
    places = [
        (int(part.meta["line"]), int(part.meta["col"]) - (part.meta["end"] - part.meta["start"]))
        for part in (node.walk() if node is not None else ())
        if "line" in part.meta
    ]
    return min(places, default=None)


def name_of(node: exp.Expr) -> str:
    """Return a construct's name for messages. It never contains text that analysts wrote between quotes."""
    if isinstance(node, exp.Anonymous):
        return f"{str(node.this)[:60].upper()}()"
    if isinstance(node, exp.Func):
        return f"{node.sql_name()}()"
    return _NAMES.get(type(node), type(node).__name__.upper())


_NAMES: dict[type[exp.Expr], str] = {
    exp.Subquery: "a sub-query",
    exp.Exists: "EXISTS",
    exp.Window: "a window function",
    exp.Star: "*",
    exp.Bracket: "an index",
    exp.Placeholder: "a placeholder",
    exp.Lateral: "LATERAL",
    exp.Values: "VALUES",
    exp.DPipe: "||",
    exp.Pow: "a power",
}


def allow_only(node: exp.Expr, *allowed: str) -> None:
    """Refuse a node with an argument that is not allowed: no argument is ever ignored."""
    for name, value in node.args.items():
        if name not in allowed and value is not None and value is not False and value != []:
            what = name.strip("_").replace("_", " ").upper()
            raise refused(node, f"{what} is not possible in {name_of(node)}", "Leave it out")


@contextmanager
def refusals_at(node: exp.Expr) -> Iterator[None]:
    """Give refusals from within that have no position the position of a node."""
    try:
        yield
    except Refused as error:
        if error.place is not None:
            raise
        raise Refused(error.construct, error.instead, position_of(node)) from None


MAX_WORK = 1_000_000  # parts of expressions that one query may have
_left: ContextVar[list[int] | None] = ContextVar("effort left", default=None)


@contextmanager
def limited_work() -> Iterator[None]:
    """Limit the work that is counted within to MAX_WORK."""
    token = _left.set([MAX_WORK])
    try:
        yield
    finally:
        _left.reset(token)


def count_work(parts: int) -> None:
    """Count new parts of expressions. Raises Refused if the limit is exceeded."""
    left = _left.get()
    if left is not None:
        left[0] -= parts
        if left[0] < 0:
            raise Refused("the query has too many parts", "Ask a shorter one")
