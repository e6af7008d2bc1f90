"""`lapwing ledger`: open a ledger and its accounts, look at its history, prove and check it.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lapwing.cli.opened import AnchorAt, AsJson, Keys, Where, opened, plainly, print_json, require_file
from lapwing.errors import BadParameter, Tampered

if TYPE_CHECKING:
    from lapwing.ledger import CuratorKey
    from lapwing.ledger.places import Place

app = typer.Typer(
    help="Open a lifetime ledger and its accounts; look at its history, prove and check it.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account's name.")]
Epsilon = Annotated[str, typer.Option(help="For life, such as 1.")]
Delta = Annotated[str, typer.Option(help="For life, such as 1e-6; 0 for none.")]
CuratorFile = Annotated[Path, typer.Option("--curator", help="The curator's key file.")]


def _curator(path: Path) -> CuratorKey:
    from lapwing.ledger import CuratorKey  # noqa: PLC0415

    return CuratorKey.load(path)


@app.command()
def init(
    where: Where,
    keys: Keys = None,
    anchor: AnchorAt = None,
    curator: Annotated[
        Path | None, typer.Option("--curator", help="The new key file of the curator; else LEDGER.curator.")
    ] = None,
) -> None:
    """Make a new ledger with new keys."""
    from lapwing.cli.show_ledger import show_new_ledger  # noqa: PLC0415
    from lapwing.ledger import Ledger  # noqa: PLC0415
    from lapwing.ledger.places import Place  # noqa: PLC0415

    with plainly():
        place = Place.of(where, keys=keys, anchor=anchor)
        _require_room(place, curator or place.curator)
        with Ledger.create(where, curator=curator, keys=keys, anchor=anchor) as ledger:
            show_new_ledger(
                where,
                keys=place.keys,
                anchors=[known.where for known in (place.anchor, *place.witnesses(ledger.id))],
                curator=curator or place.curator,
                public=ledger.keys.signing.public.hex(),
            )


def _require_room(place: Place, curator: Path) -> None:
    """Half a ledger would only be in the way of a whole one."""
    from lapwing.ledger.anchors import FileAnchor  # noqa: PLC0415

    files = {"keys": place.keys, "curator": curator}
    if isinstance(place.anchor, FileAnchor):
        files["anchor"] = Path(place.anchor.where)
    for name, path in files.items():
        if not path.absolute().parent.is_dir():
            raise BadParameter(name, f"the folder of {path} does not exist")
    if curator.exists():
        raise BadParameter("curator", f"{curator} exists: keys are never replaced")


@app.command()
def account(
    where: Where,
    name: Name,
    *,
    epsilon: Epsilon,
    delta: Delta,
    unit: Annotated[
        Literal["person", "row", "person-and-period"],
        typer.Option(
            help="What is protected: everything about one person, one row, or a person in one period."
        ),
    ],
    relation: Annotated[
        Literal["add-remove", "replace"],
        typer.Option(
            help="Neighbours add or remove one unit (n is private), or replace one (n is public)."
        ),
    ],
    slices: Annotated[
        Literal["none", "units", "periods", "identities"],
        typer.Option(help="What blocks slice: nothing, units by their data, time, or who units are."),
    ] = "none",
    rule: Annotated[str, typer.Option(help="By which rule the units or rows are sliced.")] = "",
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Open an account with a budget for life. Nothing of it can ever be changed."""
    from lapwing.cli.show_ledger import show_account  # noqa: PLC0415
    from lapwing.ledger import Slices, Unit  # noqa: PLC0415
    from lapwing.privacy import Relation  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        ledger.open_account(
            name,
            epsilon=epsilon,
            delta=delta,
            unit=Unit(unit.replace("-", " ")),
            relation={"add-remove": Relation.ADD_REMOVE, "replace": Relation.REPLACE}[relation],
            slices=Slices(slices),
            rule=rule,
        )
        show_account(ledger, name)


@app.command()
def blocks(
    where: Where,
    name: Name,
    block: Annotated[list[str], typer.Argument(metavar="BLOCK...", help="Names of new blocks.")],
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Open blocks of a sliced account, each with the whole budget."""
    with opened(where, keys, anchor) as ledger:
        ledger.open_blocks(name, block)
        print(f"{len(block):,} block{'s' * (len(block) > 1)} of {name} opened.")


@app.command(name="raise")
def raise_(
    where: Where,
    name: Name,
    *,
    epsilon: Epsilon,
    delta: Delta,
    curator: CuratorFile,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Give an account a further budget. Everybody sees the sum from then on."""
    from lapwing.cli.show_ledger import show_account  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        ledger.raise_budget(name, epsilon=epsilon, delta=delta, curator=_curator(curator))
        show_account(ledger, name)


@app.command()
def log(
    where: Where,
    last: Annotated[int, typer.Option(min=1, help="How many of the newest entries.")] = 20,
    as_json: AsJson = False,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Show the newest entries: who was charged for what."""
    from dataclasses import asdict  # noqa: PLC0415

    from lapwing.cli.show_ledger import show_log  # noqa: PLC0415
    from lapwing.ledger.views.log import history  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        lines = history(ledger, last=last)
    if as_json:
        print_json([asdict(line) for line in lines])
    else:
        show_log(lines)


@app.command()
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A ledger, a statement or a proof.")],
    key: Annotated[
        str | None,
        typer.Option("--key", help="The ledger's public key (64 hexadecimal digits), from elsewhere."),
    ] = None,
    as_json: AsJson = False,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Check a ledger, a statement or a proof. Exit code 1 if it is not what it was."""
    from lapwing.cli.show_ledger import show_verified  # noqa: PLC0415
    from lapwing.cli.verify import Verified, verified  # noqa: PLC0415

    with plainly():
        found: Verified = verified(file, key=key, keys=keys, anchor=anchor)
    if as_json:
        print_json(found.to_json())
        if found.findings:
            raise typer.Exit(1)
    elif found.findings:
        raise Tampered(found.findings)
    else:
        show_verified(found)


@app.command()
def export(
    where: Where,
    statement: Annotated[Path, typer.Argument(metavar="STATEMENT", help="The new file.")],
    names: Annotated[
        bool, typer.Option("--names", help="Say in it what the random ids stand for.")
    ] = False,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Write the whole history into a file that anybody can check with `verify`."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.ledger.proofs.source import export as write  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        with working("writing the statement") as told:
            entries = write(ledger, statement, names=names, watch=told)
        print(f"{statement}: {entries:,} entries, {'with' if names else 'without'} names.")
        print(f"To check it: lapwing ledger verify {statement} --key {ledger.keys.signing.public.hex()}")


@app.command()
def prove(
    where: Where,
    position: Annotated[int, typer.Argument(metavar="POSITION", min=1, help="The receipt's position.")],
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="The new file.")],
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Write a proof that one receipt is in the ledger."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.ledger.proofs.source import prove as proof_of  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        with working("proving"):
            made = proof_of(ledger, position)
        _write_new(proof, json.dumps(made) + "\n")
        print(f"{proof}: entry {position} is in the ledger, up to its seal number {made['seal'][0]}.")
        print(f"To check it: lapwing ledger verify {proof} --key {made['key']}")


def _write_new(path: Path, text: str) -> None:
    try:
        with open(path, "x", encoding="ascii") as file:
            file.write(text)
    except FileExistsError:
        raise BadParameter("proof", f"{path} exists: nothing is written over") from None
    except OSError as error:
        raise BadParameter("proof", f"{path} cannot be written ({error.strerror})") from None


@app.command()
def recover(
    where: Where,
    curator: CuratorFile,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Use a ledger again that lost entries or its anchor: what is not known counts as spent."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.ledger import recovery  # noqa: PLC0415

    with plainly():
        require_file(where)
        with working("checking the ledger"):
            closed = recovery.recover(where, curator=_curator(curator), keys=keys, anchor=anchor)
    if closed:
        many = "1 block is" if closed == 1 else f"{closed:,} blocks are"
        print(f"Recovered. {many} closed, with everything spent.")
        print("To go on, the curator raises accounts: lapwing ledger raise. Every statement shows it.")
    else:
        print("Recovered. Nothing was lost: another anchor knew all, and the missing one was made anew.")
