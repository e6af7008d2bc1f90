"""`lapwing budget`: what is left, per account and block.

`lapwing history`: what was asked, by whom, when, at which price; and totals by analyst.

How `lapwing history` looks.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lapwing.cli.console import (
    AnchorAt,
    AsJson,
    Keys,
    Where,
    console,
    opened,
    plainly,
    points,
    print_json,
    printable,
    table,
)
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.ledger import Ledger
    from lapwing.ledger.budget_history import FamilyOverview, LedgerOverview
    from lapwing.ledger.request_log import LoggedRequest, PrincipalTotal


def budget(
    where: Where,
    *,
    account: Annotated[str | None, typer.Option(help="Only this account.")] = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw spending over time into this .svg, .png or .pdf file; of one account."),
    ] = None,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Show what is left of every account and block, and what the accounts promise together."""
    from lapwing.cli.ledger import show_budget  # noqa: PLC0415
    from lapwing.ledger.budget_history import overview  # noqa: PLC0415

    if plot is not None:
        from lapwing.plots.style import checked_path  # noqa: PLC0415

        checked_path(plot)
    with opened(where, keys, anchor) as ledger:
        found = overview(ledger, account)
        if plot is not None:
            _draw(ledger, found, plot)
    if as_json:
        print_json(budget_json(found))
    else:
        show_budget(found)
        if plot is not None:
            print(f"\nThe picture is in {plot}")


def _draw(ledger: Ledger, found: LedgerOverview, path: Path) -> None:
    # matplotlib takes a second to load: only who wants a picture waits for it.
    from lapwing.cli.ledger import working  # noqa: PLC0415
    from lapwing.ledger.budget_history import BudgetHistory  # noqa: PLC0415
    from lapwing.plots.spending import spending  # noqa: PLC0415
    from lapwing.plots.style import save  # noqa: PLC0415

    if len(found.families) != 1:
        raise BadParameter("plot", "shows one account: name it with --account")
    with working("drawing"):
        figure = spending(BudgetHistory.of(ledger, found.families[0].label))
    try:
        save(figure, path)
    except OSError as error:
        raise BadParameter("plot", f"{path} cannot be written ({error.strerror})") from None


def budget_json(found: LedgerOverview) -> dict[str, Any]:
    """With stable names. Promises are rounded up, what is left is rounded down."""
    accounts = len(found.families) + len(found.not_shown)
    return {
        "ledger": found.ledger,
        "accounts": [_family(family) for family in found.families],
        "accounts_not_shown": list(found.not_shown),
        "losses_add": accounts > 1,
        "data_sets": [
            {"name": data.label, "version": data.version, "accounts": list(data.accounts)}
            for data in found.data_sets
        ],
        "signed_by_curator": [
            {
                "entry": line.number,
                "time": line.time,
                "kind": line.kind,
                "accounts": list(line.accounts),
                "what": line.what,
            }
            for line in found.declared
            if line.kind != "policy"
        ],
        "changed_after_check": [
            {"entry": line.number, "time": line.time, "accounts": list(line.accounts)}
            for line in found.declared
            if line.kind == "policy"
        ],
    }


def _family(family: FamilyOverview) -> dict[str, Any]:
    epsilon, delta = family.total
    return {
        "account": family.label,
        "unit": family.unit,
        "relation": family.relation,
        "slices": family.slices,
        "rule": family.rule,
        "epsilon": float_up(epsilon),
        "delta": float_up(delta),
        "delta_set_aside": {
            "answers_that_may_fail": float_up(family.set_aside.failures),
            "runs_priced_as_one": float_up(family.set_aside.whole_runs),
            "renyi_filters": float_up(family.set_aside.filters),
        },
        "is_raised": len(family.accounts) > 1,
        "parts": [
            {"number": n, "epsilon": float_up(e), "delta": float_up(d)} for n, e, d in family.accounts
        ],
        "worst_cases": [
            {"periods": n, "epsilon": float_up(e), "delta": float_up(d)} for n, e, d in family.in_periods
        ],
        "open_reservations": list(family.reservations),
        "blocks": [
            {
                "block": block.label,
                "part": block.account,
                "is_open": block.is_open,
                "epsilon_left": _down(block.epsilon),
                "delta_left": _down(block.delta),
                "epsilon_left_after_lapse": _down(block.epsilon_after_lapse),
                "epsilon_at_first": _down(block.epsilon_at_first),
                "delta_at_first": _down(block.delta_at_first),
            }
            for block in family.blocks
        ],
    }


def float_up(value: Fraction) -> float:
    """The least float that is not below, as it is read."""
    near = float(value)
    return near if Fraction(repr(near)) >= value else math.nextafter(near, math.inf)


def _down(value: Fraction) -> float:
    near = float(value)  # its text is what is read, so its text is compared
    return near if Fraction(repr(near)) <= value else math.nextafter(near, 0.0)


REQUESTS_SHOWN = 20
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
        typer.Option(
            min=1, help=f"How many of the newest; else {REQUESTS_SHOWN}, or all in JSON, CSV and totals."
        ),
    ] = None,
    by: Annotated[Literal["analyst"] | None, typer.Option(help="Only totals, by analyst.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    keys: Keys = None,
    anchor: AnchorAt = None,
) -> None:
    """Show what was asked: question, who, when, price, receipt, and whether there was an answer."""
    pass
    from lapwing.cli.ledger import working  # noqa: PLC0415
    from lapwing.ledger.request_log import PrincipalTotals, each_request
    from lapwing.sql.answers import stored_question  # noqa: PLC0415

    if as_json and as_csv:
        raise BadParameter("csv", "or --json: ask for one of them")
    account = None
    if where.endswith(".toml"):
        where, keys, anchor, account = _of_policy(where)
    totals, found = PrincipalTotals(), []
    is_told = as_json or as_csv
    writer = _Writer(TOTAL if by else REQUEST, as_json=as_json) if is_told else None

    def tell(one: LoggedRequest) -> None:
        if by:
            totals.add(one)
        elif writer is not None:
            writer.write(_request(one))
        else:
            found.append(one)

    most = last if last is not None or is_told or by else REQUESTS_SHOWN
    with opened(where, keys, anchor) as ledger, working("reading the history") as watch:
        each_request(ledger, tell, words_of=stored_question, last=most, account=account, watch=watch)
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
    from lapwing.sql import policy_ledger  # noqa: PLC0415
    from lapwing.sql.policy_file import load_policy  # noqa: PLC0415

    with plainly():
        policy = load_policy(Path(path))
    keys = Path(policy.ledger_keys) if policy.ledger_keys else None
    return policy.ledger, keys, policy.ledger_anchor or None, policy_ledger.account_label(policy)


def _request(one: LoggedRequest) -> Sequence[Any]:
    line, price = one.line, one.price
    return (
        line.number, line.time, line.principal, one.state, one.question, line.what, price.words,
        _number(price.epsilon), _number(price.delta), _number(price.rho), list(line.accounts),
    )  # fmt: skip


def _total(one: PrincipalTotal) -> Sequence[Any]:
    sums = (_number(one.epsilon), _number(one.delta), _number(one.rho))
    return (one.principal, one.requests, one.answered, one.failed, *sums, one.others)


def _number(value: Fraction | None) -> float | None:
    pass

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
    from lapwing.cli.console import printable  # noqa: PLC0415

    if isinstance(value, list):
        value = "; ".join(value)
    if not isinstance(value, str):
        return "" if value is None else value
    text = printable(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


SUMS_MEAN = (
    "Sums of prices, as if each loss were simply added; reserved work counts with all that was held for "
    "it. What accounts have left is in `lapwing budget`, and can be more than these sums say."
)


def show_requests(found: Sequence[LoggedRequest]) -> None:
    """The newest requests, oldest first."""
    with console() as out:
        if not found:
            out.print("Nothing was asked yet.")
            return
        shown = table("receipt", "time (UTC)\nwho", "question\nprice, what came of it", right=(0,))
        shown.columns[1].max_width = 20
        for one in found:
            line = one.line
            when = f"{line.time[:16].replace('T', ' ')}\n{printable(line.principal)}"
            shown.add_row(str(line.number), when, f"{printable(one.what)}\n{one.price.words}, {one.state}")
        out.print(shown)


def show_totals(totals: Sequence[PrincipalTotal]) -> None:
    """What each analyst asked for, in all."""
    from lapwing.ledger.request_log import short_up  # noqa: PLC0415

    with console() as out:
        if not totals:
            out.print("Nothing was asked yet.")
            return
        has_rho, has_others = any(one.rho for one in totals), any(one.others for one in totals)
        columns = ["analyst", "asked", "answered", "failed", "Σ ε", "Σ δ"]
        columns += ["Σ ρ"] * has_rho + ["at other\nprices"] * has_others
        shown = table(*columns, right=range(1, 8))
        for one in totals:
            cells = [printable(one.principal), f"{one.requests:,}", f"{one.answered:,}", f"{one.failed:,}"]
            cells += [short_up(one.epsilon), short_up(one.delta)]
            cells += [short_up(one.rho)] * has_rho + [f"{one.others:,}"] * has_others
            shown.add_row(*cells)
        out.print(shown)
        points(out, [SUMS_MEAN])
