"""Blocks of a policy: what they are called, and by which rule units or rows are put into them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from hashlib import sha256

from lapwing.query.language.kinds import MONTHS, SECONDS, Period
from lapwing.query.policies.policy import Blocks, Policy

EPOCH = date(1970, 1, 1)


def rule_of(policy: Policy) -> str:
    """The rule, in words that two policies share only if they slice alike."""
    blocks = policy.blocks
    if blocks is None:
        return ""
    if blocks.by == "row":
        return f"rows by {blocks.column}, every {blocks.every}"
    if not blocks.cohorts:
        # In other data the same people arrive at other times: only this data slices as it does.
        return f"units by their first {blocks.every} in {policy.name}"
    rows = [table for table in policy.tables.values() if table.unit is not None and not table.unit.column]
    if not rows:
        return f"{blocks.cohorts} cohorts of units"
    # Rows that are their own units are told apart by their codes: with others they would move.
    coded = sorted((t.name, sorted((c.name, repr(c.coding)) for c in t.columns.values())) for t in rows)
    return f"{blocks.cohorts} cohorts of rows, coded as {sha256(repr(coded).encode()).hexdigest()[:16]}"


def period_of(every: str, day: int) -> int:
    """The block of a row: the whole periods from 1970 to its day. Weeks begin on Thursdays, as 1970 did."""
    if every in MONTHS:
        then = EPOCH + timedelta(days=day)
        return ((then.year - EPOCH.year) * 12 + then.month - 1) // MONTHS[every]
    return day // days_in(every)


def days_in(every: str) -> int:
    """Of a period that is no number of months."""
    return SECONDS[every] // SECONDS["day"]


def block_label(blocks: Blocks, code: int) -> str:
    """What a block is called: a cohort's number, or the beginning of a period."""
    if blocks.by == "unit" and blocks.cohorts:
        return str(code)
    if blocks.every in MONTHS:
        start = Period(MONTHS[blocks.every], code, code).value(code)
        return f"{start.year:04d}" if blocks.every == "year" else f"{start.year:04d}-{start.month:02d}"
    return (EPOCH + timedelta(days=code * days_in(blocks.every))).isoformat()


def codes_of_blocks(blocks: Blocks) -> range:
    """All blocks that the policy declares. Those of arriving units open as they arrive."""
    if blocks.by == "unit":
        return range(blocks.cohorts)
    return range(blocks.first, blocks.last + 1)


def block_labels(blocks: Blocks, codes: Iterable[int] | None = None) -> list[str]:
    """The names of some blocks, or of all."""
    return [block_label(blocks, code) for code in (codes_of_blocks(blocks) if codes is None else codes)]
