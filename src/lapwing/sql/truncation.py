"""Truncation: questions about truncated rows, and sentences on how many rows of a person are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from shlex import quote

from lapwing.config.values import checked_count
from lapwing.errors import BadParameter
from lapwing.sql.answers import Answer
from lapwing.sql.binding.typed_expressions import apply, as_number
from lapwing.sql.bound_query import BoundQuery, NoisyAggregate, NoisySum, Output, Sum, count_question
from lapwing.sql.estimates import AnswerColumn
from lapwing.sql.expression import Constant, Numeric, Op, Reference, Truth
from lapwing.sql.policy import Policy
from lapwing.sql.preliminary_questions import private_table
from lapwing.sql.relation import RANK, Filter, Project, Scan, contribution_bound, filters_rows, scans_of
from lapwing.sql.truncated.prepare import has_blocks_by_arrival

ROWS_BEYOND = (10, 100, 1_000, 10_000, 100_000)  # the most rows of a person beyond the bound to count
_SIDE = Fraction(1, 8)  # the weight of the two other numbers: each gets about a sixth of ε


# Questions


def checked_beyond(beyond: int) -> int:
    """Require one of the numbers `ROWS_BEYOND`: few, so that stored answers can be found again."""
    if isinstance(beyond, bool) or beyond not in ROWS_BEYOND:
        raise BadParameter("beyond", f"must be one of {', '.join(map(str, ROWS_BEYOND))}")
    return beyond


def truncated_people_question(policy: Policy, table: str, rows: int | None = None) -> BoundQuery:
    """Build the question how many people exceed the bound K: each has one row of rank K + 1."""
    own = private_table(policy, table)
    over = (rows or own.rows_per_unit) + 1
    rank = Numeric(Fraction(1), 1, over)
    scan = Scan(table, ((RANK, rank),), over)
    source = Filter(scan, apply(Op.EQ, Reference(RANK, rank), Constant(over, rank)))
    return count_question(source, "people with more rows", 1, name="people_with_more_rows")


def truncated_rows_question(policy: Policy, table: str, beyond: int, rows: int | None = None) -> BoundQuery:
    """Build the question how many rows the bound K truncates, how many it keeps, and of how many people.

    Claim    removing a person moves these by at most `beyond`, K and 1.
    Because  rows are ranked within their person. At most K rows have ranks up to K; at most `beyond` have
             ranks from K + 1 to K + `beyond`, and no others are read; one has rank K + 1.
    Test     tests/sql/test_preliminary_questions_left_out.py
    """
    own = private_table(policy, table)
    if own.unit is not None and not own.unit.column:
        raise BadParameter("table", "has no person with several rows: each row is protected by itself")
    bound = rows or own.rows_per_unit
    last = bound + beyond
    rank = Numeric(Fraction(1), 1, last)
    # This WHERE is always true. It makes the reader rank the source again: a copy has too few rows.
    scan = Scan(table, ((RANK, rank),), last, where=Constant(True, Truth()))

    def counted(op: Op, over: int) -> Sum:
        is_so = apply(op, Reference(RANK, rank), Constant(over, rank))
        return Sum("sum", as_number(is_so))

    sums = (Sum("rows"), counted(Op.GT, bound), counted(Op.EQ, bound + 1))
    parts = (
        NoisySum("rows left out", ((1, 1),), beyond, beyond * beyond),
        NoisySum("rows that count", ((1, 0), (-1, 1)), bound, bound * bound, _SIDE),
        NoisySum("people with more rows", ((1, 2),), 1, 1, _SIDE),
    )
    names = ("rows_left_out", "rows_that_count", "people_with_more_rows")
    outputs = tuple(Output(name, NoisyAggregate("count", (place,))) for place, name in enumerate(names))
    return BoundQuery(scan, (), ((),), sums, parts, (), outputs, last)


def truncation_question(
    policy: Policy, table: str, rows: int | None, beyond: int | None
) -> tuple[BoundQuery, str, int | None]:
    """Return the question about truncated people (or rows, with `beyond`), its name and lower bound."""
    own = policy.tables.get(table)
    is_lower = rows is not None and checked_count(rows, "rows") < (own.rows_per_unit if own else 0)
    lowered = rows if is_lower else None
    if beyond is None:
        question = truncated_people_question(policy, table, lowered)
        return question, f"people with more rows in {table}", lowered
    if has_blocks_by_arrival(policy):
        raise BadParameter("beyond", "reads the source, and only the copy knows who arrived when")
    question = truncated_rows_question(policy, table, checked_beyond(beyond), lowered)
    return question, f"rows left out of {table}, at most {beyond} of a person", lowered


def possible_beyond(policy: Policy) -> tuple[int, ...]:
    """Return the numbers of truncated rows of a person that can be counted under a policy."""
    return () if has_blocks_by_arrival(policy) else ROWS_BEYOND


# Sentences


@dataclass(frozen=True, slots=True)
class TruncationAnswer:
    """The last released answer about truncated rows.

    `beyond` is how many truncated rows of a person it counts at most; None if it counts only people.
    """

    answer: Answer
    beyond: int | None

    @property
    def position(self) -> int:
        """The number of its receipt."""
        return 0 if self.answer.receipt is None else self.answer.receipt.position


NOBODY_LEFT_OUT = " That leaves out nobody: one row is enough to be counted."
FindTruncation = Callable[[str, int], TruncationAnswer | None]  # by table and contribution bound


def truncation_sentences(policy: Policy, question: BoundQuery, find: FindTruncation | None) -> list[str]:
    """Return one sentence for each table and contribution bound, and one for joins and unions.

    `find` returns the last released answer about truncated rows. Without it, truncated rows are not
    mentioned.
    """
    scans = scans_of(question.source)
    if any(name == RANK for scan in scans for name, _ in scan.columns):
        return [_counts_truncation(policy, scans[0], question)]
    # Scans that agree in these three get the same sentence.
    alike = {(scan.table, scan.rows, scan.where is None): scan for scan in scans}
    source = question.source
    if len(question.sets) > 1 and isinstance(source, Filter):
        source = source.source  # that filter is ours: all groupings see the same rows
    has_where = filters_rows(source)
    lines = []
    for scan in alike.values():
        if not _has_unit(policy, scan):
            lines.append(f'Uses every row of "{scan.table}": each row is protected by itself.')
            continue
        more = "" if find is None else _truncated(policy, scan, find)
        more = NOBODY_LEFT_OUT if _counts_people(question) else more
        lines.append(f"{_used(policy, scan, has_where=has_where)}{more}")
    most = contribution_bound(question.source)
    if most > max(scan.rows for scan in scans):
        each = each_unit(policy, scans[0].table)
        lines.append(f"Joined or united, these are at most {most:,} rows of {each}.")
    return lines


def each_unit(policy: Policy, table: str) -> str:
    """Return in words the privacy unit whose rows are bounded."""
    if policy.protects == "row":
        unit = policy.tables[table].unit
        return f"each {unit.column}" if unit is not None and unit.column else "each of them"
    if policy.blocks is not None and policy.blocks.by == "row":
        return f"each person in each {policy.blocks.every}"
    return "each person"


def _used(policy: Policy, scan: Scan, *, has_where: bool) -> str:
    when = ", chosen before WHERE" if has_where else ""
    when = ", chosen among those that WHERE keeps" if scan.where is not None else when
    return f'Uses at most {_rows(scan.rows)} of {each_unit(policy, scan.table)} in "{scan.table}"{when}.'


def _rows(number: int) -> str:
    return f"{number:,} row{'s' if number != 1 else ''}"


def _truncated(policy: Policy, scan: Scan, find: FindTruncation) -> str:
    """Return what is known about truncated rows of a table, or the command that releases it."""
    lowered = f" --rows {scan.rows}" if scan.rows < policy.tables[scan.table].rows_per_unit else ""
    rows = " --beyond 100" if _reads_source(policy) else ""
    command = f"`lapwing truncated {quote(policy.path.name)} {scan.table}{lowered}{rows} --epsilon …`"
    found = find(scan.table, scan.rows)
    if found is None:
        return f" What that leaves out can be bought: {command}"
    columns = {column.name: column for column in found.answer.columns}
    here = "; with WHERE first, as many or fewer" if scan.where is not None else ""
    if found.beyond is None:
        people = _about(columns["people_with_more_rows"], "people")
        more = f" Rows can be bought: {command}" if rows else ""
        return f" About {people} have more (receipt {found.position}){here}.{more}"
    left, counted = columns["rows_left_out"], columns["rows_that_count"]
    total, each = left.values[0] + counted.values[0], each_unit(policy, scan.table)
    return (
        f" Of the whole table, about {_about(left, 'rows')} of {total:,.0f} are left out{here} (receipt "
        f"{found.position}). That counts at most {found.beyond:,} more of {each}: if some have still more, "
        "more are left out."
    )


def _about(column: AnswerColumn, what: str) -> str:
    assert column.low is not None
    assert column.high is not None
    return f"{column.values[0]:,.0f} {what} ({column.low[0]:,.0f} to {column.high[0]:,.0f})"


def _counts_truncation(policy: Policy, scan: Scan, question: BoundQuery) -> str:
    """Describe a question that itself counts truncated rows or people."""
    if scan.where is None:
        return f'Counts who has more than {_rows(scan.rows - 1)} in "{scan.table}".'
    beyond = question.parts[0].l1
    return (
        f'Counts rows of "{scan.table}" beyond the first {_rows(scan.rows - beyond)} of '
        f"{each_unit(policy, scan.table)}, at most {beyond:,} of each: of whoever has still more, not all."
    )


def _reads_source(policy: Policy) -> bool:
    """Return whether truncated rows can be counted although there is a copy: see `Reader.open`."""
    engines = {table.source.engine for table in policy.tables.values() if not table.is_public}
    return engines == {"duckdb"} and not has_blocks_by_arrival(policy)


def _has_unit(policy: Policy, scan: Scan) -> bool:
    unit = policy.tables[scan.table].unit
    return unit is not None and bool(unit.column)


def _counts_people(question: BoundQuery) -> bool:
    """Return whether one row of a person is as good as all: people are counted in one group, unfiltered."""
    source = question.source
    while isinstance(source, Project):
        source = source.source
    only_units = all(one.function == "units" for one in question.sums) and not question.spectra
    return isinstance(source, Scan) and not question.keys and only_units
