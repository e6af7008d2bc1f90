"""Budget: what is left by data set, block and person, how it was spent, and what the whole can tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.core.exact import grouped, short, short_up
from lapwing.errors import LapwingError
from lapwing.ledger.request_log import OTHERS
from lapwing.server.console import charts
from lapwing.server.console.asking import room_for
from lapwing.server.console.desk import AtDesk, Desk, PageRoute
from lapwing.server.console.home_page import FitLine, fit_lines
from lapwing.server.console.lasting_view import LastingView, lasting_view, quota_lines
from lapwing.server.console.parts import Gauge, share_text
from lapwing.server.console.schema_view import examples_for
from lapwing.server.console.spending_chart import spending_chart
from lapwing.server.console.words import SPACE, counted, left_text, plain_number, price_text
from lapwing.server.data.budget_view import BudgetView
from lapwing.server.data.forecast import Forecast
from lapwing.server.data.lasting import TypicalCount, pace_of, proposed_quotas
from lapwing.server.data.spending import PastSpending
from lapwing.server.people.person import NotFound, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)
MOST_BLOCKS, MOST_MONTHS = 40, 24
MOST_FORECASTS = 8  # a forecast reads a history
QUOTAS_STAY = (
    "Quotas are for life, too: those that the ledger has cannot be lowered. Agree on the price of a "
    "question with your analysts; only your key can raise a quota."
)
QUOTAS_ARE_NEW = (
    "Write these lines into the policy. They divide what is left as it was spent so far; whoever has no "
    "line then cannot ask. Quotas are for life and bound the whole, not a month."
)
QUOTAS_ADD_UP = "Quotas may add up to more than the budget: whoever asks first, spends first."


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """Budget or quota that is left, as a line of the page."""

    name: str
    href: str
    detail: str
    gauge: Gauge
    words: str
    is_near: bool = False


@dataclass(frozen=True, slots=True)
class BlockColumn:
    """A block as a column that is filled with what is left."""

    name: str
    height: str
    top: str
    amount: str


@dataclass(frozen=True, slots=True)
class SpendingRow:
    """Prices that each person paid in a month, and the loss that counted as spent at its end."""

    month: str
    prices: tuple[str, ...]
    counts: str


@dataclass(frozen=True, slots=True)
class SpendingTable:
    """The numbers of the picture of spending."""

    people: tuple[str, ...]
    rows: tuple[SpendingRow, ...]


@dataclass(frozen=True, slots=True)
class BudgetPageView:
    """The page about budgets."""

    data: str
    lead: str
    lines: tuple[BudgetLine, ...]
    blocks: tuple[BlockColumn, ...]
    blocks_words: str
    people: tuple[BudgetLine, ...]
    people_title: str
    people_words: str
    odds_title: str
    odds: tuple[str, ...]
    fits: tuple[FitLine, ...]
    chart: str
    chart_words: str
    chart_title: str
    table: SpendingTable
    report: str
    last: LastingView | None
    commands: tuple[tuple[str, str], ...]


def block_columns(blocks: Any) -> tuple[BlockColumn, ...]:
    """Return blocks as columns."""
    found = []
    for one in sorted(blocks[:MOST_BLOCKS], key=lambda block: block.name == OTHERS):
        share = float(one.epsilon / one.of) if one.of else 0.0
        found.append(
            BlockColumn(
                "others" if one.name == OTHERS else one.name,
                share_text(share),
                share_text(1 - share),
                left_text(one.epsilon).removeprefix(f"ε{SPACE}"),
            )
        )
    return tuple(found)


def data_line(desk: Desk, served: Any, *, with_forecast: bool) -> BudgetLine:
    """Return the line of a data set."""
    policy = served.curator.policy
    room, of, whose = room_for(desk.left(served))
    gauge = Gauge.show(room, of, marks=True)
    blocks = (
        f"{policy.blocks.cohorts} cohorts"
        if policy.blocks is not None and policy.blocks.cohorts
        else "in blocks"
        if policy.blocks is not None
        else "one block"
    )
    words = ""
    if with_forecast:
        forecast = desk.services.records.budget(desk.person, served.name).forecast
        words = forecast.words if forecast is not None else "Too few days for a forecast."
    detail = f"{blocks} · δ{SPACE}{short(float(policy.delta))}{' · your quota' if whose else ''}"
    return BudgetLine(served.name, f"/d/{served.name}/budget", detail, gauge, words, bool(gauge.spent))


@router.get("/d/{data}/budget")
def budget(desk: AtDesk, data: str) -> Response:
    """Show what is left, and what it can still buy."""
    served = desk.services.sets.require(desk.person, data, Role.STEWARD, Role.ANALYST, Role.OFFICER)
    found = desk.services.records.budget(desk.person, data)
    spending = desk.services.records.spending(desk.person, data)
    roles = desk.roles(data)
    sees_all = bool(roles & {Role.STEWARD, Role.OFFICER})
    people = tuple(
        BudgetLine(one.name, "", "", Gauge.show(one.epsilon, one.of), "") for one in found.people
    )
    fits: list[FitLine] = fit_lines(desk, served) if Role.ANALYST in roles else []
    total = f"ε{SPACE}{plain_number(found.epsilon)}, δ{SPACE}{short_up(found.delta, 3)}"
    policy_file = f"{data}.toml"
    view = BudgetPageView(
        data=data,
        lead="For life. No date, restart, rename or refund gives any of it back.",
        lines=tuple(
            data_line(desk, one, with_forecast=place < MOST_FORECASTS or one.name == data)
            for place, one in enumerate(desk.visible())
        ),
        blocks=block_columns(found.blocks) if len(found.blocks) > 1 else (),
        blocks_words="A question about some blocks spends from those alone.",
        people=people,
        people_title="By person" if sees_all else "Your quota",
        people_words=QUOTAS_ADD_UP if sees_all and people else "",
        odds_title=f"The whole budget of {data}, {total}, promises this:",
        odds=found.odds,
        fits=tuple(fits),
        chart=f"/d/{data}/budget/chart" if spending.counted else "",
        chart_words=spending_words(spending, found.forecast, sees_all=sees_all),
        chart_title="spending by person" if sees_all else "your spending",
        table=spending_table(spending),
        report=f"/v1/data/{data}/report" if sees_all and spending.counted else "",
        last=_last(desk, served, found, spending) if Role.STEWARD in roles else None,
        commands=(("A report that you can sign:", f"lapwing report {policy_file}"),) if sees_all else (),
    )
    return desk.page("budget.html", "Budget", served, budget=view)


def _last(desk: Desk, served: Any, found: BudgetView, spending: PastSpending) -> LastingView | None:
    """Return the chooser "Make it last" for what its form says; None without a forecast."""
    now, policy = datetime.now(UTC), served.curator.policy
    pace = pace_of(found.least.epsilon, found.forecast, spending, now)
    examples = examples_for(served.schema())
    if pace is None or not examples:
        return None
    try:
        count = TypicalCount(served.curator, examples[0])
    except LapwingError:  # such as: a public table cannot be read now
        return None
    lines, words = "", QUOTAS_STAY
    if not policy.quotas:
        lines, words = quota_lines(proposed_quotas(pace, spending), policy.delta), QUOTAS_ARE_NEW
    return lasting_view(
        pace, count, desk.request.query_params, now.date(), quotas=lines, quotas_words=words
    )


@router.get("/d/{data}/budget/chart/{theme}.svg")
def chart(desk: AtDesk, data: str, theme: str) -> Response:
    """Draw what was paid over time, what counts of it, and the forecast."""
    desk.services.sets.require(desk.person, data, Role.STEWARD, Role.ANALYST, Role.OFFICER)
    spending = desk.services.records.spending(desk.person, data)
    if theme not in charts.LOOKS or not spending.counted:
        raise NotFound(theme)
    forecast = desk.services.records.budget(desk.person, data).forecast
    title = f"What was paid of {data}, by person, and what counts as spent"
    picture = spending_chart(spending, forecast, datetime.now(UTC), charts.LOOKS[theme], title=title)
    return Response(picture, media_type="image/svg+xml")


def spending_table(spending: PastSpending) -> SpendingTable:
    """Return the numbers of the picture: the newest months first, then the sums."""
    rows = [
        SpendingRow(
            f"{one.first:%Y-%m}",
            tuple(price_text(price) if price else "–" for price in one.prices),
            f"ε{SPACE}{grouped(one.counted, 4)}",
        )
        for one in spending.months[::-1]
    ]
    sums = tuple(price_text(total) for total in spending.totals)
    total = SpendingRow("together", sums, f"ε{SPACE}{grouped(spending.spent, 4)}")
    return SpendingTable(spending.people, (*rows[:MOST_MONTHS], total))


def spending_words(spending: PastSpending, forecast: Forecast | None, *, sees_all: bool) -> str:
    """Return what the picture shows, in sentences."""
    whose = "Areas are prices" if sees_all else "Areas are your prices"
    words = [
        f"{whose}, and add up to {price_text(sum(spending.totals, Fraction(0)))}. The black line is what "
        f"counts of all answers where least is left, ε{SPACE}{grouped(spending.spent, 4)}: many small "
        "answers together can cost less than their sum."
    ]
    if spending.others:
        words.append(f"{counted(spending.others, 'charge')} of another form are in the line alone.")
    if forecast is not None and forecast.days is not None:
        words.append(
            f"The dashed line goes on at the pace of the last {forecast.measured_days} days; the bar on "
            "the upper line is the range of its end."
        )
    return " ".join(words)
