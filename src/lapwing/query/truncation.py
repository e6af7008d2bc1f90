"""What answers say about the rows that they are made of: how many of a person count, what is left out.

All of it is the text, the policy and released values: nothing here reads a private row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from lapwing.query.bounded.arrivals import is_by_arrival
from lapwing.query.language.question import Question
from lapwing.query.language.relation import (
    RANK,
    Filter,
    Join,
    PerUnit,
    Project,
    Relation,
    Scan,
    UnionAll,
    rows_of,
    scans_of,
)
from lapwing.query.policies.policy import Policy

if TYPE_CHECKING:
    from lapwing.query.answering.answer import Answer
    from lapwing.query.answering.estimate import Col


@dataclass(frozen=True, slots=True)
class Bought:
    """The last answer about what a bound leaves out. It tells of rows, up to `beyond` more of a person."""

    answer: Answer
    beyond: int | None  # None: only of people

    @property
    def position(self) -> int:
        """Its receipt's place in the ledger."""
        return 0 if self.answer.receipt is None else self.answer.receipt.position


NOBODY = " That leaves out nobody: one row is enough to be counted."
FindBought = Callable[[str, int], Bought | None]  # of a table and a bound


def truncation(policy: Policy, question: Question, bought: FindBought | None) -> list[str]:
    """Sentences: one for each table and bound, and one for what joins and unions make of them.

    Without `bought` nothing is said of what is left out.
    """
    scans = scans_of(question.source)
    if any(name == RANK for scan in scans for name, _ in scan.columns):
        return [_about_truncation(policy, scans[0], question)]
    # Of scans that differ in what else they say, the same is to be said.
    alike = {(scan.table, scan.rows, scan.where is None): scan for scan in scans}
    source = question.source
    if len(question.sets) > 1 and isinstance(source, Filter):
        source = source.source  # that filter is ours: all groupings see the same rows
    has_where = _filters_rows(source)
    lines = []
    for scan in alike.values():
        if not _has_unit(policy, scan):
            lines.append(f'Uses every row of "{scan.table}": each row is protected by itself.')
            continue
        more = "" if bought is None else _left_out(policy, scan, bought)
        more = NOBODY if _counts_people(question) else more
        lines.append(f"{_used(policy, scan, has_where=has_where)}{more}")
    most = rows_of(question.source)
    if most > max(scan.rows for scan in scans):
        each = each_unit(policy, scans[0].table)
        lines.append(f"Joined or united, these are at most {most:,} rows of {each}.")
    return lines


def each_unit(policy: Policy, table: str) -> str:
    """Whose rows are bounded, in words."""
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


def _left_out(policy: Policy, scan: Scan, bought: FindBought) -> str:
    """What was bought about it, or how to buy it."""
    lowered = f" --rows {scan.rows}" if scan.rows < policy.tables[scan.table].rows_per_unit else ""
    rows = " --beyond 100" if _reads_source(policy) else ""
    command = f"`lapwing dropped {quote(policy.path.name)} {scan.table}{lowered}{rows} --epsilon …`"
    found = bought(scan.table, scan.rows)
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


def _about(column: Col, what: str) -> str:
    assert column.low is not None
    assert column.high is not None
    return f"{column.values[0]:,.0f} {what} ({column.low[0]:,.0f} to {column.high[0]:,.0f})"


def _about_truncation(policy: Policy, scan: Scan, question: Question) -> str:
    """What a question about ranks counts."""
    each = each_unit(policy, scan.table)
    if scan.where is None:
        return f'Counts who has more than {_rows(scan.rows - 1)} in "{scan.table}".'
    beyond = question.parts[0].l1
    first = _rows(scan.rows - beyond)
    return (
        f'Counts rows of "{scan.table}" beyond the first {first} of {each}, at most {beyond:,} of each: '
        "of whoever has still more, not all."
    )


def _reads_source(policy: Policy) -> bool:
    """Whether rows beyond the bound can be counted also beside a copy: see `Reader.open`."""
    engines = {table.source.engine for table in policy.tables.values() if not table.is_public}
    return engines == {"duckdb"} and not is_by_arrival(policy)


def _has_unit(policy: Policy, scan: Scan) -> bool:
    unit = policy.tables[scan.table].unit
    return unit is not None and bool(unit.column)


def _filters_rows(relation: Relation) -> bool:
    """Whether a condition stands on rows of a table, and not only on what people's rows come to."""
    match relation:
        case Filter(source):
            return not isinstance(source, PerUnit) or _filters_rows(source)
        case Project(source) | PerUnit(source):
            return _filters_rows(source)
        case Join(left, right):
            return _filters_rows(left) or _filters_rows(right)
        case UnionAll(sources):
            return any(map(_filters_rows, sources))
        case _:
            return False


def _counts_people(question: Question) -> bool:
    """Whether one row of a person is as good as all: people are counted, in one group, and no row of the
    table is passed over after the bound."""
    source = question.source
    while isinstance(source, Project):
        source = source.source
    only_units = all(one.function == "units" for one in question.sums) and not question.spectra
    return isinstance(source, Scan) and not question.keys and only_units
