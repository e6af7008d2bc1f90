"""Routes of Ask and of answers. Only `release` spends, and only what the page showed.

Claim    a double click, a reload, the back button and a second tab spend once.
Because  a release names a plan, a plan is released once, and the reply is a redirect to the answer.
Test     tests/server/console/test_spending_once.py
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from lapwing.core.budget import text_up
from lapwing.core.exact import short_up
from lapwing.errors import LapwingError
from lapwing.server.api.route import RECEIPT
from lapwing.server.console import answer_view, asking, charts
from lapwing.server.console.chooser import Chooser, chooser_of, error_words
from lapwing.server.console.desk import AtDesk, Desk, PageRoute, Posted, see_other
from lapwing.server.console.parts import FREE_AGAIN, Fix, Price
from lapwing.server.console.schema_view import SchemaView, examples_for, schema_view
from lapwing.server.console.words import title_of
from lapwing.server.data.question_form import QuestionForm
from lapwing.server.data.records import receipt_number
from lapwing.server.people.person import NotFound, Role
from lapwing.sql.corrections import corrections

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_SVG = "image/svg+xml"
_KEPT = {"Cache-Control": "private, max-age=3600"}
_FORMS = {
    "python": ("text/plain; charset=utf-8", "py"),
    "sql": ("text/plain; charset=utf-8", "sql"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "notebook": ("application/x-ipynb+json", "ipynb"),
    "citation": ("text/plain; charset=utf-8", "txt"),
}


def _empty(desk: Desk, served: Any, *, sql: str = "") -> asking.AskView:
    schema, examples = _about(served)
    view = asking.empty_view(served.name, desk.left(served), sql=sql)
    return replace(
        view,
        schema=schema,
        examples=examples,
        placeholder=examples[0].sql if examples else "SELECT COUNT(*) FROM …",
    )


def _about(served: Any) -> tuple[SchemaView, tuple[asking.Example, ...]]:
    schema = served.schema()
    return schema_view(schema), asking.examples_in(examples_for(schema))


def _shown(desk: Desk, served: Any, posted: dict[str, str]) -> tuple[Any, Chooser | None]:
    """Return the plan whose numbers the page showed, and its chooser; None if it is gone."""
    plan_id = posted.get("plan", "")
    if not plan_id:
        return None, None
    try:
        stored = desk.services.plans.find(desk.person, plan_id)
    except (NotFound, LapwingError):
        return None, None
    if stored.data != served.name:
        return None, None
    return stored, _chooser(desk, served, stored)


def _chooser(desk: Desk, served: Any, stored: Any) -> Chooser:
    room, _, _ = asking.room_for(desk.left(served))
    leads = "epsilon" if stored.form.within is None else "within"
    typed = stored.form.epsilon if leads == "epsilon" else stored.form.within
    return chooser_of(
        stored.plan, room, served.curator.policy.least_epsilon, leads=leads, typed=typed or ""
    )


def _priced(desk: Desk, served: Any, posted: dict[str, str]) -> tuple[asking.AskView, int]:
    """Return the page for a form: with a plan, or with a refusal. Nothing is charged."""
    _, shown = _shown(desk, served, posted)
    form = asking.AskForm.read(posted, shown)
    view = _empty(desk, served, sql=form.sql)
    if not form.sql:
        return view, 200
    left = desk.left(served)
    try:
        stored = desk.services.plans.make(desk.person, served.name, QuestionForm.read(form.question()))
        return _view_of(desk, served, view, stored, form), 200
    except LapwingError as error:
        return asking.refused_view(view, error, form, left, _fixes(desk, served, form)), 422


def _view_of(
    desk: Desk, served: Any, view: asking.AskView, stored: Any, form: asking.AskForm
) -> asking.AskView:
    session = served.session(desk.person).session
    is_stored = not stored.form.fresh and session.has_answer(stored.plan)
    return asking.priced_view(view, stored.plan, stored.id, form, desk.left(served), is_stored=is_stored)


def _fixes(desk: Desk, served: Any, form: asking.AskForm) -> tuple[Fix, ...]:
    """Return what can be asked instead. Each was planned; to take one changes the text alone."""
    try:
        options = QuestionForm.read(form.question()).options
    except LapwingError:
        return ()
    dataset, found = served.session(desk.person), []
    for one in corrections(dataset.session, form.sql, **options):
        changed = options if one.epsilon is None else {**options, "epsilon": one.epsilon, "within": None}
        plan = dataset.plan(one.sql, **changed)
        price = (
            FREE_AGAIN
            if dataset.session.has_answer(plan)
            else Price.of(Fraction(plan.cost.epsilon), Fraction(plan.cost.delta))
        )
        title, detail = f"{one.why[:1].upper()}{one.why[1:]}", " ".join(filter(None, error_words(plan)))
        if one.epsilon is not None and one.sql.split() == form.sql.split():
            found.append(Fix(title, detail, "use_epsilon", text_up(one.epsilon), price=price))
        else:
            sql = asking.laid_out(one.sql, form.sql)
            lines = asking.diff_lines(form.sql, sql)
            found.append(Fix(title, detail, "use_sql", sql, lines, price))
    return tuple(found)


@router.get("/d/{data}/ask")
def ask(desk: AtDesk, data: str, sql: str = "", epsilon: str = "") -> Response:
    """Show the empty page; with a question in the address, its price."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    posted = {"sql": sql[:20_000], **({"epsilon": epsilon} if epsilon else {})}
    view, status = _priced(desk, served, posted) if sql else (_empty(desk, served), 200)
    return desk.page("ask.html", "Ask", served, status=status, ask=view)


@router.post("/d/{data}/ask")
def ask_price(desk: AtDesk, data: str, posted: Posted) -> Response:
    """Plan a question, and go to the page of the plan. A refusal is shown at once."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    view, status = _priced(desk, served, posted)
    if view.plan:
        return see_other(f"/d/{data}/ask/{view.plan}")
    return desk.page("ask.html", "Ask", served, status=status, ask=view)


@router.post("/d/{data}/price")
def price(desk: AtDesk, data: str, posted: Posted) -> Response:
    """Return the parts of the page that follow the price, while somebody writes."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    view, _ = _priced(desk, served, posted)  # a refusal is content here, as a price is
    reply = HTMLResponse(desk.pages.html("ask_fragment.html", ask=view))
    return desk.at_step(reply, "p") if view.plan else reply


@router.get("/d/{data}/ask/{plan_id}")
def planned(desk: AtDesk, data: str, plan_id: str, changed: str = "") -> Response:
    """Show a plan: its price, and the button that releases it."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    stored = desk.services.plans.find(desk.person, plan_id)
    if stored.data != data:
        raise NotFound(plan_id)
    chooser = _chooser(desk, served, stored)
    options = tuple(
        (name, "yes" if name == "fresh" else str(getattr(stored.form, name)))
        for name in asking.OPTIONS
        if _is_set(stored.form, name)
    )
    value = chooser.within if chooser.leads == "within" else chooser.epsilon
    form = asking.AskForm(stored.form.sql, chooser.leads, value, options)
    view = _view_of(desk, served, _empty(desk, served), stored, form)
    notice = "The question had changed. This is its new price; nothing was charged." if changed else ""
    return desk.page("ask.html", "Ask", served, ask=view, notice=notice, guide="p")


def _is_set(form: QuestionForm, name: str) -> bool:
    return bool(getattr(form, name) != QuestionForm.model_fields[name].default)


@router.get("/d/{data}/plans/{plan_id}/{theme}.svg")
def look(desk: AtDesk, data: str, plan_id: str, theme: str) -> Response:
    """Draw the answer of a plan on generated rows: the form and the error bars of the release."""
    if theme not in charts.LOOKS:
        raise NotFound(theme)
    answer = _dry_run(desk, data, plan_id)
    picture = charts.bar_chart(
        answer_view.bars_of(answer),
        charts.LOOKS[theme],
        title="Made-up rows in the form of the answer",
        is_made_up=True,
    )
    return Response(picture, media_type=_SVG, headers=_KEPT)


@router.get("/d/{data}/plans/{plan_id}")
def look_numbers(desk: AtDesk, data: str, plan_id: str) -> Response:
    """Show the made-up numbers of a plan as a table."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    table = answer_view.table_of(_dry_run(desk, data, plan_id))
    return desk.page(
        "made_up.html",
        "Made-up numbers",
        served,
        current="Ask",
        table=table,
        back=f"/d/{data}/ask/{plan_id}",
    )


def _dry_run(desk: Desk, data: str, plan_id: str) -> Any:
    stored = desk.services.plans.find(desk.person, plan_id)
    if stored.data != data:
        raise NotFound(plan_id)
    return _drawn(stored.plan)


@lru_cache(maxsize=64)
def _drawn_by_id(key: int, plan: Any) -> Any:
    return plan.dry_run()


def _drawn(plan: Any) -> Any:
    try:
        return _drawn_by_id(id(plan), plan)
    except TypeError:  # a plan that cannot be a key is run again
        return plan.dry_run()


@router.post("/d/{data}/release")
def release(desk: AtDesk, data: str, posted: Posted) -> Response:
    """Release the plan that the page showed, once. A changed question is priced again instead."""
    served = desk.services.sets.require(desk.person, data, Role.ANALYST)
    stored, shown = _shown(desk, served, posted)
    if stored is None:
        view, status = _priced(desk, served, posted)
        if view.plan:
            return see_other(f"/d/{data}/ask/{view.plan}?changed=1")
        return desk.page("ask.html", "Ask", served, status=status, ask=view)
    if not posted.get("as_planned"):
        form = asking.AskForm.read(posted, shown)
        if form.sql != stored.form.sql.strip() or not _same_price(form, stored.form):
            return ask_changed(desk, served, posted)
    answer = desk.services.plans.release(desk.person, stored.id)
    desk.request.scope[RECEIPT] = answer.receipt.position
    replay = "?again=1" if answer.is_replay else ""
    return desk.at_step(see_other(f"/answers/{answer.id}{replay}#answer"), "r")


def ask_changed(desk: Desk, served: Any, posted: dict[str, str]) -> Response:
    """Show the price of a question that differs from the one whose price was shown."""
    view, status = _priced(desk, served, posted)
    if view.plan:
        return see_other(f"/d/{served.name}/ask/{view.plan}?changed=1")
    return desk.page("ask.html", "Ask", served, status=status, ask=view)


def _same_price(form: asking.AskForm, planned: QuestionForm) -> bool:
    try:
        asked = QuestionForm.read(form.question())
    except LapwingError:
        return False

    def number(text: str | None) -> Fraction | None:
        return None if text is None else Fraction(text)

    return (number(asked.epsilon), number(asked.within)) == (
        number(planned.epsilon),
        number(planned.within),
    )


# Answers


@router.get("/answers/{answer_id}")
def answer(desk: AtDesk, answer_id: str, again: str = "") -> Response:
    """Show an answer; to officers and stewards its price and proof, without values."""
    try:
        stored = desk.services.answers.find(desk.person, answer_id)
    except NotFound:
        return _receipt_page(desk, answer_id)
    served = desk.services.sets.require(desk.person, stored.data, Role.ANALYST)
    left = desk.left(served)
    sharpen = None
    with suppress(LapwingError, NotFound):
        sharpen = _sharpen(desk, served, stored)
    view = answer_view.answer_view(stored, left, datetime.now(UTC), sharpen=sharpen)
    return desk.page(
        "answer.html",
        view.title,
        served,
        current="Ask",
        answer=view,
        replay=bool(again),
        guide="r",
        copies=answer_view.copy_kinds(),
        paid=_paid(stored),
    )


def _paid(stored: Any) -> str:
    return short_up(Fraction(str(stored.receipt.record["parameters"]["epsilon"])))


def _sharpen(desk: Desk, served: Any, stored: Any) -> answer_view.Sharpen | None:
    """Return an offer to narrow an answer. It makes a plan, so that a double click spends once."""
    if "epsilon" not in stored.receipt.record["parameters"]:
        return None
    room, of, _ = asking.room_for(desk.left(served))
    paid = Fraction(str(stored.receipt.record["parameters"]["epsilon"]))
    confidence = str(stored.answer.confidence)
    plan = served.session(desk.person).plan(stored.sql, epsilon=paid, confidence=confidence)
    offer = answer_view.sharpen_offer(plan, paid, room)
    if offer is None:
        return None
    asked = {"sql": stored.sql, "epsilon": short_up(offer.epsilon, 12), "confidence": confidence}
    form = QuestionForm.read({**asked, "fresh": offer.is_fresh})
    made = desk.services.plans.make(desk.person, served.name, form)
    return answer_view.sharpen_view(offer, made.id, room, of)


def _receipt_page(desk: Desk, answer_id: str) -> Response:
    data, _, number = answer_id.rpartition(".")
    position = receipt_number(number)
    served = desk.services.sets.require(desk.person, data)
    told = desk.services.records.receipt(desk.person, data, position)
    return desk.page(
        "receipt.html",
        f"Receipt {number}",
        served,
        current="Ledger",
        facts=answer_view.receipt_facts(told),
        number=number,
        proof=f"/d/{data}/ledger/{number}/proof",
    )


@router.get("/answers/{answer_id}/chart/{theme}.svg")
def chart(desk: AtDesk, answer_id: str, theme: str) -> Response:
    """Draw an answer."""
    if theme not in charts.LOOKS:
        raise NotFound(theme)
    stored = desk.services.answers.find(desk.person, answer_id)
    title = title_of(stored.sql)
    picture = charts.bar_chart(answer_view.bars_of(stored.answer), charts.LOOKS[theme], title=title)
    return Response(picture, media_type=_SVG, headers=_KEPT)


@router.get("/answers/{answer_id}/as/{kind}")
def answer_as(desk: AtDesk, answer_id: str, kind: str) -> Response:
    """Return an answer as a text to copy or to keep."""
    if kind not in _FORMS:
        raise NotFound(kind)
    stored = desk.services.answers.find(desk.person, answer_id)
    address = str(desk.request.base_url).rstrip("/")
    match kind:
        case "python":
            text = answer_view.python_text(stored, address)
        case "sql":
            text = answer_view.priced_sql(stored)
        case "csv":
            text = answer_view.csv_text(stored.answer)
        case "notebook":
            text = answer_view.notebook_text(stored, address)
        case _:
            text = answer_view.citation(stored)
    media, suffix = _FORMS[kind]
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in answer_id)
    disposition = f'inline; filename="{name}.{suffix}"'
    return PlainTextResponse(text, media_type=media, headers={"Content-Disposition": disposition})
