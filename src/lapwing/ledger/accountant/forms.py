"""The exact form of each kind of entry. The reader of a history trusts none of it.

A body is accepted in one form of bytes only, so that no two readers can read it differently: no JSON with
spaces, and none with a name twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from lapwing.core.budget import NEVER
from lapwing.ledger.entry import FORMAT, encode

WIDTH = 8
WHOLE_BELOW = 1 << 62
Shape = dict[str, Callable[[Any], bool]]

_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
_NUMBER = r"(0|[1-9][0-9]{0,17})"
_PLAIN = r"[ !#-\[\]-~]*"  # text that JSON writes as it is

# Most entries are charges of one range, and answers. A pattern cuts them into parts, which is fast; other
# entries are parsed as JSON, with the same result. Parts of a charge after its blocks (price, parameters,
# ending) were mostly seen before. Each new part is then checked on its own.
_OBJECT = r"{(?:[^}]*})+?"
CHARGE: Final = re.compile(
    rf'{{"kind":"charge","at":"{_TIME}","by":"([^"]{{32}})","key":"([^"]{{64}})","request":"([^"]{{64}})",'
    rf'"debits":\[\[{_NUMBER},\[\[{_NUMBER},{_NUMBER}\]\],'
    rf'(\[[^\]]*\]\]\],"loss":{_OBJECT},"mechanism":"[^"]*"),"parameters":({_OBJECT}),"code":(.*)'.encode()
)
HEX_DIGITS: Final = b"0123456789abcdef"
PRICE: Final = re.compile(rf'\[([0-9,]+)\]\]\],"loss":({{.*}}),"mechanism":"{_PLAIN}"'.encode())
_ENDING = re.compile(rf'"{_PLAIN}","session":(0|[1-9][0-9]{{0,18}})}}'.encode())
ANSWER: Final = re.compile(
    rf'{{"kind":"answer","at":"{_TIME}","charge":{_NUMBER},"digest":"[0-9a-f]{{64}}","size":{_NUMBER}}}'.encode()
)
_ITEM = rf'"{_PLAIN}":(?:"{_PLAIN}"|0|-?[1-9][0-9]{{0,17}})'
_FLAT = re.compile(rf"{{(?:{_ITEM}(?:,{_ITEM})*)?}}".encode())
_NAMES = re.compile(rb'"([^"]*)":').findall


class MalformedEntry(Exception):
    """An entry's body does not have the required form."""


def parsed(text: bytes) -> Any:
    """Return the JSON value of canonical bytes. Raises MalformedEntry if they are not canonical."""
    try:
        value = json.loads(text.decode("ascii"))
        canonical = encode(value) == text
    except (ValueError, RecursionError):
        raise MalformedEntry("is not JSON in plain characters") from None
    if not canonical:
        raise MalformedEntry("is JSON, but not in the form that is written")
    return value


def is_ending(text: bytes) -> bool:
    """Return whether this is the rest of a charge after the field name `code`."""
    match = _ENDING.fullmatch(text)
    return match is not None and is_whole(int(match[1]))


def is_object(text: bytes) -> bool:
    """Return whether this is a JSON object in canonical form."""
    if _FLAT.fullmatch(text) is not None:
        # No text in it contains a quote, so every text before a colon is a name.
        names = _NAMES(text)
        return len(names) == 1 or len(set(names)) == len(names)
    try:
        return isinstance(parsed(text), dict)
    except MalformedEntry:
        return False


def read(body: bytes) -> dict[str, Any]:
    """Return the record of a body. Raises MalformedEntry unless every field has the required form."""
    record: Any = parsed(body)
    kind = record.get("kind") if isinstance(record, dict) else None
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise MalformedEntry("is of no known kind")
    if record.get("raises") is not None:
        shape = shape | {"moved": _each(_pair)}
    if kind == "version" and "name" in record:
        shape = shape | {"name": _hex(32)}
    if kind == "genesis" and "registry" in record:
        shape = shape | {"registry": _hex(32)}
    if set(record) != {"kind", *shape} or next(iter(record)) != "kind":
        raise MalformedEntry(f"has other fields than those of kind {kind}")
    for name, fits in shape.items():
        if not fits(record[name]):
            raise MalformedEntry(f"has a bad {name!r}")
    return dict(record)


def costs_of(text: bytes) -> tuple[int, ...] | None:
    """Return eight costs from their canonical text; None if it is not canonical."""
    try:
        costs = tuple([int(part) for part in text.split(b",")])
    except ValueError:
        return None
    return costs if _costs(list(costs)) and ",".join(map(str, costs)).encode() == text else None


def is_hex(value: Any, letters: int) -> bool:
    """Return whether this is text of exactly `letters` lower-case hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{letters}}}", value) is not None


def are_ids(value: Any) -> bool:
    """Return whether this is a list of ids. It is fast, because there may be a million."""
    if not isinstance(value, list) or set(map(type, value)) != {str}:
        return False
    return set(map(len, value)) == {32} and re.fullmatch("[0-9a-f]*", "".join(value)) is not None


def is_whole(value: Any) -> bool:
    """Return whether this is a whole number from 0 to 2^62 - 1."""
    return type(value) is int and 0 <= value < WHOLE_BELOW


def _hex(letters: int) -> Callable[[Any], bool]:
    return lambda value: is_hex(value, letters)


def _or_null(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _among(*texts: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in texts


def _each(fits: Callable[[Any], bool], at_least: int = 0) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) >= at_least and all(map(fits, value))


def _time(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(_TIME, value) is not None


def _kind(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _items(*each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a list that has exactly these items."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(each)
        and all(fits(item) for fits, item in zip(each, value, strict=True))
    )


def _numbers(least: int, most: int) -> Callable[[Any], bool]:
    """Return the check of a list that has one number of this range for each filter."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == WIDTH
        and all(type(number) is int and least <= number <= most for number in value)
    )


def _rational(value: Any) -> bool:
    """Return whether this is a rational in lowest terms, in its one canonical text."""
    return (
        isinstance(value, str)
        and len(value) <= 4000
        and re.fullmatch(r"(0|[1-9][0-9]*)(/[1-9][0-9]*)?", value) is not None
        and str(Fraction(value)) == value
    )


def _ranges(value: Any) -> bool:
    before = -1
    if not isinstance(value, list) or not value:
        return False
    for item in value:
        if not _pair(item) or not before < item[0] <= item[1]:
            return False
        before = item[1]
    return True


_pair, _costs, _caps = _items(is_whole, is_whole), _numbers(0, NEVER), _numbers(-1, WHOLE_BELOW - 1)
_text, _flag, _record = _kind(str), _kind(bool), _kind(dict)
_CHARGE: Shape = {
    "at": _time, "by": _hex(32), "key": _or_null(_hex(64)), "request": _hex(64),
    "debits": _each(_items(is_whole, _ranges, _costs), at_least=1), "loss": _record, "mechanism": _text,
    "parameters": _record, "code": _text, "session": is_whole,
}  # fmt: skip
_VERSION: Shape = {
    "at": _time, "data": is_whole, "version": is_whole, "accounts": _each(is_whole),
    "same_rule": _each(_flag), "differ": _each(_items(is_whole, _hex(128))),
}  # fmt: skip
SHAPES: Final[dict[str, Shape]] = {
    "genesis": {
        "at": _time, "ledger": _hex(32), "key": _hex(64), "curator": _hex(64),
        "format": lambda value: type(value) is int and value == FORMAT,
    },
    "account": {
        "at": _time, "account": is_whole, "name": _hex(32),
        "unit": _among("person", "row", "person and period"),
        "relation": _among("add or remove one unit", "replace one unit"),
        "epsilon": _rational, "delta": _rational, "orders": _each(is_whole), "caps": _caps,
        "slices": _among("none", "units", "periods", "identities"), "rule": _text, "everyone": is_whole,
        "raises": _or_null(is_whole), "signature": _or_null(_hex(128)),
    },
    "blocks": {"at": _time, "account": is_whole, "first": is_whole, "names": are_ids},
    "charge": _CHARGE,
    "reserve": _CHARGE | {"fixed": _flag},
    "step": {
        "at": _time, "reservation": is_whole, "costs": _each(_items(is_whole, _costs), at_least=1),
        "loss": _or_null(_record),
    },
    "settle": {"at": _time, "reservation": is_whole, "spent": _flag},
    "answer": {"at": _time, "charge": is_whole, "digest": _hex(64), "size": is_whole},
    "failed": {"at": _time, "charge": is_whole},
    "data": _VERSION | {"name": _hex(32), "origin": _hex(32), "rule": _text},
    "version": _VERSION,
    "recovered": {"at": _time, "lost": _or_null(_items(is_whole, _hex(64))), "signature": _hex(128)},
    "registry": {"at": _time, "registry": _hex(32), "signature": _hex(128)},
    "others": {"at": _time, "ledgers": _each(_hex(32), at_least=1), "signature": _hex(128)},
    "check": {"at": _time, "account": is_whole, "policy": _hex(64), "signature": _hex(128)},
    "policy": {"at": _time, "account": is_whole, "policy": _hex(64)},
}  # fmt: skip
