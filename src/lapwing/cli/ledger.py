"""`lapwing ledger`: open a ledger and its accounts, look at its history, prove and check it.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Exit, Option

from lapwing.cli import budget, console
from lapwing.errors import BadParameter, Tampered

if TYPE_CHECKING:
    from lapwing.ledger import CuratorKey, Ledger
    from lapwing.ledger.ledger_place import LedgerPlace
    from lapwing.ledger.request_log import LogLine
    from lapwing.ledger.verification import VerifiedFile


app = console.Commands(
    help="Open a lifetime ledger and its accounts; look at its history, prove and check it."
)

Name = Annotated[str, Argument(metavar="ACCOUNT", help="The account's name.")]
Epsilon = Annotated[str, Option(help="For life, such as 1.")]
Delta = Annotated[str, Option(help="For life, such as 1e-6; 0 for none.")]
CuratorFile = Annotated[Path, Option("--curator", help="The curator's key file.")]


def curator_key(path: Path) -> CuratorKey:
    """Read the curator's key. Raise BadParameter if there is no such file."""
    from lapwing.ledger import CuratorKey

    console.require_file(path, "curator")
    return CuratorKey.load(path)


@app.command()
def init(
    where: console.Where,
    files: console.LedgerFiles,
    curator: Annotated[
        Path | None, Option("--curator", help="The new key file of the curator; else LEDGER.curator.")
    ] = None,
) -> None:
    """Make a new ledger with new keys."""
    from lapwing.ledger import Ledger
    from lapwing.ledger.ledger_place import LedgerPlace, without_password

    with console.os_errors_told():
        named = files.of(where)
        place = LedgerPlace.of(named.where, keys=named.keys, anchor=named.anchor, registry=named.registry)
        _require_room(place, curator or place.curator)
        with Ledger.create(
            named.where,
            curator=curator,
            keys=named.keys,
            anchor=named.anchor,
            registry=named.registry,
        ) as ledger:
            _show_new(without_password(named.where), place, curator or place.curator, ledger)


def _require_room(place: LedgerPlace, curator: Path) -> None:
    """Raise BadParameter if a file of the new ledger cannot be made: half a ledger would be in the way."""
    from lapwing.config.values import is_postgres
    from lapwing.ledger.anchors import FileAnchor

    if not is_postgres(place.database) and Path(place.database).exists():
        raise BadParameter(
            "ledger",
            f"{place.database} exists, and a ledger is never replaced: budgets are for life. Nothing was "
            "changed. Use it as it is, or give the new ledger another name",
        )
    files = {"keys": place.keys, "curator": curator}
    if isinstance(place.anchor, FileAnchor):
        files["anchor"] = Path(place.anchor.where)
    for name, path in files.items():
        if not path.absolute().parent.is_dir():
            raise BadParameter(name, f"the folder of {path} does not exist")
    if curator.exists():
        raise BadParameter(
            "curator", f"{curator} exists: keys are never replaced. Give another name with --curator"
        )


@app.command()
def account(
    where: console.Where,
    name: Name,
    *,
    epsilon: Epsilon,
    delta: Delta,
    unit: Annotated[
        Literal["person", "row", "person-and-period"],
        Option(help="What is protected: everything about one person, one row, or a person in one period."),
    ],
    relation: Annotated[
        Literal["add-remove", "replace"],
        Option(help="Neighbours add or remove one unit (n is private), or replace one (n is public)."),
    ],
    slices: Annotated[
        Literal["none", "units", "periods", "identities"],
        Option(help="What blocks slice: nothing, units by their data, time, or who units are."),
    ] = "none",
    rule: Annotated[str, Option(help="By which rule the units or rows are sliced.")] = "",
    files: console.LedgerFiles,
) -> None:
    """Open an account with a budget for life. Nothing of it can ever be changed."""
    from lapwing.core.losses import Relation
    from lapwing.ledger import Slices, Unit

    with console.opened_ledger(files.of(where)) as ledger:
        ledger.open_account(
            name,
            epsilon=epsilon,
            delta=delta,
            unit=Unit(unit.replace("-", " ")),
            relation={"add-remove": Relation.ADD_REMOVE, "replace": Relation.REPLACE}[relation],
            slices=Slices(slices),
            rule=rule,
        )
        budget.show_account(ledger, name)


@app.command()
def blocks(
    where: console.Where,
    name: Name,
    block: Annotated[list[str], Argument(metavar="BLOCK...", help="Names of new blocks.")],
    files: console.LedgerFiles,
) -> None:
    """Open blocks of a sliced account, each with the whole budget."""
    with console.opened_ledger(files.of(where)) as ledger:
        ledger.open_blocks(name, block)
        print(f"{len(block):,} block{'s' * (len(block) > 1)} of {name} opened.")


@app.command(name="raise")
def raise_(
    where: console.Where,
    name: Name,
    *,
    epsilon: Epsilon,
    delta: Delta,
    curator: CuratorFile,
    files: console.LedgerFiles,
) -> None:
    """Give an account a further budget. Everybody sees the sum from then on."""
    with console.opened_ledger(files.of(where)) as ledger:
        ledger.raise_budget(name, epsilon=epsilon, delta=delta, curator=curator_key(curator))
        budget.show_account(ledger, name)


@app.command()
def log(
    where: console.Where,
    *,
    last: Annotated[int, Option(min=1, help="How many of the newest entries.")] = 20,
    as_json: console.AsJson = False,
    files: console.LedgerFiles,
) -> None:
    """Show the newest entries: who was charged for what."""
    from dataclasses import asdict

    from lapwing.ledger.request_log import log_lines

    with console.opened_ledger(files.of(where)) as ledger:
        lines = log_lines(ledger, last=last)
    if as_json:
        console.print_json([asdict(line) for line in lines])
    else:
        show_log(lines)


@app.command()
def verify(
    file: Annotated[
        str, Argument(metavar="FILE", help="A ledger, a policy (then its ledger), a statement or a proof.")
    ],
    *,
    key: console.KnownKey = None,
    as_json: console.AsJson = False,
    files: console.LedgerFiles,
) -> None:
    """Check a ledger, a statement or a proof. Exit code 1 if it is not what it was."""
    from lapwing.ledger.verification import verify

    with console.os_errors_told():
        place = files.of(file)
        if place.file:
            place.require()
        verified: VerifiedFile = verify(
            place.where,
            key=key,
            keys=place.keys,
            anchor=place.anchor,
            registry=place.registry,
            working=console.working,
        )
    if as_json:
        console.print_json(verified.to_json())
        if verified.findings:
            raise Exit(1)
    elif verified.findings:
        raise Tampered(verified.findings)
    else:
        show_verified_file(verified)


@app.command()
def export(
    where: console.Where,
    statement: Annotated[Path, Argument(metavar="STATEMENT", help="The new file.")],
    *,
    names: Annotated[bool, Option("--names", help="Say in it what the random ids stand for.")] = False,
    files: console.LedgerFiles,
) -> None:
    """Write the whole history into a file that anybody can check with `verify`."""
    from lapwing.ledger.publishing import export_statement as write

    with console.opened_ledger(files.of(where)) as ledger:
        with console.working("writing the statement") as told:
            entries = write(ledger, statement, names=names, watch=told)
        print(f"{statement}: {entries:,} entries, {'with' if names else 'without'} names.")
        print(f"To check it: lapwing ledger verify {statement} --key {ledger.keys.signing.public.hex()}")


@app.command()
def prove(
    where: console.Where,
    position: Annotated[int, Argument(metavar="POSITION", min=1, help="The receipt's position.")],
    proof: Annotated[Path, Argument(metavar="PROOF", help="The new file.")],
    files: console.LedgerFiles,
) -> None:
    """Write a proof that one receipt is in the ledger."""
    from lapwing.ledger.publishing import prove_entry as proof_of

    with console.opened_ledger(files.of(where)) as ledger:
        with console.working("proving"):
            made = proof_of(ledger, position)
        console.write_new(proof, json.dumps(made) + "\n", option="proof")
        print(f"{proof}: entry {position} is in the ledger, up to its seal number {made['seal'][0]}.")
        print(f"To check it: lapwing ledger verify {proof} --key {made['key']}")


@app.command()
def backup(
    where: console.Where,
    copy: Annotated[Path, Argument(metavar="COPY", help="The new file.")],
    files: console.LedgerFiles,
) -> None:
    """Copy a ledger in SQLite into a new file, also while other processes charge it."""
    from lapwing.ledger.backup import back_up

    with console.opened_ledger(files.of(where)) as ledger:
        with console.working("copying the ledger"):
            newest = back_up(ledger, copy)
        print(f"{copy}: the ledger up to entry {newest:,}, checked. Keep it apart from the keys.")
        print("Put back, it is refused if the ledger was charged since: no backup gives a budget back.")


@app.command()
def recover(where: console.Where, curator: CuratorFile, files: console.LedgerFiles) -> None:
    """Use a ledger again that lost entries or its anchor: what is not known counts as spent."""
    from lapwing.ledger import recovery

    with console.os_errors_told():
        place = files.of(where)
        place.require()
        with console.working("checking the ledger"):
            closed = recovery.recover(
                place.where,
                curator=curator_key(curator),
                keys=place.keys,
                anchor=place.anchor,
                registry=place.registry,
            )
    if closed:
        many = "1 block is" if closed == 1 else f"{closed:,} blocks are"
        print(f"Recovered. {many} closed, with everything spent.")
        print("To go on, the curator raises accounts: lapwing ledger raise. Every statement shows it.")
    else:
        print("Recovered. Nothing was lost: another anchor knew all, and the missing one was made anew.")


@app.command()
def register(where: console.Where, curator: CuratorFile, files: console.LedgerFiles) -> None:
    """Go on with a ledger whose registry is gone: the curator signs it, and every statement says so."""
    from lapwing.ledger import recovery

    with console.os_errors_told():
        place = files.of(where)
        place.require()
        with console.working("checking the ledger"):
            registry = recovery.register_anew(
                place.where,
                curator=curator_key(curator),
                keys=place.keys,
                anchor=place.anchor,
                registry=place.registry,
            )
    print(f"The registry {registry.where} knows the ledger now, as every statement will say.")
    print("It does not know the people yet: run `lapwing prepare` for each of its policies before asking.")


@app.command(name="other-people")
def other_people(
    where: console.Where,
    others: Annotated[list[str], Argument(metavar="LEDGER…", help="The other ledgers, by id or file.")],
    curator: CuratorFile,
    files: console.LedgerFiles,
) -> None:
    """Sign that ids only look like those in another ledger: the people are others."""
    with console.opened_ledger(files.of(where)) as ledger:
        ledger.sign_other_people(others, curator_key(curator))
    print("Signed. Every statement will say so. Ask again.")


def _show_new(where: str, place: LedgerPlace, curator: Path, ledger: Ledger) -> None:
    """Show the files of a new ledger, and what to do with them."""
    with console.page() as out:
        out.title("A new ledger")
        rows = [("history", where)]
        rows.append(("keys", f"{place.keys} (secret: it signs for the ledger)"))
        rows.append(("anchor", place.anchor.where))
        rows += [("second anchor", other.where) for other in place.witnesses(ledger.id)]
        rows += [("curator's key", str(curator)), ("public key", ledger.keys.signing.public.hex())]
        out.pairs(*rows)
        out.heading("Now")
        out.points(
            f"Move {curator} away, to where only the curator can read it. Whoever has it can raise "
            "budgets; without it nobody can.",
            "Never restore the anchor from a backup, not even together with the history: it is what "
            "tells an older copy.",
            "Give the public key to those who will check statements.",
        )


def show_log(lines: Sequence[LogLine]) -> None:
    """Show the newest entries."""
    with console.page() as out:
        # Two lines a cell, so that the table fits a terminal.
        columns = ("entry", "time (UTC)", "kind", "account\nblocks", "what for\nprice, by whom")
        shown = console.table(*columns, right=(0,))
        for column, width in ((1, 10), (2, 9), (3, 28)):
            shown.columns[column].max_width = width
        for line in lines:
            blocks = ", ".join(line.blocks)
            more = line.block_count - len(line.blocks)
            if more > 0:
                blocks += f" and {more:,} more"
            price = ", by ".join(text for text in (line.price, line.principal) if text)
            shown.add_row(
                str(line.number),
                line.time[:19].replace("T", "\n"),
                line.kind,
                _lines(", ".join(line.accounts), blocks),
                _lines(line.what, price),
            )
        out.print(shown)


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def show_verified_file(verified: VerifiedFile) -> None:
    """Show the result of a check that found nothing wrong."""
    from lapwing.ledger.ledger_place import without_password

    with console.page() as out:
        out.title(f"{without_password(verified.where)}: nothing differs")
        rows = [("ledger", verified.ledger), ("public key", verified.key)]
        if verified.kind == "proof":
            rows += [
                ("entry", ""),
                *((f"  {name}", value) for name, value in (verified.entry or {}).items()),
            ]
        else:
            rows.append(("entries", f"{verified.entries:,}, replayed by a second accountant"))
            rows.append(("prices", f"{verified.prices_checked:,} compared with a second opinion"))
            if verified.prices_unchecked:
                unchecked = f"{verified.prices_unchecked:,} have none here"
                rows.append(("", f"{unchecked}: the ledger's own price was believed"))
        rows += [("anchor", where) for where in verified.anchors]
        if verified.head is not None:
            rows.append(("seal", f"number {verified.head.number}, over {verified.head.size:,} entries"))
            rows.append(("root", verified.head.root.hex()))
        out.pairs(*rows)
        if not verified.key_was_given and verified.kind != "ledger":
            out.warning(console.NO_KEY)
        if verified.promises:
            out.heading("What it promises")
            out.indented(*verified.promises)
