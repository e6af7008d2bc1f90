"""`lapwing party run` and `relay`: one member's part in a run, and a host that only relays."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapwing.cli.opened import AsJson, plainly, print_json
from lapwing.cli.party import ConsortiumPath, Me, PolicyPath, bound
from lapwing.errors import Aborted, BadParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lapwing.cli.show_party import Result
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.contribution import Contribution
    from lapwing.parties.identity import Keys
    from lapwing.parties.journal import Ending
    from lapwing.parties.messages.progress import Watch
    from lapwing.parties.messages.table import Table
    from lapwing.parties.protocols.protocol import Opened
    from lapwing.parties.statistics import JointAnswer, Statistic
    from lapwing.query.dataset import Dataset

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

    After a crash, give the same command again: what was sent is sent again, or the run ends. After the end,
    it shows the same answer for nothing; --number 2 is a new run, which is charged again.
    """
    from lapwing.cli.party_progress import watching  # noqa: PLC0415
    from lapwing.cli.show_party import show_result  # noqa: PLC0415
    from lapwing.mechanisms.spread import checked_confidence  # noqa: PLC0415

    level = checked_confidence(confidence)
    with plainly():
        keys, consortium = _opened(file, me)
        try:
            with watching(consortium.names) as watch:
                result = taken(
                    consortium, keys, policy, number=number, confidence=level, listen=listen, watch=watch
                )
        except Aborted as error:
            print(f"lapwing: {error}", file=sys.stderr)
            print(f"lapwing: {_what_now(consortium, keys)}", file=sys.stderr)
            raise typer.Exit(1) from None
    if as_json:
        print_json(result.to_json())
    else:
        show_result(result)


def _what_now(consortium: Consortium, keys: Keys) -> str:
    """After an abort: which run comes next for this member, and how all come to the same one."""
    table, _ = _table(consortium, _seat(consortium, keys), runs_folder(keys.folder), None)
    return (
        f"the next run of {keys.name} is number {table.number}: give the same command again. Members who "
        "are at different numbers say one with --number"
    )


def taken(
    consortium: Consortium,
    keys: Keys,
    policy: Path,
    *,
    number: int | None,
    confidence: Fraction,
    listen: str | None,
    watch: Watch,
) -> Result:
    """One member's part in one run, and what it gave."""
    from lapwing.cli.show_party import Result  # noqa: PLC0415
    from lapwing.parties.consortium.founding import require_same_meaning  # noqa: PLC0415
    from lapwing.parties.member import take_part  # noqa: PLC0415

    seat, folder = _seat(consortium, keys), runs_folder(keys.folder)
    table, before = _table(consortium, seat, folder, number)
    with bound(dict(consortium.statistic), policy) as (data, statistic):
        require_same_meaning(consortium, statistic)
        contribute = contribution(consortium, table, statistic, data)
        if not has_journal(folder, table):
            contribute.check()  # what the ledger would refuse, nobody has to wait for
        host = _relaying(table, keys, folder, listen) if before is None else nullcontext()
        with host:
            outcome = take_part(table, seat, keys, folder=folder, contribute=contribute, watch=watch)
        return Result(
            consortium=consortium,
            number=table.number,
            answer=answer_of(consortium, statistic, outcome.opened, confidence=confidence),
            transcript=outcome.transcript,
            left=data.left(),
            is_replay=before is not None,
        )


def relay(file: ConsortiumPath, *, me: Me, number: Number = None, listen: Listen = None) -> None:
    """Only relay: for a host that the consortium names and that is not a member."""
    from lapwing.cli.party_progress import watching  # noqa: PLC0415
    from lapwing.parties.relay import serve  # noqa: PLC0415

    with plainly():
        keys, consortium = _opened(file, me)
        folder = runs_folder(me)
        table = consortium.table(number or _next_relayed(consortium, folder))
        print(f"Relaying run {table.number} of {consortium.name} at {listen or table.address}", flush=True)
        with watching(consortium.names) as watch:
            serve(table, keys, folder=folder, listen=listen, watch=watch)
    print("The run is over.")


def answer_of(
    consortium: Consortium, statistic: Statistic, opened: Sequence[Opened], *, confidence: Fraction
) -> JointAnswer:
    """What the opened sums come to, with the noise that is in them."""
    shares = consortium.plan.shares
    noises = [[share.total(len(one.contributors)) for share in shares] for one in opened]
    return statistic.answer(opened, noises, confidence=confidence)


def contribution(consortium: Consortium, table: Table, statistic: Statistic, data: Dataset) -> Contribution:
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


def runs_folder(me: Path) -> Path:
    """Where a member keeps the journals and transcripts of its runs."""
    folder = me / "runs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def has_journal(folder: Path, table: Table) -> bool:
    """Whether this member has begun to take part in this run before."""
    return (folder / f"{table.label}.journal").exists()


def _opened(file: Path, me: Path) -> tuple[Keys, Consortium]:
    from lapwing.parties.consortium import Consortium  # noqa: PLC0415
    from lapwing.parties.identity import Keys  # noqa: PLC0415

    keys, consortium = Keys.open(me), Consortium.read(file)
    consortium.require_signed_by_all()
    return keys, consortium


def _seat(consortium: Consortium, keys: Keys) -> int:
    if keys.card not in consortium.cards:
        raise BadParameter("me", f"{keys.name} (with this key) is none of {', '.join(consortium.names)}")
    return consortium.cards.index(keys.card)


def _table(
    consortium: Consortium, seat: int, folder: Path, number: int | None
) -> tuple[Table, Ending | None]:
    """The run that was asked for, or the first that did not abort; and how it ended, if it did."""
    from lapwing.parties.journal import Journal  # noqa: PLC0415

    tried = number or 1
    while True:
        table = consortium.table(tried)
        if not has_journal(folder, table):
            return table, None
        with Journal(folder / f"{table.label}.journal", table, seat) as journal:
            ending = journal.outcome()
        if number is not None or ending is None or ending.stopped is None:
            return table, ending
        tried += 1


def _next_relayed(consortium: Consortium, folder: Path) -> int:
    from lapwing.parties.relay.memory import Memory  # noqa: PLC0415

    number = 1
    while True:
        table = consortium.table(number)
        if not (folder / f"{table.label}.relay").exists():
            return number
        memory = Memory(folder, table)
        try:
            if not memory.has_ended():
                return number
        finally:
            memory.close()
        number += 1


def _relaying(table: Table, keys: Keys, folder: Path, listen: str | None) -> AbstractContextManager[None]:
    """The relay in a thread, if this member is the host."""
    from lapwing.parties.relay import serving  # noqa: PLC0415

    if keys.card != table.host:
        return nullcontext()
    return serving(table, keys, folder=folder, listen=listen)
