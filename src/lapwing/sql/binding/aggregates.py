"""Binding of one aggregate of the final SELECT: to parts that get noise, and a formula over them.

From an analyst's aggregates to sums of whole numbers, each with how far one unit can move it.

Claim    removing a unit moves a part, over all groups of a grouping, by at most its `l1` and √`l2_squared`.
Because  a unit has at most `rows` rows in the source, all of which may lie in one group, and a row's
         contribution is at most `reach` in size: rows · reach in L1 and in L2. Where each unit counts
         once per group, it moves at most `rows` groups by one: rows in L1, √rows in L2; without keys 1.
         A pair's two numbers take x - low and high - x of a row, both at least 0: wherever x lies they are
         high - low together, in L1, and not more in L2. So a unit moves both by rows · (high - low).
Test     tests/query/test_neighbours.py, tests/query/test_pairs.py

An average that stands alone is made of a pair of sums under one mechanism: half the noise.

Claim    an average's noise then has half the variance that it has with a total and a count of their own, at
         the same ε and wherever the mean lies; with Gaussian noise the same variance. Its loss is counted
         once.
Because  a = Σ (x - low) and b = Σ (high - x) together move by rows · (high - low) in L1, so both get the
         whole ε of the average, not half of it each. See docs/arguments/query-noise.md.
Test     tests/query/test_pairs.py

Where another statistic needs the count or the total too, they stay: what is shared is paid for once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from lapwing.sql.binding.analysis import ColumnNames, is_never_null
from lapwing.sql.binding.grouping import only_where, split_filter
from lapwing.sql.binding.refusal import Refused, allow_only, name_of, refused
from lapwing.sql.binding.scalar import ExpressionBinder, exact_number
from lapwing.sql.binding.typed_expressions import (
    LARGEST,
    apply,
    as_number,
    is_null,
    number,
    product_of_codes,
)
from lapwing.sql.bound_query import (
    BoundQuery,
    Combination,
    Computed,
    NoisyAggregate,
    NoisySum,
    NoisySumPair,
    Order,
    Output,
    Released,
    Spectrum,
    Sum,
)
from lapwing.sql.expression import Choice, Constant, Expression, Moment, Numeric, Op, Period, Person, Truth

WIDEST_PAIR = 1 << 26  # steps: 2^26 rows of a member, and 2^35 of a curator, are within what is clamped
ONE, HALF = Fraction(1), Fraction(1, 2)
_VARIANCES_parts = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


class AggregateCollector:
    """Collects what the engine must compute. What is needed twice is computed, and paid for, once."""

    def __init__(self, rows: int, known: ColumnNames, *, has_keys: bool) -> None:
        self.rows = rows
        self.known = known  # columns that are never missing
        self.has_keys = has_keys
        self.sums: list[Sum] = []
        self.parts: list[NoisySum] = []
        self.spectra: list[Spectrum] = []
        self.pairs: dict[
            NoisyAggregate, NoisySumPair
        ] = {}  # what averages can be made of instead; see pairs.py
        self._places: dict[Sum | Expression, int] = {}  # of sums, and of spectra by what they are of

    def count_rows(self) -> NoisyAggregate:
        """COUNT(*)."""
        return NoisyAggregate("count", (self._part("rows", [(1, self._sum("rows"))], 1),))

    def count(self, value: Expression, label: str) -> NoisyAggregate:
        """COUNT(x)."""
        return NoisyAggregate("count", (self._known(value, label, ONE),))

    def count_units(self) -> NoisyAggregate:
        """COUNT(DISTINCT unit)."""
        most = self.rows if self.has_keys else 1
        part = NoisySum("people", ((1, self._sum("units")),), most, most)
        return NoisyAggregate("count", (self._add(part),))

    def count_distinct(self, value: Expression, label: str) -> NoisyAggregate:
        """COUNT(DISTINCT x): a unit brings at most as many values as it has rows."""
        part = self._part(f"distinct {label}", [(1, self._sum("distinct", value))], 1)
        return NoisyAggregate("count", (part,))

    def total(self, value: Expression, label: str) -> NoisyAggregate:
        """SUM(x)."""
        number = self._bounded(value)
        kind = number.kind
        assert isinstance(kind, Numeric)
        part = self._part(f"sum of {label}", [(1, self._sum("sum", number))], max(kind.reach, 1))
        return NoisyAggregate("sum", (part,), kind)

    def average(self, value: Expression, label: str) -> NoisyAggregate:
        """AVG(x): the total of the distances from the middle of the bounds, and how many there are."""
        number = self._bounded(value)
        kind = number.kind
        assert isinstance(kind, Numeric)
        middle, total = self._centred(number, label)
        found = NoisyAggregate("avg", (total, self._known(number, label, HALF)), kind, middle)
        pair = self._pair(number, label)
        if pair is not None:
            self.pairs[found] = pair
        return found

    def variance(self, function: str, value: Expression, label: str) -> NoisyAggregate:
        """VARIANCE, STDDEV, of the population or of a sample."""
        assert function in _VARIANCES_parts
        number = self._bounded(value)
        kind = number.kind
        assert isinstance(kind, Numeric)
        middle, total = self._centred(number, label)
        known = self._known(number, label, HALF)
        squares = self._product(number, number, middle, middle, f"squares of {label}")
        return NoisyAggregate(function, (total, known, squares), kind, middle)

    def covariance(
        self, function: str, first: Expression, second: Expression, label: str
    ) -> NoisyAggregate:
        """COVAR_POP, COVAR_SAMP, CORR: over the rows where both are known."""
        x, y = (_where_known(self._bounded(a), b) for a, b in ((first, second), (second, first)))
        assert isinstance(x.kind, Numeric)
        assert isinstance(y.kind, Numeric)
        mx, tx = self._centred(x, f"x of {label}")
        my, ty = self._centred(y, f"y of {label}")
        known = self._known(x, label, HALF)
        parts = [tx, known, ty, self._product(x, y, mx, my, f"products of {label}", known_of=x)]
        if function == "corr":
            parts.append(self._product(x, x, mx, mx, f"squares of x of {label}"))
            parts.append(self._product(y, y, my, my, f"squares of y of {label}"))
        return NoisyAggregate(function, tuple(parts), x.kind, mx, y.kind, my)

    def chosen(
        self, function: str, value: Expression, label: str, fraction: Fraction | None
    ) -> NoisyAggregate:
        """MEDIAN, QUANTILE, MIN, MAX."""
        if isinstance(value.kind, Truth):
            value = as_number(value)
        kind = value.kind
        if isinstance(kind, Choice) or not isinstance(kind, Numeric | Moment | Period):
            raise Refused("quantiles, MIN and MAX need numbers or times", "Use a column with bounds")
        if isinstance(kind, Numeric):
            kind = self._bounded(value).kind
        position = self._places.setdefault(value, len(self.spectra))
        if position == len(self.spectra):
            self.spectra.append(Spectrum(label, value, kind, self.rows))
        return NoisyAggregate(function, (), kind, spectrum=position, fraction=fraction)

    def _bounded(self, value: Expression) -> Expression:
        number = as_number(value)
        assert isinstance(number.kind, Numeric)
        if not number.kind.is_bounded:
            raise Refused(
                "a number without bounds cannot be aggregated", "Bound it with CLAMP(x, low, high)"
            )
        return number

    def _sum(self, function: str, value: Expression | None = None) -> int:
        wanted = Sum(function, value)
        if function == "count" and value is not None and is_never_null(value, self.known):
            wanted = Sum("rows")
        place = self._places.setdefault(wanted, len(self.sums))
        if place == len(self.sums):
            self.sums.append(wanted)
        return place

    def _known(self, value: Expression, label: str, weight: Fraction) -> int:
        """How many rows have a value."""
        name = "rows" if is_never_null(value, self.known) else f"known {label}"
        return self._part(name, [(1, self._sum("count", value))], 1, weight)

    def _centred(self, number: Expression, label: str) -> tuple[int, int]:
        """Σ (x - m) for the middle m of the bounds: it moves by half as much as Σ x at worst."""
        kind = number.kind
        assert isinstance(kind, Numeric)
        assert kind.first is not None
        assert kind.last is not None
        middle = (kind.first + kind.last) // 2
        reach = max(kind.last - middle, middle - kind.first, 1)
        terms = [(1, self._sum("sum", number)), (-middle, self._sum("count", number))]
        return middle, self._part(f"sum of {label} around its middle", terms, reach, HALF)

    def _pair(self, number: Expression, label: str) -> NoisySumPair | None:
        """Σ (x - low) and Σ (high - x) over the rows with a value; None if there is only one value.

        Both only grow with the rows, where sums around the middle cancel. So that they do not reach what a
        mechanism or a member clamps numbers to (2^61, 2^52), a range of very many steps has no pair.
        """
        kind = number.kind
        assert isinstance(kind, Numeric)
        assert kind.first is not None
        assert kind.last is not None
        reach = kind.last - kind.first
        l1 = self.rows * reach
        if not 0 < reach < WIDEST_PAIR or l1 >= LARGEST:
            return None
        total, known = self._sum("sum", number), self._sum("count", number)
        above = _combination([(1, total), (-kind.first, known)])
        below = _combination([(-1, total), (kind.last, known)])
        return NoisySumPair(
            f"sums of {label} from its low end and from its high end", above, l1, l1 * l1, ONE, below
        )

    def _product(
        self,
        x: Expression,
        y: Expression,
        mx: int,
        my: int,
        label: str,
        *,
        known_of: Expression | None = None,
    ) -> int:
        """Σ (x - mx)(y - my) = Σ xy - my Σ x - mx Σ y + mx my n."""
        reaches = []
        for kind, middle in ((x.kind, mx), (y.kind, my)):
            assert isinstance(kind, Numeric)
            assert kind.first is not None
            assert kind.last is not None
            reaches.append(max(kind.last - middle, middle - kind.first, 1))
        product = product_of_codes(x, y)
        counted = known_of if known_of is not None else x
        terms = [
            (1, self._sum("sum", product)),
            (-my, self._sum("sum", x)),
            (-mx, self._sum("sum", y)),
            (mx * my, self._sum("count", counted)),
        ]
        return self._part(label, terms, reaches[0] * reaches[1], HALF)

    def _part(self, label: str, terms: list[tuple[int, int]], reach: int, weight: Fraction = ONE) -> int:
        l1 = self.rows * reach
        if l1 >= LARGEST:
            raise Refused(
                "one person could move the answer too far", "Use smaller bounds or a coarser step"
            )
        return self._add(NoisySum(label, _combination(terms), l1, l1 * l1, weight))

    def _add(self, part: NoisySum) -> int:
        for position, other in enumerate(self.parts):
            if other.combination == part.combination:
                if part.weight > other.weight:  # the one who needs it sharper decides
                    self.parts[position] = part
                return position
        self.parts.append(part)
        return len(self.parts) - 1


def _combination(terms: list[tuple[int, int]]) -> Combination:
    factors: dict[int, int] = {}
    for factor, place in terms:
        factors[place] = factors.get(place, 0) + factor
    return tuple((factor, place) for place, factor in sorted(factors.items()) if factor) or ((0, 0),)


def _where_known(value: Expression, other: Expression) -> Expression:
    """The value where both are known."""
    if isinstance(other, Constant) and not is_null(other):
        return value
    null = Constant(None, value.kind)
    return apply(Op.CASE, apply(Op.IS_NULL, other), null, value, kind=value.kind)


_VARIANCES: dict[type[exp.Expr], str] = {
    exp.Variance: "var_samp", exp.VariancePop: "var_pop", exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop",
}  # fmt: skip
_COVARIANCES: dict[type[exp.Expr], str] = {
    exp.CovarPop: "covar_pop", exp.CovarSamp: "covar_samp", exp.Corr: "corr",
}  # fmt: skip
_ONE_COLUMN = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median)
MOST_QUANTILES = 100


class AggregateBinder:
    """Binds aggregates over the rows that a binder knows."""

    def __init__(self, row: ExpressionBinder, rows: int, known: ColumnNames, *, has_keys: bool) -> None:
        self.row = row
        self.found = AggregateCollector(rows, known, has_keys=has_keys)

    def statistic(self, node: exp.Expr) -> NoisyAggregate:
        """What an aggregate comes to."""
        inner, condition = split_filter(node)
        if isinstance(inner, exp.IgnoreNulls):
            inner = inner.this
        if isinstance(inner, exp.CountIf):
            allow_only(inner, "this", "big_int")
            where = self._filtered(number(1), inner.this)
            return self.found.count(self._filtered(where, condition), "rows")
        if isinstance(inner, exp.Count):
            return self._count(inner, condition)
        if isinstance(inner, exp.WithinGroup) or fraction_node(inner) is not None:
            return self._one_quantile(inner, condition)
        if isinstance(inner.this, exp.Distinct):
            raise refused(node, f"DISTINCT is not possible in {name_of(inner)}", "Leave it out")
        if type(inner) in _COVARIANCES:
            allow_only(inner, "this", "expression")
            x, y = (self._argument(one, condition) for one in (inner.this, inner.expression))
            return self.found.covariance(_COVARIANCES[type(inner)], x, y, _label(inner))
        return self._of_one(inner, condition)

    def _of_one(self, node: exp.Expr, condition: exp.Expr | None) -> NoisyAggregate:
        """An aggregate of one column."""
        if type(node) not in _ONE_COLUMN and type(node) not in _VARIANCES:
            raise refused(
                node,
                f"{name_of(node)} would show values of single rows, or is not known",
                "Use COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN, QUANTILE, MIN, MAX, COVAR or CORR",
            )
        allow_only(node, "this")
        value, label = self._argument(node.this, condition), _label(node)
        match node:
            case exp.Sum():
                return self.found.total(value, label)
            case exp.Avg():
                return self.found.average(value, label)
            case exp.Min() | exp.Max():
                return self.found.chosen("min" if isinstance(node, exp.Min) else "max", value, label, None)
            case exp.Median():
                return self.found.chosen("quantile", value, label, Fraction(1, 2))
        return self.found.variance(_VARIANCES[type(node)], value, label)

    def several(self, node: exp.Expr) -> list[tuple[Fraction, NoisyAggregate]] | None:
        """QUANTILE(x, [0.25, 0.75]): one statistic for each."""
        asked = fraction_node(node)
        if not isinstance(asked, exp.Array):
            return None
        if not 0 < len(asked.expressions) <= MOST_QUANTILES:
            raise refused(node, f"a list of quantiles has 1 to {MOST_QUANTILES} members", "Ask for fewer")
        allow_only(node, "this", "quantile", "expression")
        fractions = [_fraction(one) for one in asked.expressions]
        return [(one, self._quantile(node, node.this, one)) for one in fractions]

    def _argument(self, node: exp.Expr, condition: exp.Expr | None) -> Expression:
        value = self._filtered(self.row.bind(node), condition)
        if isinstance(value.kind, Person):
            raise refused(node, "the unit can only be counted", "Write COUNT(DISTINCT unit)")
        return value

    def _filtered(self, value: Expression, condition: exp.Expr | None) -> Expression:
        return value if condition is None else only_where(value, self.row.truth(condition))

    def _count(self, node: exp.Count, condition: exp.Expr | None) -> NoisyAggregate:
        allow_only(node, "this", "big_int")
        if isinstance(node.this, exp.Distinct):
            if len(node.this.expressions) != 1:
                raise refused(node, "COUNT(DISTINCT) of several columns", "Count one of them")
            value = self.row.bind(node.this.expressions[0])
            if isinstance(value.kind, Person):
                if condition is not None:
                    raise refused(node, "FILTER with COUNT(DISTINCT unit)", "Use WHERE")
                return self.found.count_units()
            return self.found.count_distinct(self._filtered(value, condition), _label(node))
        if isinstance(node.this, exp.Star):
            if condition is None:
                return self.found.count_rows()
            return self.found.count(self._filtered(number(1), condition), "rows")
        value = self.row.bind(node.this)
        if isinstance(value.kind, Person):
            value = number(1)
        return self.found.count(self._filtered(value, condition), _label(node))

    def _one_quantile(self, node: exp.Expr, condition: exp.Expr | None) -> NoisyAggregate:
        if isinstance(node, exp.WithinGroup):
            allow_only(node, "this", "expression")
            ordered = node.expression.expressions
            if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
                raise refused(node, f"{name_of(node.this)} is not possible", "Use QUANTILE or MEDIAN")
            allow_only(node.this, "this")
            if len(ordered) != 1 or ordered[0].args.get("desc"):
                raise refused(node, "WITHIN GROUP needs one rising order", "Write ORDER BY x")
            return self._quantile(node, ordered[0].this, _fraction(node.this.this), condition)
        allow_only(node, "this", "quantile", "expression")
        asked = fraction_node(node)
        assert asked is not None
        return self._quantile(node, node.this, _fraction(asked), condition)

    def _quantile(
        self, node: exp.Expr, argument: exp.Expr, fraction: Fraction, condition: exp.Expr | None = None
    ) -> NoisyAggregate:
        value = self._argument(argument, condition)
        return self.found.chosen("quantile", value, _label(node), fraction)


def _label(node: exp.Expr) -> str:
    """What plans call it: the analyst's own text, in one line."""
    column = node.find(exp.Column)
    return column.name[:40] if column is not None else "rows"


def fraction_node(node: exp.Expr) -> exp.Expr | None:
    """The fraction, or the list of them, that a quantile asks for."""
    if isinstance(node, exp.Quantile | exp.ApproxQuantile):
        found = node.args.get("quantile")
    elif isinstance(node, exp.PercentileCont | exp.PercentileDisc):
        found = node.args.get("expression")
    else:
        return None
    return found if isinstance(found, exp.Expr) else None


def _fraction(node: exp.Expr) -> Fraction:
    if not isinstance(node, exp.Literal) or node.is_string:
        raise refused(node, "a quantile needs a public fraction", "Write QUANTILE(x, 0.5)")
    found = exact_number(node)
    if not 0 <= found <= 1 or found.denominator > 10**6:
        raise refused(node, "a quantile lies between 0 and 1, with at most six decimals", "Write 0.5")
    return found


def with_average_pairs(question: BoundQuery, pairs: Mapping[NoisyAggregate, NoisySumPair]) -> BoundQuery:
    """The question with these pairs instead of totals and counts that nothing else needs."""
    statistics = question.statistics
    needed = Counter(part for one in statistics for part in set(one.parts))
    alone = {one for one in statistics if one in pairs and all(needed[part] == 1 for part in one.parts)}
    if not alone:
        return question
    instead: dict[int, NoisySum | None] = {}
    for one in alone:
        total, known = one.parts
        instead[total], instead[known] = pairs[one], None
    parts: list[NoisySum] = []
    places: dict[int, int] = {}
    for position, own in enumerate(question.parts):
        part = instead.get(position, own)
        if part is not None:
            places[position] = len(parts)
            parts.append(part)

    def moved(one: NoisyAggregate) -> NoisyAggregate:
        if one not in alone:
            return replace(one, parts=tuple(places[part] for part in one.parts))
        assert isinstance(one.number, Numeric)
        assert one.number.first is not None
        return replace(one, function="avg_of_pair", parts=(places[one.parts[0]],), centre=one.number.first)

    renewed = {one: moved(one) for one in statistics}
    return replace(
        question,
        parts=tuple(parts),
        outputs=tuple(Output(one.name, _with(one.value, renewed.__getitem__)) for one in question.outputs),
        having=None if question.having is None else _with(question.having, renewed.__getitem__),
        order=tuple(
            Order(_with(one.value, renewed.__getitem__), one.descending, one.nulls_first)
            for one in question.order
        ),
    )


def _with(tree: Released, renewed: Callable[[NoisyAggregate], NoisyAggregate]) -> Released:
    if isinstance(tree, NoisyAggregate):
        return renewed(tree)
    if isinstance(tree, Computed):
        return Computed(tree.op, tuple(_with(arg, renewed) for arg in tree.args))
    return tree
