"""Whether every stored value can be read: one that cannot would make every question fail after its charge.

Claim    a question of an unprepared source is charged only if all rows of its tables could be read before.
Because  the same SELECT that questions read from is run to its end once for a version, before any charge.
         It asks nothing that an analyst chose: a source that cannot be read is refused alike to everybody.
Test     tests/query/test_readable.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lapwing.engines.csv_form import is_utf8
from lapwing.engines.engine import EngineFailed
from lapwing.errors import Unavailable
from lapwing.query.bounded.coded import Bounded
from lapwing.query.bounded.sources import Opened, open_sources, private_tables
from lapwing.query.language.relation import RANK, UNIT
from lapwing.query.policies.policy import Policy, Table
from lapwing.query.policies.source import files_in

WHAT = "a stored value cannot be read: a text that is not UTF-8, or a time beyond the engine's range"


def require_readable(policy: Policy, *, threads: int | None = None) -> None:
    """Raise `Unavailable`, without saying where, unless all private tables can be read in time."""
    opened = open_sources(policy, threads=threads)
    try:
        if all(_is_readable(policy, table, opened) for table in private_tables(policy)):
            return
    finally:
        opened.engine.close()
    raise refusal()


def refusal() -> Unavailable:
    """To be raised: the one sentence for everybody but the curator."""
    return Unavailable(
        f"{WHAT}, or not within the time that the policy gives. Nothing was charged. "
        "`lapwing prepare` (the curator runs it) tells where"
    )


def not_utf8(policy: Policy) -> list[str]:
    """The private tables with CSV files that should be in UTF-8 and are not. For the curator."""
    return [
        table.name
        for table in private_tables(policy)
        if table.source.form == "csv"
        and table.source.csv.encoding == "utf-8"
        and not all(map(is_utf8, files_in(table.source)))
    ]


def unreadable(policy: Policy, *, threads: int | None = None) -> Unavailable | None:
    """The first column of the policy with such a value, for the curator; None if there is none."""
    opened = open_sources(policy, threads=threads)
    try:
        for place, part in _parts(policy):
            if not _is_readable(policy, part, opened):
                return Unavailable(
                    f"{place}: {WHAT}. Mend the source, or leave the column out of the policy. "
                    "The last copy is kept"
                )
    finally:
        opened.engine.close()
    return None


def _parts(policy: Policy) -> Iterator[tuple[str, Table]]:
    """Each private table without columns, then with each of them alone, then whole."""
    for table in private_tables(policy):
        where, bare = f"tables.{table.name}", replace(table, columns={}, primary_key=())
        yield f"{where}.unit", bare
        for name, column in table.columns.items():
            yield f"{where}.columns.{name}", replace(bare, columns={name: column})
        yield where, table


def _is_readable(policy: Policy, table: Table, opened: Opened) -> bool:
    """Ranks are found from all codes of a table: whoever wants the greatest one reads all of them."""
    rows = Bounded(replace(policy, blocks=None), table, opened.engine, bytes(32), opened.relations)
    sql = f"SELECT max({UNIT}) AS u, max({RANK}) AS r FROM ({rows.ranked(rows.codes())}) AS b"  # noqa: S608
    try:
        opened.engine.run(sql, timeout=policy.timeout)
    except EngineFailed:
        return False
    return True
