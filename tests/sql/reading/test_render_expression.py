"""Random expressions on DuckDB against their evaluation in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.engines.dialects import DuckDbDialect
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineLimits
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.question import typed_expressions
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import Refused
from lapwing.sql.reading.render_expression import LONGEST, WRITTEN, ExpressionWriter
from support.evaluated import PARTS, evaluated
from support.private_tables import whole

BIG, DAY = 1 << 40, 86400
KINDS: dict[str, tuple[Kind, pa.DataType]] = {
    "a": (whole(-100, 100), pa.int8()),
    "b": (whole(-3, 3), pa.int8()),
    "c": (whole(-BIG, BIG), pa.int64()),
    "d": (whole(0, (1 << 31) - 1), pa.int32()),
    "t": (Text(), pa.string()),
    "o": (Text(), pa.string()),
    "q": (Truth(), pa.bool_()),
    "day": (Moment(DAY, -30_000, 30_000), pa.int16()),
    "hour": (Moment(3600, -(10**7), 10**7), pa.int32()),
    "odd": (Moment(7, -(10**9), 10**9), pa.int32()),
    "week": (Moment(7 * DAY, -3000, 3000, -3 * DAY), pa.int16()),
    "pick": (Choice(("x", "it's", "Z")), pa.int8()),
}
WORDS = ["", "a", "Ab", "  b ", "it's", "é\\n", "%", "_", "-12", "+7", "1.5", "9" * 15, "9" * 16, "\n", '"']
BOUNDS = {
    name: (kind.first, kind.last) for name, (kind, _) in KINDS.items() if isinstance(kind, Numeric | Moment)
}
texts = st.sampled_from(WORDS)


def values_of(name: str) -> st.SearchStrategy[Any]:
    kind, _ = KINDS[name]
    match kind:
        case Text():
            return texts
        case Truth():
            return st.booleans()
        case Choice(values):
            return st.integers(0, len(values) - 1)
        case _:
            first, last = BOUNDS[name]
            assert first is not None
            assert last is not None
            return st.sampled_from([first, last, max(0, first)]) | st.integers(first, last)


rows_of_table = st.lists(
    st.fixed_dictionaries({name: st.none() | values_of(name) for name in KINDS}), min_size=1, max_size=8
)


def reference(name: str) -> Expression:
    return Reference(name, KINDS[name][0])


leaves = st.sampled_from([reference(name) for name in "abcd"]) | st.integers(-50, 50).map(
    typed_expressions.number
)
numbers = st.deferred(lambda: st.recursive(leaves, larger, max_leaves=6))
TEXT, TRUTH = Text(), Truth()


def try_(made: Any, *args: Any) -> Expression:
    try:
        found: Expression = made(*args)
        return found
    except Refused:
        return args[0] if isinstance(args[0], Expression) else reference("a")


def one_of(*args: Expression) -> Expression:
    """CASE and COALESCE over numbers on one grid."""
    on_grid = typed_expressions.on_one_grid(args)
    kinds = [one.kind for one in on_grid if isinstance(one.kind, Numeric)]
    kind = Numeric(kinds[0].step, min(k.first or 0 for k in kinds), max(k.last or 0 for k in kinds))
    first, *rest = on_grid
    if len(rest) == 1:
        return Apply(Op.COALESCE, (first, *rest), kind)
    condition = Apply(Op.LT, (first, rest[0]), TRUTH)
    return Apply(
        Op.CASE, (condition, rest[1], reference("q"), first, typed_expressions.null_of(kind)), kind
    )


def compared(op: Op, left: Expression, right: Expression) -> Expression:
    if not isinstance(left.kind, Text):
        left, right = typed_expressions.on_one_grid([left, right])
    return Apply(op, (left, right), TRUTH)


def null_if(left: Expression, right: Expression) -> Expression:
    a, b = typed_expressions.on_one_grid([left, right])
    return Apply(Op.NULL_IF, (a, b), a.kind)


def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    by, extremes = st.integers(1, 1000), st.sampled_from([Op.LEAST, Op.GREATEST])
    return st.one_of(
        st.builds(lambda a, b: try_(typed_expressions.added, a, b), inner, inner),
        st.builds(
            lambda a, b: try_(lambda x, y: typed_expressions.added(x, y, minus=True), a, b), inner, inner
        ),
        st.builds(lambda a, b: try_(typed_expressions.multiplied, a, b), inner, inner),
        st.builds(lambda a, p: try_(typed_expressions.floored, a, Fraction(p)), inner, by),
        st.builds(lambda a, p: try_(typed_expressions.remainder, a, Fraction(p)), inner, by),
        st.builds(lambda a, b: try_(typed_expressions.quotient, a, b, Fraction(1, 10)), inner, inner),
        st.builds(lambda op, a, b: try_(typed_expressions.extreme, op, [a, b]), extremes, inner, inner),
        st.builds(lambda a: try_(typed_expressions.absolute, a), inner),
        st.builds(lambda a, b: try_(one_of, a, b), inner, inner),
        st.builds(lambda a, b, c: try_(one_of, a, b, c), inner, inner, inner),
        st.builds(lambda a, b: try_(null_if, a, b), inner, inner),
        truths.map(typed_expressions.as_number),
    )


def called(op: Op, kind: Kind, *args: Expression, parameter: Any = None) -> Expression:
    return Apply(op, args, kind, parameter)


written = st.recursive(
    st.sampled_from([reference("t"), reference("o"), typed_expressions.as_text(reference("pick"))])
    | texts.map(lambda text: Constant(text, TEXT))
    | st.just(Constant(None, TEXT)),
    lambda inner: st.one_of(
        st.builds(called, st.sampled_from([Op.LOWER, Op.UPPER, Op.TRIM]), st.just(TEXT), inner),
        st.builds(
            lambda a, start, length: Apply(Op.SUBSTRING, (a,), TEXT, (start, length)),
            inner, st.integers(0, 4), st.integers(0, 4),
        ),
        st.builds(lambda a, b: Apply(Op.CONCAT, (a, b), TEXT), inner, inner),
        st.builds(lambda a, b: Apply(Op.COALESCE, (a, b), TEXT), inner, inner),
        st.builds(lambda a, b: Apply(Op.NULL_IF, (a, b), TEXT), inner, inner),
    ),
    max_leaves=4,
)  # fmt: skip
COMPARISONS = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]
codes = st.lists(st.integers(-3, 9), max_size=4)
connected = st.sampled_from([Op.AND, Op.OR])
patterns = st.lists(st.sampled_from(["%", "_", "a", "'", "\\", "i", "."]), max_size=4).map("".join)
truths: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(
        st.just(reference("q")),
        st.sampled_from([Constant(True, TRUTH), Constant(False, TRUTH), Constant(None, TRUTH)]),
        st.builds(lambda op, a, b: try_(compared, op, a, b) , st.sampled_from(COMPARISONS), leaves, leaves)
        .map(lambda one: one if isinstance(one.kind, Truth) else reference("q")),
        st.builds(compared, st.sampled_from(COMPARISONS), written, written),
        st.builds(lambda a, p: Apply(Op.IN, (a,), TRUTH, tuple(p)), leaves, codes),
        st.builds(lambda a, p: Apply(Op.IN, (a,), TRUTH, tuple(p)), written, st.lists(texts, max_size=3)),
        st.builds(lambda a, p: Apply(Op.LIKE, (a,), TRUTH, p), written, patterns),
    ),
    lambda inner: st.one_of(
        st.builds(called, connected, st.just(TRUTH), inner, inner),
        st.builds(called, connected, st.just(TRUTH), inner, inner, inner),
        inner.map(lambda a: Apply(Op.NOT, (a,), TRUTH)),
        inner.map(lambda a: Apply(Op.IS_NULL, (a,), TRUTH)),
    ),
    max_leaves=4,
)  # fmt: skip
measured = st.builds(
    lambda op, a: Apply(op, (a,), whole(-(10**15), 10**15)),
    st.sampled_from([Op.LENGTH, Op.PARSE_WHOLE]),
    written,
)
moments = st.sampled_from([reference(name) for name in ("day", "hour", "odd", "week")])
dated = st.builds(
    lambda a, p: Apply(Op.MONTHS, (a,), whole(-9999, 9999), p), moments, st.sampled_from([1, 3, 12])
)
parted = st.builds(
    lambda a, p: Apply(Op.PART, (a,), whole(0, 9999), p), moments, st.sampled_from(list(PARTS))
)


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    opened = DuckDbEngine.open(limits=EngineLimits(threads=1))
    yield opened
    opened.close()


def computed(
    engine: DuckDbEngine, expressions: Sequence[Expression], rows: list[dict[str, Any]]
) -> list[Any]:
    columns = {name: pa.array([row[name] for row in rows], type_) for name, (_, type_) in KINDS.items()}
    engine.ship("rows", pa.table({"place": list(range(len(rows))), **columns}))
    writer = ExpressionWriter(engine.dialect, {name: f't0."{name}"' for name in KINDS})
    items = ", ".join(f"{writer.plain(expression)} AS c{n}" for n, expression in enumerate(expressions))
    found = engine.run(f"SELECT {items} FROM rows AS t0 ORDER BY place")
    return [tuple(row.values()) for row in found.to_pylist()]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(numbers | truths | written | measured | dated | parted, min_size=1, max_size=6), rows_of_table
)
def test_engines_compute_what_the_words_say(
    engine: DuckDbEngine, expressions: list[Expression], rows: list[dict[str, Any]]
) -> None:
    expected = [tuple(evaluated(expression, row) for expression in expressions) for row in rows]
    assert computed(engine, expressions, rows) == expected


def test_every_operation_is_written() -> None:
    assert set(Op) == WRITTEN
    assert len(Op) == len(Op.__members__)  # two of the same value would be one and the same


@pytest.mark.parametrize(
    ("left", "right", "sql"),
    [
        ("a", "b", "(TRY_CAST(a AS SMALLINT) * TRY_CAST(b AS SMALLINT))"),
        ("a", "d", "(TRY_CAST(a AS BIGINT) * TRY_CAST(d AS BIGINT))"),
    ],
)
def test_products_take_few_bytes_where_they_fit(left: str, right: str, sql: str) -> None:
    product = typed_expressions.multiplied(reference(left), reference(right))
    assert ExpressionWriter(DuckDbDialect(), {name: name for name in KINDS}).plain(product) == sql


def test_text_that_would_grow_without_end_is_refused(engine: DuckDbEngine) -> None:
    expression = reference("a")
    for _ in range(40):
        expression = Apply(Op.QUOTIENT, (expression, reference("b")), whole(-100, 100), 1)
    with pytest.raises(Refused, match="nested too deeply"):
        ExpressionWriter(engine.dialect, {name: name for name in KINDS}).plain(expression)
    assert LONGEST < 10_000_000
