"""How to make a budget last: until when, how much ε a month, and how exact a typical count then is. Free.

Claim    with as many questions a month as lately, each at the price that is shown, the prices of all months
         add up to no more than what is left.
Because  what is left divided by the ε a month, rounded down, is the number of months; the ε a month is at
         least the price times the questions a month: one is rounded down, or the other up. Answers
         together never count for more than the sum of their prices.
Test     tests/server/data/test_lasting.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

from lapwing.core.exact import short_down, short_up
from lapwing.errors import BadParameter
from lapwing.server.data.forecast import Forecast
from lapwing.server.data.spending import PastSpending
from lapwing.sql.curator import Curator
from lapwing.sql.pricing import accuracy
from lapwing.sql.pricing.noise_shares import divide_budget

MONTH = Fraction(36525, 1200)  # days
LONGEST = 1200  # months: a plan for longer is none
SURE = Fraction(95, 100)
FIELDS = ("until", "monthly", "within")
_MONTH = re.compile(r"(\d{4})-(\d{1,2})")


@dataclass(frozen=True, slots=True)
class Pace:
    """How a data set was asked lately.

    Args:
        left: The ε that is left, where least is left.
        monthly: The ε that counted as spent a month.
        questions: The questions a month.
        days: The length of the time that this was measured in.
    """

    left: Fraction
    monthly: Fraction
    questions: Fraction
    days: int


@dataclass(frozen=True, slots=True)
class Lasting:
    """A plan for a budget: its last month, the ε a month, the price of a question, and a count's error."""

    until: date
    monthly: Fraction
    price: Fraction
    within: float | None


def pace_of(
    left: Fraction, forecast: Forecast | None, spending: PastSpending, now: datetime
) -> Pace | None:
    """Return the pace of the days of a forecast; None if there is none, or if nothing was asked in them."""
    if forecast is None or not forecast.days or left <= 0:
        return None
    since = now - timedelta(days=forecast.measured_days)
    asked = sum(one.time >= since for one in spending.payments)
    if not asked:
        return None
    monthly = left * MONTH / Fraction(forecast.days)
    return Pace(left, monthly, Fraction(asked) * MONTH / forecast.measured_days, forecast.measured_days)


class TypicalCount:
    """A count of a data set, as a measure of how exact answers are.

    Args:
        curator: The curator of the data. Only its policy is used, and nothing is charged.
        sql: The count.
    """

    def __init__(self, curator: Curator, sql: str) -> None:
        (_, self._question), *_ = curator.bind(sql)

    def within(self, price: Fraction) -> float | None:
        """Return the half-width at a price; None if so little buys no answer."""
        try:
            shares = divide_budget(self._question, epsilon=price, delta=0, noise="laplace")
        except BadParameter:
            return None
        halves = [one.half for one in accuracy.spread(self._question, shares, SURE).values()]
        return max((half for half in halves if half is not None), default=None)

    def price(self, within: Fraction) -> Fraction:
        """Return the price of a half-width, rounded up to four digits."""
        found = accuracy.shares_for_width(
            self._question, within=within, confidence=SURE, delta=0, noise="laplace"
        )
        return found.epsilon


def lasting(pace: Pace, count: TypicalCount, leads: str, text: str, today: date) -> Lasting:
    """Return the plan of which one field is given.

    Args:
        pace: The questions a month, and what is left.
        count: The count whose error is shown.
        leads: The field that is given: "until", "monthly" or "within".
        text: Its value, as a person typed it.
        today: The first day of the plan.

    Raises:
        BadParameter: If the value is not valid, or nothing lasts that long or that short.
    """
    if leads == "within":
        price = count.price(_number("within", text))
        monthly = Fraction(short_up(price * pace.questions, 4))
    else:
        given = pace.left / _months_until(text, today) if leads == "until" else _number("monthly", text)
        monthly = Fraction(short_down(given, 4))
        price = Fraction(short_down(monthly / pace.questions, 4))
    if monthly <= 0:
        raise BadParameter(leads, "leaves nothing for a month: choose a nearer end or a larger error")
    months = pace.left / monthly
    if months > LONGEST:
        raise BadParameter(leads, "lasts for more than a hundred years: choose more ε a month")
    until = _month_of(text) if leads == "until" else last_month(today, months)
    if until < today.replace(day=1):
        raise BadParameter(leads, "does not last to the end of this month: choose less")
    return Lasting(until.replace(day=1), monthly, price, count.within(price) if price else None)


def last_month(today: date, months: Fraction) -> date:
    """Return the first day of the last month that is over after some months."""
    return ((today + timedelta(days=int(months * MONTH))).replace(day=1) - timedelta(days=1)).replace(day=1)


def proposed_quotas(pace: Pace, spending: PastSpending) -> tuple[tuple[str, Fraction], ...]:
    """Return a quota for each person who paid: what is left, divided as it was so far, rounded down."""
    whole = sum((epsilon for _, epsilon in spending.everybody), Fraction(0))
    quotas = [(name, pace.left * epsilon / whole) for name, epsilon in spending.everybody]
    return tuple((name, Fraction(short_down(quota, 3))) for name, quota in quotas)


def _number(name: str, text: str) -> Fraction:
    try:
        found = Fraction(text.strip().replace(",", ""))
    except (ValueError, ZeroDivisionError):
        raise BadParameter(name, "must be a number, such as 0.1") from None
    if not 0 < found <= 10**9:
        raise BadParameter(name, "must be above 0")
    return found


def _month_of(text: str) -> date:
    found = _MONTH.fullmatch(text.strip())
    try:
        return date(int(found[1]), int(found[2]), 1) if found else date.fromisoformat(text.strip())
    except ValueError:
        raise BadParameter("until", "must be a month, such as 2027-09") from None


def _months_until(text: str, today: date) -> Fraction:
    """Return the months from now to the end of a month."""
    first = _month_of(text)
    if not today < first.replace(day=28) or first.year > today.year + LONGEST // 12:
        raise BadParameter("until", "must be a month from now on, and within a hundred years")
    end = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    return Fraction((end - today).days) / MONTH
