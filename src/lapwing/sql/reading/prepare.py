"""Preparing: the private tables are coded and ranked once, and stored as a copy beside the policy.

Claim    preparing after each of several batches of files gives the same rows and ranks as preparing once.
Because  a rank depends on the unit's own rows alone. Units without new rows keep their ranks. All rows of
         units with new rows are read again: a row's number among equals counts rows that were left out.
Test     tests/sql/reading/test_prepare.py

The source is only read. The copy is complete and on disk before the manifest points to it.

Where blocks are the months in which units arrive, one table of the copy holds the month of each unit.

Claim    a unit keeps its block for ever: no unit that the ledger has known in this data gets another block.
Because  units of the last copy keep their blocks, and a copy is made only if every unit that the ledger
         knows is among them. A last copy that is lost, of another engine or outdated stops the preparation.
Test     tests/sql/reading/test_prepare_arrivals.py

Only the prepared copy holds that table, so its folder (and its schema in a server) must be backed up with
the ledger. Beyond 2^20 people the ledger holds a random sample of them; then the version number of the
ledger, which every copy notes, tells whether a copy is outdated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from operator import methodcaller
from typing import Any

from lapwing.engines.engine import Engine, EngineFailed, MissingRight, ReportProgress, undo_on_failure
from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.unit_ids import Ids
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Source, has_blocks_by_arrival, period_of
from lapwing.sql.question.relation import BLOCK, RANK, UNIT
from lapwing.sql.reading.column_codes import UnitIds
from lapwing.sql.reading.open_sources import FILES, OpenedSources, open_sources, stream_ids
from lapwing.sql.reading.prepared_copy import (
    Files,
    PreparedCopy,
    copy_digest,
    copy_schema,
    current_copy,
    exclusive_lock,
    files_of,
    has_current_units,
    identities_of,
    last_copy,
    open_copy,
    prepared_folder,
    settled_identities,
)
from lapwing.sql.reading.truncated_table import FOLDED, TruncatedTable, folded_literal
from lapwing.storage.private_file import sync_to_disk

ARRIVALS = "lapwing_arrivals"  # the table of units and the periods in which they arrived

PREPARED_NOTE = "A prepared copy of the data was made first, in {}: questions read it from now on."
UNPREPARED_NOTE = (
    "No prepared copy could be made (no room, or no right to write), so the source itself is read. "
    "`lapwing prepare` says why."
)
EARLIER_RANKS = (
    "The prepared copy is of an earlier version, which kept or left out equal rows of a person together: "
    "where people have more rows than are used, frequent values count too often or too seldom. It stays, "
    "and stored answers with it. `lapwing prepare --again` makes a new one: answers are charged anew then."
)


@dataclass(frozen=True, slots=True, eq=False)
class LedgerPeople:
    """The people of a data set in the ledger: its version, and a test whether ids include all of them."""

    version: int
    has_everybody: Callable[[Ids], bool]


def lost_arrivals(policy: CheckedPolicy) -> Unavailable:
    """Return the error for arrivals that are lost: units would get another block, with a whole budget."""
    return Unavailable(
        f"the last copy ({policy.path.stem}.prepared, and its schema in a server) is lost, of another "
        "engine, or older than the ledger, and nothing else holds the blocks of people. Nothing was "
        "changed. Restore it from a backup; or give the data a new name in [dataset]: then queries are "
        "charged to all people of the old account as well"
    )


def _require_all_arrivals(
    policy: CheckedPolicy, people: LedgerPeople | None, engine: Engine, relation: str | None,
    before: PreparedCopy | None,
) -> None:  # fmt: skip
    """Raise Unavailable unless all people that the ledger knows have a block in the last copy.

    `relation` is the FROM item of its arrivals; None if there is none.
    """
    if policy.folds_ids and before is not None and not (before.folds or before.has_whole_units):
        why = "cannot become folded: people of one folded id may have arrived in different months"
        raise BadParameter("dataset.ids", why)
    if people is None:
        return
    has_everybody = False
    with suppress(EngineFailed):
        if relation is not None and before is not None:
            is_older = before.follows is not None and before.follows < people.version - 1
            has_everybody = not is_older and people.has_everybody(_ids(engine, relation, before))
    if not has_everybody:
        raise lost_arrivals(policy)


def _ids(engine: Engine, relation: str, copy: PreparedCopy) -> Iterator[Any]:
    """Yield all ids of a copy, in all spellings that the ledger may have recorded.

    Ids that are texts now may have been decimals. The ledger recorded decimals in rounded form.
    """
    units = [UNIT]
    if not copy.has_whole_units:
        units.append(UnitIds(engine.dialect, whole=False, decimals=True).folded(UNIT))
    statement = " UNION ALL ".join(f"SELECT {unit} AS u FROM {relation}" for unit in units)  # noqa: S608
    return stream_ids(engine, statement)


_NEW = "lapwing_new"  # the temporary table of units with new rows
NewFiles = dict[str, tuple[Source, list[str]]]  # the source and the new files of each table


def prepare(
    policy: CheckedPolicy, key: bytes, *,
    known: Callable[[], LedgerPeople | None] = lambda: None,
    then: Callable[[PreparedCopy], object] = lambda _: None,
    is_done: Callable[[], bool] = lambda: False, progress: ReportProgress | None = None,
    today: date | None = None, threads: int | None = None,
) -> PreparedCopy:  # fmt: skip
    """Make a copy of the source as it is now, starting from the last copy where that is possible.

    Args:
        policy: The policy whose private tables are copied.
        key: The secret that decides ranks: 32 bytes.
        known: Returns the people that the ledger knows now; None if it does not know the data.
        then: Registers the copy, before any other process can prepare.
        is_done: Returns whether the last copy is already what would be made.
        progress: Gets the share of the work that is done, from 0 to 1; None for no reports.
        today: The day of arrival of new units; None for the current day (UTC).
        threads: The engine's threads; None for the policy's limit.

    Returns:
        The new copy, or the last one if it `is_done`.

    Raises:
        Unavailable: The source changed while it was read, or arrivals are lost. The last copy is kept.
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
        engine = policy.private_tables[0].source.engine
        day = today or datetime.now(UTC).date()
        work = _Preparation(policy, key, digest, files, version, known(), day, threads, report)
        made, end = (_prepare_duckdb if engine == "duckdb" else _prepare_server)(work, before)
        if files_of(policy) != files:
            raise Unavailable("the source changed while it was read. Prepare again. The last copy is kept")
        made = replace(made, seen=seen if seen == identities_of(policy) else None)
        made.save()
        made.remove_others()
        end()
        then(made)
    report(1.0)
    return made


def require_place(policy: CheckedPolicy) -> None:
    """Raise MissingRight unless the copy can be stored: a server's role may lack the right to write.

    Copies of all other sources lie beside the policy. Reads no row.
    """
    if policy.private_tables[0].source.engine != "postgres":
        return
    opened = open_sources(policy, writes=True)
    with closing(opened.engine):
        writer: Any = opened.engine
        writer.require_writable(copy_schema(policy, last_copy(policy)))


def can_prepare(policy: CheckedPolicy) -> bool:
    """Return whether the copy can be stored. If not, questions are answered from the source, slower."""
    try:
        require_place(policy)
    except MissingRight:
        return False
    return True


def has_readable_copy(policy: CheckedPolicy, key: bytes) -> bool:
    """Return whether there is a current copy in DuckDB all of whose rows can be read.

    For copies in PostgreSQL or Spark the answer is False: it would take a query to find out.
    """
    copy = current_copy(policy, key)
    if copy is None or copy.engine != "duckdb":
        return False
    tables = [*copy.types, *([ARRIVALS] * copy.has_arrivals)]
    with suppress(EngineFailed), closing(copy.open()) as engine:
        for relation in copy.relations(engine, tables).values():
            engine.run(f"SELECT bit_xor(hash(t)) FROM {relation} AS t")  # noqa: S608
        return True
    return False


@dataclass(frozen=True, slots=True)
class _Preparation:
    """The settings of one preparation."""

    policy: CheckedPolicy
    key: bytes
    digest: str
    files: dict[str, Files]
    version: int
    people: LedgerPeople | None
    today: date
    threads: int | None
    report: ReportProgress

    def table(self, table: CheckedTable, opened: OpenedSources, arrivals: str = "") -> TruncatedTable:
        """Return the truncated table over opened sources."""
        return TruncatedTable(self.policy, table, opened.engine, self.key, opened.relations, arrivals)


def _prepare_duckdb(
    work: _Preparation, before: PreparedCopy | None
) -> tuple[PreparedCopy, Callable[[], None]]:
    folder = prepared_folder(work.policy)
    name = f"copy-{work.version}.duckdb"
    for left_by_crash in (folder / name, folder / f"{name}.wal"):
        left_by_crash.unlink(missing_ok=True)
    old = before.file if before is not None and before.engine == "duckdb" and before.file.exists() else None
    news = _new_files(work, before) if before is not None and old is not None else None
    batches = {path: source for source, paths in (news or {}).values() for path in paths}
    by_arrival = has_blocks_by_arrival(work.policy)
    if not by_arrival and not (batches and _opens(before)):
        old = news = None  # all is read from the source again: the old copy may be damaged
    try:
        opened = open_sources(
            work.policy, writable=folder / name, before=old, batches=batches, threads=work.threads
        )
    except EngineFailed:
        if work.people is not None and by_arrival and old is not None and not _opens(before):
            raise lost_arrivals(work.policy) from None
        raise
    with closing(opened.engine):
        has_arrivals = before is not None and old is not None and before.has_arrivals
        relation = f"before.{ARRIVALS}" if has_arrivals else None
        made = _copied(work, opened, before, name, relation, news=news)
    os.chmod(folder / name, 0o600)
    sync_to_disk(folder / name)
    return made, lambda: None


def _opens(copy: PreparedCopy | None) -> bool:
    """Return whether a copy can be opened: if not, the copy failed and not the source."""
    with suppress(EngineFailed):
        if copy is not None:
            copy.open().close()
        return True
    return False


def _steps(report: ReportProgress, n: int, of: int) -> ReportProgress:
    return lambda share: report((n + share) / of * 0.99)  # the rest is writing to disk


def _new_files(work: _Preparation, before: PreparedCopy) -> NewFiles | None:
    """Return the source and the new files of each table; None if anything else has changed."""
    if before.digest != work.digest or not has_current_units(work.policy, before):
        return None
    files_of_table = {}
    for table in work.policy.private_tables:
        known, now = set(before.files[table.name]), work.files[table.name]
        if not known <= set(now) or (table.source.form not in FILES and known != set(now)):
            return None
        files_of_table[table.name] = (table.source, [file[0] for file in now if file not in known])
    return files_of_table


def _can_extend(
    table: CheckedTable, opened: OpenedSources, before: PreparedCopy, made: PreparedCopy, news: NewFiles
) -> bool:
    """Return whether the old rows would get the same codes and units if all rows were read again."""
    assert table.unit is not None
    if not table.unit.column or before.has_whole_units != made.has_whole_units:
        return False
    if table.unit.through and news[table.unit.through][1]:
        return False  # keys of old rows may lead to new units
    batches = [dict(opened.engine.columns(opened.batches[path])) for path in news[table.name][1]]
    return all(types == made.types[table.name] for types in [dict(before.types[table.name]), *batches])


def _extended(table: TruncatedTable, opened: OpenedSources, paths: list[str]) -> str:
    """Return the old rows and the new ones as a SELECT. Units with new rows are read and ranked again."""
    engine, old = opened.engine, f"before.{opened.engine.dialect.name(table.table.name)}"
    listed = ", ".join(table.stored)
    if not paths:
        return f"SELECT {listed} FROM {old}"  # noqa: S608
    new = " UNION ALL ".join(table.codes(opened.batches[path]) for path in paths)
    engine.execute(f"CREATE OR REPLACE TEMP TABLE {_NEW} AS SELECT DISTINCT {UNIT} FROM ({new}) AS n")  # noqa: S608
    touched = f"{UNIT} IN (SELECT {UNIT} FROM {_NEW})"  # noqa: S608
    codes = f"SELECT * FROM ({table.codes()}) AS c WHERE {touched}"  # noqa: S608
    kept = f"SELECT {listed} FROM {old} WHERE NOT {touched}"  # noqa: S608
    return f"SELECT * FROM ({kept} UNION ALL {table.ranked(codes)}) AS b"  # noqa: S608


def _arrivals(
    work: _Preparation, opened: OpenedSources, last: tuple[str, PreparedCopy] | None, *, whole: bool
) -> str:
    """Return units and their blocks as a SELECT: known units keep their block, new ones get today's.

    `last` are the arrivals (a FROM item) of the last copy and that copy; None if there are none. Units from
    versions that folded every id are found by the folded id.
    """
    assert work.policy.blocks is not None
    dialect, now = opened.engine.dialect, folded_literal(work.policy)
    tables = [work.table(table, opened) for table in work.policy.private_tables]
    day = (work.today - date(1970, 1, 1)).days
    period = dialect.stored(str(period_of(work.policy.blocks.every, day)), 0, 1 << 30)
    each = [f"SELECT DISTINCT {UNIT} FROM ({table.codes()}) AS c" for table in tables]  # noqa: S608
    units = " UNION ".join(each)
    if last is None:
        return f"SELECT {UNIT}, {period} AS {BLOCK}, {now} AS {FOLDED} FROM ({units}) AS n"  # noqa: S608
    relation, before = last
    unit, folded = UNIT, "TRUE"
    if before.has_whole_units and not whole:
        unit = dialect.plain_text(UNIT, "bigint")
    elif whole and not before.has_whole_units:
        unit = dialect.parse_whole(UNIT)
    elif not whole:
        unit = dialect.plain_text(UNIT, dialect.text_type)  # without the collation of an old copy
    if not before.folds:
        folded = FOLDED
    elif whole and before.has_whole_units:
        folded = now
    rows = f"SELECT DISTINCT {unit} AS {UNIT}, {BLOCK}, {folded} AS {FOLDED} FROM {relation}"  # noqa: S608
    old = f"SELECT * FROM ({rows}) AS k WHERE {UNIT} IS NOT NULL AND {FOLDED}"  # noqa: S608
    ids = tables[0].ids
    if before.noted_folds:  # the policy folded ids, and then decimals were refused as ids
        ids = replace(ids, decimals=False)
    identified = f"SELECT {UNIT}, {ids.folded(UNIT)} AS lapwing_key FROM ({units}) AS u"  # noqa: S608
    return (
        f"SELECT coalesce(n.{UNIT}, e.{UNIT}) AS {UNIT}, {now} AS {FOLDED}, "  # noqa: S608
        f"coalesce(e.{BLOCK}, f.{BLOCK}, {period}) AS {BLOCK} FROM ({identified}) AS n "
        f"FULL JOIN ({old} = {now}) AS e ON e.{UNIT} = n.{UNIT} "
        f"LEFT JOIN ({old} <> {now}) AS f ON f.{UNIT} = n.lapwing_key "
        f"UNION ALL SELECT {UNIT}, {FOLDED}, {BLOCK} FROM ({old} <> {now}) AS o"
    )


def _prepare_server(
    work: _Preparation, before: PreparedCopy | None
) -> tuple[PreparedCopy, Callable[[], None]]:
    """Prepare in a PostgreSQL schema beside the source's, or with Spark as Parquet beside the policy.

    Returns the copy, and a function that removes the last copy and closes the engine.
    """
    opened = open_sources(work.policy, writes=True)
    engine = opened.engine
    with undo_on_failure(engine.close):
        place = f"copy-{work.version}"
        if engine.name == "postgres":
            place = copy_schema(work.policy, before)
            schema = engine.dialect.name(place)
            asked = f"SELECT to_regnamespace({engine.dialect.text(schema)}) IS NULL AS is_new"
            if engine.run(asked).column(0)[0].as_py():  # who may write to it may still not make one
                engine.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        relation = None
        if before is not None and before.has_arrivals and before.engine == engine.name:
            with suppress(EngineFailed):  # the folder is gone
                relation = before.relations(engine, [ARRIVALS])[ARRIVALS]
        made = _copied(work, opened, before, place, relation)

    def end() -> None:
        if before is not None and before.engine == "postgres" == engine.name:
            for relation in before.relations(engine, [*before.types, ARRIVALS]).values():
                engine.execute(f"DROP TABLE IF EXISTS {relation}")
        engine.close()

    return made, end


def _copied(
    work: _Preparation, opened: OpenedSources, before: PreparedCopy | None, place: str,
    last_arrivals: str | None, *, news: NewFiles | None = None,
) -> PreparedCopy:  # fmt: skip
    """Write all tables of the copy. `news` are the new files, if old rows can be kept."""
    engine, tables = opened.engine, work.policy.private_tables
    types = {table.name: dict(engine.columns(opened.relations[table.name])) for table in tables}
    whole = work.table(tables[0], opened).ids.whole
    follows = 0 if work.people is None else work.people.version
    made = PreparedCopy(
        prepared_folder(work.policy), work.version, work.digest, place, engine.name, whole,
        has_blocks_by_arrival(work.policy), work.files, types, follows, work.policy.folds_ids,
    )  # fmt: skip
    arrivals = ""
    if made.has_arrivals:
        _require_all_arrivals(work.policy, work.people, engine, last_arrivals, before)
        last = None if last_arrivals is None or before is None else (last_arrivals, before)
        rows = _arrivals(work, opened, last, whole=whole)
        arrivals = _stored(made, engine, ARRIVALS, rows, lambda _: None)
    for n, checked in enumerate(tables):
        table = work.table(checked, opened, arrivals)
        if before is not None and news is not None and _can_extend(checked, opened, before, made, news):
            rows = _extended(table, opened, news[checked.name][1])
        else:
            rows = table.ranked(table.codes())
        _stored(made, engine, checked.name, rows, _steps(work.report, n, len(tables)))
    return made


def _stored(made: PreparedCopy, engine: Engine, name: str, rows: str, progress: ReportProgress) -> str:
    """Store rows as a table of the copy, replacing the remains of a crash. Returns the FROM item."""
    if engine.name == "spark":
        path = made.folder / made.place / name
        where = f"INSERT OVERWRITE DIRECTORY {engine.dialect.text(str(path))} USING parquet"
        engine.execute(f"{where} {rows}", progress=progress)
        for file in [path.parent, path, *path.iterdir()]:
            file.chmod(0o700 if file.is_dir() else 0o600)
            sync_to_disk(file)
        return made.relations(engine, [name])[name]
    relation = made.relations(engine, [name])[name]
    if engine.name == "postgres":
        engine.execute(f"DROP TABLE IF EXISTS {relation}")
    engine.execute(f"CREATE TABLE {relation} AS {rows}", progress=progress)
    if engine.name == "postgres":
        engine.execute(f"ANALYZE {relation}")
    return relation


def unit_ids(
    policy: CheckedPolicy, copy: PreparedCopy | None = None, *,
    threads: int | None = None, keep: Callable[[Engine], object] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Yield the ids of all units, from the copy or else from the source, for the ledger's sketches only.

    Ids are texts, or arrays of whole numbers if ids are whole in all tables. They are folded, as in all
    earlier sketches: a known unit is found again, and at most more accounts are joined than needed.
    `keep` gets the engine after the last id, to use it further. None: it is closed.
    """
    tables = [table for table in policy.private_tables if table.unit and table.unit.column]
    if copy is None:
        opened = open_sources(policy, threads=threads)
    else:
        opened = OpenedSources(open_copy(policy, copy, threads=threads), {})
    engine, relations = opened.engine, opened.relations
    with undo_on_failure(engine.close):  # also if not all ids are read
        if copy is not None:
            types, rows = copy.types, copy.relations(engine, [table.name for table in tables])
        else:
            types = {name: engine.columns(relation) for name, relation in relations.items()}
            sources = [TruncatedTable(policy, table, engine, bytes(32), relations) for table in tables]
            rows = {source.table.name: f"({source.codes()}) AS c" for source in sources}
        unit = UnitIds.of(policy, engine.dialect, types).folded(UNIT)
        # In the copy, every unit has one row of rank 1 in each block: few rows, stored together.
        first = f" WHERE {RANK} = 1" if copy is not None else ""
        for relation in rows.values():
            yield from stream_ids(engine, f"SELECT DISTINCT {unit} AS u FROM {relation}{first}")  # noqa: S608
        (keep or methodcaller("close"))(engine)
