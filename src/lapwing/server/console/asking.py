"""Ask: a question with its price, the chooser, a refusal or a preview, and the button that releases.

Claim    the button shows the price of exactly the question that it releases.
Because  a plan is released only if the form that comes with it is the form that the plan was made for;
         else the question is planned again, and the new price is shown.
Test     tests/server/console/test_asking.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction
from typing import Any

from lapwing.core.exact import short_down
from lapwing.errors import BadParameter, LapwingError, OverBudget
from lapwing.server.console.chooser import (
    Chooser,
    chooser_of,
    epsilon_for_odds,
    error_at,
    error_words,
    half_alone,
)
from lapwing.server.console.parts import FREE, DiffLine, Fix, Gauge, Price, Refusal
from lapwing.server.console.schema_view import SchemaView
from lapwing.server.console.words import counted, left_text, plain_number, price_text, title_of, within_text
from lapwing.sql.next_prices import price_choices
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.question.refusal import Refused
from lapwing.sql.releasing import SessionPlan

FIRST_EPSILON = "0.1"
FIELDS = ("within", "epsilon", "odds")
OPTIONS = ("confidence", "delta", "noise", "fresh")  # of QuestionForm, kept by the page as they came


def room_for(left: BudgetLeft) -> tuple[Fraction, Fraction, str]:
    """Return the ε that a next answer may cost, the whole that it is a part of, and whose it is."""
    if left.quota is None:
        return left.epsilon, left.of, ""
    return min(left.quota.epsilon, left.epsilon), left.quota.of, " for you"


@dataclass(frozen=True, slots=True)
class Example:
    """A question to begin with."""

    title: str
    sql: str
    line: str


@dataclass(frozen=True, slots=True)
class Foot:
    """The line below the editor: whether the question can be answered. Screen readers hear it."""

    words: str
    detail: str
    kind: str = "good"


@dataclass(frozen=True, slots=True)
class ReleaseBar:
    """The bar with the price and what it leaves."""

    words: str
    gauge: Gauge
    verb: str
    price: str
    is_ready: bool


@dataclass(frozen=True, slots=True)
class AskView:
    """The page Ask. `plan` is the id of the plan that the button releases, or ""."""

    data: str
    here: str
    sql: str
    plan: str
    foot: Foot
    bar: ReleaseBar
    settings: tuple[tuple[str, str], ...] = ()
    chooser: Chooser | None = None
    refusal: Refusal | None = None
    look: str = ""
    look_words: str = ""
    examples: tuple[Example, ...] = ()
    schema: SchemaView | None = None
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class AskForm:
    """Values of the page's form: the SQL, and the field of the chooser that leads.

    The chooser sends all three fields. The one that differs from what the page showed leads; the page
    shows them from the plan whose id comes along.
    """

    sql: str
    leads: str
    value: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, posted: Mapping[str, str], shown: Chooser | None) -> AskForm:
        """Read the fields of a form. `shown` is the chooser that the page had."""
        sql = (posted.get("use_sql") or posted.get("sql", "")).replace("\r\n", "\n").strip()
        options = tuple((name, posted[name]) for name in OPTIONS if posted.get(name))
        if posted.get("use_epsilon"):
            return cls(sql, "epsilon", posted["use_epsilon"], options)
        given = {
            name: posted[name].strip().replace(",", "") for name in FIELDS if posted.get(name, "").strip()
        }
        if shown is not None:
            was = {"within": shown.within, "epsilon": shown.epsilon, "odds": shown.odds}
            changed = [name for name in given if given[name] != was[name]]
            leads = changed[0] if changed else shown.leads
        else:
            leads = posted.get("leads", "")
        if leads not in given:
            leads = next((name for name in ("epsilon", *FIELDS) if name in given), "epsilon")
        return cls(sql, leads, given.get(leads, FIRST_EPSILON), options)

    def question(self) -> dict[str, Any]:
        """Return the fields of a QuestionForm."""
        found: dict[str, Any] = {"sql": self.sql, **dict(self.options)}
        if "fresh" in found:
            found["fresh"] = found["fresh"] == "yes"
        if self.leads == "odds":
            return {**found, "epsilon": short_down(epsilon_for_odds(share_of(self.value)), 6)}
        return {**found, self.leads: self.value}


def share_of(text: str) -> Fraction:
    """Return a percentage that a person typed as a share."""
    try:
        return Fraction(text.replace("%", "").strip()) / 100
    except (ValueError, ZeroDivisionError):
        raise BadParameter("odds", "must be a percentage, such as 55") from None


def examples_in(texts: tuple[str, ...]) -> tuple[Example, ...]:
    """Return examples with their headings."""
    return tuple(Example(title_of(text), text, " ".join(text.split())) for text in texts)


def empty_view(data: str, left: BudgetLeft, *, sql: str = "") -> AskView:
    """Return the page before anything is asked."""
    return AskView(
        data=data,
        here=f"/d/{data}",
        sql=sql,
        plan="",
        foot=Foot("", "The price follows while you write.", "soft"),
        bar=_bar_without_price(left),
    )


def _bar_without_price(left: BudgetLeft) -> ReleaseBar:
    room, of, _ = room_for(left)
    words = f"You have {left_text(room)} of {plain_number(of)}"
    return ReleaseBar(words, Gauge.show(room, of), "Release", "no price yet", is_ready=False)


def priced_view(
    view: AskView,
    plan: SessionPlan,
    plan_id: str,
    form: AskForm,
    left: BudgetLeft,
    *,
    is_stored: bool,
) -> AskView:
    """Return the page with a plan: its error, price and odds, and the button."""
    room, of, _whose = room_for(left)
    cost, policy = plan.cost, plan.session.curator.policy
    price, fits = Fraction(cost.epsilon), is_stored or cost.epsilon <= room
    chooser = chooser_of(plan, room, policy.least_epsilon, leads=form.leads, typed=form.value)
    priced = replace(
        view,
        sql=form.sql,
        plan=plan_id,
        settings=form.options,
        chooser=chooser,
        look=f"{view.here}/plans/{plan_id}",
        look_words=_look_words(plan) if chooser.can_set_within else "",
    )
    detail = _detail(plan)
    if not fits:
        refusal = over_budget(plan, room, of)
        return replace(
            priced,
            foot=Foot("Over budget", detail, "caution"),
            bar=_bar_without_price(left),
            refusal=refusal,
        )
    if is_stored:
        words = f"Leaves you {left_text(room)} of {plain_number(of)}, as before"
        bar = ReleaseBar(words, Gauge.show(room, of), "Show answer", FREE.text, is_ready=True)
        return replace(
            priced, foot=Foot("Released before", f"{detail} · asking this again is free", "again"), bar=bar
        )
    gauge = Gauge.show(room, of, takes=price)
    words = f"Leaves you at least {gauge.amount} of {gauge.of}"
    bar = ReleaseBar(words, gauge, "Release", price_text(price, Fraction(cost.delta)), is_ready=True)
    return replace(priced, foot=Foot("Can be answered", detail), bar=bar)


def _look_words(plan: SessionPlan) -> str:
    """Return what is true of the error bars of made-up rows, which no earlier release narrows."""
    shown = error_words(plan)[0]
    alone = within_text(half_alone(plan) or 0.0)
    if shown == alone:
        return f"The error bars have their true width, {shown}."
    return f"The error bars are those of this release alone, {alone}; with earlier ones it is {shown}."


def _detail(plan: SessionPlan) -> str:
    parts = [error_words(plan)[0]]
    parts.append(
        f"needs {price_text(Fraction(0), Fraction(plan.cost.delta)).partition(', ')[2]}"
        if plan.cost.delta
        else "needs no δ"
    )
    blocks = plan.blocks
    policy = plan.session.curator.policy
    if (
        blocks is not None
        and policy.blocks is not None
        and policy.blocks.cohorts
        and len(blocks) < policy.blocks.cohorts
    ):
        parts.append(f"charges {counted(len(blocks), 'cohort')} of {policy.blocks.cohorts}")
    return " · ".join(part for part in [*parts, "price is up to date"] if part)


def over_budget(plan: SessionPlan, room: Fraction, of: Fraction) -> Refusal:
    """Return the refusal of a plan that costs more than is left, with what fits instead."""
    fixes = []
    rest = Fraction(short_down(room))
    if rest > 0 and _is_sold(plan, rest):
        half = error_at(plan, rest)
        fixes.append(
            Fix("Take all that is left", half, "use_epsilon", short_down(rest), price=Price.of(rest))
        )
        third = Fraction(short_down(room / 4, 1))
        if third >= Fraction(1, 1000) and _is_sold(plan, third):
            keeps = f"{error_at(plan, third)}, keeps {left_text(rest - third)}".removeprefix(", ")
            fixes.append(
                Fix("Ask more roughly", keeps, "use_epsilon", short_down(third), price=Price.of(third))
            )
    return Refusal(
        title="Over budget. Nothing was charged.",
        why="This costs more than what is left. No date and no restart gives any of it back.",
        code=OverBudget.code,
        asked=price_text(Fraction(plan.cost.epsilon)),
        left=f"{left_text(room)} of {plain_number(of)}",
        fixes=tuple(fixes),
    )


def _is_sold(plan: SessionPlan, epsilon: Fraction) -> bool:
    """Return whether the policy sells a plan's question at another price: several aggregates cost less."""
    return bool(price_choices(plan, [epsilon], noise=plan.shares.noise))


def refused_view(
    view: AskView, error: LapwingError, form: AskForm, left: BudgetLeft, fixes: tuple[Fix, ...] = ()
) -> AskView:
    """Return the page with a refusal. A refusal depends on text, policy and ledger alone."""
    place = error.place if isinstance(error, Refused) else None
    where = f"Line {place[0]}, column {place[1]}" if place else "Not answered"
    return replace(
        view,
        sql=form.sql,
        settings=form.options,
        foot=Foot(where, "no price: this cannot be answered as it stands", "caution"),
        bar=_bar_without_price(left),
        refusal=refusal_of(error, fixes),
    )


def refusal_of(error: LapwingError, fixes: tuple[Fix, ...] = ()) -> Refusal:
    """Return an error in the words of a refusal."""
    title = "Not answered. Nothing was charged."
    match error:
        case OverBudget(asked=asked, left=left, what_now=what_now):
            return Refusal(
                "Over budget. Nothing was charged.",
                "This costs more than what is left.",
                error.code,
                fixes=fixes,
                asked=asked,
                left=left,
                what_now=what_now,
            )
        case Refused(construct=construct, instead=instead):
            what_now = f"{instead[:1].upper()}{instead[1:]}" + (
                "" if not instead or instead.endswith((".", "?")) else "."
            )
            return Refusal(
                title,
                f"{construct[:1].upper()}{construct[1:]}.",
                error.code,
                fixes=fixes,
                what_now=what_now,
            )
        case BadParameter(name=name, why=why):
            return Refusal(
                title, f"{_field_words(name)}: {why}.".replace("..", "."), error.code, fixes=fixes
            )
        case _:
            return Refusal(title, str(error), error.code, fixes=fixes)


_FIELD_WORDS = {
    "epsilon": "The price ε",
    "within": "Each number within",
    "odds": "What a guess becomes",
    "sql": "The SQL",
}


def _field_words(name: str) -> str:
    return _FIELD_WORDS.get(name, name)


def diff_lines(before: str, after: str) -> tuple[DiffLine, ...]:
    """Return the lines of two texts: what is gone, then what is new in its place."""
    old, new = before.splitlines(), after.splitlines()
    found: list[DiffLine] = []
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            found += [DiffLine("", line) for line in old[first:last]]
        else:
            found += [DiffLine("-", line) for line in old[first:last]]
            found += [DiffLine("+", line) for line in new[begin:end]]
    return tuple(found)


_CLAUSES = re.compile(r"\s+(?=(?:FROM|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT)\b)")


def laid_out(sql: str, like: str) -> str:
    """Return SQL of one line with a line for each clause, if that is how the person wrote it."""
    is_plain = "\n" in like.strip() and not re.search(r"['\"(]\s*SELECT|'", sql)
    return _CLAUSES.sub("\n", sql) if is_plain else sql
