"""The columns of a policy: what is public about their values becomes a kind."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction

from lapwing.engines.common import TEXT_BYTES
from lapwing.errors import BadParameter
from lapwing.mechanisms.values import Grid
from lapwing.query.language.kinds import SECONDS, Choice, Kind, Moment, Number, Text, Truth
from lapwing.query.policies.policy import Column
from lapwing.toml.section import Section, either, kind_of
from lapwing.toml.text import Key, Mistakes

COLUMN = ("values", "low", "high", "step", "type", "hidden", "missing", "longest", "source")
SOURCE_AT_MOST = 1000  # letters of what a source calls a column
VALUES_AT_MOST = 1_000_000
LETTERS_AT_MOST = 10_000
EPOCH = date(1970, 1, 1)
LARGEST_WHOLE = (1 << 63) - 1
TODO = "TODO"  # where a draft leaves something to be written
STEPS = ("second", "minute", "hour", "day")
TYPES = ("text", "bool")
HOW = 'values = […], low and high, type = "text", type = "bool" or hidden = true'
OTHER_TYPES = {
    **dict.fromkeys(("string", "str", "varchar", "char"), 'Write type = "text"'),
    **dict.fromkeys(("boolean", "truth"), 'Write type = "bool"'),
    **dict.fromkeys(
        ("int", "integer", "bigint", "whole"), "Write low and high, such as low = 0, high = 60"
    ),
    **dict.fromkeys(("float", "double", "number", "decimal"), "Write low, high and step"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "Write low and high as dates, such as 2024-01-31"),
    **dict.fromkeys(("enum", "category", "choice"), 'Write values = ["A", "B"]'),
}


def column_of(mistakes: Mistakes, key: Key, found: object) -> Column | None:
    """A declared column; None if it is hidden or wrong."""
    section = Section.of(mistakes, key, found, COLUMN)
    if section is None:
        return None
    forms = [form for form in ("values", "low", "type") if section.has(form)]
    if section.has("high") and "low" not in forms:
        forms.append("high")
    hidden = section.flag("hidden")
    source = source_name(section, "source")
    if len(forms) > 1:
        section.wrong(forms[1], f"cannot stand beside {forms[0]}. Write one of: {HOW}")
        return None
    if not forms:
        if not hidden:
            mistakes.add(key, f"says nothing about its values. Write one of: {HOW}")
        return None
    if section.has("step") and forms[0] not in ("low", "high"):
        section.wrong("step", "belongs to low and high only. Remove it")
    kind = _kind(section, forms[0])
    missing = _missing(section, kind) if kind is not None and section.has("missing") else None
    longest = section.whole("longest", least=1, most=TEXT_BYTES // 4)
    if section.has("longest") and not isinstance(kind, Text):
        section.wrong("longest", 'belongs to type = "text" only. Remove it')
    return None if kind is None or hidden else Column(key[-1], kind, missing, longest, source or "")


def source_name(section: Section, name: str) -> str | None:
    """What a source calls a column: any text, spaces and signs included. Engines get it quoted."""
    value = section.values.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        section.wrong(name, f"must be a text in quotes, not {kind_of(value)}")
    elif not 0 < len(value) <= SOURCE_AT_MOST or "\0" in value:
        section.wrong(name, f"must be what the source calls the column: 1 to {SOURCE_AT_MOST:,} letters")
    else:
        return value
    return None


def _kind(section: Section, form: str) -> Kind | None:
    match form:
        case "values":
            return _choice(section)
        case "type":
            return _type(section)
        case _:
            return _bounded(section)


def _type(section: Section) -> Kind | None:
    word = section.values["type"]
    if isinstance(word, str) and word.lower() in OTHER_TYPES:
        section.wrong("type", f"must be {either(TYPES)}. {OTHER_TYPES[word.lower()]}")
        return None
    found = section.one_of("type", TYPES)
    if found is None:
        return None
    return Text() if found == "text" else Truth()


def _choice(section: Section) -> Choice | None:
    values = section.values["values"]
    if not isinstance(values, list):
        section.wrong("values", f'must be a list such as ["A", "B"], not {kind_of(values)}')
        return None
    if _is_left(section, "values", *values):
        return None
    if not 0 < len(values) <= VALUES_AT_MOST:
        section.wrong("values", f"must list 1 to {VALUES_AT_MOST:,} values")
        return None
    odd = next((n for n, value in enumerate(values, 1) if type(value) is not type(values[0])), None)
    if odd is not None or type(values[0]) not in {str, int, bool}:  # for Python, true is an int
        section.wrong(
            "values", f"must be all texts, all whole numbers, or true and false: see value {odd or 1}"
        )
        return None
    if why := _why_no_values(values):
        section.wrong("values", why)
        return None
    return Choice(tuple(values))


def _is_left(section: Section, name: str, *values: object) -> bool:
    """Note whether something is still as `lapwing init` drafted it."""
    left = TODO in [value for value in values if isinstance(value, str)]
    if left:
        section.wrong(name, f"is still {TODO}, as drafted. Write what you know, not from the data")
    return left


def _why_no_values(values: list[str | int]) -> str | None:
    known: dict[str | int, int] = {}
    for number, value in enumerate(values, 1):
        if isinstance(value, str) and ("\0" in value or len(value) > LETTERS_AT_MOST):
            return (
                f"must have at most {LETTERS_AT_MOST:,} letters each, none of them NUL: see value {number}"
            )
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            return f"must be whole numbers within 2^63 of 0: see value {number}"
        if value in known:
            return f"must be distinct: value {number} is value {known[value]} again. Remove one"
        known[value] = number
    return None


def _bounded(section: Section) -> Kind | None:
    for name, other in (("low", "high"), ("high", "low")):
        if not section.has(name):
            section.missing(name, f"{name} = … beside {other}: the bounds that values are clamped to")
            return None
    for name in ("low", "high", "step"):
        if _is_left(section, name, section.values.get(name)):
            return None
    low, high = section.values["low"], section.values["high"]
    are_times = [isinstance(bound, date) for bound in (low, high)]  # a datetime is a date, too
    if all(are_times):
        return _moment(section, low, high)
    if any(are_times):
        section.wrong(
            "high", f"must be of the same kind as low: low is {kind_of(low)}, high {kind_of(high)}"
        )
        return None
    return _number(section)


def _number(section: Section) -> Number | None:
    low, high = section.number("low"), section.number("high")
    if low is None or high is None:
        return None
    if section.has("step"):
        step = section.number("step")
    elif all(isinstance(section.values[name], int) for name in ("low", "high")):
        step = Fraction(1)
    else:
        section.missing("step", "step = 0.01, or how fine the values are: sums are computed in whole steps")
        return None
    if step is None:
        return None
    try:
        grid = Grid.of(low=low, high=high, step=step)
    except BadParameter as error:
        section.wrong(error.name, error.why)
        return None
    return Number(grid.step, grid.first, grid.last)


def _moment(section: Section, low: object, high: object) -> Moment | None:
    is_date = [not isinstance(bound, datetime) for bound in (low, high)]
    if is_date[0] != is_date[1]:
        section.wrong("high", "must be written like low: both as dates, or both with a time")
        return None
    if is_date[0]:
        if section.values.get("step", "day") != "day":
            section.wrong("step", 'must be "day" for dates. Remove it, or write the bounds with a time')
            return None
        seconds = SECONDS["day"]
    else:
        step = section.one_of("step", STEPS) if section.has("step") else "second"
        if step is None:
            return None
        seconds = SECONDS[step]
    first, last = -(-_since_1970(low) // seconds), _since_1970(high) // seconds
    if first >= last:
        section.wrong("low", "must be below high, by at least one step")
        return None
    moment = Moment(int(seconds), int(first), int(last))
    try:
        moment.value(moment.first), moment.value(moment.last)
    except (OverflowError, ValueError):  # an offset can lead out of the years 1 to 9999
        section.wrong("low", "and high must lie in the years 1 to 9999, in UTC")
        return None
    return moment


def _since_1970(moment: object) -> Fraction:
    """Seconds. What has no offset is UTC."""
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        gone = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return Fraction(gone.days * SECONDS["day"] + gone.seconds) + Fraction(gone.microseconds, 10**6)
    assert isinstance(moment, date)
    return Fraction((moment - EPOCH).days * SECONDS["day"])


def _missing(section: Section, kind: Kind) -> int | None:
    """The code that stands for what is missing."""
    value = section.values["missing"]
    code: int | None = None
    match kind:
        case Choice(values):
            what = "one of the declared values"
            code = next((n for n, known in enumerate(values) if _same(known, value)), None)
        case Truth():
            what = "true or false, without quotes"
            code = int(value) if isinstance(value, bool) else None
        case Number(step, int(first), int(last)):
            what = "a multiple of step between low and high"
            number = section.number("missing")
            if number is None:
                return None
            code = int(number / step) if (number / step).denominator == 1 else None
            code = code if code is not None and first <= code <= last else None
        case Moment(seconds, first, last):
            is_date = isinstance(section.values["low"], date) and not isinstance(
                section.values["low"], datetime
            )
            what = "a date between low and high" if is_date else "a date with a time between low and high"
            if isinstance(value, date) and isinstance(value, datetime) is not is_date:
                code = int(_since_1970(value) // seconds)
            code = code if code is not None and first <= code <= last else None
        case _:
            what = "left out: text has no public values. Remove it"
    if code is None:
        section.wrong("missing", f"must be {what}")
    return code


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other  # for Python, true is 1
