"""Checks of single values that files and calls share: labels and locations."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from lapwing.errors import BadParameter

LABEL_AT_MOST = 200
POSTGRES_SCHEMES = ("postgresql://", "postgres://")


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


def is_postgres(where: str | Path) -> bool:
    """Return whether this is the URL of a PostgreSQL database."""
    return isinstance(where, str) and where.startswith(POSTGRES_SCHEMES)
