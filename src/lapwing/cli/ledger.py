"""`lapwing ledger`: open a ledger and its accounts, look at its history, prove and check it.

The library is imported where it is used: `lapwing --help` must not wait for it.

How the commands of the ledger look.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lapwing.cli.console import (
    AnchorAt,
    AsJson,
    Keys,
    Where,
    console,
    heading,
    indented,
    opened,
    plainly,
    points,
    print_json,
    require_file,
    table,
)
from lapwing.errors import BadParameter, Tampered

if TYPE_CHECKING:
    from lapwing.cli.verify import VerifiedFile
    from lapwing.ledger import CuratorKey, Ledger
    from lapwing.ledger.budget_history import BlockRemainder, FamilyOverview, LedgerOverview
    from lapwing.ledger.ledger import LedgerPlace
    from lapwing.ledger.request_log import LogLine


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
    pass
    from lapwing.ledger import Ledger  # noqa: PLC0415
    from lapwing.ledger.ledger import LedgerPlace  # noqa: PLC0415

    with plainly():
        place = LedgerPlace.of(where, keys=keys, anchor=anchor)
        _require_room(place, curator or place.curator)
        with Ledger.create(where, curator=curator, keys=keys, anchor=anchor) as ledger:
            show_new_ledger(
                where,
                keys=place.keys,
                anchors=[known.where for known in (place.anchor, *place.witnesses(ledger.id))],
                curator=curator or place.curator,
                public=ledger.keys.signing.public.hex(),
            )


def _require_room(place: LedgerPlace, curator: Path) -> None:
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
    pass
    from lapwing.core.losses import Relation  # noqa: PLC0415
    from lapwing.ledger import Slices, Unit

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
    pass

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

    pass
    from lapwing.ledger.request_log import log_lines  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        lines = log_lines(ledger, last=last)
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
    pass
    from lapwing.cli.verify import verify_file

    with plainly():
        found: VerifiedFile = verify_file(file, key=key, keys=keys, anchor=anchor)
    if as_json:
        print_json(found.to_json())
        if found.findings:
            raise typer.Exit(1)
    elif found.findings:
        raise Tampered(found.findings)
    else:
        show_verified_file(found)


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
    pass
    from lapwing.ledger.publishing import export_statement as write  # noqa: PLC0415

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
    pass
    from lapwing.ledger.publishing import prove_entry as proof_of  # noqa: PLC0415

    with opened(where, keys, anchor) as ledger:
        with working("proving"):
            made = proof_of(ledger, position)
        _write_proof(proof, json.dumps(made) + "\n")
        print(f"{proof}: entry {position} is in the ledger, up to its seal number {made['seal'][0]}.")
        print(f"To check it: lapwing ledger verify {proof} --key {made['key']}")


def _write_proof(path: Path, text: str) -> None:
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
    pass
    from lapwing.ledger import ledger as recovery  # noqa: PLC0415

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


MOST_ROWS = 40  # more blocks than this are gathered: those with the same left share a row
GATHERED_ROWS = 12
NAMED = 2
BAR = 10
LEFT_MEANS = (
    "ε left: the largest pure ε that a next question could spend there. It is no sum of prices: after "
    "Gaussian noise, or many small questions, more can be left than subtracting would say."
)
DELTA_MEANS = (
    "δ left: of the share for answers that may fail to keep their ε, which are those with keys that the "
    "policy does not declare. Other answers need none of it."
)


@contextmanager
def working(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal while something may take long, elsewhere nothing. Tell it how much is done."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # On the other stream than the output, which may be JSON; and gone when it is done.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _pairs(out: Console, rows: Sequence[tuple[str, str]]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(value))
    out.print(Padding(grid, (0, 0, 0, 2)))


def show_new_ledger(where: str, *, keys: Path, anchors: Sequence[str], curator: Path, public: str) -> None:
    """`lapwing ledger init`."""
    with console() as out:
        out.print(Text("A new ledger", style="bold"))
        rows = [
            ("history", _without_password(where)),
            ("keys", f"{keys} (secret: it signs for the ledger)"),
        ]
        rows += [("anchor" if k == 0 else "second anchor", anchor) for k, anchor in enumerate(anchors)]
        rows += [("curator's key", str(curator)), ("public key", public)]
        _pairs(out, rows)
        heading(out, "Now")
        points(
            out,
            (
                f"Move {curator} away, to where only the curator can read it. Whoever has it can raise "
                "budgets; without it nobody can.",
                "Never restore the anchor from a backup, not even together with the history: it is what "
                "tells an older copy.",
                "Give the public key to those who will check statements.",
            ),
        )


def _without_password(where: str) -> str:
    """A URL as it may be shown: a password may stand before the host, and among the options."""
    from lapwing.ledger.ledger import is_postgres  # noqa: PLC0415

    if not is_postgres(where):
        return where
    from lapwing.storage.postgres import PostgresAddress  # noqa: PLC0415

    return PostgresAddress.of(where).where


# Accounts and what is left


def show_account(ledger: Ledger, label: str) -> None:
    """After an account was opened or raised."""
    from lapwing.ledger.budget_history import overview  # noqa: PLC0415

    with console() as out:
        for family in overview(ledger, label).families:
            _promise(out, family)


def show_budget(found: LedgerOverview) -> None:
    """`lapwing budget`."""
    with console() as out:
        if not found.families:
            out.print("This ledger has no accounts yet.")
        for family in found.families:
            _promise(out, family)
            _blocks(out, family)
        if found.families:
            points(out, (LEFT_MEANS, DELTA_MEANS))
        _exceptions(out, found)


def _promise(out: Console, family: FamilyOverview) -> None:
    out.print(Text(family.label, style="bold"))
    indented(out, f"Protects one {family.unit}; neighbours {family.relation}.")
    if len(family.accounts) == 1:
        indented(out, f"{_pair(*family.total)} for life.")
    else:
        each = ", then ".join(_pair(epsilon, delta) for _, epsilon, delta in family.accounts)
        times = "once" if len(family.accounts) == 2 else f"{len(family.accounts) - 1} times"
        indented(out, f"Raised {times}, so losses add: {_pair(*family.total)} for life, that is {each}.")
    if family.slices != "none":
        indented(out, f'Sliced by "{family.rule}": each block has the whole budget.')
    if family.in_periods:
        indented(out, "Somebody who is in several periods loses more, at worst:")
        worst = table("periods", "ε", "δ", right=(0, 1, 2))
        for count, epsilon, delta in family.in_periods:
            worst.add_row(f"{count:,}", _up(epsilon), _up(delta))
        out.print(worst)
    if family.reservations:
        some = ", ".join(map(str, family.reservations[:5])) + (" …" if len(family.reservations) > 5 else "")
        many = len(family.reservations)
        indented(out, f"Held for work that has not ended: {many:,} reservation{'s' * (many > 1)} ({some}).")


def _blocks(out: Console, family: FamilyOverview) -> None:
    is_raised = len(family.accounts) > 1
    is_holding = any(block.epsilon_after_lapse > block.epsilon for block in family.blocks)
    _set_aside(out, family)
    columns = ["block", "ε left", "", "δ left"]
    columns += ["ε left if what\nis held lapses"] * is_holding + ["in account"] * is_raised
    shown = table(*columns, right=(1, 3, 4) if is_holding else (1, 3))
    rows = _gathered(family.blocks)
    for blocks in rows[:GATHERED_ROWS] if len(family.blocks) > MOST_ROWS else rows:
        first = blocks[0]
        bar = Text("lost: counts as spent") if not first.is_open else Text(_bar(first))
        cells: list[str | Text] = [_named(family, blocks), _down(first.epsilon), bar, _of_share(first)]
        if is_holding:
            cells.append(_down(first.epsilon_after_lapse))
        if is_raised:
            cells.append(_which(family, first))
        shown.add_row(*cells)
    out.print(shown)
    rest = [block.epsilon for blocks in rows[len(shown.rows) :] for block in blocks]
    if rest:
        indented(
            out,
            f"These have least left. {len(rest):,} further blocks have ε {_down(min(rest))} to "
            f"{_down(max(rest))} left; --json lists all.",
        )


def _set_aside(out: Console, family: FamilyOverview) -> None:
    delta, shares = family.total[1], family.set_aside
    if delta:
        indented(
            out,
            f"Of δ {_up(delta)}, {_up(shares.failures)} is set aside for answers that may fail to keep "
            f"their ε, {_up(shares.whole_runs)} for runs priced as one, and {_up(shares.filters)} for the "
            "Rényi filters, by which many answers cost less than the sum of their prices. Setting "
            "aside spends nothing.",
        )


def _of_share(block: BlockRemainder) -> str:
    if not block.delta_at_first:
        return "0"
    return f"{_down(block.delta)} of {_down(block.delta_at_first)}"


def _gathered(blocks: Sequence[BlockRemainder]) -> list[list[BlockRemainder]]:
    """Few blocks one by one; many by what they have left, the least first."""
    if len(blocks) <= MOST_ROWS:
        return [[block] for block in blocks]
    alike: dict[tuple[object, ...], list[BlockRemainder]] = {}
    for block in blocks:
        key = (block.epsilon, block.delta, block.epsilon_after_lapse, block.is_open, block.account)
        alike.setdefault(key, []).append(block)
    return [alike[key] for key in sorted(alike)]


def _named(family: FamilyOverview, blocks: Sequence[BlockRemainder]) -> str:
    from lapwing.ledger import Slices  # noqa: PLC0415
    from lapwing.ledger.request_log import block_name  # noqa: PLC0415

    names = ", ".join(block_name(block.label, Slices(family.slices)) for block in blocks[:NAMED])
    more = len(blocks) - NAMED
    return names if more <= 0 else f"{names} and {more:,} more"


def _bar(block: BlockRemainder) -> str:
    share = block.epsilon / block.epsilon_at_first
    full = int(share * BAR) if share < 1 else BAR
    if block.epsilon and not full:
        return "▏" + "·" * (BAR - 1)
    return "█" * full + "·" * (BAR - full)


def _which(family: FamilyOverview, block: BlockRemainder) -> str:
    place = [number for number, _, _ in family.accounts].index(block.account)
    return "the first" if not place else f"raise {place}"


def _exceptions(out: Console, found: LedgerOverview) -> None:
    several = [data for data in found.data_sets if len(data.accounts) > 1]
    lines = [
        f'Data "{data.label}" is about people of several accounts, and charged to all of them: '
        f"{', '.join(data.accounts)}."
        for data in several
    ]
    labels = [family.label for family in found.families]
    if len(labels) + len(found.not_shown) > 1:
        lines.append(_losses_add(found))
    if lines:
        heading(out, "Whoever is in several accounts")
        points(out, lines)
    changed = [line for line in found.declared if line.kind == "policy"]
    for title, some in (
        ("Signed by the curator", [line for line in found.declared if line not in changed]),
        ("Changed after a check", changed),
    ):
        if some:
            heading(out, title)
            points(out, [f"Entry {line.number}, {line.time[:10]}: {_about(line)}." for line in some])


def _losses_add(found: LedgerOverview) -> str:
    text = "Losses add: whoever is in several accounts loses up to the sum of what each of them promises"
    if found.not_shown:
        return f"{text}. Not shown here: {', '.join(found.not_shown)}."
    if all(family.unit == "person" for family in found.families):
        epsilon = sum((family.total[0] for family in found.families), Fraction(0))
        delta = sum((family.total[1] for family in found.families), Fraction(0))
        return f"{text}, in all {len(found.families)} together {_pair(epsilon, delta)}."
    return f"{text}."


def _about(line: LogLine) -> str:
    accounts = ", ".join(line.accounts)
    if line.kind == "account":
        return f"{accounts} {line.what}"
    return f"{accounts}: {line.what}" if line.kind in ("check", "policy") else line.what


# History and checks


def show_log(lines: Sequence[LogLine]) -> None:
    """`lapwing ledger log`."""
    with console() as out:
        # Two lines a cell, so that the table fits a terminal.
        columns = ("entry", "time (UTC)", "kind", "account\nblocks", "what for\nprice, by whom")
        shown = table(*columns, right=(0,))
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


def show_verified_file(found: VerifiedFile) -> None:
    """`lapwing ledger verify`, where nothing is wrong."""
    with console() as out:
        out.print(Text(f"{_without_password(found.where)}: nothing differs", style="bold"))
        rows = [("ledger", found.ledger), ("public key", found.key)]
        if found.kind == "proof":
            rows += [("entry", ""), *((f"  {name}", value) for name, value in (found.entry or {}).items())]
        else:
            rows.append(("entries", f"{found.entries:,}, replayed by a second accountant"))
            rows.append(("prices", f"{found.prices_checked:,} compared with a second opinion"))
            if found.prices_unchecked:
                rows.append(
                    ("", f"{found.prices_unchecked:,} have none here: the ledger's own price was believed")
                )
        rows += [("anchor", where) for where in found.anchors]
        if found.head is not None:
            rows.append(("seal", f"number {found.head.number}, over {found.head.size:,} entries"))
            rows.append(("root", found.head.root.hex()))
        _pairs(out, rows)
        if not found.key_was_given and found.kind != "ledger":
            out.print(
                Text(
                    "Warning: no --key was given. Anybody could have made this with a key of their own: "
                    "compare the public key above with the one that you know from elsewhere.",
                    style="bold yellow",
                )
            )
        if found.promises:
            heading(out, "What it promises")
            for line in found.promises:
                indented(out, line)


def _pair(epsilon: Fraction, delta: Fraction) -> str:
    return f"ε {_up(epsilon)}, δ {_up(delta)}"


def _up(value: Fraction) -> str:
    from lapwing.ledger.request_log import short_up  # noqa: PLC0415

    return short_up(value)


def _down(value: Fraction) -> str:
    from lapwing.ledger.request_log import short_down  # noqa: PLC0415

    return short_down(value)
