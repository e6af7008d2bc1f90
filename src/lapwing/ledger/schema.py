"""The tables of a ledger in both databases, and the migrations that bring an older ledger up to date.

The history is in `entries`. The other tables hold what follows from it, so that a charge is decided without
reading the history. The database itself refuses to change or delete append-only rows, to lower what was
spent, and to hold sums that no filter admits. An edit that gets round this (an editor, an older copy of the
file) is found when the ledger is opened: every table is compared with the entries.

A block has two rows. Its row in `blocks` never changes. Its row in `budgets` has only the numbers that a
charge reads and writes, because a charge over many blocks pays for the length of the row. It keeps what is
left of every cap, not what was spent: left = cap - spent, and -1 once the cap is exceeded. Both say the
same, and a charge needs no cap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lapwing.core.budget import DELTA, DELTA0, EPSILON, FIRST_ORDER

WIDTH = FIRST_ORDER + 5
COSTS = range(WIDTH)
ORDERS = range(FIRST_ORDER, WIDTH)
# The states of a block: open; lost, so that nothing is admitted any more; moved to a raised account.
OPEN, LOST, MOVED = 0, 1, 2
# No sum that something is added to exceeds this, so the result fits 64 bits.
CEILING = 1 << 62
# The SQLSTATE of the PostgreSQL function `charge` for a debit that was not admitted.
POSTGRES_DOES_NOT_FIT = "LW001"


DATA_COLUMNS = "data, name, label, salt, origin_name, origin, origin_salt, rule, accounts, version"


@dataclass(frozen=True, slots=True)
class StoreDialect:
    """The SQL in which the two databases differ."""

    bytes: str
    number: str
    strict: str
    serial: str
    refuse: Callable[[str, str, str, str], tuple[str, ...]]


def columns(prefix: str) -> str:
    """Return the column names of all costs: `spent_0, spent_1, ...`."""
    return ", ".join(f"{prefix}_{k}" for k in COSTS)


def holds(fits: Callable[[int], str]) -> str:
    """Return the privacy filter as an SQL condition, given one condition for each cost.

    It must decide as `Terms.after` does.
    """
    some_order = " OR ".join(fits(k) for k in ORDERS)
    return f"{fits(DELTA0)} AND (({fits(EPSILON)} AND {fits(DELTA)}) OR {some_order})"


def _trigger(table: str, event: str) -> str:
    """Return a name: `budgets_delete`, or `budgets_update_of_state` if the event names columns."""
    return "_".join([table, *event.lower().replace(",", "").split()[:3]])


def left_after(cost: str, k: int) -> str:
    """Return SQL for the rest of a cap after a cost, or -1 if the cap is exceeded, which is final.

    It does not use `max` or `greatest`: the databases name them differently, and SQLite computes this in
    half the time.
    """
    return f"CASE WHEN left_{k} < {cost} THEN -1 ELSE left_{k} - {cost} END"


def _sqlite_refuse(table: str, event: str, condition: str, why: str) -> tuple[str, ...]:
    when = f"WHEN {condition} " if condition else ""
    return (  # AFTER, which undoes the statement as well, and costs less than BEFORE
        f"CREATE TRIGGER {_trigger(table, event)} AFTER {event} ON {table} {when}"
        f"BEGIN SELECT RAISE(ABORT, '{why}'); END",
    )


def _postgres_refuse(table: str, event: str, condition: str, why: str) -> tuple[str, ...]:
    when = f"WHEN ({condition}) " if condition else ""
    statements = [
        f"CREATE TRIGGER {_trigger(table, event)} BEFORE {event} ON {table} FOR EACH ROW {when}"
        f"EXECUTE FUNCTION refuse('{why}')"
    ]
    if event == "DELETE":
        statements.append(
            f"CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION refuse('{why}')"
        )
    return tuple(statements)


SQLITE = StoreDialect("BLOB", "INTEGER", " STRICT", "INTEGER PRIMARY KEY", _sqlite_refuse)
POSTGRES = StoreDialect(
    "BYTEA", "BIGINT", "", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", _postgres_refuse
)


def _numbers(prefix: str, dialect: StoreDialect) -> str:
    return ", ".join(f"{prefix}_{k} {dialect.number} NOT NULL" for k in COSTS)


def _tables(d: StoreDialect) -> tuple[str, ...]:
    n, b = d.number, d.bytes
    admitted = holds(lambda k: f"left_{k} >= 0")
    # In PostgreSQL a trigger checks it.
    check = "" if d is POSTGRES else f", CHECK (state > {OPEN} OR ({admitted}))"
    tables = {
        "entries": f"seq {d.serial}, key {b}, body {b} NOT NULL, digest {b} NOT NULL",
        "seals": f"number {n} PRIMARY KEY, last {n} NOT NULL, size {n} NOT NULL, root {b} NOT NULL, "
        f"frontier {b} NOT NULL, previous {b} NOT NULL, digest {b} NOT NULL, signature {b} NOT NULL",
        "principals": f"name TEXT PRIMARY KEY, label TEXT NOT NULL UNIQUE, salt {b} NOT NULL",
        "accounts": f"account {n} PRIMARY KEY, root {n} NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL, "
        f"salt {b} NOT NULL, unit TEXT NOT NULL, relation TEXT NOT NULL, epsilon TEXT NOT NULL, "
        f"delta TEXT NOT NULL, orders TEXT NOT NULL, slices TEXT NOT NULL, rule TEXT NOT NULL, "
        f"everyone {n} NOT NULL, raises {n}",
        "blocks": f"block {n} PRIMARY KEY, account {n} NOT NULL, root {n} NOT NULL, name TEXT NOT NULL, "
        f"label TEXT NOT NULL, salt {b} NOT NULL",
        "budgets": f"block {n} PRIMARY KEY, account {n} NOT NULL, state {n} NOT NULL, "
        f"{_numbers('left', d)}, {_numbers('held', d)}{check}",
        "reservations": f"reservation {n} NOT NULL, account {n} NOT NULL, ranges TEXT NOT NULL, "
        f"fixed {n} NOT NULL, ended {n} NOT NULL, steps {n} NOT NULL, {_numbers('total', d)}, "
        f"{_numbers('used', d)}, PRIMARY KEY (reservation, account)",
        # Without bytes: the work failed, and no answer will come.
        "answers": f"charge {n} PRIMARY KEY, entry {n} NOT NULL, bytes {b}",
        "datasets": f"data {n} PRIMARY KEY, name TEXT NOT NULL, label TEXT NOT NULL UNIQUE, "
        f"salt {b} NOT NULL, origin_name TEXT NOT NULL, origin TEXT NOT NULL, origin_salt {b} NOT NULL, "
        f"rule TEXT NOT NULL, accounts TEXT NOT NULL, version {n} NOT NULL",
        # Secret: keyed hashes of unit ids. Never exported.
        "sketches": f"data {n} NOT NULL, version {n} NOT NULL, bytes {b} NOT NULL, "
        "PRIMARY KEY (data, version)",
    }
    return tuple(f"CREATE TABLE {name} ({body}){d.strict}" for name, body in tables.items())


def _indexes() -> tuple[str, ...]:
    return (
        "CREATE UNIQUE INDEX entries_by_key ON entries (key) WHERE key IS NOT NULL",
        "CREATE UNIQUE INDEX accounts_by_label ON accounts (label) WHERE raises IS NULL",
        "CREATE UNIQUE INDEX blocks_by_label ON blocks (root, label, account)",
    )


# A name opens once in a family: an earlier block of that name has moved to a raised account. In PostgreSQL
# transactions do not see each other, so opening a block holds the lock on the row of everyone.
_OPENS_TWICE = (
    "EXISTS (SELECT 1 FROM blocks JOIN budgets USING (block) WHERE blocks.root = NEW.root "  # noqa: S608
    f"AND blocks.label = NEW.label AND blocks.block <> NEW.block AND state < {MOVED})"
)
_MORE_IS_LEFT = " OR ".join(f"NEW.left_{k} > OLD.left_{k}" for k in COSTS)


def _postgres_keeps_names() -> tuple[str, ...]:
    """Return triggers that keep block names. In PostgreSQL, WHEN takes no subquery."""
    return (
        f"""CREATE FUNCTION keep_names() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF {_OPENS_TWICE} THEN RAISE EXCEPTION 'a block opens once'; END IF;
            RETURN NEW;
        END $$""",
        "CREATE TRIGGER blocks_keep_names BEFORE INSERT ON blocks "
        "FOR EACH ROW EXECUTE FUNCTION keep_names()",
    )


def _postgres_keeps_sums() -> tuple[str, ...]:
    """Return triggers that keep sums.

    As CHECK and WHEN, every charge would read and plan the conditions again.
    """
    admitted = f"NEW.state > {OPEN} OR ({holds(lambda k: f'NEW.left_{k} >= 0')})"
    return (
        f"""CREATE FUNCTION keep_sums() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF TG_OP = 'UPDATE' THEN
                IF {_MORE_IS_LEFT} THEN RAISE EXCEPTION 'spent is spent'; END IF;
            END IF;
            IF NOT ({admitted}) THEN RAISE EXCEPTION 'no filter admits these sums'; END IF;
            RETURN NEW;
        END $$""",
        f"CREATE TRIGGER budgets_keep_sums BEFORE INSERT OR UPDATE OF {columns('left')} ON budgets "
        "FOR EACH ROW EXECUTE FUNCTION keep_sums()",
    )


def _guards(d: StoreDialect) -> tuple[str, ...]:
    guards: list[str] = []
    if d is POSTGRES:
        guards.append(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$"
        )
    for table in ("entries", "seals", "principals", "accounts", "blocks", "answers", "sketches"):
        for event in ("UPDATE", "DELETE"):
            guards.extend(d.refuse(table, event, "", f"{table} only grows"))

    def changed(*names: str) -> str:
        return " OR ".join(f"NEW.{name} <> OLD.{name}" for name in names)

    guards.extend(d.refuse("budgets", "DELETE", "", "budgets only grows"))
    # By column, so that a charge pays for the sums that it sets, and for nothing else.
    for names, condition in (
        ("block, account", ""),
        (columns("held"), " OR ".join(f"NEW.held_{k} < 0" for k in COSTS)),
        ("state", "NEW.state < OLD.state"),
        *(() if d is POSTGRES else ((columns("left"), _MORE_IS_LEFT),)),
    ):
        guards.extend(d.refuse("budgets", f"UPDATE OF {names}", condition, "spent is spent"))
    if d is POSTGRES:
        guards.extend((*_postgres_keeps_sums(), *_postgres_keeps_names()))
    else:
        guards.extend(d.refuse("blocks", "INSERT", _OPENS_TWICE, "a block opens once"))
    back = " OR ".join(f"NEW.used_{k} < OLD.used_{k}" for k in COSTS)
    kept = changed("reservation", "account", "ranges", "fixed", *(f"total_{k}" for k in COSTS))
    guards.extend(d.refuse("reservations", "DELETE", "", "reservations only grow"))
    less = "NEW.ended < OLD.ended OR NEW.steps < OLD.steps"
    guards.extend(d.refuse("reservations", "UPDATE", f"{back} OR {kept} OR {less}", "used is used"))
    guards.extend(d.refuse("datasets", "DELETE", "", "data sets only grow"))
    same = changed("data", "name", "label", "origin_name", "rule")
    not_newer = f"NEW.version <= OLD.version OR {same}"
    guards.extend(d.refuse("datasets", "UPDATE", not_newer, "versions only grow"))
    return tuple(guards)


def _postgres_charge() -> tuple[str, ...]:
    """Return the SQL function that decides a charge on several blocks.

    Its ranges come in rising order, with their debits. It returns the entry's number, or NULL if there is
    an entry with the key. It locks the table of entries and then the blocks in the order of their numbers,
    so that charges never wait in a circle, with each other or with a seal. The entry comes last, so that
    its number is drawn while the blocks are locked.
    """

    def cost(k: int) -> str:
        return f"costs[{WIDTH} * owner + {k + 1}]"

    sums = ", ".join(f"left_{k} = greatest(left_{k} - {cost(k)}, -1)" for k in COSTS)
    fits = holds(lambda k: f"left_{k} - held_{k} >= {cost(k)}")
    return (
        "ALTER TABLE budgets SET (fillfactor = 50)",  # room for the next version of a row beside it
        f"""CREATE FUNCTION charge(new_key BYTEA, new_body BYTEA, new_digest BYTEA, firsts BIGINT[],
            lasts BIGINT[], owners BIGINT[], accounts BIGINT[], costs BIGINT[])
        RETURNS BIGINT LANGUAGE plpgsql AS $$
        DECLARE owner BIGINT; changed BIGINT; number BIGINT;
        BEGIN
            IF new_key IS NOT NULL AND EXISTS (SELECT FROM entries WHERE key = new_key) THEN
                RETURN NULL;
            END IF;
            LOCK TABLE entries IN ROW EXCLUSIVE MODE;
            FOR i IN 1 .. cardinality(firsts) LOOP
                owner := owners[i];
                IF lasts[i] > firsts[i] THEN
                    PERFORM FROM budgets WHERE block BETWEEN firsts[i] AND lasts[i]
                        ORDER BY block FOR UPDATE;
                END IF;
                UPDATE budgets SET {sums}
                    WHERE block BETWEEN firsts[i] AND lasts[i] AND account = accounts[owner + 1]
                    AND state = {OPEN} AND {fits};
                GET DIAGNOSTICS changed = ROW_COUNT;
                IF changed <> lasts[i] - firsts[i] + 1 THEN
                    RAISE EXCEPTION 'does not fit' USING ERRCODE = '{POSTGRES_DOES_NOT_FIT}';
                END IF;
            END LOOP;
            INSERT INTO entries (key, body, digest) VALUES (new_key, new_body, new_digest)
                RETURNING seq INTO number;
            RETURN number;
        END $$""",  # noqa: S608 (names of columns)
    )


def _first(d: StoreDialect) -> tuple[str, ...]:
    charge = _postgres_charge() if d is POSTGRES else ()
    return (*_tables(d), *_indexes(), *_guards(d), *charge)


def _with_states(d: StoreDialect) -> tuple[str, ...]:
    """Add the signed accountant state at one seal, from which a ledger is opened: at most one row."""
    return (
        f"CREATE TABLE states (number {d.number} PRIMARY KEY, books {d.bytes} NOT NULL, "
        f"state_signature {d.bytes} NOT NULL){d.strict}",
        "CREATE INDEX reservations_open ON reservations (reservation) WHERE ended = 0",
    )


def _with_requests(d: StoreDialect) -> tuple[str, ...]:
    """Add the stored requests: the bytes that the request digest of an entry is taken of.

    They are not exported: an analyst's words may name people.
    """
    guards = [d.refuse("requests", event, "", "requests only grows") for event in ("UPDATE", "DELETE")]
    return (
        f"CREATE TABLE requests (charge {d.number} PRIMARY KEY, key TEXT NOT NULL, "
        f"asked {d.bytes} NOT NULL){d.strict}",
        *(statement for several in guards for statement in several),
    )


# One step for each schema version from FIRST on. An older version existed before the first release.
FIRST = 2
MIGRATIONS: tuple[Callable[[StoreDialect], tuple[str, ...]], ...] = (_first, _with_states, _with_requests)
VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY)"
