"""What is inside one output: numbers by the names of their columns, and words.

A nested output is taken apart by its path. A text has numbers, characters at fixed places and words;
bytes are numbers at fixed places. An event can then look inside outputs that are all different.

Numbers are compared by their values, not by their types: NumPy gives all outputs of a call one type, so
that the type of one output may depend on the others. 0.0 and -0.0, and all NaN, are told apart.
"""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from collections.abc import Iterable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from lapwing.errors import BadValue

_MOST_TEXT = 500  # characters of an error's message
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object: it is the process's, not the output's
_WORD = re.compile(r"\w+")
_MOST_READ = 4096  # characters of a text in which numbers and words are looked for
_NUMBERS_OF_TEXT = 8
_WORDS_OF_TEXT = 64
_FIRST, _LAST = 16, 8  # characters or bytes that are columns
_MOST_TEXTS = 4  # of a longer collection, texts are words only
_MOST_ENTRIES = 2048  # columns of one output
_DEEPEST = 12
_SCALARS = (Fraction, Decimal, date, time, timedelta, UUID, Enum, complex)


@dataclasses.dataclass(frozen=True, slots=True)
class Raised:
    """An error as an output: its class and its message."""

    kind: str
    message: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Return the output that stands for an error."""
        return cls(type(error).__name__, _ADDRESS.sub("0x…", str(error)[:_MOST_TEXT]))


def float_bits(value: float) -> int:
    """Return the 64 bits of a float, so that 0.0 and -0.0, and all NaN, are told apart."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def canonical(value: object) -> str:
    """Return a text that is equal iff two outputs are.

    Raises:
        BadValue: If the class of the output is not known, so that outputs cannot be told apart.
    """
    value = plain(value)
    if isinstance(value, bool | int | float):
        text = _canonical_number(value)
    elif value is None or isinstance(value, str | bytes):
        text = repr(value)
    elif isinstance(value, list):
        text = f"[{','.join(map(canonical, value))}]"
    elif isinstance(value, tuple):
        text = f"({','.join(map(canonical, value))})"
    elif isinstance(value, set | frozenset):
        text = f"{{{','.join(sorted(map(canonical, value)))}}}"
    elif isinstance(value, dict):
        text = f"{{{','.join(f'{canonical(key)}:{canonical(item)}' for key, item in value.items())}}}"
    else:
        text = _canonical_object(value)
    return text


def _canonical_number(value: float) -> str:
    try:
        number = float(value)
    except OverflowError:
        return f"{value}i"
    is_rounded = isinstance(value, int) and int(number) != value
    return f"{value}i" if is_rounded else f"{float_bits(number):016x}"


def _canonical_object(value: object) -> str:
    if isinstance(value, Raised):
        return f"raised {value.kind}: {value.message}"
    if isinstance(value, _SCALARS):
        return f"{type(value).__qualname__} {value!r}"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__qualname__}({','.join(canonical(item) for _, item in _fields(value))})"
    raise BadValue(
        f"an output is a {type(value).__qualname__}: outputs of this class cannot be told apart. Return "
        "numbers, texts, lists, mappings or dataclasses"
    )


def _fields(value: Any) -> list[tuple[str, object]]:
    return [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]


def plain(value: object) -> object:
    """Return NumPy's numbers and arrays as Python's, and an error as what it raised."""
    if isinstance(value, np.generic) and value.dtype.kind == "f":
        return float(value)  # also of more than 64 bits
    if isinstance(value, np.generic | np.ndarray):
        listed: object = value.tolist()
        return listed
    if isinstance(value, bytearray):
        return bytes(value)
    return Raised.of(value) if isinstance(value, BaseException) else value


def kind_of(value: object) -> str:
    """Return an output's type, its length and the class of its error, in words."""
    value = plain(value)
    if isinstance(value, Raised):
        return f"raised {value.kind}"
    if isinstance(value, list | tuple | set | frozenset | dict | str | bytes):
        inside = sorted({_type_of(item) for item in value}) if not isinstance(value, str | bytes) else ()
        return f"{type(value).__name__} of length {len(value)}{' of ' if inside else ''}{', '.join(inside)}"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return _type_of(value)


def _type_of(value: object) -> str:
    value = plain(value)
    return "number" if isinstance(value, bool | int | float) else type(value).__name__


class Inside:
    """The numbers of one output by the names of their columns, and its words."""

    __slots__ = ("numbers", "words")

    def __init__(self, value: object) -> None:
        self.numbers: dict[str, float] = {}
        self.words: set[str] = set()
        self._add(value, "", 0)

    def _add(self, value: object, path: str, depth: int, *, has_columns: bool = True) -> None:
        value = plain(value)
        if isinstance(value, bool | int | float):
            self._add_number(value, path, depth)
        elif isinstance(value, str):
            self._add_text(value, path, has_columns=has_columns)
        elif isinstance(value, bytes):
            self.words.add(repr(value[:_FIRST]))
            self._add_places(list(value), path)
        elif isinstance(value, Raised):
            self.words.add(f"raised {value.kind}")
            self._add_text(value.message, f"{path}!", has_columns=True)
        elif depth < _DEEPEST and len(self.numbers) < _MOST_ENTRIES:
            self._add_collection(value, path, depth)

    def _add_number(self, value: float, path: str, depth: int) -> None:
        if depth and value == value // 1:
            self.words.add(_canonical_number(value))
        try:
            self.numbers[path] = float(value)
        except OverflowError:
            self.numbers[path] = math.copysign(math.inf, value)
        if isinstance(value, float) and math.isnan(value):
            self.numbers[f"{path}?"] = float(float_bits(value) & ((1 << 51) - 1))

    def _add_text(self, text: str, path: str, *, has_columns: bool) -> None:
        read = text[:_MOST_READ]
        self.words.add(repr(text[:64]))
        self.words.update(_WORD.findall(read)[:_WORDS_OF_TEXT])
        if not has_columns:
            return
        matches = _NUMBER.findall(read)
        for place, number in enumerate(matches[:_NUMBERS_OF_TEXT]):
            self.numbers[f"{path}#{place}"] = float(number)
        if len(matches) > 1:
            self.numbers[f"{path}#last"] = float(matches[-1])
        self._add_places([ord(character) for character in (*text[:_FIRST], *text[_FIRST:][-_LAST:])], path)
        self.numbers[f"{path}|"] = float(len(text))

    def _add_places(self, codes: list[int], path: str) -> None:
        self.numbers[f"{path}|"] = float(len(codes))
        for place, code in enumerate(codes[:_FIRST]):
            self.numbers[f"{path}@{place}"] = float(code)
        for place, code in enumerate(reversed(codes[_FIRST:][-_LAST:])):
            self.numbers[f"{path}@-{place + 1}"] = float(code)

    def _add_collection(self, value: object, path: str, depth: int) -> None:
        items: Iterable[tuple[object, object]] = ()
        if isinstance(value, dict):
            items = [(canonical(key), item) for key, item in value.items()]
            self.words.update(str(key) for key, _ in items)
            for key in value:
                if isinstance(key, str):
                    self.words.update(_WORD.findall(key[:_MOST_READ])[:_WORDS_OF_TEXT])
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        elif isinstance(value, set | frozenset):
            items = enumerate(sorted(value, key=canonical))
        elif value is None or isinstance(value, _SCALARS):
            self._add_text(str(value), path, has_columns=True)
        elif dataclasses.is_dataclass(value):
            items = _fields(value)
        listed = list(items)
        has_columns = len(listed) <= _MOST_TEXTS or isinstance(value, dict)
        for name, item in listed[:_MOST_ENTRIES]:
            if isinstance(item, list | tuple | set | frozenset | dict):
                self.words.add(canonical(item)[:256])
            self._add(item, f"{path}/{name}", depth + 1, has_columns=has_columns)
