"""What all commands of the ledger share: which ledger, where its keys and anchor lie, and opening it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapwing.errors import Unavailable

if TYPE_CHECKING:
    from lapwing.ledger import Ledger

Where = Annotated[str, typer.Argument(metavar="LEDGER", help="A path, or postgresql://…#name.")]
Keys = Annotated[
    Path | None,
    typer.Option("--keys", envvar="LAPWING_KEYS", help="The ledger's key file; else LEDGER.keys."),
]
AnchorAt = Annotated[
    str | None,
    typer.Option(
        "--anchor",
        envvar="LAPWING_ANCHOR",
        help="Where the newest state is kept besides; else LEDGER.anchor.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def opened(where: str, keys: Path | None, anchor: str | None) -> Iterator[Ledger]:
    """The ledger, checked against its entries and anchors."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.ledger import Ledger  # noqa: PLC0415

    with plainly():
        require_file(where)
        with working("checking the ledger"):
            ledger = Ledger.open(where, keys=keys, anchor=anchor)
        with ledger:
            yield ledger


@contextmanager
def plainly() -> Iterator[None]:
    """What the operating system refuses is said in one line."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads our output has had enough
    except OSError as error:
        what = f"{error.filename}: " if error.filename and len(str(error.filename)) < 300 else ""
        raise Unavailable(f"{what}{error.strerror}") from None


def tell(text: str) -> None:
    """A line on stderr, if anybody can still read it: a run does not end because its terminal did."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:  # closed before we began
            print(f"lapwing: {text}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """One JSON value. Nothing in it is rounded up to infinity or down to a word."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def require_file(where: str) -> None:
    """There is something to open."""
    from lapwing.ledger.places import is_postgres  # noqa: PLC0415

    if not is_postgres(where) and not Path(where).is_file():
        raise Unavailable(f"there is no ledger at {where}")
