"""`lapwing party`: joint statistics of members who do not show one another their rows.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lapwing.cli import joining
from lapwing.cli.console import (
    AsJson,
    ExampleFolder,
    PlotPath,
    check_plot,
    os_errors_told,
    print_json,
    require_file,
    tell,
    working,
    write_new,
    write_plot,
)
from lapwing.errors import Aborted, BadParameter, LapwingError, Tampered, Unavailable
from lapwing.storage.private_file import PUBLIC, replaced_private_file

if TYPE_CHECKING:
    from lapwing.cli.joining import JoinedRun
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.identity import MemberKeys
    from lapwing.parties.run_configuration import RunConfiguration
    from lapwing.parties.statistics import Statistic
    from lapwing.sql.dataset import Dataset

app = typer.Typer(
    help="Joint statistics of several members, none of whom sees another's rows.", no_args_is_help=True
)

WishPath = Annotated[Path, typer.Argument(metavar="WISH", help="The wish file, such as joint.toml.")]
ConsortiumPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="The consortium file, such as joint-wards.consortium.")
]
Me = Annotated[Path, typer.Option("--me", help="Your folder, with your keys: what `init` made.")]
PolicyPath = Annotated[Path, typer.Option("--policy", help="The policy of your own data.")]
CardPath = Annotated[
    Path | None,
    typer.Option("--relay-card", help="The card of the host that relays, if it is not a member."),
]
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
NAMES = ("east", "north", "south", "west", "coast", "hills", "lakes", "plain", "river", "woods")
QUICK_SIZES, QUICK_MEMBERS = (10, 100, 1000), (2, 10)


@contextmanager
def bound(spec: object, policy: Path) -> Iterator[tuple[Dataset, Statistic]]:
    """Open a policy's data and bind a statistic to it. Nothing is read or charged by that."""
    with os_errors_told(), joining.bound(spec, policy, tell) as found:
        yield found


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Your name among the members, such as north.")],
    *,
    folder: Annotated[
        Path | None, typer.Option(help="Where your keys will be stored; else a folder of your name.")
    ] = None,
) -> None:
    """Make your keys, and the card that you show to the other members."""
    from lapwing.parties.identity import MemberKeys

    with os_errors_told():
        keys = MemberKeys.create(name, folder or Path(name))
    print(f"{keys.folder / name}.card is your card: send it to the member who invites.")
    print(f"Its fingerprint, to be compared over another channel: {keys.card.fingerprint}")
    print(f"The keys in {keys.folder} are yours alone. With them, anybody can speak for you.")


@app.command()
def plan(
    wish: WishPath,
    *,
    members: Annotated[int, typer.Option(help="How many members there will be.", min=1, max=1000)],
    policy: PolicyPath,
    as_json: AsJson = False,
) -> None:
    """Show which protocol would run, with its guarantee, error and traffic. Free; reads no private row."""
    from lapwing.cli.show_party import show_plan
    from lapwing.parties.draft import plan_for, read_draft

    file = read_draft(wish)
    with bound(file.statistic, policy) as (_, statistic):
        made, why = plan_for(file, members, statistic), statistic.why_not_local
        if as_json:
            found = {"name": file.name, "statistic": statistic.spec}
            print_json({**found, **made.to_json(why_not_local=why)})
        else:
            show_plan(made, file.name, statistic.title, why_not_local=why)


@app.command()
def invite(
    wish: WishPath,
    cards: Annotated[list[Path], typer.Argument(metavar="CARD...", help="The cards of all members.")],
    *,
    policy: PolicyPath,
    relay_card: CardPath = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; else NAME.consortium in this folder.")
    ] = None,
) -> None:
    """Write the consortium file that every member signs: members, statistic, protocol, parameters."""
    from lapwing.parties.draft import found_consortium, read_draft
    from lapwing.parties.identity import Card

    file = read_draft(wish)
    with bound(file.statistic, policy) as (_, statistic):
        relay = None if relay_card is None else Card.read(relay_card)
        made = found_consortium(file, [Card.read(path) for path in cards], statistic, relay=relay)
        target = out or Path(f"{file.name}.consortium")
        write_new(target, made.to_text(), option="out")
    print(f"Wrote {target}, for {', '.join(made.names)}. Its fingerprint: {made.fingerprint}")
    print("Send it to all of them. Each looks at it and signs:")
    print(f"  lapwing party join {target} --me {made.names[0]} --policy POLICY")


@app.command()
def join(
    file: ConsortiumPath,
    *,
    me: Me,
    policy: PolicyPath,
    copies: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Take the signatures of this copy, too; may be repeated."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without being asked.")] = False,
) -> None:
    """See what you are asked to take part in, and what it will cost your people; then sign it."""
    from lapwing.cli.show_party import show_invitation
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.draft import require_coalition, require_same_meaning
    from lapwing.parties.identity import MemberKeys

    keys = MemberKeys.open(me)
    consortium = Consortium.read(file)
    for copy in copies or ():
        consortium = consortium.merged(Consortium.read(copy))
    signed = consortium.signed(keys)
    with bound(dict(consortium.statistic), policy) as (data, statistic):
        require_same_meaning(consortium, statistic)
        require_coalition(consortium, data.policy.least_coalition)
        show_invitation(consortium, keys.name, statistic.title)
    if not yes and not typer.confirm(f"Sign this as {keys.name}?"):
        raise typer.Abort
    with os_errors_told():
        written = _write_merged(file, signed)
    print(f"{keys.name} has signed {file}.")
    if written.unsigned:
        print(f"Not yet: {', '.join(written.unsigned)}.")
    else:
        print("All have signed. Each runs, at about the same time:")
        print(f"  lapwing party run {file} --me {me} --policy {policy}")


def _write_merged(path: Path, signed: Consortium) -> Consortium:
    """Add signatures to those that others may have written meanwhile into the same file; all or nothing."""
    from lapwing.parties.consortium import Consortium

    with _locked(path):
        merged = Consortium.read(path).merged(signed)
        with replaced_private_file(path, mode=PUBLIC) as file:
            file.write(merged.to_text().encode())
    return merged


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file. If it was replaced while we waited, lock the new one."""
    while True:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                yield
                return


@app.command()
def verify(
    transcript: Annotated[Path, typer.Argument(help="A transcript, as `run` writes it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Check a run from its public transcript: members, signatures, order, agreed sets and opened sums."""
    from lapwing.cli.show_party import replace_unprintable, show_verified, verified_json
    from lapwing.parties.transcript import verify_transcript as verified

    require_file(transcript, "transcript")
    try:
        with os_errors_told():
            found = verified(transcript)
    except Tampered as error:
        print(f"lapwing: {transcript} does not verify:", file=sys.stderr)
        for finding in error.found:
            print(f"  - {replace_unprintable(' '.join(finding.split()))}", file=sys.stderr)
        raise typer.Exit(1) from None
    if as_json:
        print_json(verified_json(found))
    else:
        show_verified(found, transcript)


@app.command()
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
    from lapwing.core.spread import checked_confidence

    level = checked_confidence(confidence)
    with os_errors_told():
        keys, consortium = _opened_signed(file, me)

        def show(result: JoinedRun) -> None:
            if as_json:
                print_json(result.to_json())
            else:
                show_result(result)
            sys.stdout.flush()

        try:
            with watching_run(consortium.names) as watch:
                result = joining.take_part_in_run(
                    consortium, keys, policy, number=number, confidence=level, listen=listen, watch=watch,
                    tell=tell, show=show,
                )  # fmt: skip
        except Aborted as error:
            raise _exit_with_advice(error, _after_abort(consortium, keys, policy)) from None
        except Unavailable as error:
            raise _exit_with_advice(error, _after_disconnect(consortium, keys, number)) from None
        if result.is_replay:
            _show_end_again(consortium.table(result.number), keys, listen)


def _opened_signed(file: Path, me: Path) -> tuple[MemberKeys, Consortium]:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.identity import MemberKeys

    keys, consortium = MemberKeys.open(me), Consortium.read(file)
    consortium.require_signed_by_all()
    return keys, consortium


def _exit_with_advice(error: LapwingError, advice: str) -> typer.Exit:
    """Tell of the error and the advice on stderr. Return the exit to raise."""
    from lapwing.cli.show_party import replace_unprintable

    tell(replace_unprintable(str(error)))
    if advice:
        tell(advice)
    return typer.Exit(1)


def _after_abort(consortium: Consortium, keys: MemberKeys, policy: Path) -> str:
    """Return which run is next for this member, and how all come to the same one."""
    index, folder = joining.member_index(consortium, keys), joining.runs_folder(keys.folder)
    try:
        with bound(dict(consortium.statistic), policy) as (data, _):
            charged = joining.charges_of(data)
            progress = joining.progress_in_run(consortium, index, folder, None, was_charged=charged)
    except LapwingError:  # the reason of the abort matters more
        return ""
    return (
        f"the next run of {keys.name} is number {progress.table.number}: give the same command again. "
        "Members who are at different numbers say one with --number"
    )


def _after_disconnect(consortium: Consortium, keys: MemberKeys, number: int | None) -> str:
    """Return what to do about a run that has begun for this member; "" if none has."""
    index, folder = joining.member_index(consortium, keys), joining.runs_folder(keys.folder)
    try:
        progress = joining.progress_in_run(consortium, index, folder, number, was_charged=lambda _: False)
    except Unavailable:  # it was told already
        return ""
    if not progress.has_begun or progress.ending is not None:
        return ""
    this = progress.table.number
    return (
        f"run {this} has begun for {keys.name}: the same command goes on with it. If it is over for the "
        f"others, {consortium.host.name} shows its end again with --number {this}, and the transcript of "
        f"any of them shows the sums: lapwing party verify. A new run is --number {this + 1} at every "
        "member, and is charged again"
    )


def _show_end_again(table: RunConfiguration, keys: MemberKeys, listen: str | None) -> None:
    """Serve the end of a run again, if this is the host and some members may have missed it."""
    from lapwing.parties.relay_server import serve_relay

    folder = joining.runs_folder(keys.folder)
    waiting = joining.members_without_result(table, folder) if keys.card == table.host else ()
    names = [name for name in waiting if name != keys.name]
    if names:
        tell(
            f"{', '.join(names)} may not know the sums: for "
            f"{max(table.lobby_seconds, table.round_seconds):g} seconds the end of run {table.number} is "
            "shown again to every member that asks"
        )
        serve_relay(table, keys, folder=folder, listen=listen)


@app.command()
def relay(file: ConsortiumPath, *, me: Me, number: Number = None, listen: Listen = None) -> None:
    """Only relay: for a host that the consortium names and that is not a member."""
    from lapwing.cli.show_party import watching_run
    from lapwing.parties.relay_server import serve_relay

    with os_errors_told():
        keys, consortium = _opened_signed(file, me)
        if keys.card != consortium.host:
            raise BadParameter("me", f"this is {keys.name}, but {consortium.host.name} is the host")
        folder = joining.runs_folder(me)
        table = consortium.table(number or joining.next_relayed_run(consortium, folder))
        for before in range(1, table.number):
            if names := joining.members_without_result(consortium.table(before), folder):
                tell(
                    f"run {before} ended, and {', '.join(names)} may not know its sums: --number {before} "
                    "shows the end again"
                )
        print(f"Relaying run {table.number} of {consortium.name} at {listen or table.address}", flush=True)
        with watching_run(consortium.names) as watch:
            serve_relay(table, keys, folder=folder, listen=listen, watch=watch)
    print("The run is over.")


@app.command()
def simulate(
    *,
    members: Annotated[int, typer.Option(help="How many members.", min=1, max=100)] = 3,
    coalition: Annotated[int, typer.Option(help="How many may be the adversary's.", min=0)] = 1,
    losses: Annotated[int, typer.Option(help="How many more may fail before they have shared.", min=0)] = 0,
    people_at: Annotated[int, typer.Option(help="At how many members a person may be.", min=1)] = 1,
    adversary: Annotated[
        Literal["unbounded", "bounded"], typer.Option(help="Its computing power.")
    ] = "unbounded",
    protocol: Annotated[
        Literal["auto", "A", "B", "C", "D"], typer.Option(help="auto: the planner chooses.")
    ] = "auto",
    epsilon: Annotated[str, typer.Option(help="What a person may lose.")] = "1",
    counts: Annotated[
        str | None, typer.Option(help="Made-up counts, such as 120,45,230; else some are made up.")
    ] = None,
    lose: Annotated[
        list[str] | None,
        typer.Option(metavar="MEMBER:ROUND", help="Lose a member from a round on, such as south:deal."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run all members in one process on made-up counts, and show every round."""
    from lapwing.cli.show_party import show_simulation
    from lapwing.core.exact import exact
    from lapwing.parties.requirements import JointRequirements
    from lapwing.parties.simulation import simulate as simulated

    wish = JointRequirements(
        members=members,
        coalition=coalition,
        losses=losses,
        adversary=adversary,
        protocol=protocol,
        epsilon=exact(epsilon, "epsilon"),
        delta=exact(0),
        people_at=people_at,
        noise="laplace",
    )
    numbers = [100 + 37 * k % 90 for k in range(members)] if counts is None else _whole_numbers(counts)
    names = [NAMES[k] if members <= len(NAMES) else f"member-{k + 1}" for k in range(members)]
    done = simulated(wish, numbers, names, lose=dict(_member_and_round(one) for one in lose or ()))
    if as_json:
        print_json(done.to_json())
    else:
        show_simulation(done)


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadParameter("counts", "must be whole numbers with commas, such as 120,45,230") from None


def _member_and_round(text: str) -> tuple[str, str]:
    name, colon, where = text.partition(":")
    if not colon:
        raise BadParameter("lose", "must be MEMBER:ROUND, such as south:deal")
    return name, where


@app.command()
def compare(
    *,
    epsilon: Annotated[str, typer.Option(help="The ε of every way to count.")] = "1",
    repetitions: Annotated[int, typer.Option(help="Runs for each point.", min=2, max=10_000)] = 200,
    plot: PlotPath = None,
    out: Annotated[Path | None, typer.Option(help="Write the numbers into this .json file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, in a second or two.")] = False,
) -> None:
    """Measure the error of a share: one curator, several members, the local model. Takes half a minute."""
    from lapwing.cli.show_party import show_comparison
    from lapwing.parties.simulation import MEMBERS, SIZES
    from lapwing.parties.simulation import compare_trust_models as compared

    check_plot(plot)
    sizes, members = (QUICK_SIZES, QUICK_MEMBERS) if quick else (SIZES, MEMBERS)
    with working("measuring") as report:
        found = compared(epsilon, repetitions=repetitions, sizes=sizes, members=members, tell=report)
    show_comparison(found)
    with os_errors_told():
        if out is not None:
            out.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        from lapwing.plots.parties import parties

        write_plot(plot, parties(found))


@app.command()
def example(folder: ExampleFolder = Path(".")) -> None:
    """Write three invented hospitals, each with its data and policy in a folder, and their wish."""
    from lapwing.examples.hospitals import MEMBERS, POLICY, WISH, write_hospitals

    with os_errors_told():
        write_hospitals(folder)
    at = "" if folder == Path(".") else f"{folder}/"
    print(f"Wrote {at}{WISH} and the folders {', '.join(at + name for name in MEMBERS)}. Next:")
    print(f"  lapwing party plan {at}{WISH} --members 3 --policy {at}north/{POLICY}")
