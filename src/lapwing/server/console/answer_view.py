"""An answer on a page: its table with intervals on one axis, its receipt, and its text in other forms."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from io import BytesIO
from typing import Any

from pyarrow import csv

from lapwing.answer_text import column_notes, number_text
from lapwing.server.console.charts import Bar
from lapwing.server.console.parts import Axis, Fact, Gauge, Price, SparkBar, Whisker, spark
from lapwing.server.console.words import (
    SPACE,
    SqlPiece,
    left_text,
    moment,
    per_cent,
    plain_number,
    price_text,
    sql_pieces,
    time_text,
    title_of,
    when_text,
    within_text,
)
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.estimates import AnswerColumn
from lapwing.sql.next_prices import sharpening
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.releasing import SessionPlan

MOST_ROWS = 200
WIDE_COLUMNS = 5
MOST_AXES = 2
HASH_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of the table. `low` and `high` are the ends of the axis of a column of whiskers."""

    text: str
    kind: str  # "key", "value", "between" or "axis"
    low: str = ""
    high: str = ""
    about: str = ""  # the column that an interval is of, for whoever hears the heading


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the table."""

    text: str
    kind: str
    whisker: Whisker | None = None


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """The table of an answer."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    more: str

    @property
    def is_wide(self) -> bool:
        """True if the table needs the whole width of a page."""
        return len(self.headings) > WIDE_COLUMNS


@dataclass(frozen=True, slots=True)
class Sharpen:
    """A further release that narrows an answer: the widths now and then, and the price."""

    now: str
    then: str
    now_drawn: Whisker
    then_drawn: Whisker
    price: str
    leaves: str
    words: str
    plan: str


@dataclass(frozen=True, slots=True)
class AnswerView:
    """The page of an answer."""

    id: str
    data: str
    here: str
    title: str
    lead: str
    sql: tuple[SqlPiece, ...]
    edit: str
    table: AnswerTable
    has_chart: bool
    notes: tuple[str, ...]
    receipt_title: str
    facts: tuple[Fact, ...]
    left: Gauge | None
    left_words: str
    again: str
    proof: str
    sharpen: Sharpen | None = None


def _is_finite(value: Any) -> bool:
    return value is not None and math.isfinite(float(value))


def _numbers(answer: Answer) -> list[AnswerColumn]:
    return [one for one in answer.columns if one.low is not None and one.high is not None]


def table_of(answer: Answer) -> AnswerTable:
    """Return the table: keys, numbers with their intervals, and a whisker on one axis for the column."""
    headings: list[Heading] = []
    columns: list[list[Cell]] = []
    shown = min(len(answer), MOST_ROWS)
    sure = per_cent(Fraction(str(answer.confidence)))
    numbers = _numbers(answer)
    drawn_on = numbers if len(numbers) <= MOST_AXES else numbers[:1]
    for column in answer.columns:
        values = list(column.values[:shown])
        if column.low is None or column.high is None:
            is_number = all(isinstance(value, float) for value in values if value is not None)
            kind = "value" if values and is_number and column.rank_error is not None else "key"
            headings.append(Heading(column.name, kind))
            columns.append([Cell("·" if value is None else _plain(value), kind) for value in values])
            continue
        lows, highs = list(column.low[:shown]), list(column.high[:shown])
        headings += [
            Heading(column.name, "value"),
            Heading(f"{sure} interval", "between", about=column.name),
        ]
        columns.append([Cell(_shown(value), "value") for value in values])
        texts = [_between(low, high) for low, high in zip(lows, highs, strict=True)]
        if not any(column is one for one in drawn_on):
            columns.append([Cell(text, "between") for text in texts])
            continue
        axis = Axis.around([float(end) for end in [*lows, *highs] if _is_finite(end)])
        drawn = [_whisker(axis, *row) for row in zip(values, lows, highs, strict=True)]
        headings.append(
            Heading(column.name, "axis", *(_shown(end).replace("-", "−") for end in (axis.low, axis.high)))
        )
        columns.append([Cell(text, "between", one) for text, one in zip(texts, drawn, strict=True)])
        columns.append([Cell("", "axis", one) for one in drawn])
    more = f"… {len(answer) - shown:,} more rows: take the CSV." if len(answer) > shown else ""
    return AnswerTable(tuple(headings), tuple(zip(*columns, strict=True)) if columns else (), more)


def _whisker(axis: Axis, value: Any, low: Any, high: Any) -> Whisker | None:
    if value is None or low is None or high is None:
        return None
    return Whisker.on(axis, float(value), float(low), float(high))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number_text(value) if isinstance(value, float) else str(value)


def _shown(value: Any) -> str:
    return "·" if value is None else number_text(_whole(value))


def _whole(value: Any) -> Any:
    """Return a float that is a whole number as one: a count is printed without decimals."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _between(low: Any, high: Any) -> str:
    if low is None or high is None:
        return ""
    return f"{_shown(low)} to {_shown(high)}".replace("-", "−")


def bars_of(answer: Answer) -> list[Bar]:
    """Return the bars of an answer: its first number with an interval, by its keys."""
    numbers = _numbers(answer)
    if not numbers:
        return []
    first = numbers[0]
    keys = [one for one in answer.columns if one.low is None]
    bars = []
    for row in range(len(answer)):
        value, low, high = (values[row] for values in (first.values, first.low, first.high))  # type: ignore[index]
        if value is None or low is None or high is None:
            continue
        name = (
            ", ".join("all" if key.values[row] is None else _plain(key.values[row]) for key in keys)
            or first.name
        )
        bars.append(Bar(name, float(value), float(low), float(high)))
    return bars


def spark_of(answer: Answer) -> tuple[SparkBar, ...]:
    """Return a small picture of an answer, for lists."""
    bars = bars_of(answer)
    return spark([one.value for one in bars], [one.low for one in bars], [one.high for one in bars])


def first_row_words(answer: Answer) -> str:
    """Return the row with the greatest number in words: "emergency 3,054 (2,979 to 3,129)"."""
    bars = [one for one in bars_of(answer) if math.isfinite(one.value)]
    if not bars:
        return ""
    one = max(bars, key=lambda bar: bar.value)
    return f"{one.name} {_shown(one.value)} ({_between(one.low, one.high)})"


def answer_view(
    stored: Any, left: BudgetLeft, now: datetime, *, sharpen: Sharpen | None = None
) -> AnswerView:
    """Return the page of a stored answer (`lapwing.server.data.answers.StoredAnswer`)."""
    answer, receipt = stored.answer, stored.receipt
    time = moment(receipt.time)
    kinds = "Intervals" if _numbers(answer) else "Ranks"
    room, of, whose = (
        (left.epsilon, left.of, "")
        if left.quota is None
        else (
            min(left.quota.epsilon, left.epsilon),
            left.quota.of,
            " for you",
        )
    )
    sure = per_cent(Fraction(str(answer.confidence)))
    return AnswerView(
        id=stored.id,
        data=stored.data,
        here=f"/answers/{stored.id}",
        title=title_of(stored.sql),
        lead=f"Released {when_text(time, now)}. {kinds} hold with {sure} confidence each.",
        sql=sql_pieces(" ".join(stored.sql.split())),
        edit=stored.sql,
        table=table_of(answer),
        has_chart=bool(bars_of(answer)),
        notes=(*column_notes(answer.columns), *answer.truncation, *answer.notes, *_combined(answer)),
        receipt_title=f"Receipt {receipt.position}",
        facts=receipt_facts(json.loads(receipt.to_json())),
        left=Gauge.show(room, of),
        left_words=f"Left{whose}",
        again="You get these same numbers.",
        proof=f"/d/{stored.data}/ledger/{receipt.position}/proof",
        sharpen=sharpen,
    )


def _combined(answer: Answer) -> list[str]:
    return (
        [line for line in answer.footer() if line.startswith("The narrowest of ")] if answer.of > 1 else []
    )


def receipt_facts(told: dict[str, Any]) -> tuple[Fact, ...]:
    """Return the facts of a receipt, as `Receipt.to_json` tells them."""
    parameters = told.get("parameters") or {}
    delta = Fraction(str(parameters.get("delta", 0)))
    price = (
        price_text(Fraction(str(parameters["epsilon"]))) if "epsilon" in parameters else str(told["loss"])
    )
    facts = [
        Fact("Price", price),
        Fact("δ", price_text(Fraction(0), delta).partition(f"δ{SPACE}")[2] if delta else "none"),
        Fact("Charged to", str(told["principal"])),
        Fact("Charged", time_text(moment(str(told["at"])))),
        Fact("Mechanism", _mechanism(told)),
        Fact("Hash", _hash(str(told["hash"])), "hash"),
    ]
    return tuple(facts)


def _mechanism(told: dict[str, Any]) -> str:
    noise = (told.get("parameters") or {}).get("noise")
    return f"{told['mechanism']}, {noise}" if noise else str(told["mechanism"])


def _hash(digits: str) -> str:
    return f"{digits[:8]} {digits[8:HASH_SHOWN]} …"


SHARPER = (1, 2, 3, 4)  # times the paid price
LEAST_GAIN = 0.9  # a width that is not a tenth smaller is no offer


@dataclass(frozen=True, slots=True)
class SharpenOffer:
    """A price at which one more release narrows an answer."""

    epsilon: Fraction
    now: float
    then: float
    smaller: Fraction | None  # a lower price that would not narrow it by a tenth
    is_fresh: bool


def sharpen_offer(plan: SessionPlan, paid: Fraction, room: Fraction) -> SharpenOffer | None:
    """Return the least multiple of the paid price that narrows an answer by a tenth; None if none fits.

    The widths are the planned ones: of all releases so far, and of those with one more.
    """
    prices = [paid * times for times in SHARPER if paid * times <= room]
    for one in sharpening(plan, prices):
        now, then = max(one.now.values()), max(one.then.values())
        if then <= LEAST_GAIN * now:
            smaller = next((price for price in prices if price < one.epsilon), None)
            return SharpenOffer(one.epsilon, now, then, smaller, one.fresh)
    return None


def sharpen_view(offer: SharpenOffer, plan_id: str, room: Fraction, of: Fraction) -> Sharpen:
    """Return the card of an offer."""
    axis = Axis(0.0, 2.4)  # in units of the width now, around the middle
    narrower = offer.then / offer.now
    rest = left_text(max(room - offer.epsilon, Fraction(0)))
    words = "Pay again, and all answers are combined."
    if offer.smaller is not None:
        smaller, enough = price_text(offer.smaller), price_text(offer.epsilon)
        words += f" {smaller} again would not narrow it by a tenth; {enough} does."
    return Sharpen(
        now=within_text(offer.now),
        then=within_text(offer.then),
        now_drawn=Whisker.on(axis, 1.2, 0.2, 2.2),
        then_drawn=Whisker.on(axis, 1.2, 1.2 - narrower, 1.2 + narrower),
        price=Price.of(offer.epsilon).text,
        leaves=f"Leaves you at least {rest} of {plain_number(of)}.",
        words=words,
        plan=plan_id,
    )


# Copies


def csv_text(answer: Answer) -> str:
    """Return the answer as CSV, with the ends of intervals in columns of their own."""
    target = BytesIO()
    csv.write_csv(answer.to_arrow(), target)
    return target.getvalue().decode()


def python_text(stored: Any, address: str) -> str:
    """Return a program that gets this answer again, for nothing."""
    epsilon = json.loads(stored.receipt.to_json())["parameters"]["epsilon"]
    where = f"{address}/{stored.data}"
    return (
        "import lapwing\n\n"
        f"{_variable(stored.data)} = lapwing.connect({where!r})  # the token is in LAPWING_TOKEN\n"
        f"answer = {_variable(stored.data)}.ask(\n"
        f"    {_quoted(stored.sql)},\n    epsilon={_decimal(epsilon)!r},\n)\n"
        f"print(answer)  # receipt {stored.receipt.position}: released before, so it costs nothing\n"
    )


def priced_sql(stored: Any) -> str:
    """Return the question with its price inside."""
    parameters = json.loads(stored.receipt.to_json())["parameters"]
    options = [f"epsilon = {_decimal(parameters['epsilon'])}"]
    if Fraction(str(parameters.get("delta", 0))):
        options.append(f"delta = {_decimal(parameters['delta'])}")
    head, word, rest = stored.sql.lstrip().partition(" ")
    if head.upper() != "SELECT":
        return str(stored.sql)
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({', '.join(options)}){word}{rest}\n"


def notebook_text(stored: Any, address: str) -> str:
    """Return a notebook that gets this answer again."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": [f"# {title_of(stored.sql)}\n\n{citation(stored)}"],
        },
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": [python_text(stored, address).replace("print(answer)", "answer")],
        },
    ]
    named = [{**cell, "id": f"lapwing-{place}"} for place, cell in enumerate(cells)]
    return json.dumps({"cells": named, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def citation(stored: Any) -> str:
    """Return a sentence that names an answer for ever: question, price, receipt and hash."""
    receipt = stored.receipt
    told = json.loads(receipt.to_json())["parameters"]
    sql = " ".join(stored.sql.split())
    price = price_text(Fraction(str(told["epsilon"])), Fraction(str(told.get("delta", 0))))
    return (
        f"{stored.data}: “{sql}”. Released with differential privacy ({price.replace(SPACE, ' ')}) on "
        f"{time_text(moment(receipt.time)).replace(SPACE, ' ')}; intervals of "
        f"{stored.answer.confidence:.4g} confidence. "
        f"Receipt {receipt.position} of ledger {receipt.ledger}, entry {receipt.hash}."
    )


def _decimal(number: Any) -> str:
    value = Fraction(str(number))
    return f"{float(value):.12g}"


def _variable(name: str) -> str:
    return name if name.isidentifier() else "data"


def _quoted(sql: str) -> str:
    return (
        repr(sql) if "\n" not in sql else '"""' + sql.replace("\\", "\\\\").replace('"""', '\\"""') + '"""'
    )


def copy_kinds() -> Sequence[tuple[str, str]]:
    """Return the forms in which an answer can be copied: the last part of the address, and the word."""
    return (
        ("python", "Python"),
        ("sql", "SQL"),
        ("csv", "CSV"),
        ("notebook", "Notebook"),
        ("citation", "Citation"),
    )
