"""From an analyst's aggregates to sums of whole numbers, each with how far one unit can move it.

Claim    removing a unit moves a part, over all groups of a grouping, by at most its `l1` and √`l2_squared`.
Because  a unit has at most `rows` rows in the source, all of which may lie in one group, and a row's
         contribution is at most `reach` in size: rows · reach in L1 and in L2. Where each unit counts
         once per group, it moves at most `rows` groups by one: rows in L1, √rows in L2; without keys 1.
         A pair's two numbers take x - low and high - x of a row, both at least 0: wherever x lies they are
         high - low together, in L1, and not more in L2. So a unit moves both by rows · (high - low).
Test     tests/query/test_neighbours.py, tests/query/test_pairs.py
"""

from __future__ import annotations

from fractions import Fraction

from lapwing.query.binding.build import LARGEST, apply, as_number, is_null, product_of_codes
from lapwing.query.binding.known import Names, is_known
from lapwing.query.binding.refused import Refused
from lapwing.query.language.expression import Constant, Expression, Op
from lapwing.query.language.kinds import Choice, Moment, Number, Period, Truth
from lapwing.query.language.question import Combination, Pair, Part, Spectrum, Statistic, Sum

WIDEST_PAIR = 1 << 26  # steps: 2^26 rows of a member, and 2^35 of a curator, are within what is clamped
ONE, HALF = Fraction(1), Fraction(1, 2)
_VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


class Aggregates:
    """Collects what the engine must compute. What is needed twice is computed, and paid for, once."""

    def __init__(self, rows: int, known: Names, *, has_keys: bool) -> None:
        self.rows = rows
        self.known = known  # columns that are never missing
        self.has_keys = has_keys
        self.sums: list[Sum] = []
        self.parts: list[Part] = []
        self.spectra: list[Spectrum] = []
        self.pairs: dict[Statistic, Pair] = {}  # what averages can be made of instead; see pairs.py
        self._places: dict[Sum | Expression, int] = {}  # of sums, and of spectra by what they are of

    def count_rows(self) -> Statistic:
        """COUNT(*)."""
        return Statistic("count", (self._part("rows", [(1, self._sum("rows"))], 1),))

    def count(self, value: Expression, label: str) -> Statistic:
        """COUNT(x)."""
        return Statistic("count", (self._known(value, label, ONE),))

    def count_units(self) -> Statistic:
        """COUNT(DISTINCT unit)."""
        most = self.rows if self.has_keys else 1
        part = Part("people", ((1, self._sum("units")),), most, most)
        return Statistic("count", (self._add(part),))

    def count_distinct(self, value: Expression, label: str) -> Statistic:
        """COUNT(DISTINCT x): a unit brings at most as many values as it has rows."""
        part = self._part(f"distinct {label}", [(1, self._sum("distinct", value))], 1)
        return Statistic("count", (part,))

    def total(self, value: Expression, label: str) -> Statistic:
        """SUM(x)."""
        number = self._bounded(value)
        kind = number.kind
        assert isinstance(kind, Number)
        part = self._part(f"sum of {label}", [(1, self._sum("sum", number))], max(kind.reach, 1))
        return Statistic("sum", (part,), kind)

    def average(self, value: Expression, label: str) -> Statistic:
        """AVG(x): the total of the distances from the middle of the bounds, and how many there are."""
        number = self._bounded(value)
        kind = number.kind
        assert isinstance(kind, Number)
        middle, total = self._centred(number, label)
        found = Statistic("avg", (total, self._known(number, label, HALF)), kind, middle)
        pair = self._pair(number, label)
        if pair is not None:
            self.pairs[found] = pair
        return found

    def variance(self, function: str, value: Expression, label: str) -> Statistic:
        """VARIANCE, STDDEV, of the population or of a sample."""
        assert function in _VARIANCES
        number = self._bounded(value)
        kind = number.kind
        assert isinstance(kind, Number)
        middle, total = self._centred(number, label)
        known = self._known(number, label, HALF)
        squares = self._product(number, number, middle, middle, f"squares of {label}")
        return Statistic(function, (total, known, squares), kind, middle)

    def covariance(self, function: str, first: Expression, second: Expression, label: str) -> Statistic:
        """COVAR_POP, COVAR_SAMP, CORR: over the rows where both are known."""
        x, y = (_where_known(self._bounded(a), b) for a, b in ((first, second), (second, first)))
        assert isinstance(x.kind, Number)
        assert isinstance(y.kind, Number)
        mx, tx = self._centred(x, f"x of {label}")
        my, ty = self._centred(y, f"y of {label}")
        known = self._known(x, label, HALF)
        parts = [tx, known, ty, self._product(x, y, mx, my, f"products of {label}", known_of=x)]
        if function == "corr":
            parts.append(self._product(x, x, mx, mx, f"squares of x of {label}"))
            parts.append(self._product(y, y, my, my, f"squares of y of {label}"))
        return Statistic(function, tuple(parts), x.kind, mx, y.kind, my)

    def chosen(self, function: str, value: Expression, label: str, fraction: Fraction | None) -> Statistic:
        """MEDIAN, QUANTILE, MIN, MAX."""
        if isinstance(value.kind, Truth):
            value = as_number(value)
        kind = value.kind
        if isinstance(kind, Choice) or not isinstance(kind, Number | Moment | Period):
            raise Refused("quantiles, MIN and MAX need numbers or times", "Use a column with bounds")
        if isinstance(kind, Number):
            kind = self._bounded(value).kind
        position = self._places.setdefault(value, len(self.spectra))
        if position == len(self.spectra):
            self.spectra.append(Spectrum(label, value, kind, self.rows))
        return Statistic(function, (), kind, spectrum=position, fraction=fraction)

    def _bounded(self, value: Expression) -> Expression:
        number = as_number(value)
        assert isinstance(number.kind, Number)
        if not number.kind.is_bounded:
            raise Refused(
                "a number without bounds cannot be aggregated", "Bound it with CLAMP(x, low, high)"
            )
        return number

    def _sum(self, function: str, value: Expression | None = None) -> int:
        wanted = Sum(function, value)
        if function == "count" and value is not None and is_known(value, self.known):
            wanted = Sum("rows")
        place = self._places.setdefault(wanted, len(self.sums))
        if place == len(self.sums):
            self.sums.append(wanted)
        return place

    def _known(self, value: Expression, label: str, weight: Fraction) -> int:
        """How many rows have a value."""
        name = "rows" if is_known(value, self.known) else f"known {label}"
        return self._part(name, [(1, self._sum("count", value))], 1, weight)

    def _centred(self, number: Expression, label: str) -> tuple[int, int]:
        """Σ (x - m) for the middle m of the bounds: it moves by half as much as Σ x at worst."""
        kind = number.kind
        assert isinstance(kind, Number)
        assert kind.first is not None
        assert kind.last is not None
        middle = (kind.first + kind.last) // 2
        reach = max(kind.last - middle, middle - kind.first, 1)
        terms = [(1, self._sum("sum", number)), (-middle, self._sum("count", number))]
        return middle, self._part(f"sum of {label} around its middle", terms, reach, HALF)

    def _pair(self, number: Expression, label: str) -> Pair | None:
        """Σ (x - low) and Σ (high - x) over the rows with a value; None if there is only one value.

        Both only grow with the rows, where sums around the middle cancel. So that they do not reach what a
        mechanism or a member clamps numbers to (2^61, 2^52), a range of very many steps has no pair.
        """
        kind = number.kind
        assert isinstance(kind, Number)
        assert kind.first is not None
        assert kind.last is not None
        reach = kind.last - kind.first
        l1 = self.rows * reach
        if not 0 < reach < WIDEST_PAIR or l1 >= LARGEST:
            return None
        total, known = self._sum("sum", number), self._sum("count", number)
        above = _combination([(1, total), (-kind.first, known)])
        below = _combination([(-1, total), (kind.last, known)])
        return Pair(
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
            assert isinstance(kind, Number)
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
        return self._add(Part(label, _combination(terms), l1, l1 * l1, weight))

    def _add(self, part: Part) -> int:
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
