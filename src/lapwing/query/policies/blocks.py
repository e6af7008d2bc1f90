"""Blocks of a policy: what they are called, and by which rule units or rows are put into them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from lapwing.query.language.kinds import MONTHS, Period
from lapwing.query.policies.policy import Blocks


def rule_of(blocks: Blocks | None) -> str:
    """The rule, in words that two policies share only if they slice alike."""
    if blocks is None:
        return ""
    if blocks.by == "row":
        return f"rows by {blocks.column}, every {blocks.every}"
    return (
        f"{blocks.cohorts} cohorts of units" if blocks.cohorts else f"units by their first {blocks.every}"
    )


def block_label(blocks: Blocks, code: int) -> str:
    """What a block is called: a cohort's number, or the beginning of a period."""
    if blocks.by == "unit" and blocks.cohorts:
        return str(code)
    if blocks.every in MONTHS:
        start = Period(MONTHS[blocks.every], code, code).value(code)
        return f"{start.year:04d}" if blocks.every == "year" else f"{start.year:04d}-{start.month:02d}"
    days = code * (7 if blocks.every == "week" else 1)
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def codes_of_blocks(blocks: Blocks) -> range:
    """All blocks that the policy declares. Those of arriving units open as they arrive."""
    if blocks.by == "unit":
        return range(blocks.cohorts)
    return range(blocks.first, blocks.last + 1)


def block_labels(blocks: Blocks, codes: Iterable[int] | None = None) -> list[str]:
    """The names of some blocks, or of all."""
    return [block_label(blocks, code) for code in (codes_of_blocks(blocks) if codes is None else codes)]
