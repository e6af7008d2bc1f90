"""A dashboard: several questions with one price, one button and one charge, all or none."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.errors import LapwingError
from lapwing.server.api.route import RECEIPT
from lapwing.server.console.answer_view import AnswerTable, table_of
from lapwing.server.console.asking import FIRST_EPSILON, ReleaseBar, refusal_of, room_for
from lapwing.server.console.chooser import error_words
from lapwing.server.console.desk import AtDesk, Desk, PageRoute, PostedMany, see_other
from lapwing.server.console.parts import FREE, FREE_AGAIN, Gauge, Price, Refusal
from lapwing.server.console.words import left_text, plain_number, price_text, title_of
from lapwing.server.data.batches import BatchForm
from lapwing.server.people.person import NotFound, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)
FEWEST_ROWS, MOST_ROWS = 2, 20
_NUMBERS = ("no", "one", "both", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question of a dashboard as somebody wrote it."""

    sql: str
    epsilon: str


@dataclass(frozen=True, slots=True)
class ShareLine:
    """A question of a priced dashboard, with its share of the price."""

    title: str
    sql: str
    within: str
    price: Price


@dataclass(frozen=True, slots=True)
class DashboardView:
    """The page of a dashboard."""

    data: str
    here: str
    rows: tuple[QuestionRow, ...]
    lines: tuple[ShareLine, ...] = ()
    bar: ReleaseBar | None = None
    release: str = ""
    refusal: Refusal | None = None
    answers: tuple[tuple[str, str, AnswerTable], ...] = ()  # heading, address, table


def rows_of(posted: list[tuple[str, str]]) -> list[QuestionRow]:
    """Return the questions of a form, in their order. Rows without a question are left out."""
    texts = [value.replace("\r\n", "\n").strip() for name, value in posted if name == "sql"]
    prices = [value.strip() for name, value in posted if name == "epsilon"]
    prices += [FIRST_EPSILON] * (len(texts) - len(prices))
    rows = [QuestionRow(text, price) for text, price in zip(texts, prices, strict=False) if text]
    return rows[:MOST_ROWS]


def with_room(rows: list[QuestionRow], more: int = 0) -> tuple[QuestionRow, ...]:
    """Return rows with empty ones below, to write into."""
    missing = max(FEWEST_ROWS - len(rows), more)
    return (*rows, *[QuestionRow("", FIRST_EPSILON)] * missing)


def share_lines(plan: Any) -> tuple[ShareLine, ...]:
    """Return the questions of a planned batch with their shares."""
    lines = []
    for place, one in enumerate(plan.plans):
        price = Price.of(one.cost.epsilon, one.cost.delta) if place in plan.charged else FREE_AGAIN
        lines.append(ShareLine(title_of(one.request.sql), one.request.sql, error_words(one)[0], price))
    return tuple(lines)


def bar_of(plan: Any, room: Fraction, of: Fraction) -> ReleaseBar:
    """Return the button of a planned batch: one sum, all or none."""
    count = len(plan.plans)
    verb = f"Release {'all ' if count > 2 else ''}{_NUMBERS[count] if count < len(_NUMBERS) else count}"
    cost = plan.cost
    if not plan.charged:
        words = f"Leaves you {left_text(room)} of {plain_number(of)}, as before"
        return ReleaseBar(words, Gauge.show(room, of), "Show answers", FREE.text, is_ready=True)
    price = price_text(cost.epsilon, cost.delta)
    if cost.epsilon > room:
        words = f"You have {left_text(room)} of {plain_number(of)}"
        return ReleaseBar(words, Gauge.show(room, of), verb, f"{price} is too much", is_ready=False)
    gauge = Gauge.show(room, of, takes=Fraction(cost.epsilon))
    return ReleaseBar(
        f"Leaves you at least {gauge.amount} of {gauge.of}", gauge, verb, price, is_ready=True
    )


@router.get("/d/{data}/dashboard")
def dashboard(desk: AtDesk, data: str) -> Response:
    """Show an empty dashboard."""
    return _page(desk, data, DashboardView(data, f"/d/{data}/dashboard", with_room([])))


def _page(desk: Desk, data: str, view: DashboardView, status: int = 200) -> Response:
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    return desk.page("dashboard.html", "Dashboard", served, current="Ask", status=status, board=view)


@router.post("/d/{data}/dashboard")
def price_dashboard(desk: AtDesk, data: str, posted: PostedMany) -> Response:
    """Price all questions as one, or add a row to write into. Nothing is charged."""
    desk.services.sets.require(desk.person, data, Role.ANALYST)
    rows, here = rows_of(posted), f"/d/{data}/dashboard"
    if "add" in dict(posted) or not rows:
        return _page(desk, data, DashboardView(data, here, with_room(rows, 1)))
    questions = [{"sql": row.sql, "epsilon": row.epsilon} for row in rows]
    try:
        made = desk.services.batches.make(
            desk.person, BatchForm.read({"data": data, "questions": questions})
        )
    except LapwingError as error:
        return _page(desk, data, DashboardView(data, here, with_room(rows), refusal=refusal_of(error)), 422)
    return see_other(f"{here}/{made.id}")


@router.get("/d/{data}/dashboard/{batch_id}")
def priced_dashboard(desk: AtDesk, data: str, batch_id: str) -> Response:
    """Show the price of a dashboard; its answers, if all were released."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    stored = desk.services.batches.find(desk.person, batch_id)
    if stored.data != data:
        raise NotFound(batch_id)
    here, plan = f"/d/{data}/dashboard", stored.plan
    rows = [QuestionRow(one.sql, one.epsilon or FIRST_EPSILON) for one in stored.form.questions]
    room, of, _ = room_for(desk.left(served))
    view = DashboardView(
        data, here, with_room(rows), share_lines(plan), bar_of(plan, room, of), f"{here}/{batch_id}/release"
    )
    if plan.charged:
        return _page(desk, data, view)
    answers = desk.services.batches.release(desk.person, batch_id)  # stored: nothing is left to charge
    tables = [(title_of(one.sql), f"/answers/{one.id}", table_of(one.answer)) for one in answers]
    return _page(
        desk, data, DashboardView(data, here, with_room(rows), view.lines, None, "", None, tuple(tables))
    )


@router.post("/d/{data}/dashboard/{batch_id}/release")
def release_dashboard(desk: AtDesk, data: str, batch_id: str) -> Response:
    """Release all questions with one charge, once."""
    desk.services.sets.require(desk.person, data, Role.ANALYST)
    answers = desk.services.batches.release(desk.person, batch_id)
    desk.request.scope[RECEIPT] = answers[0].receipt.position
    return desk.at_step(see_other(f"/d/{data}/dashboard/{batch_id}#answers"), "r")
