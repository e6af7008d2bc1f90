"""Preparing: the private tables are coded and ranked once, and stored as a copy beside the policy.

Claim    preparing after each of several batches of files gives the rows and ranks that preparing once does.
Because  a rank depends on the unit's own rows alone: units without new rows keep theirs, and those with
         new rows are ranked anew from the new and the kept ones, whose codes the copy holds: the first
         K + 1 of all rows are among the first K + 1 of the old and the new.
Test     tests/query/test_prepare.py

The source is only read. The copy is complete and on disk before the manifest points to it.

Who arrived when: where blocks are the months in which units are first taken in, one table of the copy.

Claim    a unit keeps its block for ever: nobody whom the ledger has ever known in this data gets another.
Because  units of the last copy keep theirs, and no copy is made unless everybody whom the ledger was told
         of is among them: a last copy that is lost, of another engine or an older one stops the preparing.
Test     tests/query/test_prepare_arrivals.py

The table lies in the prepared copy only, so that folder (and the schema in a server) is to be backed up
with the ledger. Beyond 2^20 people the ledger holds a random share of them; there the number of its
version, which every copy notes, finds older copies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from lapwing.core.noise import random_bytes
from lapwing.engines.engine import Engine, EngineFailed, ReportProgress
from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger import Ledger, data_sets
from lapwing.ledger.unit_ids import Ids
from lapwing.sql.policy import Policy, Source, Table, period_of
from lapwing.sql.relation import BLOCK, RANK, UNIT
from lapwing.sql.truncated.column_codes import UnitIds
from lapwing.sql.truncated.open_sources import FILES, OpenedSources, open_sources, private_tables
from lapwing.sql.truncated.prepared_copy import (
    Files,
    PreparedCopy,
    copy_digest,
    current_copy,
    exclusive_lock,
    files_of,
    has_current_units,
    identities_of,
    last_copy,
    prepared_folder,
    settled_identities,
    sync_to_disk,
)
from lapwing.sql.truncated.truncated_table import FOLDED, TruncatedTable, folded_literal

ARRIVALS = "lapwing_arrivals"  # units and the period in which each was first seen


@dataclass(frozen=True, slots=True, eq=False)
class LedgerPeople:
    """What the ledger knows of a data set: its version, and whether ids hold all whom it ever had."""

    version: int
    has_everybody: Callable[[Ids], bool]


def ledger_people(ledger: Ledger, policy: Policy) -> LedgerPeople | None:
    """Of a policy's data, if the ledger was told of it."""
    try:
        data = data_sets.find_data_set(ledger, policy.name)
    except BadParameter:
        return None
    return LedgerPeople(data.version, lambda ids: data_sets.holds_all_units(ledger, policy.name, units=ids))


def has_blocks_by_arrival(policy: Policy) -> bool:
    """Whether a unit's block is the period of its arrival, which nothing but the copy knows."""
    blocks = policy.blocks
    return blocks is not None and blocks.by == "unit" and not blocks.cohorts


def lost_arrivals(policy: Policy) -> Unavailable:
    """To be raised: where people would get another block, and with it a whole budget."""
    return Unavailable(
        f"which block a person belongs to is known from the last copy alone ({policy.path.stem}.prepared, "
        "and its schema in a server), and that is lost, of another engine, or older than what the ledger "
        "knows. Nothing was changed. Restore it from a backup; or give the data a new name in [dataset]: "
        "then what it costs is charged to everybody of the old account as well"
    )


def require_all_arrivals(
    policy: Policy,
    known: LedgerPeople | None,
    engine: Engine,
    relation: str | None,
    before: PreparedCopy | None,
) -> None:
    """Refuse unless everybody whom the ledger knows has a block in the last copy (None: there is none)."""
    if policy.folds_ids and before is not None and not (before.folds or before.has_whole_units):
        why = "cannot become folded: people of one folded id may have arrived in different months"
        raise BadParameter("dataset.ids", why)
    if known is None:
        return
    if relation is None or before is None:
        raise lost_arrivals(policy)
    if before.follows is not None and before.follows < known.version - 1:
        raise lost_arrivals(policy)
    try:
        has_everybody = known.has_everybody(_ids(engine, relation, before))
    except EngineFailed:
        raise lost_arrivals(policy) from None
    if not has_everybody:
        raise lost_arrivals(policy)


def _ids(engine: Engine, relation: str, copy: PreparedCopy) -> Iterator[Any]:
    """Everybody in it, by all names under which the ledger may have been told of them: of decimals, which
    may have become texts since, it was told the rounded ones."""
    units = [UNIT]
    if not copy.has_whole_units:
        units.append(UnitIds(engine.dialect, whole=False, decimals=True).folded(UNIT))
    statement = " UNION ALL ".join(f"SELECT {unit} AS u FROM {relation}" for unit in units)  # noqa: S608
    for batch in engine.stream(statement):
        column = batch.column(0)
        if pa.types.is_integer(column.type):
            yield column.to_numpy(zero_copy_only=False)
        else:
            yield from column.to_pylist()


_NEW = "lapwing_new"


def prepare(
    policy: Policy, key: bytes, *,
    known: Callable[[], LedgerPeople | None] | None = None, then: Callable[[PreparedCopy], object] | None = None,
    is_done: Callable[[], bool] = lambda: False, progress: ReportProgress | None = None,
    today: date | None = None, threads: int | None = None,
) -> PreparedCopy:  # fmt: skip
    """Make a copy of the source as it is now, from the last one where that is possible.

    `known` tells what a ledger knows of the data now (else: none does), and `then` registers the copy,
    before anybody else can prepare. `is_done` tells whether the last copy is what would be made.
    """
    report = progress or (lambda _: None)
    folder = prepared_folder(policy)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    with exclusive_lock(folder):
        if is_done() and (copy := last_copy(policy)) is not None:
            report(1.0)
            return copy
        seen = settled_identities(policy)
        before, files, digest = last_copy(policy), files_of(policy), copy_digest(policy, key)
        version = 1 if before is None else before.version + 1
        engine = private_tables(policy)[0].source.engine
        work = _prepare_duckdb if engine == "duckdb" else _prepare_server
        people = None if known is None else known()
        ask = _Preparation(
            policy, key, digest, files, version, people, today or datetime.now(UTC).date(), threads, report
        )
        made, end = work(ask, before)
        if files_of(policy) != files:
            raise Unavailable("the source changed while it was read. Prepare again. The last copy is kept")
        made = replace(made, seen=seen if seen == identities_of(policy) else None)
        made.save()
        made.remove_others()
        end()
        if then is not None:
            then(made)
    report(1.0)
    return made


def has_readable_copy(policy: Policy, key: bytes) -> bool:
    """Tell whether there is a copy of the policy and source as they are now, all of which can be read.

    Of copies in servers, and of Spark's, nobody knows without asking them.
    """
    found = current_copy(policy, key)
    if found is None or found.engine != "duckdb":
        return False
    tables = [*found.types, *([ARRIVALS] * found.has_arrivals)]
    try:
        engine = found.open()
        try:
            for relation in found.relations(engine, tables).values():
                engine.run(f"SELECT bit_xor(hash(t)) FROM {relation} AS t")  # noqa: S608
        finally:
            engine.close()
    except EngineFailed:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Preparation:
    policy: Policy
    key: bytes
    digest: str
    files: dict[str, Files]
    version: int
    people: LedgerPeople | None
    today: date
    threads: int | None
    report: ReportProgress

    def bounded(self, table: Table, opened: OpenedSources, arrivals: str = "") -> TruncatedTable:
        return TruncatedTable(self.policy, table, opened.engine, self.key, opened.relations, arrivals)

    def copy(
        self, place: str, engine: str, types: dict[str, dict[str, str]], *, whole: bool
    ) -> PreparedCopy:
        follows = 0 if self.people is None else self.people.version
        return PreparedCopy(
            prepared_folder(self.policy), self.version, self.digest, place, engine, whole,
            has_blocks_by_arrival(self.policy), self.files, types, follows, self.policy.folds_ids,
        )  # fmt: skip

    def known_arrivals(
        self, engine: Engine, relation: str | None, before: PreparedCopy | None
    ) -> tuple[str, PreparedCopy] | None:
        """The arrivals of the last copy, all of them, and that copy."""
        require_all_arrivals(self.policy, self.people, engine, relation, before)
        return None if relation is None or before is None else (relation, before)


def _prepare_duckdb(
    ask: _Preparation, before: PreparedCopy | None
) -> tuple[PreparedCopy, Callable[[], None]]:
    folder = prepared_folder(ask.policy)
    name = f"copy-{ask.version}.duckdb"
    for left in (folder / name, folder / f"{name}.wal"):  # by a crash
        left.unlink(missing_ok=True)
    old = before.file if before is not None and before.engine == "duckdb" and before.file.exists() else None
    news = _new_files(ask, before) if before is not None and old is not None else None
    batches = {path: source for source, paths in (news or {}).values() for path in paths}
    if not has_blocks_by_arrival(ask.policy) and not (batches and _opens(before)):
        old = news = None  # the source tells all, also where the copy is damaged
    try:
        opened = open_sources(
            ask.policy, writable=folder / name, before=old, batches=batches, threads=ask.threads
        )
    except EngineFailed:
        if (
            ask.people is not None
            and has_blocks_by_arrival(ask.policy)
            and old is not None
            and not _opens(before)
        ):
            raise lost_arrivals(ask.policy) from None
        raise
    try:
        tables = private_tables(ask.policy)
        types = {table.name: dict(opened.engine.columns(opened.relations[table.name])) for table in tables}
        whole = ask.bounded(tables[0], opened).ids.whole
        made = ask.copy(name, "duckdb", types, whole=whole)
        arrivals = ""
        if made.has_arrivals:
            arrivals = f"prepared.{ARRIVALS}"
            has_known = before is not None and old is not None and before.has_arrivals
            known = ask.known_arrivals(opened.engine, f"before.{ARRIVALS}" if has_known else None, before)
            rows = _arrivals(ask, opened, known, whole=whole)
            opened.engine.execute(f"CREATE TABLE {arrivals} AS {rows}")
        for n, table in enumerate(tables):
            steps = _steps(ask.report, n, len(tables))
            bounded = ask.bounded(table, opened, arrivals)
            if before is None or news is None or not _can_extend(table, opened, before, made, news):
                rows = bounded.ranked(bounded.codes())
            else:
                rows = _extended(bounded, opened, news[table.name][1])
            stored = opened.engine.dialect.name(table.name)
            opened.engine.execute(f"CREATE TABLE prepared.{stored} AS {rows}", progress=steps)
    finally:
        opened.engine.close()
    os.chmod(folder / name, 0o600)
    sync_to_disk(folder / name)
    return made, lambda: None


def _opens(copy: PreparedCopy | None) -> bool:
    """Whether it is the copy, and not the source, that cannot be opened."""
    try:
        if copy is not None:
            copy.open().close()
    except EngineFailed:
        return False
    return True


def _steps(report: ReportProgress, n: int, of: int) -> ReportProgress:
    return lambda share: report((n + share) / of * 0.99)  # the rest is for the disk


def _new_files(ask: _Preparation, before: PreparedCopy) -> dict[str, tuple[Source, list[str]]] | None:
    """The source and the new files of each table; None if more has changed than that files were added."""
    if before.digest != ask.digest or not has_current_units(ask.policy, before):
        return None
    found = {}
    for table in private_tables(ask.policy):
        known, now = set(before.files[table.name]), ask.files[table.name]
        form = table.source.form
        if not known <= set(now) or (form not in FILES and known != set(now)):
            return None
        found[table.name] = (table.source, [file[0] for file in now if file not in known])
    return found


def _can_extend(
    table: Table,
    opened: OpenedSources,
    before: PreparedCopy,
    made: PreparedCopy,
    news: dict[str, tuple[Source, list[str]]],
) -> bool:
    """Whether the old rows' codes and units are what they would be if read again, together with the new."""
    assert table.unit is not None
    if not table.unit.column or before.has_whole_units != made.has_whole_units:
        return False
    if table.unit.through and news[table.unit.through][1]:
        return False  # old rows may lead to new people
    batches = [dict(opened.engine.columns(opened.batches[path])) for path in news[table.name][1]]
    return all(types == made.types[table.name] for types in [dict(before.types[table.name]), *batches])


def _extended(bounded: TruncatedTable, opened: OpenedSources, paths: list[str]) -> str:
    """The old rows and the new ones. Units with new rows are ranked anew."""
    engine, old = opened.engine, f"before.{opened.engine.dialect.name(bounded.table.name)}"
    if not paths:
        return f"SELECT * FROM {old}"  # noqa: S608
    names = [name for name in bounded.stored if name not in (RANK, BLOCK)]
    new = " UNION ALL ".join(bounded.codes(opened.batches[path]) for path in paths)
    engine.execute(f"CREATE OR REPLACE TEMP TABLE {_NEW} AS {new}")
    touched = f"(SELECT {UNIT} FROM {_NEW})"  # noqa: S608
    listed = ", ".join(names)
    codes = (
        f"SELECT {listed} FROM {old} WHERE {UNIT} IN {touched}"  # noqa: S608
        f" UNION ALL SELECT {listed} FROM {_NEW}"
    )
    kept = f"SELECT {', '.join(bounded.stored)} FROM {old} WHERE {UNIT} NOT IN {touched}"  # noqa: S608
    return f"SELECT * FROM ({kept} UNION ALL {bounded.ranked(codes)}) AS b"  # noqa: S608


def _arrivals(
    ask: _Preparation, opened: OpenedSources, known: tuple[str, PreparedCopy] | None, *, whole: bool
) -> str:
    """Units keep their block for ever, whatever becomes of the policy or their rows; new ones get today's.

    `known` are those of the last copy. Units of versions that folded every id are found by the folded id.
    """
    assert ask.policy.blocks is not None
    spelling, now = opened.engine.dialect, folded_literal(ask.policy)
    tables = [ask.bounded(table, opened) for table in private_tables(ask.policy)]
    day = (ask.today - date(1970, 1, 1)).days
    period = spelling.stored(str(period_of(ask.policy.blocks.every, day)), 0, 1 << 30)
    units = " UNION ".join(
        f"SELECT DISTINCT {UNIT} FROM ({table.codes()}) AS c"  # noqa: S608
        for table in tables
    )
    if known is None:
        return f"SELECT {UNIT}, {period} AS {BLOCK}, {now} AS {FOLDED} FROM ({units}) AS n"  # noqa: S608
    relation, before = known
    unit, folded = UNIT, "TRUE"
    if before.has_whole_units and not whole:
        unit = spelling.plain_text(UNIT, "bigint")
    elif whole and not before.has_whole_units:
        unit = spelling.parse_whole(UNIT)
    elif not whole:
        unit = spelling.plain_text(UNIT, spelling.text_type)  # whatever collation an old copy has
    if not before.folds:
        folded = FOLDED
    elif whole and before.has_whole_units:
        folded = now
    rows = f"SELECT DISTINCT {unit} AS {UNIT}, {BLOCK}, {folded} AS {FOLDED} FROM {relation}"  # noqa: S608
    old = f"SELECT * FROM ({rows}) AS k WHERE {UNIT} IS NOT NULL AND {FOLDED}"  # noqa: S608
    ids = tables[0].ids
    if before.noted_folds:  # by a policy: decimals, which the first versions rounded, were no ids in it
        ids = replace(ids, decimals=False)
    found = f"SELECT {UNIT}, {ids.folded(UNIT)} AS lapwing_key FROM ({units}) AS u"  # noqa: S608
    return (
        f"SELECT coalesce(n.{UNIT}, e.{UNIT}) AS {UNIT}, {now} AS {FOLDED}, "  # noqa: S608
        f"coalesce(e.{BLOCK}, f.{BLOCK}, {period}) AS {BLOCK} FROM ({found}) AS n "
        f"FULL JOIN ({old} = {now}) AS e ON e.{UNIT} = n.{UNIT} "
        f"LEFT JOIN ({old} <> {now}) AS f ON f.{UNIT} = n.lapwing_key "
        f"UNION ALL SELECT {UNIT}, {FOLDED}, {BLOCK} FROM ({old} <> {now}) AS o"
    )


def _prepare_server(
    ask: _Preparation, before: PreparedCopy | None
) -> tuple[PreparedCopy, Callable[[], None]]:
    """With PostgreSQL in a schema of ours beside the source's, with Spark as Parquet beside the policy."""
    opened = open_sources(ask.policy, writes=True)
    try:
        made = _copied(ask, opened, before)
    except BaseException:
        opened.engine.close()
        raise

    def end() -> None:
        if before is not None and before.engine == "postgres" == opened.engine.name:
            for relation in before.relations(opened.engine, [*before.types, ARRIVALS]).values():
                opened.engine.execute(f"DROP TABLE IF EXISTS {relation}")
        opened.engine.close()

    return made, end


def _copied(ask: _Preparation, opened: OpenedSources, before: PreparedCopy | None) -> PreparedCopy:
    engine, tables = opened.engine, private_tables(ask.policy)
    types = {table.name: dict(engine.columns(opened.relations[table.name])) for table in tables}
    whole = ask.bounded(tables[0], opened).ids.whole
    place = _schema(ask.policy, before) if engine.name == "postgres" else f"copy-{ask.version}"
    made = ask.copy(place, engine.name, types, whole=whole)
    if engine.name == "postgres":
        engine.execute(f"CREATE SCHEMA IF NOT EXISTS {engine.dialect.name(place)}")
    arrivals = ""
    if made.has_arrivals:
        relation = None
        if before is not None and before.has_arrivals and before.engine == engine.name:
            relation = _relation(engine, before)
        known = ask.known_arrivals(engine, relation, before)
        arrivals = _stored(
            made, engine, ARRIVALS, _arrivals(ask, opened, known, whole=whole), lambda _: None
        )
    for n, table in enumerate(tables):
        bounded = ask.bounded(table, opened, arrivals)
        rows = bounded.ranked(bounded.codes())
        _stored(made, engine, table.name, rows, _steps(ask.report, n, len(tables)))
    return made


def _relation(engine: Engine, before: PreparedCopy) -> str | None:
    try:
        return before.relations(engine, [ARRIVALS])[ARRIVALS]
    except EngineFailed:  # a folder that is gone
        return None


def _schema(policy: Policy, before: PreparedCopy | None) -> str:
    """A schema that no other policy writes to, also if it is called alike: bounds may differ."""
    if before is not None and before.engine == "postgres":
        return before.place
    return f"lapwing_{policy.name[:12]}_{random_bytes(8).hex()}"


def _stored(made: PreparedCopy, engine: Engine, name: str, rows: str, progress: ReportProgress) -> str:
    """Store rows under a name in the copy, over what a crash may have left. Gives the FROM item."""
    if engine.name == "spark":
        path = made.folder / made.place / name
        where = f"INSERT OVERWRITE DIRECTORY {engine.dialect.text(str(path))} USING parquet"
        engine.execute(f"{where} {rows}", progress=progress)
        for file in [path.parent, path, *path.iterdir()]:
            file.chmod(0o700 if file.is_dir() else 0o600)
            sync_to_disk(file)
        return made.relations(engine, [name])[name]
    relation = made.relations(engine, [name])[name]
    engine.execute(f"DROP TABLE IF EXISTS {relation}")
    engine.execute(f"CREATE TABLE {relation} AS {rows}", progress=progress)
    engine.execute(f"ANALYZE {relation}")
    return relation
