"""Binding of aggregates to noisy sums, with how far one unit can move each sum.

Claim    removing a unit moves a noisy sum, over all groups of a grouping, by at most its `l1` and
         √`l2_squared`.
Because  a unit has at most `rows` rows in the source, all of which may lie in one group, and a row's
         contribution is at most `reach` in size: rows · reach in L1 and in L2. Where each unit counts
         once per group, it moves at most `rows` groups by one: rows in L1, √rows in L2; without keys 1.
         The two numbers of a pair take x - low and high - x of a row, both at least 0: for any x they are
         high - low together, in L1, and not more in L2. So a unit moves both by rows · (high - low).
Test     tests/sql/reading/test_reader_neighbours.py, tests/sql/answering/test_noisy_numbers_pairs.py

An average that shares no sum with other aggregates is computed from a pair of sums under one mechanism.

Claim    with a pair, the noise of an average has half the variance that it has with a total and a count, at
         the same ε and for any mean; with Gaussian noise it has the same variance. Its loss counts once.
Because  a = Σ (x - low) and b = Σ (high - x) together move by rows · (high - low) in L1, so both get the
         whole ε of the average, instead of half of it each. See docs/arguments/query-noise.md.
Test     tests/sql/answering/test_noisy_numbers_pairs.py

If another aggregate needs the count or the total too, they are kept: a shared sum is paid for once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from lapwing.sql.policy.kinds import Moment, Numeric, Period, Person, Truth
from lapwing.sql.question.analysis import ColumnNames, is_never_null
from lapwing.sql.question.bound_query import (
    BoundQuery,
    Combination,
    Computed,
    NoisyAggregate,
    NoisySum,
    NoisySumPair,
    Released,
    Spectrum,
    Sum,
)
from lapwing.sql.question.expression import Constant, Expression, Op
from lapwing.sql.question.grouping import count_argument, filtered, split_filter
from lapwing.sql.question.refusal import Refused, allow_only, name_of, refused
from lapwing.sql.question.scalar import ExpressionBinder, exact_number
from lapwing.sql.question.typed_expressions import (
    LARGEST,
    apply,
    as_number,
    is_null,
    null_of,
    number,
    numeric,
    product_of_codes,
)

WIDEST_PAIR = 1 << 26  # steps: 2^26 rows of a participant, or 2^35 of a curator, are not clamped
ONE, HALF = Fraction(1), Fraction(1, 2)


class AggregateCollector:
    """The sums that the engine must compute. A sum that is needed twice is computed, and paid for, once."""

    def __init__(self, rows: int, known: ColumnNames, *, has_keys: bool) -> None:
        self.rows = rows
        self.known = known  # columns that are never NULL
        self.has_keys = has_keys
        self.sums: list[Sum] = []
        self.parts: list[NoisySum] = []
        self.spectra: list[Spectrum] = []
        self.pairs: dict[NoisyAggregate, NoisySumPair] = {}  # that averages can use instead
        self._places: dict[Sum | Expression, int] = {}  # positions of sums, and of spectra by expression

    def count_rows(self) -> NoisyAggregate:
        """Return COUNT(*)."""
        return NoisyAggregate("count", (self._part("rows", [(1, self._sum("rows"))], 1),))

    def count(self, value: Expression, label: str) -> NoisyAggregate:
        """Return COUNT(x)."""
        return NoisyAggregate("count", (self._known(value, label, ONE),))

    def count_units(self) -> NoisyAggregate:
        """Return COUNT(DISTINCT unit)."""
        most = self.rows if self.has_keys else 1
        part = NoisySum("people", ((1, self._sum("units")),), most, most)
        return NoisyAggregate("count", (self._add(part),))

    def count_distinct(self, value: Expression, label: str) -> NoisyAggregate:
        """Return COUNT(DISTINCT x). A unit adds at most as many values as it has rows."""
        part = self._part(f"distinct {label}", [(1, self._sum("distinct", value))], 1)
        return NoisyAggregate("count", (part,))

    def total(self, value: Expression, label: str) -> NoisyAggregate:
        """Return SUM(x)."""
        number, kind = _bounded(value)
        part = self._part(f"sum of {label}", [(1, self._sum("sum", number))], max(kind.reach, 1))
        return NoisyAggregate("sum", (part,), kind)

    def average(self, value: Expression, label: str) -> NoisyAggregate:
        """Return AVG(x): the sum of the distances from the middle of the bounds, and the count."""
        number, kind = _bounded(value)
        middle, total = self._centred(number, kind, label)
        average = NoisyAggregate("avg", (total, self._known(number, label, HALF)), kind, middle)
        if pair := self._pair(number, kind, label):
            self.pairs[average] = pair
        return average

    def variance(self, function: str, value: Expression, label: str) -> NoisyAggregate:
        """Return VARIANCE or STDDEV, of the population or of a sample."""
        number, kind = _bounded(value)
        middle, total = self._centred(number, kind, label)
        known = self._known(number, label, HALF)
        squares = self._product((number, middle), (number, middle), f"squares of {label}")
        return NoisyAggregate(function, (total, known, squares), kind, middle)

    def covariance(
        self, function: str, first: Expression, second: Expression, label: str
    ) -> NoisyAggregate:
        """Return COVAR_POP, COVAR_SAMP or CORR, over the rows where both columns are not NULL."""
        (x, x_kind), (y, y_kind) = _bounded(first), _bounded(second)
        x, y = _where_known(x, second), _where_known(y, first)
        mx, tx = self._centred(x, x_kind, f"x of {label}")
        my, ty = self._centred(y, y_kind, f"y of {label}")
        known = self._known(x, label, HALF)
        parts = [tx, known, ty, self._product((x, mx), (y, my), f"products of {label}")]
        if function == "corr":
            parts.append(self._product((x, mx), (x, mx), f"squares of x of {label}"))
            parts.append(self._product((y, my), (y, my), f"squares of y of {label}"))
        return NoisyAggregate(function, tuple(parts), x_kind, mx, y_kind, my)

    def chosen(
        self, function: str, value: Expression, label: str, fraction: Fraction | None
    ) -> NoisyAggregate:
        """Return MEDIAN, QUANTILE, MIN or MAX."""
        if isinstance(value.kind, Truth):
            value = as_number(value)
        kind = value.kind
        if not isinstance(kind, Numeric | Moment | Period):
            raise Refused("quantiles, MIN and MAX need numbers or times", "Use a column with bounds")
        if isinstance(kind, Numeric):
            _bounded(value)
        position = self._places.setdefault(value, len(self.spectra))
        if position == len(self.spectra):
            self.spectra.append(Spectrum(label, value, kind, self.rows))
        return NoisyAggregate(function, (), kind, spectrum=position, fraction=fraction)

    def _sum(self, function: str, value: Expression | None = None) -> int:
        wanted = Sum(function, value)
        if function == "count" and value is not None and is_never_null(value, self.known):
            wanted = Sum("rows")
        place = self._places.setdefault(wanted, len(self.sums))
        if place == len(self.sums):
            self.sums.append(wanted)
        return place

    def _known(self, value: Expression, label: str, weight: Fraction) -> int:
        """Add the count of rows with a value, and return its position."""
        name = "rows" if is_never_null(value, self.known) else f"known {label}"
        return self._part(name, [(1, self._sum("count", value))], 1, weight)

    def _centred(self, number: Expression, kind: Numeric, label: str) -> tuple[int, int]:
        """Add Σ (x - m) for the middle m of the bounds: one unit moves it half as far as Σ x at worst.

        Returns the middle and the position of the sum.
        """
        middle = sum(kind.bounds) // 2
        terms = [(1, self._sum("sum", number)), (-middle, self._sum("count", number))]
        return middle, self._part(f"sum of {label} around its middle", terms, _reach(kind, middle), HALF)

    def _pair(self, number: Expression, kind: Numeric, label: str) -> NoisySumPair | None:
        """Return Σ (x - low) and Σ (high - x) over the rows with a value; None if there is only one value.

        Both only grow with the rows, while sums around the middle cancel. A range of very many steps has no
        pair, so that the sums do not reach the numbers that a mechanism (2^61) or a participant (2^52)
        clamps to.
        """
        low, high = kind.bounds
        l1 = self.rows * (high - low)
        if not 0 < high - low < WIDEST_PAIR or l1 >= LARGEST:
            return None
        total, known = self._sum("sum", number), self._sum("count", number)
        above = _combination([(1, total), (-low, known)])
        below = _combination([(-1, total), (high, known)])
        name = f"sums of {label} from its low end and from its high end"
        return NoisySumPair(name, above, l1, l1 * l1, ONE, below)

    def _product(self, first: tuple[Expression, int], second: tuple[Expression, int], label: str) -> int:
        """Add Σ (x - mx)(y - my) = Σ xy - my Σ x - mx Σ y + mx my n, and return its position."""
        (x, mx), (y, my) = first, second
        terms = [
            (1, self._sum("sum", product_of_codes(x, y))),
            (-my, self._sum("sum", x)),
            (-mx, self._sum("sum", y)),
            (mx * my, self._sum("count", x)),
        ]
        return self._part(label, terms, _reach(numeric(x), mx) * _reach(numeric(y), my), HALF)

    def _part(self, label: str, terms: list[tuple[int, int]], reach: int, weight: Fraction = ONE) -> int:
        l1 = self.rows * reach
        if l1 >= LARGEST:
            instead = "Use smaller bounds or a coarser step"
            raise Refused("one person could move the answer too far", instead)
        return self._add(NoisySum(label, _combination(terms), l1, l1 * l1, weight))

    def _add(self, part: NoisySum) -> int:
        for position, other in enumerate(self.parts):
            if other.combination == part.combination:
                if part.weight > other.weight:  # the aggregate that needs less noise decides
                    self.parts[position] = part
                return position
        self.parts.append(part)
        return len(self.parts) - 1


def _bounded(value: Expression) -> tuple[Expression, Numeric]:
    """Return the value as a number with bounds, and its kind. Raises Refused if it has none."""
    number = as_number(value)
    if not numeric(number).is_bounded:
        raise Refused("a number without bounds cannot be aggregated", "Bound it with CLAMP(x, low, high)")
    return number, numeric(number)


def _combination(terms: list[tuple[int, int]]) -> Combination:
    factors: Counter[int] = Counter()
    for factor, place in terms:
        factors[place] += factor
    return tuple((factor, place) for place, factor in sorted(factors.items()) if factor) or ((0, 0),)


def _reach(kind: Numeric, middle: int) -> int:
    """Return the greatest distance of a code from the middle, at least 1."""
    first, last = kind.bounds
    return max(last - middle, middle - first, 1)


def _where_known(value: Expression, other: Expression) -> Expression:
    """Return the value, or NULL where the other expression is NULL."""
    if isinstance(other, Constant) and not is_null(other):
        return value
    return apply(Op.CASE, apply(Op.IS_NULL, other), null_of(value.kind), value, kind=value.kind)


_VARIANCES: dict[type[exp.Expr], str] = {
    exp.Variance: "var_samp", exp.VariancePop: "var_pop", exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop",
}  # fmt: skip
_COVARIANCES: dict[type[exp.Expr], str] = {
    exp.CovarPop: "covar_pop", exp.CovarSamp: "covar_samp", exp.Corr: "corr",
}  # fmt: skip
_CHOSEN: dict[type[exp.Expr], tuple[str, Fraction | None]] = {
    exp.Min: ("min", None), exp.Max: ("max", None), exp.Median: ("quantile", HALF),
}  # fmt: skip
_ONE_COLUMN: tuple[type[exp.Expr], ...] = (exp.Sum, exp.Avg, *_CHOSEN, *_VARIANCES)
_QUANTILES = (exp.Quantile, exp.ApproxQuantile)
_PERCENTILES = (exp.PercentileCont, exp.PercentileDisc)
# All aggregates that are bound. The auditor has a case for each.
AGGREGATES: tuple[type[exp.Expr], ...] = (
    exp.Count, exp.CountIf, *_ONE_COLUMN, *_COVARIANCES, *_QUANTILES, *_PERCENTILES,
)  # fmt: skip
MOST_QUANTILES = 100


class AggregateBinder:
    """A binder of aggregates over the rows of an expression binder."""

    def __init__(self, row: ExpressionBinder, rows: int, known: ColumnNames, *, has_keys: bool) -> None:
        self.row = row
        self.found = AggregateCollector(rows, known, has_keys=has_keys)

    def statistic(self, node: exp.Expr) -> NoisyAggregate:
        """Bind an aggregate, and collect the sums that it needs."""
        inner, condition = split_filter(node)
        if isinstance(inner, exp.IgnoreNulls):
            inner = inner.this
        if isinstance(inner, exp.CountIf):
            allow_only(inner, "this", "big_int")
            where = filtered(self.row, number(1), inner.this)
            return self.found.count(filtered(self.row, where, condition), "rows")
        if isinstance(inner, exp.Count):
            return self._count(inner, condition)
        if isinstance(inner, exp.WithinGroup) or fraction_node(inner) is not None:
            return self._one_quantile(inner, condition)
        if isinstance(inner.this, exp.Distinct):
            raise refused(node, f"DISTINCT is not possible in {name_of(inner)}", "Leave it out")
        if type(inner) in _COVARIANCES:
            allow_only(inner, "this", "expression")
            x, y = (self._argument(argument, condition) for argument in (inner.this, inner.expression))
            return self.found.covariance(_COVARIANCES[type(inner)], x, y, _label(inner))
        return self._of_one(inner, condition)

    def _of_one(self, node: exp.Expr, condition: exp.Expr | None) -> NoisyAggregate:
        """Bind an aggregate of one column."""
        if type(node) not in _ONE_COLUMN:
            why = f"{name_of(node)} would show values of single rows, or is unknown"
            known = "COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN, QUANTILE, MIN, MAX, COVAR or CORR"
            raise refused(node, why, f"Use {known}")
        allow_only(node, "this")
        value, label = self._argument(node.this, condition), _label(node)
        if isinstance(node, exp.Sum):
            return self.found.total(value, label)
        if isinstance(node, exp.Avg):
            return self.found.average(value, label)
        if type(node) in _CHOSEN:
            function, fraction = _CHOSEN[type(node)]
            return self.found.chosen(function, value, label, fraction)
        return self.found.variance(_VARIANCES[type(node)], value, label)

    def several(self, node: exp.Expr) -> list[tuple[Fraction, NoisyAggregate]] | None:
        """Bind QUANTILE(x, [0.25, 0.75]) to one aggregate for each fraction; None for other nodes."""
        asked = fraction_node(node)
        if not isinstance(asked, exp.Array):
            return None
        if not 0 < len(asked.expressions) <= MOST_QUANTILES:
            raise refused(node, f"a list of quantiles has 1 to {MOST_QUANTILES} members", "Ask for fewer")
        allow_only(node, "this", "quantile", "expression")
        fractions = [_fraction(item) for item in asked.expressions]
        return [(fraction, self._quantile(node, node.this, fraction)) for fraction in fractions]

    def _argument(self, node: exp.Expr, condition: exp.Expr | None) -> Expression:
        value = filtered(self.row, self.row.bind(node), condition)
        if isinstance(value.kind, Person):
            raise refused(node, "the unit can only be counted", "Write COUNT(DISTINCT unit)")
        return value

    def _count(self, node: exp.Count, condition: exp.Expr | None) -> NoisyAggregate:
        distinct, value = count_argument(self.row, node)
        if value is None and condition is None:
            return self.found.count_rows()
        label = "rows" if value is None else _label(node)
        value = number(1) if value is None else value
        if not distinct:
            return self.found.count(filtered(self.row, value, condition), label)
        if not isinstance(value.kind, Person):
            return self.found.count_distinct(filtered(self.row, value, condition), label)
        if condition is not None:
            raise refused(node, "FILTER is not possible with COUNT(DISTINCT unit)", "Use WHERE")
        return self.found.count_units()

    def _one_quantile(self, node: exp.Expr, condition: exp.Expr | None) -> NoisyAggregate:
        if isinstance(node, exp.WithinGroup):
            allow_only(node, "this", "expression")
            ordered = node.expression.expressions
            if not isinstance(node.this, _PERCENTILES):
                raise refused(node, f"{name_of(node.this)} is not possible", "Use QUANTILE or MEDIAN")
            allow_only(node.this, "this")
            if len(ordered) != 1 or ordered[0].args.get("desc"):
                raise refused(node, "WITHIN GROUP needs one ascending order", "Write ORDER BY x")
            return self._quantile(node, ordered[0].this, _fraction(node.this.this), condition)
        allow_only(node, "this", "quantile", "expression")
        return self._quantile(node, node.this, _fraction(fraction_node(node)), condition)

    def _quantile(
        self, node: exp.Expr, argument: exp.Expr, fraction: Fraction, condition: exp.Expr | None = None
    ) -> NoisyAggregate:
        value = self._argument(argument, condition)
        return self.found.chosen("quantile", value, _label(node), fraction)


def _label(node: exp.Expr) -> str:
    """Return the name of an aggregate in plans: its first column, or "rows"."""
    column = node.find(exp.Column)
    return column.name[:40] if column is not None else "rows"


def fraction_node(node: exp.Expr) -> exp.Expr | None:
    """Return the fraction, or the list of fractions, of a quantile; None for other nodes."""
    name = "quantile" if isinstance(node, _QUANTILES) else "expression"
    fraction = node.args.get(name) if isinstance(node, _QUANTILES + _PERCENTILES) else None
    return fraction if isinstance(fraction, exp.Expr) else None


def _fraction(node: exp.Expr | None) -> Fraction:
    if not isinstance(node, exp.Literal) or node.is_string:
        raise refused(node, "a quantile needs a public fraction", "Write QUANTILE(x, 0.5)")
    fraction = exact_number(node)
    if not 0 <= fraction <= 1 or fraction.denominator > 10**6:
        raise refused(node, "a quantile lies between 0 and 1, with at most six decimals", "Write 0.5")
    return fraction


def with_average_pairs(query: BoundQuery, pairs: Mapping[NoisyAggregate, NoisySumPair]) -> BoundQuery:
    """Return the query with pairs for those averages whose total and count nothing else needs."""
    statistics = query.statistics
    needed = Counter(part for statistic in statistics for part in set(statistic.parts))
    alone = {
        statistic
        for statistic in statistics
        if statistic in pairs and all(needed[part] == 1 for part in statistic.parts)
    }
    if not alone:
        return query
    instead: dict[int, NoisySum | None] = {}
    for average in alone:
        total, known = average.parts
        instead[total], instead[known] = pairs[average], None
    kept = {n: part for n, own in enumerate(query.parts) if (part := instead.get(n, own)) is not None}
    places = {position: place for place, position in enumerate(kept)}

    def moved(statistic: NoisyAggregate) -> NoisyAggregate:
        if statistic not in alone:
            return replace(statistic, parts=tuple(places[part] for part in statistic.parts))
        assert isinstance(statistic.number, Numeric)
        low = statistic.number.bounds[0]
        return replace(statistic, function="avg_of_pair", parts=(places[statistic.parts[0]],), centre=low)

    renewed = {statistic: moved(statistic) for statistic in statistics}
    return replace(
        query,
        parts=tuple(kept.values()),
        outputs=tuple(replace(output, value=_with(output.value, renewed)) for output in query.outputs),
        having=None if query.having is None else _with(query.having, renewed),
        order=tuple(replace(item, value=_with(item.value, renewed)) for item in query.order),
    )


def _with(tree: Released, renewed: Mapping[NoisyAggregate, NoisyAggregate]) -> Released:
    if isinstance(tree, NoisyAggregate):
        return renewed[tree]
    if isinstance(tree, Computed):
        return Computed(tree.op, tuple(_with(arg, renewed) for arg in tree.args))
    return tree
