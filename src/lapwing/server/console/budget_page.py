"""Budget: what is left by data set, block and person, how it was spent, and what the whole can tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import Response

from lapwing.core.exact import short, short_up
from lapwing.ledger.budget_history import BudgetHistory
from lapwing.ledger.request_log import OTHERS
from lapwing.server.console import charts
from lapwing.server.console.asking import room_for
from lapwing.server.console.desk import AtDesk, Desk, PageRoute
from lapwing.server.console.home_page import FitLine, fit_lines
from lapwing.server.console.parts import Gauge, share_text
from lapwing.server.console.words import SPACE, day_text, left_text, plain_number
from lapwing.server.people.person import NotFound, Role
from lapwing.sql.policy.policy import account_label

router = APIRouter(route_class=PageRoute, include_in_schema=False)
MOST_BLOCKS = 40
QUOTAS_ADD_UP = "Quotas may add up to more than the budget: whoever asks first, spends first."


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """What is left of one budget or quota."""

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
    odds: tuple[str, ...]
    fits: tuple[FitLine, ...]
    chart: str
    chart_words: str
    may_report: bool
    commands: tuple[tuple[str, str], ...]


def block_columns(blocks: Any) -> tuple[BlockColumn, ...]:
    """Return blocks as columns."""
    found = []
    for one in blocks[:MOST_BLOCKS]:
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
        lines=tuple(data_line(desk, one, with_forecast=one.name == data) for one in desk.visible()),
        blocks=block_columns(found.blocks) if len(found.blocks) > 1 else (),
        blocks_words="A question about some blocks spends from those alone.",
        people=people,
        people_title="By person" if sees_all else "Your quota",
        people_words=QUOTAS_ADD_UP if sees_all and people else "",
        odds=(f"The whole budget of {data}, {total}, promises this:", *found.odds),
        fits=tuple(fits),
        chart=f"/d/{data}/budget/chart" if has_history(served) else "",
        chart_words="What counts as spent in the block where least is left. Many small answers together "
        "can cost less than their sum.",
        may_report=sees_all,
        commands=(("A report that you can sign:", f"lapwing report {policy_file}"),) if sees_all else (),
    )
    return desk.page("budget.html", "Budget", served, budget=view)


def has_history(served: Any) -> bool:
    """Return whether the account of a data set is open: a planned one has no history."""
    if not served.curator.has_ledger:
        return False
    ledger = served.curator.ledger
    root = ledger.account(account_label(served.curator.policy)).number
    return any(one.root == root for one in ledger.accounts())


@router.get("/d/{data}/budget/chart/{theme}.svg")
def chart(desk: AtDesk, data: str, theme: str) -> Response:
    """Draw what counted as spent over time."""
    served = desk.services.sets.require(desk.person, data, Role.STEWARD, Role.ANALYST, Role.OFFICER)
    if theme not in charts.LOOKS or not has_history(served):
        raise NotFound(theme)
    label = account_label(served.curator.policy)
    history = BudgetHistory.of(served.curator.ledger, label)
    steps, cap, ends = spent_steps(history, datetime.now(UTC))
    picture = charts.spending_chart(
        steps, cap, charts.LOOKS[theme], title=f"What counts as spent of {data}", begin=ends[0], end=ends[1]
    )
    return Response(picture, media_type="image/svg+xml")


def spent_steps(
    history: BudgetHistory, now: datetime
) -> tuple[list[charts.SpentStep], float, tuple[str, str]]:
    """Return what counted as spent over time, the budget, and the first and last day in words."""
    cap = float(sum((grant.epsilon for grant in history.grants), Fraction(0))) or 1.0
    if not history.times:
        return [charts.SpentStep(0.0, 0.0)], cap, ("", "")
    column = int(np.nanargmin(history.left[-1]))
    begin = history.times[0]
    span = max((now - begin).total_seconds(), 1.0)
    steps = []
    for time, left in zip(history.times, history.left[:, column], strict=True):
        given = float(sum((one.epsilon for one in history.grants if one.time <= time), Fraction(0)))
        spent = 0.0 if np.isnan(left) else max(given - float(left), 0.0)
        steps.append(charts.SpentStep((time - begin).total_seconds() / span, spent))
    return steps, cap, (day_text(begin), f"{day_text(now)}, now")
