"""The demo's ledger: a real file in a temporary folder, spent from through the gate, and then cheated.

Nothing is left behind: keys, anchors and copies lie in the same folder, the second anchor too.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from lapwing.errors import Tampered
from lapwing.gate import Gate, Plan, Release, Spending, Target
from lapwing.ledger import Ledger, Unit
from lapwing.privacy import Loss, Relation, Terms

ACCOUNT = "patients"
PRINCIPAL = "the demo"
STATE = "LAPWING_STATE"


@dataclass(frozen=True, slots=True)
class Ending:
    """What the ledger says once it was closed, opened again, and cheated."""

    again: bytes  # the first answer, asked for with the same key
    first: bytes
    left: Fraction  # after that: as before
    entries: int
    findings: tuple[str, ...]  # of the ledger itself: none
    edited: str  # why a copy in which the sums were set to 0 is not opened
    older: str  # why a copy from before the first question is not opened


class ClinicLedger:
    """A ledger that one analyst spends from."""

    def __init__(self, folder: Path, terms: Terms, relation: Relation) -> None:
        self._path = folder / "clinic.ledger"
        self._older = folder / "older.ledger"
        self._relation = relation
        self._ledger = Ledger.create(self._path)
        self._ledger.open_account(
            ACCOUNT, epsilon=terms.epsilon, delta=terms.delta, unit=Unit.PERSON, relation=relation
        )
        self.reopen(copy_to=self._older)

    @property
    def left(self) -> Fraction:
        """The greatest pure ε that would still be admitted."""
        [block] = self._ledger.blocks(ACCOUNT)
        return block.left(self._ledger.account(ACCOUNT).terms)

    def release(self, question: str, mechanism: str, loss: Loss, run: Callable[[], bytes]) -> Release:
        """Charge, run, store. The question is the key: asked again, it has the same answer."""
        spending = Spending(
            targets=(Target(ACCOUNT),),
            loss=loss,
            unit=Unit.PERSON,
            relation=self._relation,
            mechanism=mechanism,
            parameters={},
            request=question.encode(),
        )
        return Gate(self._ledger, principal=PRINCIPAL).release(Plan(spending, run), key=question)

    def reopen(self, *, copy_to: Path | None = None) -> None:
        """Close the ledger, perhaps copy its file, and open it again, as a process of tomorrow would."""
        self._ledger.close()
        if copy_to is not None:
            shutil.copy(self._path, copy_to)
        self._ledger = Ledger.open(self._path)

    def end(self, first: Release, ask_again: Callable[[], Release]) -> Ending:
        """Ask the first question again, verify everything, and try two copies that must not be opened."""
        edited = self._path.with_name("edited.ledger")
        self.reopen(copy_to=edited)
        again = ask_again()
        with closing(sqlite3.connect(edited)) as database:
            guards = database.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for guard, _ in guards:  # they would refuse, and whoever can edit can remove them
                database.execute(f'DROP TRIGGER "{guard}"')
            database.execute("UPDATE budgets SET left_1 = left_1 + 1000000000")
            for _, again_there in guards:  # or it would be found by that alone
                database.execute(again_there)
            database.commit()
        report = self._ledger.verify()
        return Ending(
            again=again.answer,
            first=first.answer,
            left=self.left,
            entries=report.replay.entries,
            findings=report.findings,
            edited=self._refused(edited),
            older=self._refused(self._older),
        )

    def _refused(self, copy: Path) -> str:
        """What differs, first of all, without the name of the folder."""
        try:
            Ledger.open(copy, keys=Path(f"{self._path}.keys"), anchor=f"{self._path}.anchor").close()
        except Tampered as tampered:
            return tampered.found[0].replace(f"{os.path.realpath(self._path.parent)}{os.sep}", "")
        raise AssertionError("a copy that says something else than the anchor must not be opened")

    def close(self) -> None:
        """Let go."""
        self._ledger.close()


@contextmanager
def temporary(terms: Terms, relation: Relation) -> Iterator[ClinicLedger]:
    """A ledger in a folder that is removed afterwards."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder, state_in(Path(folder, "state")):
        ledger = ClinicLedger(Path(folder), terms, relation)
        try:
            yield ledger
        finally:
            ledger.close()


@contextmanager
def state_in(folder: Path) -> Iterator[None]:
    """Second anchors belong in the user's own folder, but not for a ledger that is gone in a second."""
    before = os.environ.get(STATE)
    os.environ[STATE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[STATE]
        else:
            os.environ[STATE] = before
