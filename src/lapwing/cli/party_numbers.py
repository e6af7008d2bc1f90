"""Which run comes next, by what a member or a relay has on its disk and what its ledger was charged for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.journal import Ending
    from lapwing.parties.messages.table import Table
    from lapwing.query.dataset import Dataset

WasCharged = Callable[[bytes], bool]  # the run's id


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a member stands in a run: `has_begun` once noise was drawn for it, or about to be.

    `lost` are the numbers of runs before it that were charged and cannot go on: their journals are gone.
    """

    table: Table
    has_begun: bool
    ending: Ending | None
    lost: tuple[int, ...] = ()


def runs_folder(me: Path) -> Path:
    """Where a member keeps the journals and transcripts of its runs."""
    folder = me / "runs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def standing_in(
    consortium: Consortium, seat: int, folder: Path, number: int | None, *, was_charged: WasCharged
) -> Standing:
    """The run that was asked for, or the first that this member can take part in, or see the end of."""
    tried, lost = number or 1, list[int]()
    while True:
        table = consortium.table(tried)
        found = _from_journal(table, seat, folder)
        if not found.has_begun and was_charged(table.run_id):
            lost.append(tried)
        elif found.ending is None or found.ending.stopped is None:
            return Standing(table, found.has_begun, found.ending, tuple(lost))
        if number is not None:
            return Standing(table, found.has_begun, found.ending, tuple(lost))
        tried += 1


def _from_journal(table: Table, seat: int, folder: Path) -> Standing:
    from lapwing.parties.journal import Journal  # noqa: PLC0415

    path = folder / f"{table.label}.journal"
    if not path.exists():
        return Standing(table, has_begun=False, ending=None)
    with Journal(path, table, seat) as journal:
        return Standing(table, journal.has_begun(), journal.outcome())


def charges_of(data: Dataset) -> WasCharged:
    """Whether the policy's ledger knows a run."""
    from lapwing.gate import Gate  # noqa: PLC0415

    gate = Gate(data.ledger, principal=data.analyst)
    return lambda run: gate.find(run.hex()) is not None


def next_relayed(consortium: Consortium, folder: Path) -> int:
    """The first run that this relay has not brought to its end."""
    number = 1
    while (ended := _ended(consortium.table(number), folder)) is not None and ended[0]:
        number += 1
    return number


def without_the_end(table: Table, folder: Path) -> tuple[str, ...]:
    """Who has begun a run whose sums are open, and has not told the relay here that it knows them."""
    ended = _ended(table, folder)
    return () if ended is None else ended[1]


def _ended(table: Table, folder: Path) -> tuple[bool, tuple[str, ...]] | None:
    from lapwing.parties.protocols import PROTOCOLS  # noqa: PLC0415
    from lapwing.parties.relay.memory import Memory  # noqa: PLC0415

    if not (folder / f"{table.label}.relay").exists():
        return None
    memory = Memory(folder, table)
    try:
        is_over = len(memory.rounds()) == table.stages * len(PROTOCOLS[table.protocol].rounds)
        begun, served = memory.begun() or {}, memory.served()
        unserved = tuple(table.names[i] for i in begun if i not in served)
        return memory.has_ended(), unserved if is_over else ()
    finally:
        memory.close()
