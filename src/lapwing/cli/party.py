"""`lapwing party`: joint statistics of members who do not show one another their rows.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Exit, Option

from lapwing.cli import console
from lapwing.errors import Aborted, BadParameter, LapwingError, Tampered, Unavailable

if TYPE_CHECKING:
    from lapwing.parties import Consortium
    from lapwing.parties.identity import MemberKeys
    from lapwing.parties.joining import RunResult

app = console.Commands(help="Joint statistics of several members, none of whom sees another's rows.")

DraftPath = Annotated[
    Path, Argument(metavar="DRAFT", help="The draft of the consortium, such as joint.toml.")
]
ConsortiumPath = Annotated[
    Path, Argument(metavar="FILE", help="The consortium file, such as joint-wards.consortium.")
]
Me = Annotated[Path, Option("--me", help="Your folder with your keys, as `init` made it.")]
PolicyPath = Annotated[Path, Option("--policy", help="The policy of your own data.")]
CardPath = Annotated[
    Path | None, Option("--relay-card", help="The card of the host that relays, if it is not a member.")
]
Number = Annotated[
    int | None,
    Option(
        "--number",
        min=1,
        help="The number of the run, the same at all members; else the first not aborted.",
    ),
]
Listen = Annotated[
    str | None, Option("--listen", help="Where the host listens, if not at the consortium's address.")
]


@app.command()
def init(
    name: Annotated[str, Argument(help="Your name among the members, such as north.")],
    *,
    folder: Annotated[
        Path | None, Option(help="Where your keys will be stored; else a folder of your name.")
    ] = None,
) -> None:
    """Make your keys, and the card that you show to the other members."""
    from lapwing.parties.identity import MemberKeys

    with console.os_errors_told():
        keys = MemberKeys.create(name, folder or Path(name))
    print(f"{keys.folder / name}.card is your card: send it to the member who invites.")
    print(f"Its fingerprint, to be compared over another channel: {keys.card.fingerprint}")
    print(f"The keys in {keys.folder} are yours alone. With them, anybody can speak for you.")


@app.command()
def plan(
    draft_path: DraftPath,
    *,
    members: Annotated[int, Option(help="How many members there will be.", min=1, max=1000)],
    policy: PolicyPath,
    as_json: console.AsJson = False,
) -> None:
    """Show which protocol would run, with its guarantee, error and traffic. Free; reads no private row."""
    from lapwing.cli import show_party
    from lapwing.parties.draft import plan_for, read_draft
    from lapwing.parties.joining import open_statistic

    draft = read_draft(draft_path)
    with console.os_errors_told(), open_statistic(draft.statistic, policy, tell=console.tell) as (_, bound):
        made, why = plan_for(draft, members, bound), bound.why_not_local
        if as_json:
            about = {"name": draft.name, "statistic": bound.spec}
            console.print_json({**about, **made.to_json(why_not_local=why)})
        else:
            show_party.show_plan(made, draft.name, bound.title, why_not_local=why)


@app.command()
def invite(
    draft_path: DraftPath,
    cards: Annotated[list[Path], Argument(metavar="CARD...", help="The cards of all members.")],
    *,
    policy: PolicyPath,
    relay_card: CardPath = None,
    out: Annotated[Path | None, Option(help="Where to write; else NAME.consortium in this folder.")] = None,
) -> None:
    """Write the consortium file that every member signs: members, statistic, protocol, parameters."""
    from lapwing.parties.draft import found_consortium, read_draft
    from lapwing.parties.identity import Card
    from lapwing.parties.joining import open_statistic

    draft = read_draft(draft_path)
    with console.os_errors_told(), open_statistic(draft.statistic, policy, tell=console.tell) as (_, bound):
        relay = None if relay_card is None else Card.read(relay_card)
        made = found_consortium(draft, [Card.read(path) for path in cards], bound, relay=relay)
        target = out or Path(f"{draft.name}.consortium")
        console.write_new(target, made.to_text(), option="out")
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
        list[Path] | None, Option("--with", help="Take the signatures of this copy, too; may be repeated.")
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Sign without being asked.")] = False,
) -> None:
    """Show the consortium that you are asked to join, with its cost for your people, and sign it."""
    from lapwing.cli import show_party
    from lapwing.parties import Consortium
    from lapwing.parties.draft import require_coalition, require_same_meaning
    from lapwing.parties.identity import MemberKeys
    from lapwing.parties.joining import open_statistic

    keys, consortium = MemberKeys.open(me), Consortium.read(file)
    for copy in copies or ():
        consortium = consortium.merged(Consortium.read(copy))
    signed = consortium.signed(keys)
    with (
        console.os_errors_told(),
        open_statistic(consortium.statistic, policy, tell=console.tell) as (data, statistic),
    ):
        require_same_meaning(consortium, statistic)
        require_coalition(consortium, data.policy.least_coalition)
        show_party.show_invitation(consortium, keys.name, statistic.title)
    if not yes and not typer.confirm(f"Sign this as {keys.name}?"):
        raise typer.Abort
    with console.os_errors_told():
        written = signed.write_signatures(file)
    print(f"{keys.name} has signed {file}.")
    if written.unsigned:
        print(f"Not yet: {', '.join(written.unsigned)}.")
    else:
        print("All have signed. Each runs, at about the same time:")
        print(f"  lapwing party run {file} --me {me} --policy {policy}")


@app.command()
def verify(
    transcript: Annotated[Path, Argument(help="A transcript, as `run` writes it.")],
    *,
    as_json: console.AsJson = False,
) -> None:
    """Check a run from its public transcript: members, signatures, order, agreed sets and opened sums."""
    from lapwing.cli import show_party
    from lapwing.parties.transcript import verify_transcript

    console.require_file(transcript, "transcript")
    try:
        with console.os_errors_told():
            verified = verify_transcript(transcript)
    except Tampered as error:
        console.print_findings(f"{transcript} does not verify:", error.found)
        raise Exit(1) from None
    if as_json:
        console.print_json(show_party.verified_json(verified))
    else:
        show_party.show_verified(verified, transcript)


@app.command()
def run(
    file: ConsortiumPath,
    *,
    me: Me,
    policy: PolicyPath,
    number: Number = None,
    confidence: console.Confidence = "0.95",
    listen: Listen = None,
    as_json: console.AsJson = False,
) -> None:
    """Take part in a run: charge your own ledger, add your noise, and open nothing but the sum.

    Your data is read first, and nothing is charged before all are ready. After a crash, give the same
    command again: what was sent is sent again, or the result is fetched, or the run ends. After the end, it
    shows the same answer for nothing; --number 2 is a new run, which is charged again.
    """
    from lapwing.cli import show_party
    from lapwing.parties import joining

    def show(result: RunResult) -> None:
        if as_json:
            console.print_json(show_party.result_json(result))
        else:
            show_party.show_result(result)
        sys.stdout.flush()

    with console.os_errors_told():
        keys, consortium = _open_signed(file, me)
        with joining.open_statistic(consortium.statistic, policy, tell=console.tell) as (data, statistic):
            try:
                with show_party.watching_run(consortium.names) as watch:
                    joining.join_run(
                        consortium, keys, data, statistic, number=number, confidence=confidence,
                        listen=listen, watch=watch, tell=console.tell, show=show,
                    )  # fmt: skip
            except Aborted as error:
                advice = joining.advice_after_abort(consortium, keys, data, error, number)
                raise _exit_with_advice(error, advice) from None
            except Unavailable as error:
                advice = joining.advice_after_disconnect(consortium, keys, number)
                raise _exit_with_advice(error, advice) from None


def _open_signed(file: Path, me: Path) -> tuple[MemberKeys, Consortium]:
    from lapwing.parties import Consortium
    from lapwing.parties.identity import MemberKeys

    keys, consortium = MemberKeys.open(me), Consortium.read(file)
    consortium.require_signed_by_all()
    return keys, consortium


def _exit_with_advice(error: LapwingError, advice: str) -> Exit:
    """Tell of the error and the advice on stderr. Return the exit to raise."""
    console.tell(console.printable(str(error)))
    if advice:
        console.tell(advice)
    return Exit(1)


@app.command()
def relay(file: ConsortiumPath, *, me: Me, number: Number = None, listen: Listen = None) -> None:
    """Only relay: for a host that the consortium names and that is not a member."""
    from lapwing.cli import show_party
    from lapwing.parties.joining import relay_run

    with console.os_errors_told():
        keys, consortium = _open_signed(file, me)
        words, serve = relay_run(consortium, keys, number, listen=listen, tell=console.tell)
        print(f"Relaying {words}", flush=True)
        with show_party.watching_run(consortium.names) as watch:
            serve(watch)
    print("The run is over.")


# Invented data

NAMES = ("east", "north", "south", "west", "coast", "hills", "lakes", "plain", "river", "woods")
QUICK_SIZES, QUICK_MEMBERS = (10, 100, 1000), (2, 10)


@app.command()
def simulate(
    *,
    members: Annotated[int, Option(help="How many members.", min=1, max=100)] = 3,
    coalition: Annotated[int, Option(help="The most members that the adversary may control.", min=0)] = 1,
    losses: Annotated[
        int, Option(help="The most further members that may fail before they have shared.", min=0)
    ] = 0,
    people_at: Annotated[int, Option(help="The most members that have rows of one person.", min=1)] = 1,
    adversary: Annotated[
        Literal["unbounded", "bounded"], Option(help="Its computing power.")
    ] = "unbounded",
    protocol: Annotated[
        Literal["auto", "A", "B", "C", "D"], Option(help="auto: the planner chooses.")
    ] = "auto",
    epsilon: Annotated[str, Option(help="The most that a person may lose, as ε.")] = "1",
    counts: Annotated[
        str | None, Option(help="Made-up counts, such as 120,45,230; else some are made up.")
    ] = None,
    lose: Annotated[
        list[str] | None,
        Option(metavar="MEMBER:ROUND", help="Lose a member from a round on, such as south:deal."),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Run all members in one process on made-up counts, and show every round."""
    from lapwing.cli import show_party
    from lapwing.core.exact import exact
    from lapwing.parties import JointRequirements
    from lapwing.parties import simulate as simulated

    needs = JointRequirements(
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
    done = simulated(needs, numbers, names, lose=dict(_member_and_round(lost) for lost in lose or ()))
    console.print_result(done, show_party.show_simulation, as_json=as_json)


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
    epsilon: Annotated[str, Option(help="The ε of every way to count.")] = "1",
    repetitions: Annotated[int, Option(help="Runs for each point.", min=2, max=10_000)] = 200,
    plot: console.PlotPath = None,
    out: Annotated[Path | None, Option(help="Write the numbers into this .json file.")] = None,
    quick: Annotated[bool, Option("--quick", help="Few points, in a second or two.")] = False,
) -> None:
    """Measure the error of a share: one curator, several members, the local model. Takes half a minute."""
    from lapwing.cli import show_party
    from lapwing.parties.simulation import MEMBERS, SIZES
    from lapwing.parties.simulation import compare_trust_models as compared

    console.check_plot(plot)
    sizes, members = (QUICK_SIZES, QUICK_MEMBERS) if quick else (SIZES, MEMBERS)
    with console.working("measuring") as report:
        errors = compared(epsilon, repetitions=repetitions, sizes=sizes, members=members, tell=report)
    show_party.show_comparison(errors)
    with console.os_errors_told():
        if out is not None:
            out.write_text(json.dumps(errors.to_json(), indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        from lapwing.plots.accuracy import parties

        console.write_plot(plot, parties(errors))


@app.command()
def example(folder: console.ExampleFolder = Path(".")) -> None:
    """Write invented data and policies of three hospitals, and the draft of their consortium."""
    from lapwing.examples.hospitals import MEMBERS, POLICY, WISH, write_hospitals

    with console.os_errors_told():
        is_new = write_hospitals(folder)
    at = "" if folder == Path(".") else f"{folder}/"
    console.print_written([at + WISH, *(f"{at}{name}/" for name in MEMBERS)], is_new=is_new)
    print(f"  lapwing party plan {at}{WISH} --members 3 --policy {at}north/{POLICY}")
