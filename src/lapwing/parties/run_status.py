"""The runs of a consortium that a member or a relay knows: which run comes next, and how far it is.

Journals on disk and charges in the member's ledger decide this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lapwing.parties.consortium import Consortium
from lapwing.parties.identity import MemberKeys
from lapwing.parties.journals import MemberJournal, RelayJournal, RunEnding
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.sql.dataset import Dataset

WasCharged = Callable[[bytes], bool]  # the run's id -> whether the member's ledger has a charge for it


def runs_folder(keys: MemberKeys) -> Path:
    """Return the folder of a member's journals and transcripts. Make it if there is none."""
    folder = keys.folder / "runs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run that a member can join, and how far the member is in it.

    `has_begun` tells whether noise was drawn, or was about to be. `ending` is None before the end. `lost`
    are the numbers of runs that were charged and cannot continue, as their journals are gone.
    """

    config: RunConfiguration
    has_begun: bool
    ending: RunEnding | None
    lost: tuple[int, ...] = ()


def find_run(
    consortium: Consortium, keys: MemberKeys, number: int | None, *, was_charged: WasCharged
) -> RunStatus:
    """Return the run of this number, or for None the first that this member can join or see the end of."""
    me, folder = consortium.number_of(keys), runs_folder(keys)
    tried, lost = number or 1, list[int]()
    while True:
        config = consortium.run_configuration(tried)
        path, has_begun, ending = MemberJournal.path_of(folder, config), False, None
        if path.exists():
            with MemberJournal(path, config, me) as journal:
                has_begun, ending = journal.has_begun(), journal.outcome()
        is_lost = not has_begun and was_charged(config.run_id)
        if is_lost:
            lost.append(tried)
        is_open = ending is None or ending.stopped is None
        if number is not None or (is_open and not is_lost):
            return RunStatus(config, has_begun, ending, tuple(lost))
        tried += 1


def charges_of(data: Dataset) -> WasCharged:
    """Return a function that tells whether the ledger of this data has a charge for a run."""
    gate = data.session.gate
    return lambda run: gate.find(run.hex()) is not None


# Runs at the relay


def next_relay_run(consortium: Consortium, folder: Path) -> int:
    """Return the number of the first run that the relay of this folder has not brought to its end."""
    number = 1
    while _relay_status(consortium.run_configuration(number), folder)[0]:
        number += 1
    return number


def members_without_result(config: RunConfiguration, folder: Path) -> tuple[str, ...]:
    """Return the members that began a run whose sums are open, and may not know the sums yet."""
    return _relay_status(config, folder)[1]


def _relay_status(config: RunConfiguration, folder: Path) -> tuple[bool, tuple[str, ...]]:
    """Return whether the relay's run has ended, and the members that may not know its sums."""
    if not RelayJournal.path_of(folder, config).exists():
        return False, ()
    with RelayJournal(folder, config) as journal:
        is_over = len(journal.rounds()) == config.stages * len(config.rounds)
        begun, served = journal.begun() or {}, journal.served()
        unserved = tuple(config.names[i] for i in begun if i not in served)
        return journal.has_ended(), unserved if is_over else ()
