"""The plans of a server's people, in one small SQLite file that all worker processes share.

A plan costs nothing, so the file is not written with care: after a power failure the last plans may be
missing, and the cure is to plan again. That a plan spends once does not rest on this file alone: the ledger
recognises the question.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter
from lapwing.sql.pricing.cost import Cost
from lapwing.sql.pricing.plan import Plan
from lapwing.storage.private_file import touch_private_file
from lapwing.storage.sqlite import RunStatement, connect_sqlite, sqlite_errors, sqlite_transaction

NAME = "plans.sqlite"
KEPT_SECONDS = 7 * 86_400  # after which a plan is forgotten; its answer is in the ledger
MOST_OF_A_PERSON = 2_000  # plans; the oldest are forgotten
_LOOK_EVERY = 64  # plans, between two looks for old ones
_WAIT = 10.0  # seconds for another worker that writes
_TABLE = """
CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY, person TEXT NOT NULL, data TEXT NOT NULL, form TEXT NOT NULL, made REAL NOT NULL,
    since INTEGER NOT NULL, version INTEGER NOT NULL, receipt INTEGER NOT NULL,
    promise TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID
"""
_BY_PERSON = "CREATE INDEX IF NOT EXISTS plans_of_a_person ON plans (person, made)"
_COLUMNS = "id, person, data, form, made, since, version, receipt, promise"


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan as it is stored. 0 stands for no version and for no receipt yet."""

    id: str
    person: str
    data: str
    form: str  # JSON
    made: float
    since: int  # the ledger's newest entry when the plan was made
    version: int  # of the data that the plan is about
    receipt: int  # of its release
    promise: str = ""  # what its owner was shown: the policy and the price


def promise_of(plans: Sequence[Plan], cost: Cost) -> str:
    """Return what the owner of a plan is shown, to be stored with it: under which policy, at what price."""
    return json.dumps([[plan.data_digest for plan in plans], str(cost.epsilon), str(cost.delta)])


def require_promise(row: PlanRow, plans: Sequence[Plan], cost: Cost | None) -> None:
    """Refuse a plan that was planned again, and is not what its owner was shown.

    `cost` is the price now; None where the engine itself charges for nothing more than was planned.

    Raises BadParameter if the policy or its public rows have changed, or the price is higher.
    """
    if not row.promise:
        return
    digests, epsilon, delta = json.loads(row.promise)
    is_dearer = cost is not None and (cost.epsilon > Fraction(epsilon) or cost.delta > Fraction(delta))
    if is_dearer or digests != [plan.data_digest for plan in plans]:
        raise BadParameter(
            "plan",
            "was made before the policy or the price changed. Plan the question again. Nothing was charged",
        )


class PlanFile:
    """The file of plans. Threads and processes may share it.

    Args:
        path: The file, which is made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._lock, self._count = path, threading.Lock(), 0
        with self._translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            touch_private_file(path)
            self._connection = connect_sqlite(
                path, ("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON"), wait=_WAIT
            )
        with self._transaction() as run:
            run(_TABLE)
            run(_BY_PERSON)
            if "promise" not in {column[1] for column in run("PRAGMA table_info(plans)").fetchall()}:
                run("ALTER TABLE plans ADD COLUMN promise TEXT NOT NULL DEFAULT ''")  # an older file

    def add(
        self, *, person: str, data: str, form: str, since: int, version: int, promise: str = ""
    ) -> PlanRow:
        """Store a new plan under a random name of 128 bits."""
        row = PlanRow(random_bytes(16).hex(), person, data, form, time.time(), since, version, 0, promise)
        with self._transaction() as run:
            run(
                f"INSERT INTO plans ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 (names of ours)
                (row.id, person, data, form, row.made, since, version, 0, promise),
            )
            if self._count % _LOOK_EVERY == 0:
                self._forget_old(run, person)
            self._count += 1
        return row

    def find(self, plan_id: str) -> PlanRow | None:
        """Return a plan, or None."""
        with self._lock, self._translated():
            found: Any = self._connection.execute(
                f"SELECT {_COLUMNS} FROM plans WHERE id = ?",  # noqa: S608 (names of ours)
                (plan_id,),
            ).fetchone()
        return None if found is None else PlanRow(*found)

    def fix_version(self, plan_id: str, version: int) -> int:
        """Fix the version of the data that a plan is about, if it has none. Return the fixed version."""
        with self._transaction() as run:
            run("UPDATE plans SET version = ? WHERE id = ? AND version = 0", (version, plan_id))
            found = run("SELECT version FROM plans WHERE id = ?", (plan_id,)).fetchone()
        return version if found is None else int(found[0])

    def note_receipt(self, plan_id: str, receipt: int) -> None:
        """Note the receipt of a plan's release. The first one stays."""
        with self._transaction() as run:
            run("UPDATE plans SET receipt = ? WHERE id = ? AND receipt = 0", (receipt, plan_id))

    def _forget_old(self, run: RunStatement, person: str) -> None:
        run("DELETE FROM plans WHERE made < ?", (time.time() - KEPT_SECONDS,))
        run(
            "DELETE FROM plans WHERE person = ? AND made < (SELECT made FROM plans WHERE person = ? "
            "ORDER BY made DESC LIMIT 1 OFFSET ?)",
            (person, person, MOST_OF_A_PERSON),
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _translated(self) -> Any:
        return sqlite_errors("The file of plans")

    @contextmanager
    def _transaction(self) -> Iterator[RunStatement]:
        with self._lock, self._translated(), sqlite_transaction(self._connection) as run:
            yield run
