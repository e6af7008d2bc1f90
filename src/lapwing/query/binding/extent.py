"""How large a question can become for an engine: how much there is to plan, and how much one row can need.

Claim    whatever the rows are, no text that is computed for a row has more than MOST_MADE bytes besides
         MOST_COPIES texts of the row itself; and a statement has at most MOST_TERMS terms, also where a
         planner writes what a column stands for wherever the column is used.
Because  each operation's extent follows from those of its arguments, a column has that of what it stands
         for, and what would be larger is refused. Terms are counted, not written: counting takes one step
         for each part of the question.
Test     tests/query/test_extent.py, tests/faults/test_query_resources.py; docs/arguments/totality.md

Texts of a row are cut when they are read (lapwing.engines.common.TEXT_BYTES), so all lengths are real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from lapwing.query.binding.refused import Refused
from lapwing.query.language.expression import Apply, Constant, Expression, Op, Reference
from lapwing.query.language.kinds import Text
from lapwing.query.language.question import Question
from lapwing.query.language.relation import (
    Filter,
    Join,
    PerUnit,
    Project,
    PublicScan,
    Relation,
    Scan,
    UnionAll,
)

MOST_TERMS = 25_000  # of one statement: an engine plans them in seconds
MOST_TERMS_IN_ALL = 100_000  # of all statements of a question
MOST_MADE = 2_000  # bytes of public text in one that is computed
MOST_COPIES = 16  # texts of the row in one that is computed
MOST_MADE_IN_ALL = 50_000  # over all texts that a statement computes for a row
MOST_COPIES_IN_ALL = 300
MOST_CONDITIONS = 500  # joined by AND in all WHERE of a statement: planners compare each with each
MOST_COLUMNS = 1_000  # of one relation
LONGEST_PATTERN = 1_000  # letters of LIKE: engines go down the stack with them
_TERM = 16  # letters of a constant that count as one term
_ALTERNATIVES = 10  # members of OR that count as one condition
_LISTED = 10  # values of a list that count as one term

# How often a spelling, or a planner that rewrites it, names the arguments of an operation, and how many
# terms it adds. All others name each argument once and add one.
COPIES: Mapping[Op, int] = {
    Op.LOWER: 4, Op.UPPER: 4, Op.FLOOR_DIVIDE: 2, Op.QUOTIENT: 4, Op.NULL_IF: 2, Op.PARSE_WHOLE: 2,
    Op.IN: 2, Op.MONTHS: 12, Op.PART: 6,
}  # fmt: skip
ADDED: Mapping[Op, int] = {
    Op.FLOOR_DIVIDE: 8, Op.MODULO: 8, Op.QUOTIENT: 16, Op.LOWER: 8, Op.UPPER: 8, Op.PARSE_WHOLE: 4,
    Op.MONTHS: 100, Op.PART: 100,
}  # fmt: skip
_CHOOSES = (Op.CASE, Op.COALESCE, Op.NULL_IF)


@dataclass(frozen=True, slots=True)
class Extent:
    """The greatest size of an expression, or of several together.

    `made` and `copies` are of its own text, those in all of every text that is computed on the way.
    `conditions` are the members of AND, and a tenth of those of OR, in it; of a relation, in its filters.
    `if_negated` are those that NOT makes of it: a planner writes NOT of OR as AND.
    """

    terms: int = 1
    made: int = 0
    copies: int = 0
    made_in_all: int = 0
    copies_in_all: int = 0
    conditions: int = 0
    if_negated: int = 0

    def times(self, count: int) -> Extent:
        """All that is computed, so many times."""
        return _together([self] * count)


Extents = Mapping[str, Extent]
_NOTHING = Extent(0)


def require_small(question: Question) -> None:
    """Refuse a question that some rows could make too large for an engine, or that is too large to plan."""
    columns, source = _relation(question.source)
    keys = _Reckoner(columns)
    whole = 0
    for numbers in question.sets:
        grouped = [keys.output(question.keys[number].expression) for number in numbers]
        sums = [keys.output(one.expression) for one in question.sums if one.expression is not None]
        spectra = [[keys.output(one.expression).times(2)] for one in question.spectra]
        for asked in [sums, *spectra]:
            statement = [source, *_unfiltered([*grouped, *asked])]
            _require_small(statement)
            whole += _together(statement).terms
    if whole > MOST_TERMS_IN_ALL:
        raise Refused("the question has too many parts", "Ask for fewer groupings or aggregates at once")


def require_small_rows(relation: Relation) -> None:
    """The same for rows that are read as they are."""
    _require_small([_relation(relation)[1]])


def _require_small(parts: Sequence[Extent]) -> None:
    whole = _together(parts)
    if whole.terms > MOST_TERMS:
        raise Refused(
            "the question has too many parts once sub-queries are written out",
            "Use each computed column fewer times",
        )
    if whole.made_in_all > MOST_MADE_IN_ALL or whole.copies_in_all > MOST_COPIES_IN_ALL:
        raise Refused("the question computes too many texts", "Compute fewer or shorter ones")
    if whole.conditions > MOST_CONDITIONS:
        raise Refused(
            f"there are more than {MOST_CONDITIONS} conditions in WHERE, JOIN and HAVING",
            "Use IN for lists of values",
        )


def _together(parts: Sequence[Extent]) -> Extent:
    return Extent(
        terms=sum(part.terms for part in parts),
        made_in_all=sum(part.made_in_all for part in parts),
        copies_in_all=sum(part.copies_in_all for part in parts),
        conditions=sum(part.conditions for part in parts),
        if_negated=sum(part.if_negated for part in parts),
    )


class _Reckoner:
    """Finds extents of expressions over the columns of one relation."""

    def __init__(self, columns: Extents) -> None:
        self._columns = columns
        self._known: dict[int, tuple[Expression, Extent]] = {}

    def of(self, expression: Expression) -> Extent:
        known = self._known.get(id(expression))
        if known is None:
            known = self._known[id(expression)] = expression, self._of(expression)
        return known[1]

    def output(self, expression: Expression) -> Extent:
        """Of what is stored, sorted or compared row by row."""
        found = self.of(expression)
        _require_short(found)
        is_made = isinstance(expression.kind, Text) and not isinstance(expression, Reference)
        return _with_own(found, found) if is_made else found

    def _of(self, expression: Expression) -> Extent:
        match expression:
            case Reference(name):
                return self._columns.get(name, Extent())
            case Constant(str(value)):
                size = len(value.encode())
                return Extent(1 + size // _TERM, made=size)
            case Constant():
                return Extent()
            case Apply():
                return self._apply(expression)

    def _apply(self, call: Apply) -> Extent:
        args = [self.of(arg) for arg in call.args]
        below = _together(args).times(COPIES.get(call.op, 1))
        if call.op is Op.LIKE and len(str(call.parameter)) > LONGEST_PATTERN:
            raise Refused(f"a pattern has more than {LONGEST_PATTERN:,} letters", "Use a shorter one")
        terms = below.terms + ADDED.get(call.op, 1) + _listed(call.parameter)
        found = _joined(call.op, replace(below, terms=terms), len(args))
        if isinstance(call.kind, Text):
            own = _text_of(call, args)
            _require_short(own)
            return _with_own(found, own)
        # A text that is read, and not made into another, is work all the same.
        return replace(found, copies_in_all=found.copies_in_all + sum(arg.copies for arg in args))


def _joined(op: Op, found: Extent, members: int) -> Extent:
    """Count the conditions that an operation joins. Alternatives are few to a planner."""
    all_hold, one_holds = found.conditions, found.if_negated
    few = -(-members // _ALTERNATIVES)
    match op:
        case Op.AND:
            pair = all_hold + members, one_holds + few
        case Op.OR:
            pair = all_hold + few, one_holds + members
        case Op.NOT:
            pair = one_holds, all_hold
        case _:  # a comparison with a truth may be written as NOT
            pair = max(all_hold, one_holds), max(all_hold, one_holds)
    return replace(found, conditions=pair[0], if_negated=pair[1])


def _with_own(found: Extent, own: Extent) -> Extent:
    made, copies = found.made_in_all + own.made, found.copies_in_all + own.copies
    return replace(found, made=own.made, copies=own.copies, made_in_all=made, copies_in_all=copies)


def _text_of(call: Apply, args: list[Extent]) -> Extent:
    """The greatest length of a computed text."""
    if call.op is Op.DECODE:
        assert isinstance(call.parameter, tuple)
        return Extent(made=max((len(str(value).encode()) for value in call.parameter), default=0))
    if call.op in _CHOOSES:
        values = [*args[1:-1:2], args[-1]] if call.op is Op.CASE else args
        return Extent(made=max(one.made for one in values), copies=max(one.copies for one in values))
    made, copies = sum(one.made for one in args), sum(one.copies for one in args)
    if call.op is Op.SUBSTRING:
        assert isinstance(call.parameter, tuple)
        most = 4 * int(call.parameter[1])  # bytes of so many letters
        if most <= MOST_MADE:
            return Extent(made=most if copies else min(made, most))
    return Extent(made=made, copies=copies)


def _require_short(extent: Extent) -> None:
    if extent.made > MOST_MADE or extent.copies > MOST_COPIES:
        raise Refused(
            f"a text could have more than {MOST_MADE:,} bytes besides {MOST_COPIES} texts of a row",
            "Join fewer texts, or parts of them: SUBSTRING(x, 1, 100)",
        )


def _listed(parameter: object) -> int:
    if not isinstance(parameter, tuple):
        return len(parameter) // _TERM if isinstance(parameter, str) else 0
    return sum(_LISTED + len(str(value)) // _TERM for value in parameter) // _LISTED


def _relation(relation: Relation) -> tuple[dict[str, Extent], Extent]:  # noqa: PLR0911 (a case for each)
    """Of its columns, where each stands for what it is computed from; and of all that is computed in it."""
    if len(relation.columns) > MOST_COLUMNS:
        raise Refused(f"a sub-query has more than {MOST_COLUMNS:,} columns", "Name those that are used")
    match relation:
        case Scan(columns=columns, where=where):
            known = {name: Extent(copies=isinstance(kind, Text)) for name, kind in columns}
            return known, _NOTHING if where is None else _condition(known, where)
        case PublicScan(columns=columns):
            return {name: Extent(copies=isinstance(kind, Text)) for name, kind in columns}, _NOTHING
        case Filter(source, predicate):
            below, whole = _relation(source)
            return below, _together([whole, _condition(below, predicate)])
        case Project(source, outputs):
            below, whole = _relation(source)
            reckoner = _Reckoner(below)
            found = {name: reckoner.output(expression) for name, expression in outputs}
            computed = [found[name] for name, one in outputs if not isinstance(one, Reference)]
            return found, _together([whole, *_unfiltered(computed)])
        case PerUnit(source, keys, aggregates):
            below, whole = _relation(source)
            reckoner = _Reckoner(below)
            grouped = {name: reckoner.output(key) for name, key in keys}
            made = [reckoner.output(one).times(2) for _, _, one, _ in aggregates if one is not None]
            found = grouped | {name: Extent() for name, _, _, _ in aggregates}
            return found, _together([whole, *_unfiltered([*grouped.values(), *made])])
        case Join(left, right, on):
            (mine, first), (other, second) = _relation(left), _relation(right)
            return mine | other, _together([first, second, Extent(len(on), conditions=len(on))])
        case UnionAll(sources):
            sides = [_relation(source) for source in sources]
            places = [
                [found[name] for name, _ in source.columns]
                for source, (found, _) in zip(sources, sides, strict=True)
            ]
            names = [name for name, _ in relation.columns]
            united = dict(zip(names, map(_widest, *places), strict=True))
            return united, _together([whole for _, whole in sides])


def _condition(columns: Extents, predicate: Expression) -> Extent:
    found = _Reckoner(columns).of(predicate)
    return replace(found, conditions=max(found.conditions, 1))


def _unfiltered(parts: Sequence[Extent]) -> list[Extent]:
    """Return the extent of all that is computed for rows that stay."""
    return [replace(part, conditions=0, if_negated=0) for part in parts]


def _widest(*sides: Extent) -> Extent:
    """Return the greatest extent of a union's column over its sides."""
    return Extent(*(max(values) for values in zip(*map(astuple, sides), strict=True)))
