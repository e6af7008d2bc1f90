"""A question, bound and checked: which whole numbers the engine computes, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from lapwing.sql.expression import Expression, Kind, Numeric
from lapwing.sql.relation import Relation

WHOLE = Numeric(Fraction(1), None, None)
Combination = tuple[tuple[int, int], ...]  # (factor, position in `Question.sums`)


@dataclass(frozen=True, slots=True)
class Key:
    """What is grouped by. `codes` are all keys that are answered; None: they are selected privately."""

    name: str
    expression: Expression
    codes: range | None

    @property
    def kind(self) -> Kind:
        """What the key's code means."""
        return self.expression.kind


@dataclass(frozen=True, slots=True)
class Sum:
    """An aggregate that the engine computes per group, as a whole number (0 for no rows).

    function: "rows" (all rows), "count" (rows where the expression is known), "sum", "units" (distinct
    units), "distinct" (distinct known values).
    """

    function: str
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class NoisySum:
    """A number per group that gets noise: a whole combination of engine sums.

    Claim    removing one unit moves the vector of this part over all groups of one grouping by at most
             l1 in L1 and √l2_squared in L2.
    """

    label: str  # public, for plans: "rows", "sum of stay", "people"
    combination: Combination
    l1: int
    l2_squared: int
    weight: Fraction = Fraction(1)  # error that matters, relative to the column's range, per unit of l1

    @property
    def numbers(self) -> tuple[Combination, ...]:
        """What is released for each group. One mechanism takes the vector of the first, then the next."""
        return (self.combination,)


@dataclass(frozen=True, slots=True)
class NoisySumPair(NoisySum):
    """Two numbers per group in one vector, for one mechanism: a part's claim holds for both together."""

    second: Combination = ()

    @property
    def numbers(self) -> tuple[Combination, ...]:
        """Both."""
        return (self.combination, self.second)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """How often each code stands in each group: for quantiles and extremes.

    `number` bounds the codes. A unit has at most `rows` rows over all groups.
    """

    label: str
    expression: Expression
    number: Numeric | Kind
    rows: int


@dataclass(frozen=True, slots=True)
class NoisyAggregate:
    """What an analyst's aggregate comes to, from noisy parts.

    function  parts                                              value, m the centre (a code)
    count     n                                                  n
    sum       t                                                  step * t
    avg       t = sum of (x - m), n                              step * (m + t / n)
    avg_of_pair
              one pair: a = sum of (x - m), b = sum of (m' - x)  step * (m + (m' - m) * a / (a + b))
              with m and m' the first and the last code
    var_pop, var_samp, stddev_pop, stddev_samp
              t, n, s = sum of (x - m)^2                         step^2 * (s/n - (t/n)^2), ...
    covar_pop, covar_samp
              tx, n, ty, c = sum of (x - mx)(y - my)             step * step_y * (c/n - tx ty / n^2)
    corr      tx, n, ty, c, sx, sy
    quantile, min, max                                           a code of the spectrum
    """

    function: str
    parts: tuple[int, ...]
    number: Kind = WHOLE  # the argument's kind: step and bounds
    centre: int = 0
    second: Kind | None = None  # of the second argument, for covar and corr
    second_centre: int = 0
    spectrum: int | None = None
    fraction: Fraction | None = None  # of a quantile


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The value of a key in the answer."""

    key: int


@dataclass(frozen=True, slots=True)
class Plain:
    """A public constant in the answer."""

    value: float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Computed:
    """Arithmetic, comparison or logic on what was released: it costs nothing.

    op: + - * / // neg abs round sqrt least greatest coalesce case = <> < <= > >= and or not is_null
    """

    op: str
    args: tuple[Released, ...]
    size: int = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = [arg for arg in self.args if isinstance(arg, Computed)]
        size = 1 + len(self.args) - len(inner) + sum(one.size for one in inner)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", 1 + max((one.depth for one in inner), default=0))


Released = NoisyAggregate | KeyValue | Plain | Computed


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer."""

    name: str
    value: Released


@dataclass(frozen=True, slots=True)
class Order:
    """By what the released rows are sorted."""

    value: Released
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """All of it. `sets` are the groupings, each a tuple of positions in `keys`; normally one.

    Noise is drawn for every part in every grouping, and every grouping adds to the loss.
    """

    source: Relation
    keys: tuple[Key, ...]
    sets: tuple[tuple[int, ...], ...]
    sums: tuple[Sum, ...]
    parts: tuple[NoisySum, ...]
    spectra: tuple[Spectrum, ...]
    outputs: tuple[Output, ...]
    rows: int  # the most rows of one unit in `source`
    having: Released | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def numbers(self) -> int:
        """How many numbers get noise in each group."""
        return sum(len(part.numbers) for part in self.parts)

    @property
    def statistics(self) -> tuple[NoisyAggregate, ...]:
        """Every distinct statistic, in the order of the text: of the columns, HAVING and ORDER BY."""
        trees: list[Released | None] = [output.value for output in self.outputs]
        trees += [self.having, *(order.value for order in self.order)]
        return tuple(dict.fromkeys(one for tree in trees for one in _statistics_in(tree)))


def without_names(question: BoundQuery) -> BoundQuery:
    """The same without what the text calls its columns: equal ones compute the same, in the same order.

    Names of tables and of inner columns are not the analyst's any more: binding found what they stand for.
    """
    return replace(
        question,
        keys=tuple(replace(key, name="") for key in question.keys),
        parts=tuple(replace(part, label="") for part in question.parts),
        spectra=tuple(replace(spectrum, label="") for spectrum in question.spectra),
        outputs=tuple(replace(output, name="") for output in question.outputs),
    )


def _statistics_in(tree: Released | None) -> Iterator[NoisyAggregate]:
    if isinstance(tree, NoisyAggregate):
        yield tree
    elif isinstance(tree, Computed):
        for arg in tree.args:
            yield from _statistics_in(arg)
