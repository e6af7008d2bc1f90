"""`lapwing budget` and `lapwing history`: what is left, and what was asked, by whom, at which price."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.text import Text
from typer import Option

from lapwing.cli import console
from lapwing.cli.named_ledger import NamedLedger
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lapwing.ledger import Ledger
    from lapwing.ledger.budget_history import BlockRemainder, FamilyOverview, LedgerOverview
    from lapwing.ledger.request_log import LoggedRequest, LogLine, PriceInWords, PrincipalTotal


def budget(
    where: console.Where,
    *,
    account: Annotated[
        str | None, Option(help="Only this account; of a policy: the account of its data.")
    ] = None,
    form: console.OutputForm,
    plot: Annotated[
        Path | None,
        Option(help="Draw spending over time into this .svg, .png or .pdf file; of one account."),
    ] = None,
    files: console.LedgerFiles,
) -> None:
    """Show what is left of every account and block, and what the accounts promise together."""
    from lapwing.ledger.budget_history import overview, overview_json

    console.check_plot(plot)
    place = files.of(where)
    with console.opened_ledger(place) as ledger:
        wanted = _account_of(ledger, place) if account is None else account
        shown = overview(ledger, wanted)
        if plot is not None:
            console.write_plot(plot, _drawn(ledger, shown, wanted), quiet=True)
    if form.as_json:
        console.print_json(overview_json(shown))
    elif form.as_csv:
        _write_blocks(overview_json(shown))
    else:
        show_budget(shown)
        if place.file and account is None and shown.not_shown:
            print(f"\nOnly the account of {place.file} is shown. For all: lapwing budget {place.where}")
        if plot is not None:
            print(f"\nThe picture is in {plot}")


def _account_of(ledger: Ledger, place: NamedLedger) -> str | None:
    """Return the account of the file that names the ledger; None for all accounts.

    Raises BadParameter if nothing was charged to that account yet: the ledger may be of other data.
    """
    if not place.account:
        return None
    if place.account not in {account.label for account in ledger.accounts()}:
        raise BadParameter(
            "ledger",
            f'the ledger of {place.file} has no account "{place.account}" yet: the first charge opens it. '
            f"For its other accounts: lapwing budget {place.where}",
        )
    return place.account


BLOCK = (
    "account", "block", "is_open", "epsilon_left", "delta_left", "epsilon_left_after_lapse",
    "epsilon_at_first", "delta_at_first",
)  # fmt: skip


def _write_blocks(shown: dict[str, Any]) -> None:
    writer = console.CsvWriter(BLOCK)
    for account in shown["accounts"]:
        for block in account["blocks"]:
            writer.write([account["account"], *(block[name] for name in BLOCK[1:])])


def _drawn(ledger: Ledger, overview: LedgerOverview, wanted: str | None) -> Figure:
    from lapwing.ledger.budget_history import BudgetHistory
    from lapwing.plots.spending import spending

    if wanted is None and len(overview.families) != 1:
        raise BadParameter("plot", "shows one account: name it with --account")
    with console.working("drawing"):
        return spending(BudgetHistory.of(ledger, overview.families[0].label))


REQUESTS_SHOWN = 20
REQUEST = (
    "receipt", "time", "analyst", "state", "question", "what", "price", "epsilon", "delta", "rho",
    "accounts",
)  # fmt: skip
TOTAL = ("analyst", "requests", "answered", "failed", "epsilon", "delta", "rho", "other_prices")


def history(
    where: console.Where,
    *,
    last: Annotated[
        int | None,
        Option(
            min=1, help=f"How many of the newest; else {REQUESTS_SHOWN}, or all in JSON, CSV and totals."
        ),
    ] = None,
    by: Annotated[Literal["analyst"] | None, Option(help="Only totals, by analyst.")] = None,
    form: console.OutputForm,
    files: console.LedgerFiles,
) -> None:
    """Show what was asked: question, who, when, price, receipt, and whether there was an answer."""
    from lapwing.ledger.request_log import PrincipalTotals, each_request
    from lapwing.sql.answering.stored_answers import stored_question

    place = files.of(where)
    totals, requests = PrincipalTotals(), []
    writer = _Writer(TOTAL if by else REQUEST, as_json=form.as_json) if form.is_for_programs else None

    def tell(request: LoggedRequest) -> None:
        if by:
            totals.add(request)
        elif writer is not None:
            writer.write(_request(request))
        else:
            requests.append(request)

    most = last if last is not None or writer or by else REQUESTS_SHOWN
    with console.opened_ledger(place) as ledger, console.working("reading the history") as watch:
        each_request(
            ledger, tell, words_of=stored_question, last=most, account=place.account or None, watch=watch
        )
    if writer is not None:
        for total in totals.totals:
            writer.write(_total(total))
        writer.end()
    elif by:
        show_totals(totals.totals)
    else:
        show_requests(requests)


def _request(request: LoggedRequest) -> Sequence[Any]:
    line, price = request.line, request.price
    return (
        line.number, line.time, line.principal, request.state, request.question, line.what, price.words,
        *_numbers(price), list(line.accounts),
    )  # fmt: skip


def _total(total: PrincipalTotal) -> Sequence[Any]:
    return (total.principal, total.requests, total.answered, total.failed, *_numbers(total), total.others)


def _numbers(price: PriceInWords | PrincipalTotal) -> list[float | None]:
    """Return ε, δ and ρ, rounded up. None stays None."""
    from lapwing.core.exact import float_up

    values = (price.epsilon, price.delta, price.rho)
    return [None if value is None else float_up(value) for value in values]


class _Writer:
    """Writes rows as they come: a ledger may have a million."""

    def __init__(self, names: Sequence[str], *, as_json: bool) -> None:
        self._names = names
        self._rows = 0
        self._csv = None if as_json else console.CsvWriter(names)

    def write(self, values: Sequence[Any]) -> None:
        """Write one row."""
        if self._csv is None:
            text = json.dumps(
                dict(zip(self._names, values, strict=True)), ensure_ascii=False, allow_nan=False
            )
            shown = "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)
            print(f"{',' if self._rows else '['}\n  {shown}", end="")
        else:
            self._csv.write(values)
        self._rows += 1

    def end(self) -> None:
        """Write the end, after all rows."""
        if self._csv is None:
            print("\n]" if self._rows else "[]")


SUMS_MEAN = (
    "Sums of prices, as if each loss were simply added; reserved work counts with all that was held for "
    "it. What accounts have left is in `lapwing budget`, and can be more than these sums say."
)


def show_requests(requests: Sequence[LoggedRequest]) -> None:
    """Show the newest requests, oldest first."""
    with console.page() as out:
        if not requests:
            out.print("Nothing was asked yet.")
            return
        shown = console.table("receipt", "time (UTC)\nwho", "question\nprice, what came of it", right=(0,))
        shown.columns[1].max_width = 20
        for request in requests:
            line = request.line
            when = f"{line.time[:16].replace('T', ' ')}\n{console.printable(line.principal)}"
            shown.add_row(
                str(line.number),
                when,
                f"{console.printable(request.what)}\n{request.price.words}, {request.state}",
            )
        out.print(shown)


def show_totals(totals: Sequence[PrincipalTotal]) -> None:
    """Show the requests of each analyst, added up."""
    from lapwing.core.exact import short_up

    with console.page() as out:
        if not totals:
            out.print("Nothing was asked yet.")
            return
        has_rho, has_others = any(total.rho for total in totals), any(total.others for total in totals)
        columns = ["analyst", "asked", "answered", "failed", "Σ ε", "Σ δ"]
        columns += ["Σ ρ"] * has_rho + ["at other\nprices"] * has_others
        shown = console.table(*columns, right=range(1, 8))
        for total in totals:
            cells = [
                console.printable(total.principal),
                f"{total.requests:,}",
                f"{total.answered:,}",
                f"{total.failed:,}",
            ]
            cells += [short_up(total.epsilon), short_up(total.delta)]
            cells += [short_up(total.rho)] * has_rho + [f"{total.others:,}"] * has_others
            shown.add_row(*cells)
        out.print(shown)
        out.points(SUMS_MEAN)


MOST_ROWS = 40  # if there are more blocks, those with the same budget left share a row
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


def show_account(ledger: Ledger, label: str) -> None:
    """Show the promise of an account, after it was opened or raised."""
    from lapwing.ledger.budget_history import overview

    with console.page() as out:
        for family in overview(ledger, label).families:
            _promise(out, family)


def show_budget(overview: LedgerOverview) -> None:
    """Show all accounts: their promise, their blocks, and exceptions."""
    with console.page() as out:
        if not overview.families:
            out.print("This ledger has no accounts yet.")
        for family in overview.families:
            _promise(out, family)
            _blocks(out, family)
        if overview.families:
            out.points(LEFT_MEANS, DELTA_MEANS)
        _exceptions(out, overview)


def _promise(out: console.Page, family: FamilyOverview) -> None:
    out.title(family.label)
    out.indented(f"Protects one {family.unit}; neighbours {family.relation}.")
    if len(family.accounts) == 1:
        out.indented(f"{_pair(*family.total)} for life.")
    else:
        each = ", then ".join(_pair(epsilon, delta) for _, epsilon, delta in family.accounts)
        times = "once" if len(family.accounts) == 2 else f"{len(family.accounts) - 1} times"
        out.indented(f"Raised {times}, so losses add: {_pair(*family.total)} for life, that is {each}.")
    if family.slices != "none":
        out.indented(f'Sliced by "{family.rule}": each block has the whole budget.')
    if family.in_periods:
        out.indented("Somebody who is in several periods loses more, at worst:")
        rows = [(f"{count:,}", _up(epsilon), _up(delta)) for count, epsilon, delta in family.in_periods]
        out.table("periods", "ε", "δ", right=(0, 1, 2), rows=rows)
    if family.reservations:
        some = ", ".join(map(str, family.reservations[:5])) + (" …" if len(family.reservations) > 5 else "")
        many = len(family.reservations)
        out.indented(f"Held for work that has not ended: {many:,} reservation{'s' * (many > 1)} ({some}).")


def _blocks(out: console.Page, family: FamilyOverview) -> None:
    is_raised = len(family.accounts) > 1
    is_holding = any(block.epsilon_after_lapse > block.epsilon for block in family.blocks)
    _set_aside(out, family)
    columns = ["block", "ε left", "", "δ left"]
    columns += ["ε left if what\nis held lapses"] * is_holding + ["in account"] * is_raised
    shown = console.table(*columns, right=(1, 3, 4) if is_holding else (1, 3))
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
        out.indented(
            f"These have least left. {len(rest):,} further blocks have ε {_down(min(rest))} to "
            f"{_down(max(rest))} left; --json lists all."
        )


def _set_aside(out: console.Page, family: FamilyOverview) -> None:
    delta, shares = family.total[1], family.set_aside
    if delta:
        out.indented(
            f"Of δ {_up(delta)}, {_up(shares.failures)} is set aside for answers that may fail to keep "
            f"their ε, {_up(shares.whole_runs)} for runs priced as one, and {_up(shares.filters)} for the "
            "Rényi filters, by which many answers cost less than the sum of their prices. Setting "
            "aside spends nothing."
        )


def _of_share(block: BlockRemainder) -> str:
    if not block.delta_at_first:
        return "0"
    return f"{_down(block.delta)} of {_down(block.delta_at_first)}"


def _gathered(blocks: Sequence[BlockRemainder]) -> list[list[BlockRemainder]]:
    """Return few blocks one by one; many grouped by the budget left, the least first."""
    if len(blocks) <= MOST_ROWS:
        return [[block] for block in blocks]
    alike: dict[tuple[object, ...], list[BlockRemainder]] = {}
    for block in blocks:
        key = (block.epsilon, block.delta, block.epsilon_after_lapse, block.is_open, block.account)
        alike.setdefault(key, []).append(block)
    return [alike[key] for key in sorted(alike)]


def _named(family: FamilyOverview, blocks: Sequence[BlockRemainder]) -> str:
    from lapwing.ledger import Slices
    from lapwing.ledger.request_log import block_name

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


def _exceptions(out: console.Page, overview: LedgerOverview) -> None:
    several = [data for data in overview.data_sets if len(data.accounts) > 1]
    lines = [
        f'Data "{data.label}" is about people of several accounts, and charged to all of them: '
        f"{', '.join(data.accounts)}."
        for data in several
    ]
    lines += [
        f'"{family.label}" is a part of "{family.part_of}": every charge to it is one to that account '
        "too, so nothing adds. A next question can spend the least that is left in both."
        for family in overview.families
        if family.part_of
    ]
    unused = [f'"{family.label}"' for family in overview.families if not (family.is_used or family.part_of)]
    if unused and len(overview.families) > 1:
        lines.append(f"Nothing was ever charged to {', '.join(unused)}: so far nothing adds.")
    if sum(family.adds for family in overview.families) + len(overview.not_shown) > 1:
        lines.append(_losses_add(overview))
    if lines:
        out.heading("Whoever is in several accounts")
        out.points(*lines)
    changed = [line for line in overview.declared if line.kind == "policy"]
    for title, some in (
        ("Signed by the curator", [line for line in overview.declared if line not in changed]),
        ("Changed after a check", changed),
    ):
        if some:
            out.heading(title)
            out.points(*(f"Entry {line.number}, {line.time[:10]}: {_about(line)}." for line in some))


def _losses_add(overview: LedgerOverview) -> str:
    text = "Losses add: whoever is in several accounts loses up to the sum of what each of them promises"
    if overview.not_shown:
        return f"{text}. Not shown here: {', '.join(overview.not_shown)}."
    adding = [family for family in overview.families if family.adds]
    if len({family.relation for family in adding}) > 1:
        return (
            f"{text}. Neighbours differ in them in several ways, so there is no one sum: replacing a "
            "unit is two steps of adding or removing one."
        )
    if all(family.unit == "person" for family in adding):
        epsilon = sum((family.total[0] for family in adding), Fraction(0))
        delta = sum((family.total[1] for family in adding), Fraction(0))
        return f"{text}, in all {len(adding)} together {_pair(epsilon, delta)}."
    return f"{text}."


def _about(line: LogLine) -> str:
    accounts = ", ".join(line.accounts)
    if line.kind == "account":
        return f"{accounts} {line.what}"
    return f"{accounts}: {line.what}" if line.kind in ("check", "policy") else line.what


def _pair(epsilon: Fraction, delta: Fraction) -> str:
    return f"ε {_up(epsilon)}, δ {_up(delta)}"


def _up(value: Fraction) -> str:
    from lapwing.core.exact import short_up

    return short_up(value)


def _down(value: Fraction) -> str:
    from lapwing.core.exact import short_down

    return short_down(value)
