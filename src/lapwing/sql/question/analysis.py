"""Analysis of bound queries before any row is read: values that are never NULL, blocks, and size limits.

*Values that are never NULL*: counting them is counting rows, which is measured and paid for once.

Claim    an expression that `is_never_null` accepts is never NULL in the relation's rows.
Because  the policy's `missing` fills a column, a condition that is true has operands that are not NULL, and
         each operation states when it gives NULL; operations that are not listed may give NULL.
Test     tests/sql/question/test_bind_known.py

*Blocks* that a query can reach, from a condition on the block column directly at the scan.

Claim    a scan that was narrowed reads no row of any other block.
Because  the blocks are a condition of the scan's own SQL. This module finds the blocks that the analyst's
         condition allows, and leaves that condition in its place. Nothing is narrowed if the column is
         computed, renamed by an aggregate, united, or on the optional side of a join.
Test     tests/sql/question/test_analysis_blocks.py

*Size limits*: the work of an engine to plan a query, and to compute one row.

Claim    for any rows, no text that is computed for a row has more than MOST_MADE bytes besides MOST_COPIES
         texts of the row itself; and a statement has at most MOST_TERMS terms, even if a planner replaces
         each use of a column by the expression that it stands for.
Because  the size of each operation follows from those of its arguments, a column has the size of its
         expression, and larger ones are refused. Terms are counted, not written: counting takes one step
         for each part of the query.
Test     tests/sql/question/test_analysis_extent.py, tests/faults/test_query_resources.py;
         docs/arguments/totality.md

Texts of a row are cut when they are read (`Column.most_bytes`), so their length is limited.

*Work of one unit*: the steps and the bytes of text that the rows of one unit can cause.

Claim    over all statements of a query, the rows of one unit take at most `CheckedPolicy.steps_per_unit`
         steps and `CheckedPolicy.text_per_unit` bytes of text, whoever the unit is.
Because  a relation has at most `contribution_bound` rows of a unit, a row takes at most the terms and texts
         that are counted for it, and one that leaves the engine counts `STEPS_OF_A_RESULT`. Filters count
         as if they removed no row, and some of the joined tables have at most as many rows as all of them.
Test     tests/sql/question/test_analysis_unit_work.py, tests/faults/test_time_oracle.py;
         docs/arguments/work.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from lapwing.sql.policy import policy as periods
from lapwing.sql.policy.kinds import SECONDS, Kind, Moment, Text, codes_of
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference, conjuncts
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.relation import (
    BLOCK,
    Filter,
    Join,
    PerUnit,
    Project,
    PublicScan,
    Relation,
    Scan,
    UnionAll,
    contribution_bound,
)

ColumnNames = frozenset[str]
_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IN, Op.LIKE)
_KNOWN_IF_ALL_ARE = (
    *_COMPARISONS, Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.SCALE, Op.ABS, Op.FLOOR_DIVIDE, Op.MODULO,
    Op.FROM_TRUTH, Op.AND, Op.OR, Op.NOT, Op.LOWER, Op.UPPER, Op.TRIM, Op.LENGTH,
)  # fmt: skip


def is_never_null(expression: Expression, known: ColumnNames) -> bool:
    """Return whether an expression is never NULL, if the given columns never are."""
    match expression:
        case Constant(value):
            return value is not None
        case Reference(name):
            return name in known
        case Apply(Op.IS_NULL):
            return True
        case Apply(Op.COALESCE | Op.LEAST | Op.GREATEST, args):
            return any(is_never_null(arg, known) for arg in args)
        case Apply(Op.CASE, args):
            return all(is_never_null(arg, known) for arg in (*args[1:-1:2], args[-1]))
        case Apply(op, args):
            return op in _KNOWN_IF_ALL_ARE and all(is_never_null(arg, known) for arg in args)


def never_null_columns(relation: Relation, policy: CheckedPolicy) -> ColumnNames:  # noqa: PLR0911 (a case for each relation)
    """Return the columns of a relation that are never NULL."""
    match relation:
        case Scan(table, columns):
            filled = policy.tables[table].columns
            return frozenset(
                name for name, _ in columns
                if name == BLOCK or (name in filled and filled[name].missing is not None)
            )  # fmt: skip
        case PublicScan():
            return frozenset()
        case Filter(source, predicate):
            return never_null_columns(source, policy) | never_null_where(predicate)
        case Project(source, outputs):
            inner = never_null_columns(source, policy)
            return frozenset(name for name, expression in outputs if is_never_null(expression, inner))
        case Join(left, right, on, keeps_left):
            mine = never_null_columns(left, policy)
            if keeps_left:
                return mine
            keys = frozenset(name for pair in on for name in pair)  # equal keys are not NULL
            return mine | never_null_columns(right, policy) | keys
        case UnionAll(sources):
            return frozenset.intersection(*[never_null_columns(source, policy) for source in sources])
        case PerUnit(source):
            return _never_null_per_unit(relation, never_null_columns(source, policy))


def _never_null_per_unit(per: PerUnit, inner: ColumnNames) -> ColumnNames:
    counts = {name for name, function, _, _ in per.aggregates if function in ("rows", "count", "distinct")}
    computed: list[tuple[str, Expression | None]] = [
        *per.keys, *((name, argument) for name, _, argument, _ in per.aggregates),
    ]  # fmt: skip
    return frozenset(
        counts | {name for name, expression in computed if expression and is_never_null(expression, inner)}
    )


def never_null_where(predicate: Expression) -> ColumnNames:
    """Return the columns that are not NULL in every row for which the predicate is true."""
    match predicate:
        case Apply(Op.AND, args):
            return frozenset().union(*[never_null_where(arg) for arg in args])
        case Apply(Op.NOT, (Apply(Op.IS_NULL, (Reference(name),)),)):
            return frozenset({name})
        case Apply(op, args) if op in _COMPARISONS:
            return frozenset(arg.name for arg in args if isinstance(arg, Reference))
        case Reference(name):
            return frozenset({name})
        case _:
            return frozenset()


Codes = Sequence[int]  # a range, or a sorted list


def narrow_to_blocks(relation: Relation, predicate: Expression, blocks: BlockRule | None) -> Relation:
    """Return the relation with its scans narrowed to the blocks that the predicate allows."""
    if blocks is None:
        return relation
    for conjunct in conjuncts(predicate):
        match conjunct:
            case Apply(_, (Reference() as column, *others)):
                codes = _allowed(conjunct, column.kind, others)
                if codes is not None:
                    relation = _narrowed(relation, column, codes, blocks)
    return relation


def _allowed(test: Apply, kind: Kind, others: Sequence[Expression]) -> Codes | None:
    """Return the codes of a column of this kind that pass a test; None if unknown."""
    codes = codes_of(kind)
    if codes is None:
        return None
    first, last = codes.start, codes.stop - 1
    match test.op, others:
        case Op.IN, _ if isinstance(test.parameter, tuple):
            return sorted({int(code) for code in test.parameter if code in codes})
        case op, [Constant(int(limit), other), *_] if type(other) is type(kind):
            ends = {
                Op.EQ: (limit, limit), Op.LT: (first, limit - 1), Op.LE: (first, limit),
                Op.GT: (limit + 1, last), Op.GE: (limit, last),
            }.get(op)  # fmt: skip
            return None if ends is None else range(max(first, ends[0]), min(last, ends[1]) + 1)
    return None


def is_possible(query: BoundQuery) -> bool:
    """Return whether some row can meet the conditions of a query, by declared values and bounds.

    Claim    the answer of such a query is public, and it need not be sold.
    Because  a code is one of its column's kind, or NULL, and NULL meets no comparison. Rows that meet no
             condition stay none in joins, unions and sub-queries.
    Test     tests/sql/question/test_analysis_possible.py
    """
    return not _is_empty(query.source)


def _is_empty(relation: Relation) -> bool:
    match relation:
        case Filter(source, predicate):
            return _is_never_true(predicate) or _is_empty(source)
        case Project(source) | PerUnit(source):
            return _is_empty(source)
        case Join(left, right, keeps_left=keeps_left):
            return _is_empty(left) or (not keeps_left and _is_empty(right))
        case UnionAll(sources):
            return all(map(_is_empty, sources))
        case Scan(where=predicate):
            return predicate is not None and _is_never_true(predicate)
        case _:
            return False


def _is_never_true(predicate: Expression) -> bool:
    match predicate:
        case Constant(value):
            return not value
        case Apply(Op.AND, args):
            return any(map(_is_never_true, args))
        case Apply(Op.OR, args):
            return all(map(_is_never_true, args))
        case Apply(_, (first, *others)):
            codes = _allowed(predicate, first.kind, others)
            return codes is not None and not codes
        case _:
            return False


def _narrowed(relation: Relation, column: Reference, codes: Codes, blocks: BlockRule) -> Relation:
    """Narrow the scan that a column comes from unaltered."""
    match relation:
        case Scan():
            own = BLOCK if blocks.by == "unit" else blocks.column
            if column.name.lower() == own.lower():
                return _keep(relation, column.kind, codes, blocks)
        case Filter(source):
            return replace(relation, source=_narrowed(source, column, codes, blocks))
        case Project(source, outputs):
            inner = dict(outputs).get(column.name)
            if isinstance(inner, Reference):
                named = replace(column, name=inner.name)
                return replace(relation, source=_narrowed(source, named, codes, blocks))
        case Join(left, right, keeps_left=keeps_left):
            if any(column.name == name for name, _ in left.columns):
                return replace(relation, left=_narrowed(left, column, codes, blocks))
            if not keeps_left:
                return replace(relation, right=_narrowed(right, column, codes, blocks))
    return relation


def _keep(scan: Scan, kind: Kind, codes: Codes, blocks: BlockRule) -> Scan:
    reached: Codes = codes
    if blocks.by == "row":
        assert isinstance(kind, Moment)
        if isinstance(codes, range) and codes:
            first, last = (block_of_code(kind, code, blocks.every) for code in (codes[0], codes[-1]))
            reached = range(first, last + 1)
        else:
            reached = sorted({block_of_code(kind, code, blocks.every) for code in codes})
    if scan.blocks is not None:
        before = set(scan.blocks)
        reached = [block for block in reached if block in before]
    return replace(scan, blocks=tuple(reached))


def block_of_code(kind: Moment, code: int, every: str) -> int:
    """Return the block of a row, from the code of its date."""
    return periods.period_of(every, (kind.start + code * kind.seconds) // SECONDS["day"])


MOST_TERMS = 25_000  # of one statement: an engine can plan them in seconds
MOST_TERMS_IN_ALL = 100_000  # of all statements of a query
MOST_MADE = 2_000  # bytes of public text in one that is computed
MOST_COPIES = 16  # texts of the row in one that is computed
MOST_MADE_IN_ALL = 50_000  # for all texts that a statement computes for a row
MOST_COPIES_IN_ALL = 300
MOST_CONDITIONS = 500  # joined by AND in a statement: planners compare each with each
MOST_COLUMNS = 1_000  # of one relation
LONGEST_PATTERN = 1_000  # characters of LIKE: engines use stack for each
STEPS_OF_A_RESULT = 300  # of a group or code that leaves the engine: this process handles it alone
_TERM = 16  # characters of a constant that count as one term
_ALTERNATIVES = 10  # members of OR that count as one condition
_LISTED = 10  # values of a list that count as one term

# How often a dialect, or a planner that rewrites it, repeats the arguments of an operation, and how many
# terms it adds. All other operations use each argument once and add one term.
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
class ExpressionSize:
    """The greatest size of an expression, or of several together.

    `made` (bytes of public text) and `copies` (texts of the row) are of its own text; `made_in_all` and
    `copies_in_all` are of all texts that are computed for it. `length` is its own text's, in bytes.
    `conditions` counts the members of AND, and a tenth of those of OR; for a relation, those of its
    filters. `if_negated` are the conditions under NOT: a planner writes NOT of OR as AND. `unit_steps` and
    `unit_text` are of all rows of one unit.
    """

    terms: int = 1
    made: int = 0
    copies: int = 0
    made_in_all: int = 0
    copies_in_all: int = 0
    length: int = 0
    conditions: int = 0
    if_negated: int = 0
    unit_steps: int = 0
    unit_text: int = 0

    def times(self, count: int) -> ExpressionSize:
        """Return the size of that many copies."""
        return _together([self] * count)


ColumnSizes = Mapping[str, ExpressionSize]


def require_small_query(
    query: BoundQuery, policy: CheckedPolicy, public: Mapping[str, PublicTable]
) -> None:
    """Refuse a query that is too large to plan, or that some rows could make too large for an engine."""
    columns, source = _RelationSizes(policy, public).of(query.source)
    rows = contribution_bound(query.source)
    keys = [_computed(columns, [key.expression], rows) for key in query.keys]
    sums = _computed(
        columns, [total.expression for total in query.sums if total.expression is not None], rows
    )
    spectra = [_computed(columns, [spectrum.expression], rows).times(2) for spectrum in query.spectra]
    statements = []
    for numbers in query.sets:
        grouped = [source, *(keys[number] for number in numbers)]
        are_declared = all(query.keys[number].codes is not None for number in numbers)
        for asked, leaves in [(sums, not are_declared), *((spectrum, True) for spectrum in spectra)]:
            results = ExpressionSize(0, unit_steps=rows * (STEPS_OF_A_RESULT if leaves else 1))
            statements.append(_together([*grouped, asked, results]))
            _require_small(statements[-1])
    whole = _together(statements)
    if whole.terms > MOST_TERMS_IN_ALL:
        raise Refused("the query has too many parts", "Ask for fewer groupings or aggregates at once")
    _require_little_work(whole, policy)


def require_small_rows(
    relation: Relation, policy: CheckedPolicy, public: Mapping[str, PublicTable]
) -> None:
    """Refuse rows that are too large for an engine, where rows are read as they are."""
    columns, source = _RelationSizes(policy, public).of(relation)
    _require_small(source)
    read = ExpressionSize(0, unit_steps=contribution_bound(relation) * len(columns))
    _require_little_work(_together([source, read]), policy)


def _require_small(whole: ExpressionSize) -> None:
    if whole.terms > MOST_TERMS:
        why = "the query has too many parts after its sub-queries are expanded"
        raise Refused(why, "Use each computed column fewer times")
    if whole.made_in_all > MOST_MADE_IN_ALL or whole.copies_in_all > MOST_COPIES_IN_ALL:
        raise Refused("the query computes too many texts", "Compute fewer or shorter ones")
    if whole.conditions > MOST_CONDITIONS:
        why = f"there are more than {MOST_CONDITIONS} conditions in WHERE, JOIN and HAVING"
        raise Refused(why, "Use IN for lists of values")


def _require_little_work(whole: ExpressionSize, policy: CheckedPolicy) -> None:
    """Refuse a query that takes longer, so that it can be measured, if one unit is in the data."""
    if whole.unit_steps > policy.steps_per_unit:
        raise Refused(
            f"the rows of one person could take {whole.unit_steps:,} steps, and the limit is "
            f"{policy.steps_per_unit:,}",
            "Join fewer tables, group by declared keys, use no _ after % in LIKE, or compute less for each "
            "row; the curator can write a greater steps_per_unit in [engine]",
        )
    if whole.unit_text > policy.text_per_unit:
        raise Refused(
            f"the rows of one person could have {whole.unit_text:,} bytes of text, and the limit is "
            f"{policy.text_per_unit:,}",
            "Use fewer texts or parts of them: SUBSTRING(x, 1, 100); the curator can declare a smaller "
            "longest for a column, or write a greater text_per_unit in [engine]",
        )


def _together(parts: Sequence[ExpressionSize]) -> ExpressionSize:
    """Return the size of all parts together, which is the size of no single text."""
    return ExpressionSize(
        terms=sum(part.terms for part in parts),
        made_in_all=sum(part.made_in_all for part in parts),
        copies_in_all=sum(part.copies_in_all for part in parts),
        conditions=sum(part.conditions for part in parts),
        if_negated=sum(part.if_negated for part in parts),
        unit_steps=sum(part.unit_steps for part in parts),
        unit_text=sum(part.unit_text for part in parts),
    )


class _SizeCounter:
    """A counter of the sizes of expressions over the columns of one relation.

    `text` are the bytes of all texts that were computed, read, stored or compared in one row. A text that
    several expressions share counts once for each operation that reads it. `steps` are those of LIKE
    besides its term: _ after % makes engines try each place of the text, with each character from % on.
    """

    def __init__(self, columns: ColumnSizes) -> None:
        self.text = self.steps = 0
        self._columns = columns
        self._known: dict[int, tuple[Expression, ExpressionSize]] = {}

    def of(self, expression: Expression) -> ExpressionSize:
        known = self._known.get(id(expression))
        if known is None:
            known = self._known[id(expression)] = expression, self._of(expression)
        return known[1]

    def output(self, expression: Expression) -> ExpressionSize:
        """Return the size of an expression that is stored, sorted or compared row by row."""
        size = self.of(expression)
        _require_short(size)
        self.text += size.length
        is_made = isinstance(expression.kind, Text) and not isinstance(expression, Reference)
        return _with_own(size, size) if is_made else size

    def _of(self, expression: Expression) -> ExpressionSize:
        match expression:
            case Reference(name):
                return self._columns.get(name, ExpressionSize())
            case Constant(str(value)):
                size = len(value.encode())
                return ExpressionSize(1 + size // _TERM, made=size, length=size)
            case Constant():
                return ExpressionSize()
            case Apply():
                return self._apply(expression)

    def _apply(self, call: Apply) -> ExpressionSize:
        args = [self.of(arg) for arg in call.args]
        below = _together(args).times(COPIES.get(call.op, 1))
        if call.op is Op.LIKE and len(str(call.parameter)) > LONGEST_PATTERN:
            raise Refused(f"a pattern has more than {LONGEST_PATTERN:,} characters", "Use a shorter one")
        if call.op is Op.LIKE and "_" in (tried := str(call.parameter).partition("%")[2]):
            self.steps += args[0].length * (1 + len(tried))
        terms = below.terms + ADDED.get(call.op, 1) + _listed(call.parameter)
        size = _joined(call.op, replace(below, terms=terms), len(args))
        if isinstance(call.kind, Text):
            own = _text_of(call, args)
            _require_short(own)
            self.text += own.length
            return _with_own(size, own)
        # A text that is only read is work, too.
        self.text += sum(arg.length for arg in args)
        return replace(size, copies_in_all=size.copies_in_all + sum(arg.copies for arg in args))


def _joined(op: Op, size: ExpressionSize, members: int) -> ExpressionSize:
    """Count the conditions that an operation joins. Alternatives of OR cost a planner little."""
    all_hold, one_holds = size.conditions, size.if_negated
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
    return replace(size, conditions=pair[0], if_negated=pair[1])


def _with_own(size: ExpressionSize, own: ExpressionSize) -> ExpressionSize:
    made, copies = size.made_in_all + own.made, size.copies_in_all + own.copies
    return replace(
        size, made=own.made, copies=own.copies, length=own.length, made_in_all=made, copies_in_all=copies
    )


def _text_of(call: Apply, args: list[ExpressionSize]) -> ExpressionSize:
    """Return the greatest size of a computed text."""
    if call.op is Op.DECODE:
        assert isinstance(call.parameter, tuple)
        made = max((len(str(value).encode()) for value in call.parameter), default=0)
        return ExpressionSize(made=made, length=made)
    if call.op in _CHOOSES:
        values = [*args[1:-1:2], args[-1]] if call.op is Op.CASE else args
        return ExpressionSize(
            made=max(value.made for value in values),
            copies=max(value.copies for value in values),
            length=max(value.length for value in values),
        )
    made, copies, length = (sum(getattr(arg, n) for arg in args) for n in ("made", "copies", "length"))
    if call.op is Op.SUBSTRING:
        assert isinstance(call.parameter, tuple)
        most = 4 * int(call.parameter[1])  # bytes of that many characters
        length = min(length, most)
        if most <= MOST_MADE:
            return ExpressionSize(made=most if copies else min(made, most), length=length)
    return ExpressionSize(made=made, copies=copies, length=length)


def _require_short(extent: ExpressionSize) -> None:
    if extent.made > MOST_MADE or extent.copies > MOST_COPIES:
        why = f"a text could have more than {MOST_MADE:,} bytes besides {MOST_COPIES} texts of a row"
        raise Refused(why, "Join fewer texts, or parts of them: SUBSTRING(x, 1, 100)")


def _listed(parameter: object) -> int:
    if not isinstance(parameter, tuple):
        return len(parameter) // _TERM if isinstance(parameter, str) else 0
    return sum(_LISTED + len(str(value)) // _TERM for value in parameter) // _LISTED


@dataclass(frozen=True, slots=True)
class _RelationSizes:
    """A counter of the sizes of relations over the tables of a policy."""

    policy: CheckedPolicy
    public: Mapping[str, PublicTable]

    def of(self, relation: Relation) -> tuple[dict[str, ExpressionSize], ExpressionSize]:  # noqa: PLR0911
        """Return the sizes of all columns, and of all that is computed.

        A column has its expression's size.
        """
        if len(relation.columns) > MOST_COLUMNS:
            raise Refused(f"a sub-query has more than {MOST_COLUMNS:,} columns", "Name those that are used")
        match relation:
            case Scan(table, columns, rows, where=where):
                own = self.policy.tables[table].columns
                known = {
                    name: _column(kind, own[name].most_bytes if name in own else 0)
                    for name, kind in columns
                }
                read = ExpressionSize(0, unit_steps=rows)
                return known, read if where is None else _together([read, _condition(known, where, rows)])
            case PublicScan(table, columns, sources):
                lengths = map(self.public[table].most_bytes, sources)
                named = zip(columns, lengths, strict=True)
                return {name: _column(kind, most) for (name, kind), most in named}, ExpressionSize(0)
            case Join():
                return self._join(relation)
            case UnionAll(unions):
                sides = [self.of(source) for source in unions]
                both = zip(unions, sides, strict=True)
                places = [[sized[name] for name, _ in source.columns] for source, (sized, _) in both]
                names = [name for name, _ in relation.columns]
                united = dict(zip(names, map(_widest, *places), strict=True))
                return united, _together([whole for _, whole in sides])
        below, whole = self.of(relation.source)
        rows = contribution_bound(relation.source)
        match relation:
            case Filter(_, predicate):
                return below, _together([whole, _condition(below, predicate, rows)])
            case Project(_, outputs):
                sizes = _SizeCounter(below)
                sized = {name: sizes.output(expression) for name, expression in outputs}
                made = [expression for _, expression in outputs if not isinstance(expression, Reference)]
                return sized, _together([whole, _computed(below, made, rows)])
            case PerUnit(_, keys, aggregates):
                sizes = _SizeCounter(below)
                sized = {name: sizes.output(key) for name, key in keys}
                sized |= {name: ExpressionSize() for name, _, _, _ in aggregates}
                grouped = _computed(below, [key for _, key in keys], rows)
                arguments = [argument for _, _, argument, _ in aggregates if argument is not None]
                return sized, _together([whole, grouped, _computed(below, arguments, rows).times(2)])

    def _join(self, join: Join) -> tuple[dict[str, ExpressionSize], ExpressionSize]:
        (mine, first), (other, second) = self.of(join.left), self.of(join.right)
        rows, on = contribution_bound(join), len(join.on)
        text = sum(mine[a].length + other[b].length for a, b in join.on)
        own = ExpressionSize(on, conditions=on, unit_steps=rows * (1 + on), unit_text=rows * text)
        return mine | other, _together([first, second, own])


def _column(kind: Kind, most_bytes: int) -> ExpressionSize:
    is_text = isinstance(kind, Text)
    return ExpressionSize(copies=is_text, length=most_bytes if is_text else 0)


def _condition(columns: ColumnSizes, predicate: Expression, rows: int) -> ExpressionSize:
    sizes = _SizeCounter(columns)
    size = sizes.of(predicate)
    steps, text = rows * (size.terms + sizes.steps), rows * sizes.text
    return replace(size, conditions=max(size.conditions, 1), unit_steps=steps, unit_text=text)


def _computed(columns: ColumnSizes, expressions: Sequence[Expression], rows: int) -> ExpressionSize:
    """Return the size of expressions that are computed for so many rows of a unit, and are no filters."""
    sizes = _SizeCounter(columns)
    whole = _together([sizes.output(expression) for expression in expressions])
    steps, text = rows * (whole.terms + sizes.steps), rows * sizes.text
    return replace(whole, conditions=0, if_negated=0, unit_steps=steps, unit_text=text)


def _widest(*sides: ExpressionSize) -> ExpressionSize:
    """Return the greatest size of a union's column over its sides."""
    return ExpressionSize(*(max(values) for values in zip(*map(astuple, sides), strict=True)))
