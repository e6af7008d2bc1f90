"""Bounded rows for training: the result of a SELECT without a final aggregate, read after a charge.

Claim    no unit has more than `RowQuestion.rows` rows. Removing a unit leaves the rows of all other units
         unchanged. No row comes from a block that was not named.
Because  a row question is a relation (lapwing.sql.question.relation), bound as sub-queries are, and every
         scan in it names the blocks that it may read.
Test     tests/sql/test_row_questions.py

Rows are private. They are read inside work that is charged first, and only the output of a mechanism
leaves. They come in no particular order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.ledger import Gate, Ledger, Target
from lapwing.ledger.request_status import RequestState
from lapwing.sql.curator import Curator
from lapwing.sql.policy.kinds import MONTHS, Kind, Numeric, Person, Text
from lapwing.sql.policy.policy import (
    EPOCH,
    BlockRule,
    CheckedPolicy,
    block_label,
    codes_of_blocks,
    period_of,
)
from lapwing.sql.question.analysis import require_small_rows
from lapwing.sql.question.from_clause import RelationBinder
from lapwing.sql.question.meaning import rows_digest
from lapwing.sql.question.parse import normal_form, parse
from lapwing.sql.question.refusal import Refused, limited_work
from lapwing.sql.question.relation import (
    Project,
    Relation,
    blocks_of,
    contribution_bound,
    only_blocks,
    scans_of,
)
from lapwing.sql.question.scope import Catalog

MOST_COLUMNS = 1000
Wholes = NDArray[np.int64]
Truths = NDArray[np.bool_]
DecideHalves = Callable[[Any], Truths]


class AnalystSession(Protocol):
    """A session: the curator of the data, and the name of the analyst. `Dataset` is one."""

    @property
    def curator(self) -> Curator:
        """The curator of the data."""

    @property
    def analyst(self) -> str:
        """The name under which the analyst is charged."""


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """A question for rows. `rows` is the contribution bound; `columns` gives the meaning of the codes."""

    sql: str
    relation: Relation
    columns: Mapping[str, Kind]
    rows: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CodedColumn:
    """A column of codes, 0 where the value is NULL. `known` is False there."""

    codes: Wholes
    known: Truths


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PrivateRows:
    """Private rows with the unit and block of each row.

    `units` are numbers from 0 that have no meaning beyond these rows. `blocks` are codes. If rows are
    sliced by time, a unit is a person in one period. `people` is each row's index into `ids`. The ids are
    never shown: they only decide which people train and which test.
    """

    units: Wholes
    blocks: Wholes
    columns: Mapping[str, CodedColumn]
    people: Wholes = field(default_factory=lambda: np.zeros(0, np.int64))
    ids: Any = ()

    def __len__(self) -> int:
        return len(self.units)

    def tests(self, decide: DecideHalves) -> Truths:
        """Return which rows belong to the testing half, as `decide` says for the distinct ids.

        Claim    a row's half is a function of its person (or, where each row is a unit, of its content).
        Because  only distinct ids are handed over, and nothing else.
        """
        chosen: Truths = np.asarray(decide(self.ids), dtype=np.bool_)
        if chosen.shape != (len(self.ids),):
            raise BadParameter("halves", "must be one truth for each id")
        return chosen[self.people]

    def where(self, kept: Truths) -> PrivateRows:
        """Return the rows for which `kept` is true."""
        columns = {
            name: CodedColumn(column.codes[kept], column.known[kept])
            for name, column in self.columns.items()
        }
        return PrivateRows(self.units[kept], self.blocks[kept], columns, self.people[kept], self.ids)


def bind_rows(sql: Any, catalog: Catalog) -> RowQuestion:
    """Bind a SELECT to a question for rows. Nothing is read. Raises `Refused`, with the position."""
    tree = parse(sql)
    with limited_work():
        bound = RelationBinder(catalog).query(tree, {})
    outputs = []
    for n, (name, expression) in enumerate(bound.columns.items()):
        _require_coded(name, expression.kind)
        outputs.append((f"lapwing_f{n}", expression))
    if not outputs or len(outputs) > MOST_COLUMNS:
        raise Refused(f"there must be 1 to {MOST_COLUMNS} columns", "Name what is to be learned from")
    relation = Project(bound.relation, tuple(outputs))
    require_small_rows(relation, catalog.policy, catalog.public)
    kinds = {name: expression.kind for name, expression in bound.columns.items()}
    return RowQuestion(normal_form(tree), relation, kinds, contribution_bound(relation))


def _require_coded(name: str, kind: Kind) -> None:
    if isinstance(kind, Person):
        raise Refused(f'"{name[:60]}" tells people apart: it is no feature', "Name the other columns")
    if isinstance(kind, Text):
        raise Refused(
            f'"{name[:60]}" is a text without declared values: it is no feature',
            "Declare its values, have them found privately, or leave it out",
        )
    if isinstance(kind, Numeric) and not kind.is_bounded:
        raise Refused(f'"{name[:60]}" has no bounds', "Declare bounds, or have them found privately")


def row_question(session: AnalystSession, sql: Any) -> RowQuestion:
    """Bind a SELECT over the tables of a data set's policy. See `bind_rows`."""
    return bind_rows(sql, session.curator.catalog())


# Blocks


def blocks_to_charge(
    session: AnalystSession, question: RowQuestion, blocks: Sequence[str] | None
) -> list[str] | None:
    """Return the blocks to charge: those named, or all that the question reaches. None: no blocks."""
    if blocks is None:
        return session.curator.blocks_reached(question.relation)
    declared = session.curator.policy.blocks
    if declared is None:
        raise BadParameter("blocks", "there are none in the policy")
    allowed, codes = blocks_of(question.relation), codes_of_block_labels(declared, blocks)
    return [label for label, code in zip(blocks, codes, strict=True) if allowed is None or code in allowed]


def codes_of_block_labels(blocks: BlockRule, labels: Sequence[str]) -> list[int]:
    """Return the codes of blocks by their names, in the same order."""
    if isinstance(labels, str):
        raise BadParameter("blocks", "must be several names, not one text")
    if len(set(labels)) < len(labels):
        raise BadParameter("blocks", "must name each block once")
    return [_code_of(blocks, label) for label in labels]


def _code_of(blocks: BlockRule, label: str) -> int:
    with suppress(ValueError):  # it may be no number and no date
        if blocks.by == "unit" and blocks.cohorts:
            code = int(label)
        else:
            padded = f"{label}-01-01"[:10] if blocks.every in MONTHS else label
            code = period_of(blocks.every, (date.fromisoformat(padded) - EPOCH).days)
        if block_label(blocks, code) == label and code in (codes_of_blocks(blocks) or [code]):
            return code
    raise BadParameter("blocks", "there is no such block; blocks exist by declaration")


# Charging and reading


def checked_version(session: AnalystSession, question: RowQuestion) -> int:
    """Return the version of the data, or refuse a source or question that cannot be read."""
    return session.curator.checked_version(
        session.analyst, lambda reader: reader.require_plan_of_rows(question.relation)
    )


def version_under(session: AnalystSession, question: RowQuestion, key: str) -> int:
    """Return the version for a request under a key. A stored answer needs no source that can be read."""
    earlier = Gate(session.curator.ledger, principal=session.analyst).find(key)
    if earlier is not None and earlier.state is RequestState.ANSWERED:
        return session.curator.data().version
    return checked_version(session, question)


def targets(
    session: AnalystSession, question: RowQuestion, blocks: Sequence[str] | None = None
) -> tuple[Target, ...]:
    """Return the accounts that reading these rows is charged to: the data's, and the quota."""
    named = blocks_to_charge(session, question, blocks)
    if named == []:
        raise BadParameter("blocks", "reach no rows: there is nothing to learn from")
    return session.curator.targets_of_blocks(session.analyst, named)


def meaning_digest(session: AnalystSession, question: RowQuestion) -> str:
    """Return a digest of all that decides which rows are read, except the private rows themselves."""
    return rows_digest(session.curator.policy, question, question.relation, session.curator.public)


def read_rows(
    session: AnalystSession, question: RowQuestion, blocks: Sequence[str] | None = None
) -> PrivateRows:
    """Read the rows of some blocks (None: of all). Private: call it in a `ChargedRead` only."""
    named = blocks_to_charge(session, question, blocks)
    relation, declared = question.relation, session.curator.policy.blocks
    if declared is not None and named is not None:
        relation = only_blocks(relation, frozenset(codes_of_block_labels(declared, named)))
    with session.curator.reading() as reader:
        return decode_rows(session.curator.policy, question, reader.rows(relation))


def half_key(ledger: Ledger) -> bytes:
    """Return the secret that assigns each person to training or testing, for the ledger's whole life."""
    return hashlib.blake2b(key=ledger.keys.people, digest_size=32, person=b"lapwing halves").digest()


def decode_rows(policy: CheckedPolicy, question: RowQuestion, table: pa.Table) -> PrivateRows:
    """Decode the table that an engine returned for a row question. Private."""
    sliced = policy.blocks is not None
    blocks = _wholes(table.column("b"))[0] if sliced else np.zeros(table.num_rows, np.int64)
    people, ids = _numbered(table.column("u"))
    if _each_row(policy, question):
        # A row's number among rows of one hash depends on the other rows: its hash does not.
        ids, places = np.unique(np.asarray(ids, np.int64) >> 31, return_inverse=True)
        units, people = people, places.astype(np.int64)[people]
    elif policy.blocks is not None and policy.blocks.by == "row":
        pairs = people * (policy.blocks.last - policy.blocks.first + 1) + (blocks - policy.blocks.first)
        units = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    else:
        units = people
    columns = {
        name: CodedColumn(*_wholes(table.column(f"c{n}"))) for n, name in enumerate(question.columns)
    }
    return PrivateRows(units, blocks, columns, people, ids)


def _each_row(policy: CheckedPolicy, question: RowQuestion) -> bool:
    units = [policy.tables[scan.table].unit for scan in scans_of(question.relation)]
    return any(unit is not None and not unit.column for unit in units)


def _numbered(column: pa.ChunkedArray) -> tuple[Wholes, Any]:
    """Return each row's index into the distinct ids, and these: whole numbers or texts."""
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    places = np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    distinct = coded.dictionary
    if pa.types.is_integer(distinct.type):
        return places, distinct.to_numpy(zero_copy_only=False).astype(np.int64)
    return places, distinct.to_pylist()


def _wholes(column: pa.ChunkedArray) -> tuple[Wholes, Truths]:
    known: Truths = np.asarray(column.is_valid().to_numpy(), dtype=np.bool_)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type):
        filled = column.cast(pa.int64()).fill_null(0)
        return np.asarray(filled.to_numpy(), dtype=np.int64), known
    return np.array([0 if value is None else int(value) for value in column.to_pylist()], np.int64), known
