"""Sentences on how many rows of a person an answer uses, and on what that leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote

from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows
from lapwing.sql.policy.policy import CheckedPolicy, has_blocks_by_arrival
from lapwing.sql.question.bound_query import (
    BoundQuery,
)
from lapwing.sql.question.relation import (
    RANK,
    Filter,
    Project,
    Scan,
    contribution_bound,
    filters_rows,
    scans_of,
)

# Sentences


@dataclass(frozen=True, slots=True)
class TruncationAnswer:
    """The last released answer about truncated rows.

    Args:
        rows: Its numbers, with intervals.
        beyond: How many truncated rows of a person it counts at most; None if it counts only people.
        position: The number of its receipt.
    """

    rows: AnswerRows
    beyond: int | None
    position: int


NOBODY_LEFT_OUT = " That leaves out nobody: one row is enough to be counted."
FindTruncation = Callable[[str, int], TruncationAnswer | None]  # by table and contribution bound


def truncation_sentences(
    policy: CheckedPolicy, question: BoundQuery, find: FindTruncation | None
) -> list[str]:
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


def each_unit(policy: CheckedPolicy, table: str) -> str:
    """Return in words the privacy unit whose rows are bounded."""
    if policy.protects == "row":
        unit = policy.tables[table].unit
        return f"each {unit.column}" if unit is not None and unit.column else "each of them"
    if policy.blocks is not None and policy.blocks.by == "row":
        return f"each person in each {policy.blocks.every}"
    return "each person"


def _used(policy: CheckedPolicy, scan: Scan, *, has_where: bool) -> str:
    when = ", chosen before WHERE" if has_where else ""
    when = ", chosen among those that WHERE keeps" if scan.where is not None else when
    return f'Uses at most {_rows(scan.rows)} of {each_unit(policy, scan.table)} in "{scan.table}"{when}.'


def _rows(number: int) -> str:
    return f"{number:,} row{'s' if number != 1 else ''}"


def _truncated(policy: CheckedPolicy, scan: Scan, find: FindTruncation) -> str:
    """Return what is known about truncated rows of a table, or the command that releases it."""
    lowers = scan.rows < policy.tables[scan.table].rows_per_unit
    rows = _reads_source(policy)
    if policy.is_in_code:
        options = (f", rows={scan.rows}" if lowers else "") + (", beyond=100" if rows else "")
        command = f'`dataset.truncated("{scan.table}"{options}, epsilon=…)`'
    else:
        options = (f" --rows {scan.rows}" if lowers else "") + (" --beyond 100" if rows else "")
        command = f"`lapwing truncated {quote(policy.path.name)} {scan.table}{options} --epsilon …`"
    stored = find(scan.table, scan.rows)
    if stored is None:
        return f" What that leaves out can be bought: {command}"
    columns = {column.name: column for column in stored.rows.columns}
    here = "; with WHERE first, as many or fewer" if scan.where is not None else ""
    if stored.beyond is None:
        people = _about(columns["people_with_more_rows"], "people")
        more = f" Rows can be bought: {command}" if rows else ""
        return f" About {people} have more (receipt {stored.position}){here}.{more}"
    left, counted = columns["rows_left_out"], columns["rows_that_count"]
    total, each = left.values[0] + counted.values[0], each_unit(policy, scan.table)
    return (
        f" Of the whole table, about {_about(left, 'rows')} of {total:,.0f} are left out{here} (receipt "
        f"{stored.position}). That counts at most {stored.beyond:,} more of {each}: if some have still "
        "more, more are left out."
    )


def _about(column: AnswerColumn, what: str) -> str:
    assert column.low is not None
    assert column.high is not None
    return f"{column.values[0]:,.0f} {what} ({column.low[0]:,.0f} to {column.high[0]:,.0f})"


def _counts_truncation(policy: CheckedPolicy, scan: Scan, question: BoundQuery) -> str:
    """Describe a question that itself counts truncated rows or people."""
    if scan.where is None:
        return f'Counts who has more than {_rows(scan.rows - 1)} in "{scan.table}".'
    beyond = question.parts[0].l1
    return (
        f'Counts rows of "{scan.table}" beyond the first {_rows(scan.rows - beyond)} of '
        f"{each_unit(policy, scan.table)}, at most {beyond:,} of each: of whoever has still more, not all."
    )


def _reads_source(policy: CheckedPolicy) -> bool:
    """Return whether truncated rows can be counted although there is a copy: see `Reader.open`."""
    engines = {table.source.engine for table in policy.tables.values() if not table.is_public}
    return engines == {"duckdb"} and not has_blocks_by_arrival(policy)


def _has_unit(policy: CheckedPolicy, scan: Scan) -> bool:
    unit = policy.tables[scan.table].unit
    return unit is not None and bool(unit.column)


def _counts_people(question: BoundQuery) -> bool:
    """Return whether one row of a person is as good as all: people are counted in one group, unfiltered."""
    source = question.source
    while isinstance(source, Project):
        source = source.source
    only_units = all(total.function == "units" for total in question.sums) and not question.spectra
    return isinstance(source, Scan) and not question.keys and only_units
