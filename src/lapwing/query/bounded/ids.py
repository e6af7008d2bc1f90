"""How units are told apart in a policy's private tables: by the exact id, unless the policy folds ids.

Claim    rows of different ids are rows of different units (but where the policy asks to fold ids); and a
         person keeps the cohort, the block and the place in the ledger's sketches of earlier versions.
Because  whole numbers and decimals are compared by value, texts by code point, and what cannot be told
         apart exactly (floats, texts of more than a million bytes) is refused, or nobody's. Those versions
         folded every id. Cohorts, blocks of arrival and sketches go by the folded id still: it follows from
         the exact one, so that it is the unit's own. docs/arguments/ranks.md.
Test     tests/query/test_ids.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from lapwing.engines.spelling import Spelling
from lapwing.query.bounded.coded_columns import Source
from lapwing.query.policies.policy import Policy

SHORT = 10**15 - 1  # the greatest whole number that `parse_whole` reads
_BROKEN = "-?[0-9]+[.][0-9]+"


@dataclass(frozen=True, slots=True)
class Ids:
    """Units are whole numbers if ids are so in all tables, else texts in all: one person has one name.

    `decimals`: in some table ids are decimals, which those versions rounded.
    """

    spelling: Spelling
    whole: bool
    decimals: bool

    @classmethod
    def of(cls, policy: Policy, spelling: Spelling, types: Mapping[str, Mapping[str, str]]) -> Ids:
        """From the types of the private tables' columns."""
        own = [
            (Source(spelling, types[table.name], table.name), table.unit.in_source)
            for table in policy.tables.values()
            if table.unit and table.unit.column and not table.unit.through
        ]
        return cls(
            spelling,
            all(source.is_whole(column) for source, column in own),
            any(source.is_decimal(column) for source, column in own),
        )

    def folded(self, unit: str) -> str:
        """A unit without spaces around it and with small ASCII letters; decimals are rounded."""
        if self.whole:
            return unit
        spelling = self.spelling
        text = spelling.lower(spelling.trim(unit))
        if not self.decimals:
            return text
        kind = spelling.text_type
        number = spelling.clamped_steps(unit, kind, step=Fraction(1), first=-SHORT, last=SHORT)
        rounded = spelling.plain_text(spelling.whole(number, SHORT), "bigint")
        return f"CASE WHEN {spelling.matches(unit, _BROKEN)} THEN {rounded} ELSE {text} END"
