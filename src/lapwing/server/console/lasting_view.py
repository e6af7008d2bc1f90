"""The chooser "Make it last": three fields that follow each other, and quotas as lines of the policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from lapwing.core.exact import short, short_down
from lapwing.errors import BadParameter, LapwingError
from lapwing.server.console.words import MONTHS, SPACE, price_text, rounded, within_text
from lapwing.server.data.lasting import FIELDS, Lasting, Pace, TypicalCount, last_month, lasting

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class LastingField:
    """A field of the chooser, and what it would be without a change."""

    name: str
    label: str
    value: str
    now: str
    leads: bool
    before: str = ""


@dataclass(frozen=True, slots=True)
class LastingView:
    """The card "Make it last"."""

    fields: tuple[LastingField, ...]
    words: str
    wrong: str
    quotas: str
    quotas_words: str


def field_that_leads(given: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the field that a person changed, and its text: the first that differs from what was shown."""
    filled = {name: given[name].strip() for name in FIELDS if given.get(name, "").strip()}
    changed = [name for name in filled if filled[name] != given.get(f"was_{name}", "").strip()]
    return (changed[0], filled[changed[0]]) if changed else None


def lasting_view(
    pace: Pace,
    count: TypicalCount,
    given: Mapping[str, str],
    today: date,
    *,
    quotas: str = "",
    quotas_words: str = "",
) -> LastingView:
    """Return the card for what somebody typed; at first, for how it is now."""
    usual = Lasting(
        max(last_month(today, pace.left / pace.monthly), today.replace(day=1)),
        pace.monthly,
        pace.monthly / pace.questions,
        count.within(Fraction(short_down(pace.monthly / pace.questions, 4))),
    )
    shown, wrong, leads = usual, "", field_that_leads(given)
    if leads is not None:
        try:
            shown = lasting(pace, count, *leads, today)
        except LapwingError as error:
            wrong = f"{_LABELS[leads[0]]} {error.why}." if isinstance(error, BadParameter) else str(error)
    values, now = _texts(shown), _texts(usual)
    if leads is not None:
        values[leads[0]] = leads[1]
    fields = tuple(
        LastingField(
            name,
            _LABELS[name],
            values[name],
            f"now: {_MARKS[name]}{_month_words(usual.until) if name == 'until' else now[name]}",
            leads is not None and name == leads[0],
            _MARKS[name].strip(SPACE),
        )
        for name in FIELDS
    )
    price = price_text(Fraction(short_down(shown.price, 4)))
    width = f", which keeps a count within {within_text(shown.within)}" if shown.within is not None else ""
    words = (
        f"With {float(pace.questions):.3g} questions a month, as in the last {pace.days} days, each may "
        f"cost {price}{width}. So the budget lasts to the end of {_month_words(shown.until)}."
    )
    return LastingView(fields, words, wrong, quotas, quotas_words)


_LABELS = {"until": "Until", "monthly": "Spend a month, together", "within": "A typical count, within"}
_MARKS = {"until": "", "monthly": f"ε{SPACE}", "within": f"±{SPACE}"}


def _texts(found: Lasting) -> dict[str, str]:
    return {
        "until": f"{found.until:%Y-%m}",
        "monthly": short_down(found.monthly, 4),
        "within": "" if found.within is None else rounded(found.within).replace(",", ""),
    }


def _month_words(day: date) -> str:
    return f"{MONTHS[day.month - 1]}{SPACE}{day.year}"


def quota_lines(quotas: tuple[tuple[str, Fraction], ...], delta: Fraction) -> str:
    """Return quotas as lines of a policy."""
    lines = []
    for name, epsilon in quotas:
        key = name if name and _BARE.issuperset(name) else json.dumps(name, ensure_ascii=False)
        lines.append(f"[analysts.{key}]\nepsilon = {short_down(epsilon, 3)}\ndelta = {short(float(delta))}")
    return "\n\n".join(lines)
