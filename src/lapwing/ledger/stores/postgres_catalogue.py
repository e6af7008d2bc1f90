"""How PostgreSQL itself describes a ledger's tables, to compare them with those of an empty ledger.

The server writes definitions in its own words, which differ between its versions. So an empty ledger is
made beside the real one, described in the same words, and undone.
"""

from __future__ import annotations

from typing import cast

from lapwing.ledger.stores.postgres_links import Link, new_number
from lapwing.ledger.stores.store import Catalogue

# Everything in the schema that can change what a statement does. Not how rows are stored, which whoever
# runs the server may tune.
_ALL = """
WITH ours AS (
    SELECT oid, relname, relkind, relpersistence, relrowsecurity, relforcerowsecurity, relhassubclass
        FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind NOT IN ('i', 'c')
)
SELECT relname, 'relation ' || relname,
    concat_ws(' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity, relhassubclass) FROM ours
UNION ALL SELECT relname, 'column ' || attname, concat_ws(' ', format_type(atttypid, atttypmod), attnotnull,
    attidentity, attgenerated, pg_get_expr(adbin, adrelid))
    FROM pg_attribute JOIN ours ON ours.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT relname, 'constraint ' || conname, pg_get_constraintdef(pg_constraint.oid, true)
    FROM pg_constraint JOIN ours ON ours.oid = conrelid
UNION ALL SELECT relname, 'index ' || indexrelid::regclass,
    concat_ws(' ', pg_get_indexdef(indexrelid, 0, true), indisvalid, indisready)
    FROM pg_index JOIN ours ON ours.oid = indrelid
UNION ALL SELECT relname, 'trigger ' || tgname,
    concat_ws(' ', pg_get_triggerdef(pg_trigger.oid, true), tgenabled)
    FROM pg_trigger JOIN ours ON ours.oid = tgrelid WHERE NOT tgisinternal
UNION ALL SELECT relname, 'rule ' || rulename, pg_get_ruledef(pg_rewrite.oid, true)
    FROM pg_rewrite JOIN ours ON ours.oid = ev_class WHERE relkind = 'r'
UNION ALL SELECT '',
    'function ' || proname || '(' || pg_get_function_identity_arguments(pg_proc.oid) || ')',
    concat_ws(' ', lanname, prosecdef, provolatile, proconfig, pg_get_function_result(pg_proc.oid), prosrc)
    FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
    WHERE pronamespace = current_schema()::regnamespace
"""
_made: dict[tuple[int, tuple[str, ...]], Catalogue] = {}  # by the server's version


def catalogue(link: Link) -> Catalogue:
    """Describe everything in the connection's first schema."""
    rows = cast(list[tuple[str, str, str]], link.run(_ALL).fetchall())
    return {(table, part): definition for table, part, definition in rows}


def made_by(link: Link, statements: tuple[str, ...]) -> Catalogue:
    """Describe what these statements make, in a transaction that its owner undoes."""
    asked = link.connection.info.server_version, statements
    if asked not in _made:
        name = f"lapwing_empty_{new_number()}"
        for statement in (f"CREATE SCHEMA {name}", f"SET LOCAL search_path = {name}, pg_temp", *statements):
            link.run(statement)
        _made[asked] = catalogue(link)
    return _made[asked]
