"""How a question is refused: which construct, where it stands, what to write instead.

How much work binding one question may take: a count, so that it depends on the text alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlglot import exp

from lapwing.errors import BadParameter

SqlPosition = tuple[int, int]  # line and column, from 1


class Refused(BadParameter):
    """A question that cannot be answered privately, or not at all. Nothing was read or charged."""

    def __init__(self, construct: str, instead: str, place: SqlPosition | None = None) -> None:
        self.construct = construct
        self.instead = instead
        self.place = place
        where = f"SQL, line {place[0]}, column {place[1]}" if place else "SQL"
        super().__init__(where, f"{construct}. {instead}" if instead else construct)


def refused(node: exp.Expr | None, construct: str, instead: str = "") -> Refused:
    """The refusal of a node of the question, to be raised."""
    return Refused(construct, instead, position_of(node))


def position_of(node: exp.Expr | None) -> SqlPosition | None:
    """Where a node begins, as far as the parser remembers: at the first of its names."""
    places = [
        (int(found.meta["line"]), int(found.meta["col"]) - (found.meta["end"] - found.meta["start"]))
        for found in (node.walk() if node is not None else ())
        if "line" in found.meta
    ]
    return min(places, default=None)


def name_of(node: exp.Expr) -> str:
    """What a construct is called, for messages. It never holds what analysts wrote between quotes."""
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
    """Refuse a node that has more to it than we know: what is not allowed is not ignored."""
    for name, value in node.args.items():
        if name in allowed or value is None or value is False or value == []:
            continue
        what = name.strip("_").replace("_", " ").upper()
        raise refused(node, f"{what} is not possible in {name_of(node)}", "Leave it out")


MAX_WORK = 1_000_000  # parts of expressions
_left: ContextVar[list[int] | None] = ContextVar("effort left", default=None)


@contextmanager
def limited_work() -> Iterator[None]:
    """Within it, so much can be spent."""
    token = _left.set([MAX_WORK])
    try:
        yield
    finally:
        _left.reset(token)


def count_work(parts: int) -> None:
    """So many parts of an expression were made."""
    left = _left.get()
    if left is not None:
        left[0] -= parts
        if left[0] < 0:
            raise Refused("the question has too many parts", "Ask a shorter one")
