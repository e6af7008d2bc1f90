"""Joint questions without SQL: the sums for a regression, and how many rows lie below a value.

Every number is a sum over rows, of which at most K belong to one person. So a person moves it by at most K
times the largest value of a row. Values are taken relative to the middle of their bounds, where that is
smallest.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Choice, Numeric, Truth, codes_of
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column
from lapwing.sql.question.bound_query import BoundQuery, Key, NoisySum, Sum, count_question
from lapwing.sql.question.expression import Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import limited_work
from lapwing.sql.question.relation import Filter, Scan
from lapwing.sql.question.scope import Catalog
from lapwing.sql.question.typed_expressions import LARGEST, apply, as_number, product_of_codes

Pair = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RegressionVariable:
    """A column of a regression. (code - middle) / reach lies within ±1; one code is `step` units."""

    name: str
    step: Fraction
    middle: int
    reach: int


@dataclass(frozen=True, slots=True)
class RegressionSums:
    """The sums that least squares need, as a question without outputs.

    Its parts are n, then Σ z for each variable, then Σ z z' for each of `pairs`, with z = code - middle,
    over the rows in which no variable is NULL.
    """

    question: BoundQuery
    variables: tuple[RegressionVariable, ...]
    pairs: tuple[Pair, ...]


def regression_sums(policy: CheckedPolicy, table: str, columns: Sequence[str]) -> RegressionSums:
    """Build the question for these columns, all different. Nothing is read."""
    own = private_table(policy, table)
    if len({name.lower() for name in columns}) < len(columns):
        raise BadParameter("columns", "must name each column once")
    declared = [_column(own, name) for name in columns]
    with limited_work():
        numbers = [_number(column) for column in declared]
        known = [_is_known(column) for column in declared]
        return _moments(
            Catalog(policy).private_scan(own), [column.name for column in declared], numbers, known
        )


def _moments(
    scan: Scan, names: Sequence[str], numbers: Sequence[Expression], known: Sequence[Expression]
) -> RegressionSums:
    variables = tuple(_variable(*column) for column in zip(names, numbers, strict=True))
    pairs = tuple((i, j) for i in range(len(numbers)) for j in range(i, len(numbers)))
    sums = [Sum("rows"), *(Sum("sum", number) for number in numbers)]
    sums += [Sum("sum", product_of_codes(numbers[i], numbers[j])) for i, j in pairs]
    parts = [_part("rows", {0: 1}, scan.rows, 1)]
    for i, variable in enumerate(variables):
        label = f"sum of {variable.name} around its middle"
        parts.append(_part(label, {1 + i: 1, 0: -variable.middle}, scan.rows, variable.reach))
    for place, (i, j) in enumerate(pairs, start=1 + len(variables)):
        a, b = variables[i], variables[j]
        factors = {place: 1, 0: a.middle * b.middle}
        for at, middle in ((1 + i, b.middle), (1 + j, a.middle)):
            factors[at] = factors.get(at, 0) - middle
        parts.append(_part(f"products of {a.name} and {b.name}", factors, scan.rows, a.reach * b.reach))
    source = Filter(scan, apply(Op.AND, *known))
    question = BoundQuery(source, (), ((),), tuple(sums), tuple(parts), (), (), scan.rows)
    return RegressionSums(question, variables, pairs)


def _part(label: str, factors: dict[int, int], rows: int, reach: int) -> NoisySum:
    l1 = rows * reach
    if l1 >= LARGEST:
        raise BadParameter("columns", "one person could move the sums too far: declare coarser steps")
    combination = tuple((factor, place) for place, factor in sorted(factors.items()) if factor)
    return NoisySum(label, combination, l1, l1 * l1)


def _variable(name: str, number: Expression) -> RegressionVariable:
    assert isinstance(number.kind, Numeric)
    first, last = number.kind.bounds
    middle = (first + last) // 2
    return RegressionVariable(name, number.kind.step, middle, max(last - middle, middle - first, 1))


def _number(column: Column) -> Expression:
    if not isinstance(column.kind, Numeric | Truth):
        raise BadParameter("column", f'"{column.name}" is no number: declare low, high and step for it')
    number = as_number(Reference(column.name, column.kind))
    assert isinstance(number.kind, Numeric)
    if not number.kind.is_bounded:
        raise BadParameter("column", f'"{column.name}" has no bounds: declare low and high')
    return number


def _is_known(column: Column) -> Expression:
    return apply(Op.NOT, apply(Op.IS_NULL, Reference(column.name, column.kind)))


def ordered_column(policy: CheckedPolicy, table: str, column: str) -> tuple[Column, range]:
    """Return a column and all its codes. It must have an order and bounds."""
    own = _column(private_table(policy, table), column)
    codes = None if isinstance(own.kind, Choice | Truth) else codes_of(own.kind)
    if codes is None or len(codes) < 2:
        raise BadParameter("column", f'"{column[:60]}" needs an order and bounds: declare low and high')
    return own, codes


def rows_below(policy: CheckedPolicy, table: str, column: str, code: int) -> BoundQuery:
    """Build the question how many rows are at or below a code, and how many above. NULL is not counted."""
    own = private_table(policy, table)
    declared = _column(own, column)
    scan = Catalog(policy).private_scan(own)
    with limited_work():
        above = apply(Op.GT, Reference(declared.name, declared.kind), Constant(code, declared.kind))
        as_code = apply(Op.FROM_TRUTH, above, kind=Numeric(Fraction(1), 0, 1))
        coded = apply(Op.SCALE, as_code, kind=Choice((False, True)), parameter=1)
    return count_question(scan, "rows at or below, and above", scan.rows, Key("above", coded, range(2)))


def private_table(policy: CheckedPolicy, table: str) -> CheckedTable:
    """Return the private table of this name, in upper or lower case."""
    by_name = {name.lower(): own for name, own in policy.tables.items() if not own.is_public}
    return _named(by_name, table, "table")


def _column(own: CheckedTable, name: str) -> Column:
    return _named({column.name.lower(): column for column in own.columns.values()}, name, "column")


def _named(known: dict[str, T], name: str, what: str) -> T:
    if name.lower() in known:
        return known[name.lower()]
    near = difflib.get_close_matches(name.lower(), known, 1)
    hint = f'Did you mean "{near[0]}"?' if near else f"Declared are {', '.join(sorted(known)) or 'none'}"
    raise BadParameter(what, f'there is no {what} "{name[:60]}". {hint}'[:300])
