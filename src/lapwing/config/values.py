"""Checks of single values that files and calls share: labels, names and locations; and words for errors."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path

from lapwing.config.toml_text import quoted
from lapwing.errors import BadParameter

LABEL_AT_MOST = 200
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
RESERVED_PREFIX = "lapwing_"

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


def checked_label(text: str, name: str) -> str:
    """Return a label in Unicode form NFC.

    Raises BadParameter if it has not 1 to 200 printable characters.
    """
    if not isinstance(text, str):
        raise BadParameter(name, "must be text")
    if not 0 < len(text) <= LABEL_AT_MOST:
        raise BadParameter(name, f"must have 1 to {LABEL_AT_MOST} characters")
    if not text.isascii():  # in ASCII there is one form
        text = unicodedata.normalize("NFC", text)
        if len(text) > LABEL_AT_MOST:  # a few letters become longer
            raise BadParameter(name, f"must have 1 to {LABEL_AT_MOST} characters")
    if not text.isprintable() or text != text.strip():
        raise BadParameter(name, "must be printable, without spaces around it")
    return text


def checked_count(number: int, name: str) -> int:
    """Return a whole number of at least 1. Raises BadParameter if it is something else."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise BadParameter(name, "must be a whole number of at least 1")
    return number


def is_postgres(where: str | Path) -> bool:
    """Return whether this is the URL of a PostgreSQL database."""
    return isinstance(where, str) and where.startswith(POSTGRES_SCHEMES)


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


def similar_name(text: str) -> str:
    """Return a name like the text, of the letters, digits and _ that names have; "" if nothing is left."""
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss")).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "_", plain).strip("_")[:50]


def repeated_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return names that SQL cannot tell from an earlier one, with that one: case does not count."""
    first: dict[str, str] = {}
    return [(name, known) for name in names if (known := first.setdefault(name.lower(), name)) != name]


def quoted_choices(choices: Sequence[str]) -> str:
    """Return the choices in quotes: "a", "b" or "c"."""
    words = [quoted(choice) for choice in choices]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def shortened_list(names: Sequence[str], most: int = 8) -> str:
    """Return the first names, and how many more there are: a, b, c and 5 more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def checked_choice(value: str, choices: Sequence[str], name: str = "") -> str:
    """Return the value. Raises BadParameter, with the nearest choice, if it is none of the choices."""
    if value in choices:
        return value
    raise BadParameter(name, f"must be {quoted_choices(choices)}.{_guess(value, choices)}")


def did_you_mean(name: str, known: Sequence[str], what: str = "Known here") -> str:
    """Return the nearest known name, or all of them."""
    return _guess(name, known).strip() or f"{what}: {', '.join(sorted(known)[:20])}"


def _guess(name: str, known: Sequence[str]) -> str:
    by_lower = {word.lower(): word for word in known}
    close = get_close_matches(name[:80].lower(), by_lower, n=1)
    return f" Did you mean {quoted(by_lower[close[0]])}?" if close else ""
