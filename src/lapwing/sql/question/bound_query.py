"""A bound query: the sums that the engine computes, their noise, and the answer computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Kind, Numeric, StoredWord, codes_of
from lapwing.sql.question.expression import Expression
from lapwing.sql.question.relation import Relation

WHOLE = Numeric(Fraction(1), None, None)
Combination = tuple[tuple[int, int], ...]  # pairs of a factor and a position in `BoundQuery.sums`


@dataclass(frozen=True, slots=True)
class Key:
    """A key of GROUP BY.

    `codes` are all keys that are answered; None means that keys are selected privately.
    """

    name: str
    expression: Expression
    codes: range | None

    @property
    def kind(self) -> Kind:
        """The kind of the key's codes."""
        return self.expression.kind


@dataclass(frozen=True, slots=True)
class Sum:
    """An aggregate that the engine computes per group, as a whole number (0 if there are no rows).

    The functions are "rows" (all rows), "count" (rows where the expression is not NULL), "sum", "units"
    (distinct privacy units) and "distinct" (distinct values that are not NULL).
    """

    function: str
    expression: Expression | None = None


@dataclass(frozen=True, slots=True, repr=False)
class NoisySum(StoredWord, word="Part"):
    """A number per group that gets noise: a combination of engine sums with whole factors.

    Claim    removing one unit moves the vector of this number over all groups of one grouping by at most
             l1 in L1 and √l2_squared in L2.
    """

    label: str  # public, shown in plans: "rows", "sum of stay", "people"
    combination: Combination
    l1: int
    l2_squared: int
    weight: Fraction = Fraction(1)  # of its error, relative to the column's range, per unit of l1

    @property
    def numbers(self) -> tuple[Combination, ...]:
        """The combinations that are released for each group. One mechanism adds noise to all of them."""
        return (self.combination,)


@dataclass(frozen=True, slots=True, repr=False)
class NoisySumPair(NoisySum, word="Pair"):
    """Two numbers per group that one mechanism releases.

    The claim of `NoisySum` holds for both together.
    """

    second: Combination = ()

    @property
    def numbers(self) -> tuple[Combination, ...]:
        """Both combinations."""
        return (self.combination, self.second)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """How often each code occurs in each group: the input of quantiles, MIN and MAX.

    `number` bounds the codes. A unit has at most `rows` rows over all groups.
    """

    label: str
    expression: Expression
    number: Numeric | Kind
    rows: int


@dataclass(frozen=True, slots=True, repr=False)
class NoisyAggregate(StoredWord, word="Statistic"):
    """An aggregate of the analyst, as a formula over noisy sums.

    Its parts are positions in `BoundQuery.parts`.

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
    """The value of a GROUP BY key in the answer, by its position in `BoundQuery.keys`."""

    key: int


@dataclass(frozen=True, slots=True)
class Plain:
    """A public constant in the answer."""

    value: float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Computed:
    """Arithmetic, comparison or logic on released values. It costs no budget.

    op: + - * / // neg abs round sqrt least greatest coalesce case = <> < <= > >= and or not is_null
    """

    op: str
    args: tuple[Released, ...]
    size: int = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = [arg for arg in self.args if isinstance(arg, Computed)]
        size = 1 + len(self.args) - len(inner) + sum(arg.size for arg in inner)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", 1 + max((arg.depth for arg in inner), default=0))


Released = NoisyAggregate | KeyValue | Plain | Computed


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer."""

    name: str
    value: Released


@dataclass(frozen=True, slots=True)
class Order:
    """One item of ORDER BY: released rows are sorted by its value."""

    value: Released
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, repr=False)
class BoundQuery(StoredWord, word="Question"):
    """A query that was bound and checked. `sets` are the groupings, as positions in `keys`; normally one.

    Noise is drawn for every part in every grouping, and every grouping adds to the privacy loss.
    """

    source: Relation
    keys: tuple[Key, ...]
    sets: tuple[tuple[int, ...], ...]
    sums: tuple[Sum, ...]
    parts: tuple[NoisySum, ...]
    spectra: tuple[Spectrum, ...]
    outputs: tuple[Output, ...]
    rows: int  # the contribution bound: the most rows of one unit in `source`
    having: Released | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def numbers(self) -> int:
        """The number of noisy numbers in each group."""
        return sum(len(part.numbers) for part in self.parts)

    @property
    def statistics(self) -> tuple[NoisyAggregate, ...]:
        """All distinct aggregates, in the order of the text: columns, HAVING, ORDER BY."""
        trees: list[Released | None] = [output.value for output in self.outputs]
        trees += [self.having, *(order.value for order in self.order)]
        return tuple(dict.fromkeys(statistic for tree in trees for statistic in _statistics_in(tree)))

    def grouping_in_words(self, grouping: int) -> str:
        """Return the keys of a grouping in words, or "" if there is only one grouping."""
        if len(self.sets) == 1:
            return ""
        names = [self.keys[key].name for key in self.sets[grouping]]
        return f" by {', '.join(names)}" if names else " in total"


def count_question(source: Relation, label: str, rows: int, *keys: Key, name: str = "rows") -> BoundQuery:
    """Build the question how many rows of a source each key has. A unit has at most `rows` of them."""
    part = NoisySum(label, ((1, 0),), rows, rows * rows)
    outputs = [Output(key.name, KeyValue(place)) for place, key in enumerate(keys)]
    outputs.append(Output(name, NoisyAggregate("count", (0,))))
    grouping = tuple(range(len(keys)))
    return BoundQuery(source, keys, (grouping,), (Sum("rows"),), (part,), (), tuple(outputs), rows)


def without_names(query: BoundQuery) -> BoundQuery:
    """Return the query without the names that its text gives to columns.

    Queries that are equal then compute the same values in the same order. Names of tables and of inner
    columns are gone already: binding replaced them.
    """
    return replace(
        query,
        keys=tuple(replace(key, name="") for key in query.keys),
        parts=tuple(replace(part, label="") for part in query.parts),
        spectra=tuple(replace(spectrum, label="") for spectrum in query.spectra),
        outputs=tuple(replace(output, name="") for output in query.outputs),
    )


def _statistics_in(tree: Released | None) -> Iterator[NoisyAggregate]:
    if isinstance(tree, NoisyAggregate):
        yield tree
    elif isinstance(tree, Computed):
        for arg in tree.args:
            yield from _statistics_in(arg)


CHOICE_FUNCTIONS = ("quantile", "min", "max")


@dataclass(frozen=True, slots=True, repr=False)
class WantedCode(StoredWord, word="Wanted"):
    """A code of a spectrum that outputs need. Equal ones are released once."""

    spectrum: int
    function: str
    fraction: Fraction | None


def has_declared_keys(question: BoundQuery, grouping: int) -> bool:
    """Return whether all keys of a grouping are declared."""
    return all(question.keys[key].codes is not None for key in question.sets[grouping])


def number_of_groups(question: BoundQuery, grouping: int) -> int:
    """Return the number of groups of a grouping by declared keys."""
    return math.prod(len(question.keys[key].codes or ()) for key in question.sets[grouping])


def wanted_of(statistic: NoisyAggregate) -> WantedCode:
    """Return the code that a quantile, MIN or MAX needs."""
    assert statistic.spectrum is not None
    fraction = statistic.fraction if statistic.function == "quantile" else None
    return WantedCode(statistic.spectrum, statistic.function, fraction)


def wanted_codes(question: BoundQuery) -> tuple[WantedCode, ...]:
    """Return every distinct quantile, MIN and MAX of the question, in the order of its text."""
    chosen = (statistic for statistic in question.statistics if statistic.function in CHOICE_FUNCTIONS)
    return tuple(dict.fromkeys(wanted_of(statistic) for statistic in chosen))


def code_range(question: BoundQuery, spectrum: int) -> tuple[int, int]:
    """Return the least and greatest code of a spectrum."""
    codes = codes_of(question.spectra[spectrum].number)
    if codes is None or not codes:
        raise BadParameter("bounds", "quantiles, MIN and MAX need a column with declared bounds")
    return codes[0], codes[-1]


@dataclass(frozen=True, slots=True)
class CodeScale:
    """The meaning of a number's codes: the step, and the least and greatest code relative to a centre."""

    step: Fraction
    low: int
    high: int

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half of the range: no standard deviation is larger."""
        return (self.high - self.low) / 2

    @property
    def reach(self) -> int:
        """The largest distance from the centre."""
        return max(abs(self.low), abs(self.high))


def scale_of(kind: Kind | None, centre: int) -> CodeScale:
    """Return the scale of an argument that is averaged."""
    codes = None if kind is None else codes_of(kind)
    if codes is None:
        raise BadParameter("bounds", "an average needs a column with declared bounds")
    step = kind.step if isinstance(kind, Numeric) else Fraction(1)
    return CodeScale(step, codes[0] - centre, codes[-1] - centre)


def step_of(statistic: NoisyAggregate) -> Fraction:
    """Return the value of one step of a sum."""
    of_sum = statistic.function == "sum" and isinstance(statistic.number, Numeric)
    return statistic.number.step if of_sum and isinstance(statistic.number, Numeric) else Fraction(1)
