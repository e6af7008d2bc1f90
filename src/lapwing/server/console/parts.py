"""What the pages are made of: values that are ready to print. Positions are texts such as "53.33%".

A page's template computes nothing: it prints what stands here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lapwing.server.console.words import left_text, plain_number, price_text

STEPS_SPENT = (Fraction(50, 100), Fraction(80, 100), Fraction(95, 100))


def share_text(share: float) -> str:
    """Return a share as a position in per cent, inside 0 to 100."""
    return f"{min(max(share, 0.0), 1.0) * 100:.2f}%"


@dataclass(frozen=True, slots=True)
class Price:
    """A price tag."""

    text: str
    is_free: bool = False

    @classmethod
    def of(cls, epsilon: Fraction, delta: Fraction = Fraction(0)) -> Price:
        """Return the tag of a price."""
        return cls(price_text(epsilon, delta)) if epsilon or delta else FREE


FREE = Price("free", is_free=True)
FREE_AGAIN = Price("free, released before", is_free=True)


@dataclass(frozen=True, slots=True)
class Gauge:
    """Gauge of a budget: filled is left, hatched is what an action takes.

    Args:
        left: The position of the end of what is left afterwards.
        takes: The width of what the action takes, beside it.
        gaps: The positions at which 50, 80 and 95 % are spent, if the gauge has marks.
        amount: What is left, in words: "ε 0.8".
        of: The whole: "1.5".
        spent: The last of 50, 80, 95 % that is passed, in words; or "".
    """

    left: str
    takes: str
    gaps: tuple[str, ...]
    amount: str
    of: str
    spent: str

    @classmethod
    def show(
        cls, left: Fraction, of: Fraction, *, takes: Fraction = Fraction(0), marks: bool = False
    ) -> Gauge:
        """Return the gauge of a budget. `left` is what is left before the action."""
        after = max(left - takes, Fraction(0))
        share = float(after / of) if of else 0.0
        part = float(min(takes, left) / of) if of else 0.0
        passed = [step for step in STEPS_SPENT if of and 1 - left / of >= step]
        return cls(
            left=share_text(share),
            takes=share_text(part) if takes else "",
            gaps=tuple(share_text(float(1 - step)) for step in STEPS_SPENT) if marks else (),
            amount=left_text(after),
            of=plain_number(of),
            spent=f"past {float(passed[-1]) * 100:.0f} %" if passed else "",
        )


def nice_step(length: float, most: int) -> float:
    """Return the least of 1, 2, 5 × 10^k that divides a length into at most this many steps."""
    if not length > 0 or not math.isfinite(length):
        return 1.0
    rough = length / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis for all intervals of a column."""

    low: float
    high: float

    @classmethod
    def around(cls, ends: Sequence[float], *, zero: bool = False) -> Axis:
        """Return an axis with round ends that has room for these values."""
        finite = [end for end in ends if math.isfinite(end)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = low - 1, high + 1
        step = nice_step((high - low) * (1 if zero else 1.2), 5)
        return cls(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)

    def place(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self, most: int = 5) -> list[float]:
        """Return round values on the axis."""
        step = nice_step(self.high - self.low, most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Whisker:
    """An interval drawn on its column's axis."""

    low: str
    high: str
    value: str
    zero: str = ""

    @classmethod
    def on(cls, axis: Axis, value: float, low: float, high: float) -> Whisker:
        """Return the whisker of an interval."""
        zero = share_text(axis.place(0.0)) if axis.low < 0 < axis.high else ""
        ends = [share_text(axis.place(end)) for end in (low, high)]
        return cls(ends[0], ends[1], share_text(axis.place(value)), zero)


@dataclass(frozen=True, slots=True)
class SparkBar:
    """A bar of a small picture, with its error bar, in a box of 132 × 58."""

    x: str
    y: str
    width: str
    height: str
    middle: str
    low: str
    high: str
    cap_left: str
    cap_right: str


SPARK_WIDTH, SPARK_HEIGHT, SPARK_BARS = 132.0, 58.0, 12


def spark(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> tuple[SparkBar, ...]:
    """Return the bars of a small picture: at most a dozen, from zero up."""
    rows = [row for row in zip(values, lows, highs, strict=True) if all(math.isfinite(one) for one in row)][
        :SPARK_BARS
    ]
    if not rows:
        return ()
    top = max(*(high for _, _, high in rows), 1e-300)
    base = SPARK_HEIGHT - 1
    scale = (base - 3) / top
    slot = SPARK_WIDTH / len(rows)
    width = min(slot * 0.72, 26.0)
    bars = []
    for k, (value, low, high) in enumerate(rows):
        middle = slot * (k + 0.5)
        at = base - max(value, 0.0) * scale
        cap = min(width / 2, 5.0)
        tips = [base - max(end, 0.0) * scale for end in (low, high)]
        box = (middle - width / 2, at, width, base - at)
        texts = [f"{one:.1f}" for one in (*box, middle, *tips, middle - cap, middle + cap)]
        bars.append(SparkBar(*texts))
    return tuple(bars)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a corrected SQL: gone (−), new (+) or the same."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A correction of a refused question: what changes, its price, and the text that would be used."""

    title: str
    detail: str
    field: str  # "use_sql" or "use_epsilon"
    value: str
    lines: tuple[DiffLine, ...] = ()
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A question that is not answered: why, and what now. Nothing was charged."""

    title: str
    why: str
    code: str
    place: str = ""
    fixes: tuple[Fix, ...] = ()
    asked: str = ""
    left: str = ""
    what_now: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and a value of a receipt or a description. `kind` is "", "hash" or "total"."""

    name: str
    value: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an entry, with a sign and words. `kind` is "good", "caution", "bad" or "soft"."""

    words: str
    kind: str = "good"
