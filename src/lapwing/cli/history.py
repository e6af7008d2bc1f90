"""`lapwing history`: what was asked, by whom, when, at which price; and totals by analyst."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lapwing.cli.opened import AnchorAt, AsJson, Keys, opened, plainly
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from fractions import Fraction

    from lapwing.ledger.views.requests import Asked, Total

SHOWN = 20
REQUEST = (
    "receipt", "time", "analyst", "state", "question", "what", "price", "epsilon", "delta", "rho",
    "accounts",
)  # fmt: skip
TOTAL = ("analyst", "requests", "answered", "failed", "epsilon", "delta", "rho", "other_prices")


def history(
    where: Annotated[
        str,
        typer.Argument(metavar="POLICY|LEDGER", help="A policy file, a ledger, or postgresql://…#name."),
    ],
    *,
    last: Annotated[
        int | None,
        typer.Option(min=1, help=f"How many of the newest; else {SHOWN}, or all in JSON, CSV and totals."),
    ] = None,
    by: Annotated[Literal["analyst"] | None, typer.Option(help="Only totals, by analyst.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Show what was asked: question, who, when, price, receipt, and whether there was an answer."""
    from lapwing.cli.show_history import show_requests, show_totals  # noqa: PLC0415
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.ledger.views.requests import Totals, each_request  # noqa: PLC0415
    from lapwing.query.answering.stored import words_of  # noqa: PLC0415

    if as_json and as_csv:
        raise BadParameter("csv", "or --json: ask for one of them")
    account = None
    if where.endswith(".toml"):
        where, keys, anchor, account = _of_policy(where)
    totals, found = Totals(), []
    is_told = as_json or as_csv
    writer = _Writer(TOTAL if by else REQUEST, as_json=as_json) if is_told else None

    def tell(one: Asked) -> None:
        if by:
            totals.add(one)
        elif writer is not None:
            writer.write(_request(one))
        else:
            found.append(one)

    most = last if last is not None or is_told or by else SHOWN
    with opened(where, keys, anchor) as ledger, working("reading the history") as watch:
        each_request(ledger, tell, words_of=words_of, last=most, account=account, watch=watch)
    if writer is not None:
        for total in totals.totals:
            writer.write(_total(total))
        writer.end()
    elif by:
        show_totals(totals.totals)
    else:
        show_requests(found)


def _of_policy(path: str) -> tuple[str, Path | None, str | None, str]:
    """The ledger of a policy, its keys and anchor, and the account of the data."""
    from lapwing.query import custody  # noqa: PLC0415
    from lapwing.query.policies.file import load  # noqa: PLC0415

    with plainly():
        policy = load(Path(path))
    keys = Path(policy.ledger_keys) if policy.ledger_keys else None
    return policy.ledger, keys, policy.ledger_anchor or None, custody.account_label(policy)


def _request(one: Asked) -> Sequence[Any]:
    line, price = one.line, one.price
    return (
        line.number, line.time, line.principal, one.state, one.question, line.what, price.words,
        _number(price.epsilon), _number(price.delta), _number(price.rho), list(line.accounts),
    )  # fmt: skip


def _total(one: Total) -> Sequence[Any]:
    sums = (_number(one.epsilon), _number(one.delta), _number(one.rho))
    return (one.principal, one.requests, one.answered, one.failed, *sums, one.others)


def _number(value: Fraction | None) -> float | None:
    from lapwing.cli.budget import float_up  # noqa: PLC0415

    return None if value is None else float_up(value)


class _Writer:
    """Writes rows as they come: a ledger may have a million."""

    def __init__(self, names: Sequence[str], *, as_json: bool) -> None:
        self._names = names
        self._as_json = as_json
        self._rows = 0
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        if not as_json:
            self._csv.writerow(names)

    def write(self, values: Sequence[Any]) -> None:
        """One row."""
        if self._as_json:
            text = json.dumps(
                dict(zip(self._names, values, strict=True)), ensure_ascii=False, allow_nan=False
            )
            shown = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
            print(f"{',' if self._rows else '['}\n  {shown}", end="")
        else:
            self._csv.writerow([_cell(value) for value in values])
        self._rows += 1

    def end(self) -> None:
        """Nothing more comes."""
        if self._as_json:
            print("\n]" if self._rows else "[]")


def _cell(value: Any) -> Any:
    """No cell moves a cursor, and none is a formula to a spreadsheet."""
    from lapwing.cli.show import printable  # noqa: PLC0415

    if isinstance(value, list):
        value = "; ".join(value)
    if not isinstance(value, str):
        return "" if value is None else value
    text = printable(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
