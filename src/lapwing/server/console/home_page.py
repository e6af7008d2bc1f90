"""Home: what waits for a steward, data and answers of an analyst, the newest charges for an officer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.errors import LapwingError
from lapwing.ledger.request_log import FAILED, LoggedRequest
from lapwing.server.console import answer_view, asking
from lapwing.server.console.chooser import half_alone, labelled_stops
from lapwing.server.console.desk import AtDesk, Desk, PageRoute, end_guide, see_other, set_guide, unit_words
from lapwing.server.console.jobs_page import JobView, job_views
from lapwing.server.console.parts import FREE, Gauge, Price, SparkBar
from lapwing.server.console.records_view import EntryView, price_words, request_view
from lapwing.server.console.schema_view import examples_for
from lapwing.server.console.words import SPACE, counted, left_text, moment, title_of, when_text, within_text
from lapwing.server.data.budget_view import how_many_like
from lapwing.server.people.person import NotFound, Role
from lapwing.sql import policy_ledger

router = APIRouter(route_class=PageRoute, include_in_schema=False)
LAST_ANSWERS, NEWEST = 4, 6
SOON_DAYS = 366
SHARES_OF_LEFT = (Fraction(1, 4), Fraction(1, 10))


@dataclass(frozen=True, slots=True)
class DataCard:
    """A data set with what is left of it."""

    name: str
    href: str
    protects: str
    amount: str
    gauge: Gauge
    whose: str
    words: str
    example: str = ""


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """An answer in a list, with a small picture."""

    href: str
    title: str
    words: str
    bars: tuple[SparkBar, ...]
    price: Price
    when: str


@dataclass(frozen=True, slots=True)
class FitLine:
    """Number of answers like an earlier one that still fit."""

    times: str
    title: str
    words: str
    price: Price
    href: str


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """Something that waits for a steward: what, why, and what to do."""

    kind: str
    title: str
    words: str
    side: str = ""
    command: str = ""
    href: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class HomeView:
    """The first page, by role."""

    greeting: str
    lead: str
    ask: str
    waiting: tuple[WaitingLine, ...]
    shows_waiting: bool
    data: tuple[DataCard, ...]
    shows_answers: bool
    answers: tuple[AnswerLine, ...]
    all_answers: str
    fits: tuple[FitLine, ...]
    fits_words: str
    events: tuple[EntryView, ...]
    shows_events: bool
    events_href: str
    jobs: tuple[JobView, ...]


def data_card(desk: Desk, served: Any, summaries: int | None) -> DataCard:
    """Return the card of a data set. `summaries` is how many answers an analyst released; else None."""
    left = desk.left(served)
    room, of, whose = asking.room_for(left)
    tables = counted(len(served.curator.policy.tables), "table")
    if summaries is None:
        words = f"{tables}."
    elif summaries:
        words = f"{tables}. You released {counted(summaries, 'answer')}."
    else:
        words = f"{tables}. You released nothing yet."
    is_steward = Role.STEWARD in desk.roles(served.name)
    if Role.OFFICER in desk.roles(served.name):
        mark = desk.services.signatures.find(desk.person, served.name)
        new = counted(mark.new, "entry", "entries") if mark.new else "Nothing"
        words += (
            f" {new} new since your last signature." if mark.time is not None else " Not signed by you yet."
        )
    return DataCard(
        name=served.name,
        href=f"/d/{served.name}",
        protects=unit_words(served.curator.unit),
        amount=left_text(room).removeprefix(f"ε{SPACE}"),
        gauge=Gauge.show(room, of, marks=is_steward),
        whose=whose,
        words=words,
        example=f"/d/{served.name}#example" if summaries == 0 else "",
    )


def waiting_of(desk: Desk, served: Any) -> list[WaitingLine]:
    """Return what waits for the steward of a data set: holds, changed data, and a budget that ends."""
    found = [
        _held(one, served.name)
        for one in desk.services.records.history(desk.person, served.name)
        if one.state == FAILED and policy_ledger.is_held(served.curator.policy, one.line.number)
    ]
    return [*found, *_changed(served), *_ending(desk, served)]


def _held(one: LoggedRequest, name: str) -> WaitingLine:
    return WaitingLine(
        "caution",
        f"A question is held: entry {one.line.number}, {one.line.principal}",
        f"It failed after its charge of {price_words(one.price)}. The charge stays. Find out why, then let "
        "it be asked again, on your machine:",
        when_text(moment(one.line.time), datetime.now(UTC)),
        command=f"lapwing clear-hold {name}.toml {one.line.number}",
    )


def _changed(served: Any) -> Iterator[WaitingLine]:
    """Yield a line if the source is another one than the ledger last saw. Its rows are not read."""
    curator = served.curator
    if not (curator.has_ledger and curator.has_files):
        return
    known = policy_ledger.find_data_set(curator.ledger, curator.policy)
    if known is not None and curator.current_data() is None:
        yield WaitingLine(
            "again",
            f"The source of {served.name} has changed",
            f"Stored answers are still given, from version {known.version}. Register the new version when "
            "it is meant to be used:",
            command=f"lapwing prepare {served.name}.toml",
        )


def _ending(desk: Desk, served: Any) -> Iterator[WaitingLine]:
    """Yield a line if half of a budget is spent, or if it ends within a year at this pace."""
    name = served.name
    forecast = desk.services.records.budget(desk.person, name).forecast
    gauge = desk.at_hand(served).gauge
    ends = forecast is not None and forecast.days is not None and forecast.days < SOON_DAYS
    if gauge.spent or ends:
        words = forecast.words if forecast is not None else "There are too few days for a forecast."
        yield WaitingLine(
            "clock",
            f"The budget of {name} is {gauge.spent}" if gauge.spent else f"The budget of {name} will end",
            f"{words} Only your key can raise it, on the command line.",
            f"{gauge.amount} of {gauge.of} left",
            href=f"/d/{name}/budget",
            link="Look at the budget",
        )


def answer_lines(desk: Desk, served: Any, summaries: list[Any], now: datetime) -> list[AnswerLine]:
    """Return the newest answers with small pictures."""
    lines = []
    for one in summaries[:LAST_ANSWERS]:
        bars: tuple[SparkBar, ...] = ()
        words = ""
        with suppress(NotFound, LapwingError):
            stored = desk.services.answers.find(desk.person, one.id)
            bars, words = answer_view.spark_of(stored.answer), answer_view.first_row_words(stored.answer)
        price = Price(one.cost.replace(" ", SPACE, 1)) if one.cost else FREE
        lines.append(
            AnswerLine(
                f"/answers/{one.id}",
                title_of(one.sql),
                words or one.sql,
                bars,
                price,
                when_text(moment(one.at), now),
            )
        )
    return lines


def fit_lines(desk: Desk, served: Any) -> list[FitLine]:
    """Return how many questions like a first example still fit, at two prices."""
    session = served.session(desk.person)
    lines: list[FitLine] = []
    room, _, _ = asking.room_for(session.left())
    least = served.curator.policy.least_epsilon
    examples = examples_for(served.schema())
    if not examples or room <= 0:
        return []
    stops = labelled_stops(least, room)
    for share in SHARES_OF_LEFT:
        epsilon = max((stop for stop in stops if stop <= room * share), default=None)
        if epsilon is None:
            continue
        with suppress(LapwingError):
            plan = session.plan(examples[0], epsilon=epsilon)
            half = half_alone(plan)  # of another question like it: earlier answers to this one do not help
            many = how_many_like(session.session, plan)
            if many and all(line.price != Price.of(epsilon) for line in lines):
                title = f"like “{title_of(examples[0])}”"
                lines.append(
                    FitLine(
                        f"{many:,}",
                        title,
                        f"each within {within_text(half)}" if half is not None else "",
                        Price.of(epsilon),
                        f"/d/{served.name}/ask",
                    )
                )
    return lines


@router.get("/")
def home(desk: AtDesk) -> Response:
    """Show the first page of the person's roles."""
    now, seen = datetime.now(UTC), desk.visible()
    cards, answers, total = [], [], 0
    asked = [served for served in seen if Role.ANALYST in desk.roles(served.name)]
    kept = [served for served in seen if Role.STEWARD in desk.roles(served.name)]
    checked = [served for served in seen if desk.roles(served.name) & {Role.STEWARD, Role.OFFICER}]
    for served in seen:
        number = None
        if served in asked:
            summaries = desk.services.answers.all_of(desk.person, served.name)
            answers += [(moment(one.at), served, one) for one in summaries]
            number = len(summaries)
            total += number
        cards.append(data_card(desk, served, number))
    answers.sort(key=lambda one: one[0], reverse=True)
    lines = [
        line for _, served, one in answers[:LAST_ANSWERS] for line in answer_lines(desk, served, [one], now)
    ]
    fits, words = [], "You have no data set to ask."
    newest = answers[0][1] if answers else None
    asked.sort(key=lambda served: served is not newest)  # the data set that was asked last comes first
    for served in asked[:1]:
        with suppress(LapwingError):
            fits = fit_lines(desk, served)
        room, _, _ = asking.room_for(desk.left(served))
        words = (
            f"With {left_text(room)} left on {served.name}, any one of these lines:"
            if fits
            else f"Nothing more fits into what is left of {served.name}. An old question stays free."
        )
    waiting = [line for served in kept for line in waiting_of(desk, served)]
    events = []
    for served in checked:
        events += [(one.line.time, request_view(one, served.name, now)) for one in _newest(desk, served)]
    events.sort(key=lambda one: one[0], reverse=True)
    name = desk.person.shown_name or desk.person.name
    view = HomeView(
        greeting=f"Hello, {name}" if not kept else _waits_words(len(waiting), name),
        lead=_lead(desk, len(asked), bool(kept), bool(checked)),
        ask=f"/d/{asked[0].name}/ask" if asked else "",
        waiting=tuple(waiting),
        shows_waiting=bool(waiting),
        data=tuple(cards),
        shows_answers=bool(asked),
        answers=tuple(lines),
        all_answers=f"/d/{asked[0].name}/history" if total > LAST_ANSWERS else "",
        fits=tuple(fits),
        fits_words=words,
        events=tuple(view for _, view in events[:NEWEST]),
        shows_events=bool(checked),
        events_href=f"/d/{checked[0].name}/ledger" if checked else "",
        jobs=job_views(job for job in desk.services.jobs.all_of(desk.person) if not job.has_ended),
    )
    return desk.page("home.html", "Home", home=view)


def _newest(desk: Desk, served: Any) -> list[LoggedRequest]:
    found: list[LoggedRequest] = desk.services.records.history(desk.person, served.name, NEWEST)
    return found


def _waits_words(count: int, name: str) -> str:
    words = ("Nothing waits", "One thing waits", "Two things wait", "Three things wait", "Four things wait")
    return f"{words[count] if count < len(words) else f'{count} things wait'}, {name}"


def _lead(desk: Desk, asked: int, keeps: bool, checks: bool) -> str:
    if asked:
        number = {1: "one data set", 2: "two data sets", 3: "three data sets"}.get(
            asked, f"{asked} data sets"
        )
        about = "the measure of what answers may tell about one person"
        return f"You may ask {number}. Only a release spends ε, {about}."
    if keeps:
        return "You keep these data sets. Budgets are for life: nothing gives any of it back."
    if checks:
        return "You see every price and proof, and no answers."
    return "You see surveys here. A steward can give you more roles."


@router.get("/welcome")
def welcome(desk: AtDesk) -> Response:
    """Begin the guide of a first run."""
    reply = see_other("/")
    set_guide(reply, "g")
    return reply


@router.post("/guide/skip")
def skip_guide(desk: AtDesk) -> Response:
    """End the guide of a first run."""
    reply = see_other("/")
    end_guide(reply)
    return reply
