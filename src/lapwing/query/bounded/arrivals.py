"""Who arrived when: where blocks are the months in which units are first taken in, one table of the copy.

Claim    a unit keeps its block for ever: nobody whom the ledger has ever known in this data gets another.
Because  units of the last copy keep theirs, and no copy is made unless everybody whom the ledger was told
         of is among them: a last copy that is lost, of another engine or an older one stops the preparing.
Test     tests/query/test_prepare_arrivals.py

The table lies in the prepared copy only, so that folder (and the schema in a server) is to be backed up
with the ledger. Beyond 2^20 people the ledger holds a random share of them; there the number of its
version, which every copy notes, finds older copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lapwing.engines.engine import Engine, EngineFailed
from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger import Ledger
from lapwing.ledger import data as data_sets
from lapwing.ledger.people import Ids
from lapwing.query.bounded.ids import Ids as UnitIds
from lapwing.query.bounded.prepared import Prepared
from lapwing.query.language.relation import UNIT
from lapwing.query.policies.policy import Policy

ARRIVALS = "lapwing_arrivals"  # units and the period in which each was first seen


@dataclass(frozen=True, slots=True, eq=False)
class KnownPeople:
    """What the ledger knows of a data set: its version, and whether ids hold all whom it ever had."""

    version: int
    has_everybody: Callable[[Ids], bool]


def known_people(ledger: Ledger, policy: Policy) -> KnownPeople | None:
    """Of a policy's data, if the ledger was told of it."""
    try:
        data = data_sets.find(ledger, policy.name)
    except BadParameter:
        return None
    return KnownPeople(data.version, lambda ids: data_sets.has_everybody(ledger, policy.name, units=ids))


def is_by_arrival(policy: Policy) -> bool:
    """Whether a unit's block is the period of its arrival, which nothing but the copy knows."""
    blocks = policy.blocks
    return blocks is not None and blocks.by == "unit" and not blocks.cohorts


def lost(policy: Policy) -> Unavailable:
    """To be raised: where people would get another block, and with it a whole budget."""
    return Unavailable(
        f"which block a person belongs to is known from the last copy alone ({policy.path.stem}.prepared, "
        "and its schema in a server), and that is lost, of another engine, or older than what the ledger "
        "knows. Nothing was changed. Restore it from a backup; or give the data a new name in [dataset]: "
        "then what it costs is charged to everybody of the old account as well"
    )


def require_kept(
    policy: Policy, known: KnownPeople | None, engine: Engine, relation: str | None, before: Prepared | None
) -> None:
    """Refuse unless everybody whom the ledger knows has a block in the last copy (None: there is none)."""
    if policy.folds_ids and before is not None and not (before.folds or before.has_whole_units):
        why = "cannot become folded: people of one folded id may have arrived in different months"
        raise BadParameter("dataset.ids", why)
    if known is None:
        return
    if relation is None or before is None:
        raise lost(policy)
    if before.follows is not None and before.follows < known.version - 1:
        raise lost(policy)
    try:
        has_everybody = known.has_everybody(_ids(engine, relation, before))
    except EngineFailed:
        raise lost(policy) from None
    if not has_everybody:
        raise lost(policy)


def _ids(engine: Engine, relation: str, copy: Prepared) -> Iterator[Any]:
    """Everybody in it, by all names under which the ledger may have been told of them: of decimals, which
    may have become texts since, it was told the rounded ones."""
    units = [UNIT]
    if not copy.has_whole_units:
        units.append(UnitIds(engine.spelling, whole=False, decimals=True).folded(UNIT))
    statement = " UNION ALL ".join(f"SELECT {unit} AS u FROM {relation}" for unit in units)  # noqa: S608
    for batch in engine.stream(statement):
        column = batch.column(0)
        if pa.types.is_integer(column.type):
            yield column.to_numpy(zero_copy_only=False)
        else:
            yield from column.to_pylist()
