"""Where a file says that something lies: a path from its own folder, or a URL as it stands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lapwing.ledger.places import POSTGRES_SCHEMES
from lapwing.toml.section import Section

WEB_SCHEMES = ("https://", "http://")


def place(section: Section, name: str, path: Path, *, example: str, web: bool = False) -> str:
    """A path from the folder of the file `path`, or a URL; "" where it is missing or a mistake."""
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
class LedgerPlaces:
    """Where the ledger, its keys and its anchor lie; "" for those that lie where they usually do."""

    url: str
    keys: str = ""
    anchor: str = ""


def ledger_places(root: Section, path: Path, *, default: str, example: str) -> LedgerPlaces:
    """What a file says under [ledger]."""
    section = root.below("ledger", ("url", "keys", "anchor"))
    if section is None:
        return LedgerPlaces(default)
    url, keys, anchor = (
        place(section, name, path, example=example, web=name == "anchor")
        for name in ("url", "keys", "anchor")
    )
    if keys.startswith(POSTGRES_SCHEMES):
        section.wrong("keys", "must be the path of a file")
    return LedgerPlaces(url or default, keys, anchor)
