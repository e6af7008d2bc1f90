"""One table of a TOML file, read key by key. Mistakes are collected, and None stands for a wrong value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from lapwing.config.toml_text import FileMistakes, Key, quoted
from lapwing.config.values import POSTGRES_SCHEMES, checked_label
from lapwing.core.exact import exact
from lapwing.errors import BadParameter

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
RESERVED_PREFIX = "lapwing_"
TEXT_AT_MOST = 4096

KINDS: tuple[tuple[type, str], ...] = (  # subclasses first: a bool is an int in Python
    (bool, "true or false"),
    (str, "a text"),
    (int, "a whole number"),
    (Decimal, "a decimal number"),
    (datetime, "a date with a time"),
    (date, "a date"),
    (time, "a time of day"),
    (list, "a list"),
)

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the file. Every reader notes mistakes, and returns None for a wrong or missing value."""

    mistakes: FileMistakes
    key: Key
    values: Mapping[str, object]

    @classmethod
    def of(cls, mistakes: FileMistakes, key: Key, found: object, known: Sequence[str]) -> Section | None:
        """Return the table at a key. Keys that are not in `known` are mistakes."""
        if not isinstance(found, Mapping):
            mistakes.add(key, f"must be a table, not {kind_of(found)}")
            return None
        for name in found:
            if name not in known:
                mistakes.add((*key, name), f"unknown key. {did_you_mean(name, known)}")
        return cls(mistakes, key, found)

    def below(self, name: str, known: Sequence[str]) -> Section | None:
        """Return a table within this one, or None if it is missing."""
        if name not in self.values:
            return None
        return Section.of(self.mistakes, (*self.key, name), self.values[name], known)

    def tables(self, name: str) -> dict[str, object]:
        """Return the values of a table of tables, by name."""
        found = self.values.get(name, {})
        if not isinstance(found, Mapping):
            self.wrong(name, f"must be a table of tables, not {kind_of(found)}")
            return {}
        return dict(found)

    def items(self, name: str, known: Sequence[str], *, write: str) -> list[Section]:
        """Return the tables of a list of tables. An item that is not a table is a mistake."""
        found = self.values.get(name, [])
        if not isinstance(found, list):
            self.wrong(name, f"must be a list of tables, not {kind_of(found)}. Write {write}")
            return []
        keys = [(*self.key, name, str(number)) for number in range(1, len(found) + 1)]
        made = [Section.of(self.mistakes, key, one, known) for key, one in zip(keys, found, strict=True)]
        return [section for section in made if section is not None]

    def has(self, name: str) -> bool:
        """Return whether the key is present, right or wrong."""
        return name in self.values

    def wrong(self, name: str, what: str) -> None:
        """Note a mistake at a key."""
        self.mistakes.add((*self.key, name), what)

    def missing(self, name: str, write: str) -> None:
        """Note that a key is missing. `write` shows what to write."""
        self.wrong(name, f"is missing. Write {write}")

    def text(self, name: str) -> str | None:
        """Read a printable text without spaces around it."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.wrong(name, f"must be a text in quotes, not {kind_of(value)}")
        elif not value:
            self.wrong(name, "must not be empty")
        elif not value.isprintable() or value != value.strip() or len(value) > TEXT_AT_MOST:
            self.wrong(name, "must be printable, on one line, without spaces around it")
        else:
            return value
        return None

    def label(self, name: str) -> str | None:
        """Read a text that the ledger accepts as a name."""
        value = self.text(name)
        return None if value is None else self.checked(name, checked_label, value)

    def name(self, name: str) -> str | None:
        """Read the name of a column."""
        value = self.text(name)
        if value is None:
            return None
        if why := why_bad_name(value):
            self.wrong(name, f"must name a column. A name {why}")
            return None
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str | None:
        """Read one of a few words."""
        value = self.text(name)
        if value is None or value in choices:
            return value
        self.wrong(name, f"must be {quoted_choices(choices)}.{_guess(value, choices)}")
        return None

    def flag(self, name: str) -> bool:
        """Read true or false; false if the key is missing."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            self.wrong(name, f"must be true or false, without quotes, not {kind_of(value)}")
            return False
        return value

    def whole(self, name: str, *, least: int, most: int) -> int | None:
        """Read a whole number within public limits."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(name, f"must be a whole number, not {kind_of(value)}.{_unquote(value)}")
        elif not least <= value <= most:
            self.wrong(name, f"must lie between {least:,} and {most:,}")
        else:
            return value
        return None

    def number(self, name: str) -> Fraction | None:
        """Read a number exactly as it is written: 0.1 is one tenth."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self.wrong(name, f"must be a number, not {kind_of(value)}.{_unquote(value)}")
            return None
        return self.checked(name, exact, value)

    def checked(self, name: str, check: Callable[[V, str], T], value: V) -> T | None:
        """Return `check(value, name)`. If that raises BadParameter, note its reason and return None."""
        try:
            return check(value, name)
        except BadParameter as error:
            self.wrong(name, error.why)
            return None


def kind_of(value: object) -> str:
    """Return what kind of TOML value this is, in words."""
    return next((words for kind, words in KINDS if isinstance(value, kind)), "a table")


def why_bad_name(text: str) -> str | None:
    """Return why a table or column cannot have this name; None if it can."""
    if not NAME_PATTERN.fullmatch(text):
        return "has letters a-z, digits and _, begins with no digit, and is at most 63 long"
    if text.lower().startswith(RESERVED_PREFIX):
        return f"must not begin with {RESERVED_PREFIX}: such names are Lapwing's own"
    return None


def repeated_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return names that SQL cannot tell from an earlier one, with that one: case does not count."""
    first: dict[str, str] = {}
    return [(name, known) for name in names if (known := first.setdefault(name.lower(), name)) != name]


def quoted_choices(choices: Sequence[str]) -> str:
    """Return the choices in quotes: "a", "b" or "c"."""
    words = [quoted(choice) for choice in choices]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def did_you_mean(name: str, known: Sequence[str], what: str = "Known here") -> str:
    """Return the nearest known name, or all of them."""
    return _guess(name, known).strip() or f"{what}: {', '.join(sorted(known)[:20])}"


def _guess(name: str, known: Sequence[str]) -> str:
    by_lower = {word.lower(): word for word in known}
    close = get_close_matches(name[:80].lower(), by_lower, n=1)
    return f" Did you mean {quoted(by_lower[close[0]])}?" if close else ""


def _unquote(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[-+0-9._eE]{1,40}", value):
        return " Remove the quotes"
    return ""


WEB_SCHEMES = ("https://", "http://")


def read_location(section: Section, name: str, path: Path, *, example: str, web: bool = False) -> str:
    """Read a path relative to the folder of the file `path`, or a URL; "" if missing or wrong."""
    text = section.text(name)
    if text is None:
        return ""
    if text.startswith(POSTGRES_SCHEMES) or (web and text.startswith(WEB_SCHEMES)):
        return text
    if "://" in text:
        section.wrong(name, "must be a path, or begin with postgresql://")
        return ""
    found = os.path.normpath(path.parent / text)
    if found == str(path) or os.path.isdir(found):
        section.wrong(name, f'must be a file of its own, such as "{example}"')
    return found


@dataclass(frozen=True, slots=True)
class LedgerLocations:
    """Locations of the ledger, its keys and its anchor; "" for the usual location."""

    url: str
    keys: str = ""
    anchor: str = ""


def read_ledger_locations(root: Section, path: Path, *, default: str, example: str) -> LedgerLocations:
    """Read the table [ledger] of a file."""
    section = root.below("ledger", ("url", "keys", "anchor"))
    if section is None:
        return LedgerLocations(default)
    url, keys, anchor = (
        read_location(section, name, path, example=example, web=name == "anchor")
        for name in ("url", "keys", "anchor")
    )
    if keys.startswith(POSTGRES_SCHEMES):
        section.wrong("keys", "must be the path of a file")
    return LedgerLocations(url or default, keys, anchor)
