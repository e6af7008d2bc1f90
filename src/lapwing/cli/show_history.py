"""How `lapwing history` looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lapwing.cli.show import console, points, printable, table

if TYPE_CHECKING:
    from lapwing.ledger.views.requests import Asked, Total

SUMS_MEAN = (
    "Sums of prices, as if each loss were simply added; reserved work counts with all that was held for "
    "it. What accounts have left is in `lapwing budget`, and can be more than these sums say."
)


def show_requests(found: Sequence[Asked]) -> None:
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


def show_totals(totals: Sequence[Total]) -> None:
    """What each analyst asked for, in all."""
    from lapwing.ledger.views.price_words import short_up  # noqa: PLC0415

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
