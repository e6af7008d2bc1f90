"""`lapwing budget`: what is left, per account and block."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapwing.cli.opened import AnchorAt, AsJson, Keys, Where, opened, print_json
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.ledger import Ledger
    from lapwing.ledger.views.overview import Family, Overview


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
    from lapwing.cli.show_ledger import show_budget  # noqa: PLC0415
    from lapwing.ledger.views.overview import overview  # noqa: PLC0415

    if plot is not None:
        from lapwing.plots.style import checked_path  # noqa: PLC0415

        checked_path(plot)
    with opened(where, keys, anchor) as ledger:
        found = overview(ledger, account)
        if plot is not None:
            _draw(ledger, found, plot)
    if as_json:
        print_json(to_json(found))
    else:
        show_budget(found)
        if plot is not None:
            print(f"\nThe picture is in {plot}")


def _draw(ledger: Ledger, found: Overview, path: Path) -> None:
    # matplotlib takes a second to load: only who wants a picture waits for it.
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.ledger.views.course import Course  # noqa: PLC0415
    from lapwing.plots.spending import spending  # noqa: PLC0415
    from lapwing.plots.style import save  # noqa: PLC0415

    if len(found.families) != 1:
        raise BadParameter("plot", "shows one account: name it with --account")
    with working("drawing"):
        figure = spending(Course.of(ledger, found.families[0].label))
    try:
        save(figure, path)
    except OSError as error:
        raise BadParameter("plot", f"{path} cannot be written ({error.strerror})") from None


def to_json(found: Overview) -> dict[str, Any]:
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


def _family(family: Family) -> dict[str, Any]:
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
