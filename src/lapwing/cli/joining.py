"""Which run comes next, by what a member or a relay has on its disk and what its ledger was charged for.

`lapwing party run` and `relay`: one member's part in a run, and a host that only relays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapwing.cli.console import AsJson, plainly, print_json, tell
from lapwing.cli.party import ConsortiumPath, Me, PolicyPath, bound
from lapwing.errors import Aborted, BadParameter, LapwingError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lapwing.cli.show_party import RunResult
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.contribution import Contribution
    from lapwing.parties.identity import MemberKeys
    from lapwing.parties.journals import RunEnding
    from lapwing.parties.messages import Progress, ProgressCallback
    from lapwing.parties.protocols.protocol import OpenedSum
    from lapwing.parties.run_configuration import RunConfiguration
    from lapwing.parties.statistics import JointAnswer, Statistic
    from lapwing.sql.dataset import Dataset


WasCharged = Callable[[bytes], bool]  # the run's id


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a member stands in a run: `has_begun` once noise was drawn for it, or about to be.

    `lost` are the numbers of runs before it that were charged and cannot go on: their journals are gone.
    """

    table: RunConfiguration
    has_begun: bool
    ending: RunEnding | None
    lost: tuple[int, ...] = ()


def runs_folder(me: Path) -> Path:
    """Where a member keeps the journals and transcripts of its runs."""
    folder = me / "runs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def progress_in_run(
    consortium: Consortium, seat: int, folder: Path, number: int | None, *, was_charged: WasCharged
) -> RunProgress:
    """The run that was asked for, or the first that this member can take part in, or see the end of."""
    tried, lost = number or 1, list[int]()
    while True:
        table = consortium.table(tried)
        found = _from_journal(table, seat, folder)
        if not found.has_begun and was_charged(table.run_id):
            lost.append(tried)
        elif found.ending is None or found.ending.stopped is None:
            return RunProgress(table, found.has_begun, found.ending, tuple(lost))
        if number is not None:
            return RunProgress(table, found.has_begun, found.ending, tuple(lost))
        tried += 1


def _from_journal(table: RunConfiguration, seat: int, folder: Path) -> RunProgress:
    from lapwing.parties.journals import MemberJournal  # noqa: PLC0415

    path = folder / f"{table.label}.journal"
    if not path.exists():
        return RunProgress(table, has_begun=False, ending=None)
    with MemberJournal(path, table, seat) as journal:
        return RunProgress(table, journal.has_begun(), journal.outcome())


def charges_of(data: Dataset) -> WasCharged:
    """Whether the policy's ledger knows a run."""
    from lapwing.ledger.gate import Gate  # noqa: PLC0415

    gate = Gate(data.ledger, principal=data.analyst)
    return lambda run: gate.find(run.hex()) is not None


def next_relayed_run(consortium: Consortium, folder: Path) -> int:
    """The first run that this relay has not brought to its end."""
    number = 1
    while (ended := _ended(consortium.table(number), folder)) is not None and ended[0]:
        number += 1
    return number


def members_without_result(table: RunConfiguration, folder: Path) -> tuple[str, ...]:
    """Who has begun a run whose sums are open, and has not told the relay here that it knows them."""
    ended = _ended(table, folder)
    return () if ended is None else ended[1]


def _ended(table: RunConfiguration, folder: Path) -> tuple[bool, tuple[str, ...]] | None:
    from lapwing.parties.journals import RelayJournal  # noqa: PLC0415
    from lapwing.parties.protocols.registry import PROTOCOLS  # noqa: PLC0415

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


Number = Annotated[
    int | None,
    typer.Option(
        "--number", min=1, help="Which run this is; all members say the same. Else the first not aborted."
    ),
]
Listen = Annotated[
    str | None,
    typer.Option("--listen", help="Where the host listens, if not at the consortium's address."),
]


def run(
    file: ConsortiumPath,
    *,
    me: Me,
    policy: PolicyPath,
    number: Number = None,
    confidence: Annotated[str, typer.Option(help="How sure each interval is.")] = "0.95",
    listen: Listen = None,
    as_json: AsJson = False,
) -> None:
    """Take part in a run: charge your own ledger, add your noise, and open nothing but the sum.

    Your data is read first, and nothing is charged before all are ready. After a crash, give the same
    command again: what was sent is sent again, or the result is fetched, or the run ends. After the end, it
    shows the same answer for nothing; --number 2 is a new run, which is charged again.
    """
    from lapwing.cli.show_party import show_result, watching_run
    from lapwing.core.spread import checked_confidence  # noqa: PLC0415

    level = checked_confidence(confidence)
    with plainly():
        keys, consortium = _opened_signed(file, me)

        def show(result: RunResult) -> None:
            if as_json:
                print_json(result.to_json())
            else:
                show_result(result)
            sys.stdout.flush()

        try:
            with watching_run(consortium.names) as watch:
                result = take_part_in_run(
                    consortium,
                    keys,
                    policy,
                    number=number,
                    confidence=level,
                    listen=listen,
                    watch=watch,
                    show=show,
                )
        except Aborted as error:
            raise _exit_with_advice(error, _after_abort(consortium, keys, policy)) from None
        except Unavailable as error:
            raise _exit_with_advice(error, _after_cut(consortium, keys, number)) from None
    if result.is_replay:
        with plainly():
            _show_the_end(consortium.table(result.number), keys, listen)


def _exit_with_advice(error: LapwingError, what_now: str) -> typer.Exit:
    """What is said on the other stream than the answer, to whoever reads it."""
    from lapwing.cli.show_party import replace_unprintable  # noqa: PLC0415

    tell(replace_unprintable(str(error)))
    if what_now:
        tell(what_now)
    return typer.Exit(1)


def _after_abort(consortium: Consortium, keys: MemberKeys, policy: Path) -> str:
    """Which run comes next for this member, and how all come to the same one."""
    seat, folder = _seat(consortium, keys), runs_folder(keys.folder)
    try:
        with bound(dict(consortium.statistic), policy) as (data, _):
            standing = progress_in_run(consortium, seat, folder, None, was_charged=charges_of(data))
    except LapwingError:  # why it ended matters more
        return ""
    return (
        f"the next run of {keys.name} is number {standing.table.number}: give the same command again. "
        "Members who are at different numbers say one with --number"
    )


def _after_cut(consortium: Consortium, keys: MemberKeys, number: int | None) -> str:
    """What is left to do in a run that has begun for this member; nothing is said of others."""
    seat, folder = _seat(consortium, keys), runs_folder(keys.folder)
    try:
        standing = progress_in_run(consortium, seat, folder, number, was_charged=lambda _: False)
    except Unavailable:  # as was said before
        return ""
    if not standing.has_begun or standing.ending is not None:
        return ""
    this = standing.table.number
    return (
        f"run {this} has begun for {keys.name}: the same command goes on with it. If it is over for the "
        f"others, {consortium.host.name} shows its end again with --number {this}, and the transcript of "
        f"any of them shows the sums: lapwing party verify. A new run is --number {this + 1} at every "
        "member, and is charged again"
    )


def take_part_in_run(
    consortium: Consortium,
    keys: MemberKeys,
    policy: Path,
    *,
    number: int | None,
    confidence: Fraction,
    listen: str | None,
    watch: ProgressCallback,
    show: Callable[[RunResult], None] = lambda _: None,
) -> RunResult:
    """One member's part in one run, and what it gave. A host shows it, and then stays for the others."""
    from lapwing.cli.show_party import RunResult  # noqa: PLC0415
    from lapwing.parties.draft import require_coalition, require_same_meaning
    from lapwing.parties.member import take_part  # noqa: PLC0415

    seat, folder = _seat(consortium, keys), runs_folder(keys.folder)
    with bound(dict(consortium.statistic), policy) as (data, statistic):
        require_same_meaning(consortium, statistic)
        standing = progress_in_run(consortium, seat, folder, number, was_charged=charges_of(data))
        table = standing.table
        if not standing.has_begun:
            require_coalition(consortium, data.policy.least_coalition)
        _tell_lost(standing, folder)
        contribute = contribution(consortium, table, statistic, data)
        if not standing.has_begun:  # a journal alone means nothing: it is there since the lobby
            contribute.check()  # what the ledger would refuse, nobody has to wait for
        host = _relaying(table, keys, folder, listen) if standing.ending is None else nullcontext()
        with host:
            outcome = take_part(
                table, seat, keys, folder=folder, contribute=contribute, read=contribute.read, watch=watch
            )
            result = RunResult(
                consortium=consortium,
                number=table.number,
                answer=answer_of(consortium, statistic, outcome.opened, confidence=confidence),
                transcript=outcome.transcript,
                left=data.left(),
                is_replay=standing.ending is not None,
                truncation=() if statistic.source is None else statistic.source.truncation,
            )
            show(result)
        return result


def _tell_lost(standing: RunProgress, folder: Path) -> None:
    """Runs that were charged and cannot go on. One that was asked for by its number is refused."""
    number = standing.table.number
    if number in standing.lost:
        raise BadParameter(
            "number",
            f"run {number} was charged before, but {folder} has no journal of it: it cannot go on, and "
            "would need new noise. Say another number, at every member",
        )
    for lost in standing.lost:
        tell(
            f"run {lost} was charged before, but {folder} has no journal of it: it cannot go on. This is "
            f"run {number}; the others must say --number {number}, too"
        )


def relay(file: ConsortiumPath, *, me: Me, number: Number = None, listen: Listen = None) -> None:
    """Only relay: for a host that the consortium names and that is not a member."""
    from lapwing.cli.show_party import watching_run  # noqa: PLC0415
    from lapwing.parties.relay_server import serve_relay  # noqa: PLC0415

    with plainly():
        keys, consortium = _opened_signed(file, me)
        if keys.card != consortium.host:
            raise BadParameter("me", f"this is {keys.name}, but {consortium.host.name} is the host")
        folder = runs_folder(me)
        table = consortium.table(number or next_relayed_run(consortium, folder))
        for before in range(1, table.number):
            _tell_who_waits(consortium.table(before), folder)
        print(f"Relaying run {table.number} of {consortium.name} at {listen or table.address}", flush=True)
        with watching_run(consortium.names) as watch:
            serve_relay(table, keys, folder=folder, listen=listen, watch=watch)
    print("The run is over.")


def _tell_who_waits(table: RunConfiguration, folder: Path) -> None:
    names = members_without_result(table, folder)
    if names:
        tell(
            f"run {table.number} ended, and {', '.join(names)} may not know its sums: --number "
            f"{table.number} shows the end again"
        )


def _show_the_end(table: RunConfiguration, keys: MemberKeys, listen: str | None) -> None:
    """A host that has the answer stays for those who missed the last round."""
    from lapwing.parties.relay_server import serve_relay  # noqa: PLC0415

    folder = runs_folder(keys.folder)
    waiting = members_without_result(table, folder) if keys.card == table.host else ()
    names = [name for name in waiting if name != keys.name]
    if names:
        tell(
            f"{', '.join(names)} may not know the sums: for "
            f"{max(table.lobby_seconds, table.round_seconds):g} seconds the end of run {table.number} is "
            "shown again to whoever comes"
        )
        serve_relay(table, keys, folder=folder, listen=listen)


def answer_of(
    consortium: Consortium, statistic: Statistic, opened: Sequence[OpenedSum], *, confidence: Fraction
) -> JointAnswer:
    """What the opened sums come to, with the noise that is in them."""
    shares = consortium.plan.shares
    noises = [[share.total(len(one.contributors)) for share in shares] for one in opened]
    return statistic.answer(opened, noises, confidence=confidence)


def contribution(
    consortium: Consortium, table: RunConfiguration, statistic: Statistic, data: Dataset
) -> Contribution:
    """What this member brings: charged first, then read, then noised."""
    from lapwing.parties.contribution import Contribution  # noqa: PLC0415

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


def _opened_signed(file: Path, me: Path) -> tuple[MemberKeys, Consortium]:
    from lapwing.parties.consortium import Consortium  # noqa: PLC0415
    from lapwing.parties.identity import MemberKeys  # noqa: PLC0415

    keys, consortium = MemberKeys.open(me), Consortium.read(file)
    consortium.require_signed_by_all()
    return keys, consortium


def _seat(consortium: Consortium, keys: MemberKeys) -> int:
    if keys.card not in consortium.cards:
        raise BadParameter("me", f"{keys.name} (with this key) is none of {', '.join(consortium.names)}")
    return consortium.cards.index(keys.card)


def _relaying(
    table: RunConfiguration, keys: MemberKeys, folder: Path, listen: str | None
) -> AbstractContextManager[None]:
    """The relay in a thread, if this member is the host."""
    from lapwing.parties.relay_server import relay_in_thread  # noqa: PLC0415

    if keys.card != table.host:
        return nullcontext()
    return relay_in_thread(table, keys, folder=folder, listen=listen, watch=_tell_unserved)


def _tell_unserved(event: Progress) -> None:
    """Why a host does not end with its answer. Of the rest it hears as a member."""
    if event.kind == "unserved":
        tell(
            f"{', '.join(event.names)} may not know the sums: {event.why}. You may stop this: the same "
            "command shows them again"
        )
