"""Numbers and dates, numbered by steps from the lowest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import exact
from lapwing.survey.questionnaire.coding import NO_ANSWER, checked_code, refuse_none, without_answer


@dataclass(frozen=True)
class Grid:
    """A number from low to high in steps."""

    low: Fraction
    high: Fraction
    step: Fraction
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def steps(self) -> int:
        return int((self.high - self.low) / self.step)

    @property
    def inputs(self) -> int:
        return self.steps + 1 + self.no_answer

    def code(self, answer: object) -> int:
        """`answer` is a number, or its text. It must lie on a step."""
        if without_answer(answer):
            refuse_none(self)
            return self.steps + 1
        try:
            number = exact(answer, "answer")  # type: ignore[arg-type]
        except BadParameter:
            raise BadValue("the answer must be a number") from None
        steps = (number - self.low) / self.step
        if not 0 <= steps <= self.steps:
            low, high = decimal_text(self.low), decimal_text(self.high)
            raise BadValue(f"the answer must lie between {low} and {high}")
        if steps.denominator != 1:
            raise BadValue(f"the answer must lie on a step of {decimal_text(self.step)}")
        return int(steps)

    def value(self, code: int) -> Fraction | None:
        """The number that a code stands for; None for no answer."""
        code = checked_code(self, code)
        return None if code > self.steps else self.low + code * self.step

    def said(self, code: int) -> str:
        value = self.value(code)
        return NO_ANSWER if value is None else decimal_text(value)


@dataclass(frozen=True)
class Days:
    """A date from low to high, in steps of days."""

    low: date
    high: date
    step: int
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def steps(self) -> int:
        return (self.high - self.low).days // self.step

    @property
    def inputs(self) -> int:
        return self.steps + 1 + self.no_answer

    def code(self, answer: object) -> int:
        """`answer` is a date, or its text such as 2026-05-01. Days between steps count to the earlier."""
        if without_answer(answer):
            refuse_none(self)
            return self.steps + 1
        day = _day(answer)
        if not self.low <= day <= self.high:
            raise BadValue(f"the answer must lie between {self.low} and {self.high}")
        return (day - self.low).days // self.step

    def value(self, code: int) -> date | None:
        """The day that a code stands for; None for no answer."""
        code = checked_code(self, code)
        return None if code > self.steps else self.low + timedelta(days=code * self.step)

    def said(self, code: int) -> str:
        return str(self.value(code) or NO_ANSWER)


def decimal_text(value: Fraction) -> str:
    """A number as people write it, exactly if it has an end: 0.25, not 1/4."""
    places = 0
    while (value * 10**places).denominator != 1 and places < 18:
        places += 1
    digits = round(value * 10**places)
    if not places:
        return str(digits)
    sign, whole = ("-" if digits < 0 else ""), str(abs(digits)).rjust(places + 1, "0")
    return f"{sign}{whole[:-places]}.{whole[-places:]}"


def _day(answer: object) -> date:
    if isinstance(answer, date) and not isinstance(answer, datetime):
        return answer
    try:
        return date.fromisoformat(answer)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadValue("the answer must be a date such as 2026-05-01") from None
