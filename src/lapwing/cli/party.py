"""`lapwing party`: joint statistics of members who do not show one another their rows.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapwing.cli.opened import AsJson, plainly, print_json, tell
from lapwing.errors import BadParameter, Tampered

if TYPE_CHECKING:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.statistics import Statistic
    from lapwing.query.dataset import Dataset

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
    from lapwing.query.dataset import open as open_dataset  # noqa: PLC0415

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
    from lapwing.parties.identity import Keys  # noqa: PLC0415

    with plainly():
        keys = Keys.create(name, folder or Path(name))
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
    from lapwing.parties.consortium import read_wish  # noqa: PLC0415
    from lapwing.parties.consortium.founding import plan_for  # noqa: PLC0415

    file = read_wish(wish)
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
    from lapwing.parties.consortium import read_wish  # noqa: PLC0415
    from lapwing.parties.consortium.founding import found  # noqa: PLC0415
    from lapwing.parties.identity import Card  # noqa: PLC0415

    file = read_wish(wish)
    with bound(file.statistic, policy) as (_, statistic):
        relay = None if relay_card is None else Card.read(relay_card)
        made = found(file, [Card.read(path) for path in cards], statistic, relay=relay)
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
    from lapwing.parties.consortium.founding import (  # noqa: PLC0415
        require_coalition,
        require_same_meaning,
    )
    from lapwing.parties.identity import Keys  # noqa: PLC0415

    keys = Keys.open(me)
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
    from lapwing.cli.show_party import clean, show_verified, verified_json  # noqa: PLC0415
    from lapwing.parties.verifying import verify as verified  # noqa: PLC0415

    try:
        with plainly():
            found = verified(transcript)
    except Tampered as error:
        print(f"lapwing: {transcript} does not verify:", file=sys.stderr)
        for finding in error.found:
            print(f"  - {clean(' '.join(finding.split()))}", file=sys.stderr)
        raise typer.Exit(1) from None
    if as_json:
        print_json(verified_json(found))
    else:
        show_verified(found, transcript)
