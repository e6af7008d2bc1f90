"""One member's part in a joint run: which run comes next, taking part in it, and its result.

Nothing is printed here: progress goes to `watch`, and remarks for the member's user go to `tell`. The
number of the next run follows from the journals on disk and from the charges in the member's ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.contribution import Contribution
    from lapwing.parties.identity import MemberKeys
    from lapwing.parties.joint_plan import JointPlan
    from lapwing.parties.journals import RunEnding
    from lapwing.parties.messages import Progress, ProgressCallback
    from lapwing.parties.protocols.protocol import OpenedSum
    from lapwing.parties.run_configuration import RunConfiguration
    from lapwing.parties.statistics import JointAnswer, Statistic
    from lapwing.sql.dataset import Dataset

WasCharged = Callable[[bytes], bool]  # of a run's id
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a member is in a run: `has_begun` once noise was drawn for it, or is about to be.

    `lost` are the numbers of earlier runs that were charged and cannot go on: their journals are gone.
    """

    table: RunConfiguration
    has_begun: bool
    ending: RunEnding | None
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedRun:
    """The result of a run for one member."""

    consortium: Consortium
    number: int
    answer: JointAnswer
    transcript: Path
    left: str
    is_replay: bool
    truncation: tuple[str, ...]  # how many rows of a person each member's numbers are made of

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plan = self.consortium.plan
        return {
            **self.answer.to_json(),
            "truncation": list(self.truncation),
            "consortium": self.consortium.digest.hex(),
            "run": self.number,
            "protocol": plan.protocol,
            "charged": None if self.is_replay else charge_text(plan),
            "left": self.left,
            "transcript": str(self.transcript),
            "guarantee": plan.guarantee,
        }


def charge_text(plan: JointPlan) -> str:
    """Return the charge to one member's ledger, in words."""
    from lapwing.core.loss_records import describe
    from lapwing.ledger.request_log import price_in_words

    return price_in_words(describe(plan.loss), (), Fraction(0))


@contextmanager
def bound(spec: object, policy: Path, tell: Tell) -> Iterator[tuple[Dataset, Statistic]]:
    """Open a policy's data and bind a statistic to it. Nothing is read or charged by that."""
    from lapwing.parties.statistics import statistic_of
    from lapwing.sql.dataset import open as open_dataset

    assert isinstance(spec, dict)
    with open_dataset(policy) as data:
        data.tell = tell
        yield data, statistic_of(spec, data)


def runs_folder(me: Path) -> Path:
    """Return the folder of the journals and transcripts of a member's runs. Create it if it is missing."""
    folder = me / "runs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def progress_in_run(
    consortium: Consortium, index: int, folder: Path, number: int | None, *, was_charged: WasCharged
) -> RunProgress:
    """Return the progress in the run of this number; None is the first run that can go on or has ended.

    `index` is the member's place in the consortium.
    """
    tried, lost = number or 1, list[int]()
    while True:
        table = consortium.table(tried)
        found = _from_journal(table, index, folder)
        is_lost = not found.has_begun and was_charged(table.run_id)
        if is_lost:
            lost.append(tried)
        can_go_on = not is_lost and (found.ending is None or found.ending.stopped is None)
        if can_go_on or number is not None:
            return RunProgress(table, found.has_begun, found.ending, tuple(lost))
        tried += 1


def _from_journal(table: RunConfiguration, index: int, folder: Path) -> RunProgress:
    from lapwing.parties.journals import MemberJournal

    path = folder / f"{table.label}.journal"
    if not path.exists():
        return RunProgress(table, has_begun=False, ending=None)
    with MemberJournal(path, table, index) as journal:
        return RunProgress(table, journal.has_begun(), journal.outcome())


def charges_of(data: Dataset) -> WasCharged:
    """Return a function that tells whether the policy's ledger was charged for a run."""
    from lapwing.ledger.gate import Gate

    gate = Gate(data.ledger, principal=data.analyst)
    return lambda run: gate.find(run.hex()) is not None


def next_relayed_run(consortium: Consortium, folder: Path) -> int:
    """Return the number of the first run that this relay has not brought to its end."""
    number = 1
    while (ended := _relayed(consortium.table(number), folder)) is not None and ended[0]:
        number += 1
    return number


def members_without_result(table: RunConfiguration, folder: Path) -> tuple[str, ...]:
    """Return the members of an opened run that have not told the relay here that they know the sums."""
    ended = _relayed(table, folder)
    return () if ended is None else ended[1]


def _relayed(table: RunConfiguration, folder: Path) -> tuple[bool, tuple[str, ...]] | None:
    """Return whether a relayed run has ended, and who may miss its result; None if not relayed here."""
    from lapwing.parties.journals import RelayJournal
    from lapwing.parties.protocols.registry import PROTOCOLS

    if not (folder / f"{table.label}.relay").exists():
        return None
    memory = RelayJournal(folder, table)
    try:
        is_over = len(memory.rounds()) == table.stages * len(PROTOCOLS[table.protocol].rounds)
        begun, served = memory.begun() or {}, memory.served()
        unserved = tuple(table.names[i] for i in begun if i not in served)
        return memory.has_ended(), unserved if is_over else ()
    finally:
        memory.close()


def take_part_in_run(
    consortium: Consortium,
    keys: MemberKeys,
    policy: Path,
    *,
    number: int | None,
    confidence: Fraction,
    listen: str | None,
    watch: ProgressCallback,
    tell: Tell,
    show: Callable[[JoinedRun], None] = lambda _: None,
) -> JoinedRun:
    """Take one member's part in one run and return the result.

    `show` is called with the result at once; a member that hosts the relay then stays for the others.
    """
    from lapwing.parties.draft import require_coalition, require_same_meaning
    from lapwing.parties.member import take_part

    index, folder = member_index(consortium, keys), runs_folder(keys.folder)
    with bound(dict(consortium.statistic), policy, tell) as (data, statistic):
        require_same_meaning(consortium, statistic)
        progress = progress_in_run(consortium, index, folder, number, was_charged=charges_of(data))
        table = progress.table
        if not progress.has_begun:
            require_coalition(consortium, data.policy.least_coalition)
        _tell_lost(progress, folder, tell)
        contribute = contribution(consortium, table, statistic, data)
        if not progress.has_begun:  # a journal alone means nothing: it is made in the lobby
            contribute.check()  # nobody has to wait for a charge that the ledger would refuse
        host = _relaying(table, keys, folder, listen, tell) if progress.ending is None else nullcontext()
        with host:
            outcome = take_part(
                table, index, keys, folder=folder, contribute=contribute, read=contribute.read, watch=watch
            )
            result = JoinedRun(
                consortium=consortium,
                number=table.number,
                answer=answer_of(consortium, statistic, outcome.opened, confidence=confidence),
                transcript=outcome.transcript,
                left=data.left(),
                is_replay=progress.ending is not None,
                truncation=() if statistic.source is None else statistic.source.truncation,
            )
            show(result)
        return result


def _tell_lost(progress: RunProgress, folder: Path, tell: Tell) -> None:
    """Tell of charged runs that cannot go on. Raise BadParameter if one was asked for by its number."""
    number = progress.table.number
    if number in progress.lost:
        raise BadParameter(
            "number",
            f"run {number} was charged before, but {folder} has no journal of it: it cannot go on, and "
            "would need new noise. Say another number, at every member",
        )
    for lost in progress.lost:
        tell(
            f"run {lost} was charged before, but {folder} has no journal of it: it cannot go on. This is "
            f"run {number}; the others must say --number {number}, too"
        )


def answer_of(
    consortium: Consortium, statistic: Statistic, opened: Sequence[OpenedSum], *, confidence: Fraction
) -> JointAnswer:
    """Return the answer that the opened sums give, with the noise that is in them."""
    shares = consortium.plan.shares
    noises = [[share.total(len(one.contributors)) for share in shares] for one in opened]
    return statistic.answer(opened, noises, confidence=confidence)


def contribution(
    consortium: Consortium, table: RunConfiguration, statistic: Statistic, data: Dataset
) -> Contribution:
    """Return this member's contribution: it is charged first, then read, then noised."""
    from lapwing.parties.contribution import Contribution

    plan = consortium.plan
    if plan.is_local:
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
    return Contribution(
        statistic=statistic,
        data=data,
        run=table.run_id,
        consortium=table.digest,
        shares=plan.shares,
        loss=plan.loss,
        largest=table.setting(0).largest,
    )


def member_index(consortium: Consortium, keys: MemberKeys) -> int:
    """Return the member's place in the consortium. Raise BadParameter if it is no member with this key."""
    if keys.card not in consortium.cards:
        raise BadParameter("me", f"{keys.name} (with this key) is none of {', '.join(consortium.names)}")
    return consortium.cards.index(keys.card)


def _relaying(
    table: RunConfiguration, keys: MemberKeys, folder: Path, listen: str | None, tell: Tell
) -> AbstractContextManager[None]:
    """Run the relay in a thread, if this member is the host."""
    from lapwing.parties.relay_server import relay_in_thread

    def tell_unserved(event: Progress) -> None:  # the member itself watches everything else
        if event.kind == "unserved":
            tell(
                f"{', '.join(event.names)} may not know the sums: {event.why}. You may stop this: the same "
                "command shows them again"
            )

    if keys.card != table.host:
        return nullcontext()
    return relay_in_thread(table, keys, folder=folder, listen=listen, watch=tell_unserved)
