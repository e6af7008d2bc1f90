"""`lapwing party`: joint statistics of members who do not show one another their rows.

The library is imported where it is used: `lapwing --help` must not wait for it.

`lapwing party simulate`, `compare` and `example`: all members in one place, to learn and to try.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lapwing.cli.console import AsJson, plainly, print_json, tell
from lapwing.errors import BadParameter, Tampered
from lapwing.examples.visits import forget_lost_ledgers

if TYPE_CHECKING:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.statistics import Statistic
    from lapwing.sql.dataset import Dataset


app = typer.Typer(
    name="party",
    help="Joint statistics of several members, none of whom sees another's rows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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


@contextmanager
def bound(spec: object, policy: Path) -> Iterator[tuple[Dataset, Statistic]]:
    """A statistic on a policy's data. Nothing is read or charged by that."""
    from lapwing.parties.statistics import statistic_of  # noqa: PLC0415
    from lapwing.sql.dataset import open as open_dataset  # noqa: PLC0415

    assert isinstance(spec, dict)
    with plainly(), open_dataset(policy) as data:
        data.tell = tell
        yield data, statistic_of(spec, data)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Your name among the members, such as north.")],
    *,
    folder: Annotated[
        Path | None, typer.Option(help="Where your keys will lie; else a folder of your name.")
    ] = None,
) -> None:
    """Make your keys, and the card that you show to the other members."""
    from lapwing.parties.identity import MemberKeys  # noqa: PLC0415

    with plainly():
        keys = MemberKeys.create(name, folder or Path(name))
    print(f"{keys.folder / name}.card is your card: send it to whoever invites.")
    print(f"Its fingerprint, to be compared over another channel: {keys.card.fingerprint}")
    print(f"The keys in {keys.folder} are yours alone. Whoever has them can speak for you.")


@app.command()
def plan(
    wish: WishPath,
    *,
    members: Annotated[int, typer.Option(help="How many members there will be.", min=1, max=1000)],
    policy: PolicyPath,
    as_json: AsJson = False,
) -> None:
    """Show which protocol would run, with its guarantee, error and traffic. Free; reads no private row."""
    from lapwing.cli.show_party import show_plan  # noqa: PLC0415
    from lapwing.parties.draft import plan_for, read_draft

    file = read_draft(wish)
    with bound(file.statistic, policy) as (_, statistic):
        made = plan_for(file, members, statistic)
        if as_json:
            print_json(
                {
                    "name": file.name,
                    "statistic": statistic.spec,
                    **made.to_json(why_not_local=statistic.why_not_local),
                }
            )
        else:
            show_plan(made, file.name, statistic.title, why_not_local=statistic.why_not_local)


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
    from lapwing.parties.identity import Card  # noqa: PLC0415

    file = read_draft(wish)
    with bound(file.statistic, policy) as (_, statistic):
        relay = None if relay_card is None else Card.read(relay_card)
        made = found_consortium(file, [Card.read(path) for path in cards], statistic, relay=relay)
        target = out or Path(f"{file.name}.consortium")
        try:
            with target.open("x", encoding="utf-8") as writing:
                writing.write(made.to_text())
        except FileExistsError:
            raise BadParameter("out", f"{target} exists: nothing is written over") from None
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
    from lapwing.cli.show_party import show_invitation  # noqa: PLC0415
    from lapwing.parties.consortium import Consortium  # noqa: PLC0415
    from lapwing.parties.draft import require_coalition, require_same_meaning
    from lapwing.parties.identity import MemberKeys  # noqa: PLC0415

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
    with plainly():
        written = _write_merged(file, signed)
    print(f"{keys.name} has signed {file}.")
    if written.unsigned:
        print(f"Not yet: {', '.join(written.unsigned)}.")
    else:
        print("All have signed. Each runs, at about the same time:")
        print(f"  lapwing party run {file} --me {me} --policy {policy}")


def _write_merged(path: Path, signed: Consortium) -> Consortium:
    """Add to what others may have signed meanwhile in the same file; all or nothing."""
    from lapwing.parties.consortium import Consortium  # noqa: PLC0415

    with _alone(path):
        merged = Consortium.read(path).merged(signed)
        beside = path.with_name(f".{path.name}.new")
        with beside.open("w", encoding="utf-8") as writing:
            writing.write(merged.to_text())
            writing.flush()
            os.fsync(writing.fileno())
        beside.replace(path)
    return merged


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else writes the file meanwhile. Who waited while it was replaced waits for the new one."""
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
    from lapwing.parties.transcript import verify_transcript as verified  # noqa: PLC0415

    try:
        with plainly():
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


NAMES = ("east", "north", "south", "west", "coast", "hills", "lakes", "plain", "river", "woods")
MEMBERS = ("north", "south", "east")
WISH, POLICY = "joint.toml", "visits.toml"
FEW_SIZES, FEW_MEMBERS = (10, 100, 1000), (2, 10)  # of a quick comparison
FILES = {"north": "visits.csv", "south": "visits.parquet", "east": "visits.duckdb"}
PEOPLE_AT = {"north": 900, "south": 500, "east": 1300}


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
    from lapwing.cli.show_party import show_simulation  # noqa: PLC0415
    from lapwing.core.exact import exact  # noqa: PLC0415
    from lapwing.parties.requirements import JointRequirements  # noqa: PLC0415
    from lapwing.parties.simulation import simulate as simulated  # noqa: PLC0415

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
    done = simulated(
        wish, numbers, _made_up_names(members), lose=dict(_member_and_round(one) for one in lose or ())
    )
    if as_json:
        print_json(done.to_json())
    else:
        show_simulation(done)


def compare(
    *,
    epsilon: Annotated[str, typer.Option(help="The ε of every way to count.")] = "1",
    repetitions: Annotated[int, typer.Option(help="Runs for each point.", min=2, max=10_000)] = 200,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .svg, .png or .pdf file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the numbers into this .json file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, in a second or two.")] = False,
) -> None:
    """Measure the error of a share: one curator, several members, the local model. Takes half a minute."""
    from lapwing.cli.ledger import working  # noqa: PLC0415
    from lapwing.cli.show_party import show_comparison  # noqa: PLC0415
    from lapwing.parties.simulation import MEMBERS as MEMBERS_COMPARED  # noqa: PLC0415
    from lapwing.parties.simulation import SIZES  # noqa: PLC0415
    from lapwing.parties.simulation import compare_trust_models as compared  # noqa: PLC0415

    if plot is not None:
        from lapwing.plots.style import checked_path  # noqa: PLC0415

        checked_path(plot)
    sizes, members = (FEW_SIZES, FEW_MEMBERS) if quick else (SIZES, MEMBERS_COMPARED)
    with working("measuring") as report:
        found = compared(epsilon, repetitions=repetitions, sizes=sizes, members=members, tell=report)
    show_comparison(found)
    with plainly():
        if out is not None:
            out.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
        if plot is not None:
            from lapwing.plots.parties import parties  # noqa: PLC0415
            from lapwing.plots.style import save  # noqa: PLC0415

            save(parties(found), plot)
            print(f"\nThe picture is in {plot}")


def example(
    folder: Annotated[Path, typer.Argument(help="Where to write; this folder unless you say.")] = Path("."),
) -> None:
    """Write three invented hospitals, each with its data and policy in a folder, and their wish."""
    targets = [folder / WISH, *(folder / name / file for name, file in FILES.items())]
    there = [path for path in targets if path.exists()]
    if there:
        raise BadParameter("folder", f"{there[0]} exists: nothing is written over")
    data = files("lapwing.cli").joinpath("data")
    policy = data.joinpath("joint_policy.toml").read_text(encoding="utf-8")
    with plainly():
        for name in MEMBERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
            where = f"{FILES[name]}#visits" if FILES[name].endswith(".duckdb") else FILES[name]
            (folder / name / POLICY).write_text(policy.replace("SOURCE", where), encoding="utf-8")
            _write_hospital(name, folder / name / FILES[name])
        (folder / WISH).write_text(data.joinpath(WISH).read_text(encoding="utf-8"), encoding="utf-8")
    forget_lost_ledgers(targets)
    at = "" if folder == Path(".") else f"{folder}/"
    print(f"Wrote {at}{WISH} and the folders {', '.join(at + name for name in MEMBERS)}. Next:")
    print(f"  lapwing party plan {at}{WISH} --members 3 --policy {at}north/{POLICY}")


def _write_hospital(name: str, path: Path) -> None:
    """Visits of invented people: the same on every machine, and looking like chance."""
    import duckdb  # noqa: PLC0415

    sql = _visits(name, PEOPLE_AT[name])
    with duckdb.connect(str(path) if path.suffix == ".duckdb" else ":memory:") as connection:
        match path.suffix:
            case ".csv":
                connection.sql(sql).write_csv(str(path))
            case ".parquet":
                connection.sql(sql).write_parquet(str(path))
            case _:
                connection.execute(f"CREATE TABLE visits AS {sql}")


def _visits(name: str, people: int) -> str:
    def chance(what: str, salt: str) -> str:
        return f"((hash({what}, '{salt} of {name}') % 10000) / 10000.0)"

    return f"""
        SELECT '{name}-' || p AS patient,
            CASE WHEN {chance("v", "ward")} < 0.4 THEN 'emergency'
                WHEN {chance("v", "ward")} < 0.65 THEN 'surgery'
                WHEN {chance("v", "ward")} < 0.9 THEN 'cardiology' ELSE 'maternity' END AS ward,
            CAST(floor(-5 * ln(1.0001 - {chance("v", "stay")})) AS INTEGER) AS stay,
            CAST(floor(95 * {chance("p", "age")}) AS INTEGER) AS age,
            CAST(floor(400 + 20 * floor(95 * {chance("p", "age")})
                + 250 * floor(-5 * ln(1.0001 - {chance("v", "stay")}))
                + 600 * {chance("v", "cost")}) AS INTEGER) AS cost
        FROM (SELECT p, 10 * p + k AS v FROM range({people}) AS people(p), range(3) AS rows(k)
              WHERE k < 1 + floor(-0.7 * ln(1.0001 - {chance("p", "visits")})))
        ORDER BY hash(v)"""  # noqa: S608 (all of it is ours)


def _made_up_names(members: int) -> list[str]:
    return [NAMES[k] if members <= len(NAMES) else f"member-{k + 1}" for k in range(members)]


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
