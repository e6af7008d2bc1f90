"""What stands in a survey for people to read: texts, and the options that they choose from."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from lapwing.survey.questionnaire.coding import NO_ANSWER
from lapwing.toml.section import TEXT_AT_MOST, Section, kind_of
from lapwing.toml.text import quoted

LABEL_AT_MOST = 200
FILE_AT_MOST = 64 << 20


def prose(section: Section, name: str, *, at_most: int = TEXT_AT_MOST) -> str | None:
    """A text for people. It may have several lines, but nothing that cannot be seen."""
    value = section.values.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        section.wrong(name, f"must be a text in quotes, not {kind_of(value)}")
        return None
    text = value.strip()
    if not text:
        section.wrong(name, "must not be empty")
    elif len(text) > at_most:
        section.wrong(name, f"must have at most {at_most:,} letters")
    elif not text.replace("\n", "").isprintable():
        section.wrong(name, "must not have control characters or tabs")
    else:
        return text
    return None


def options_of(section: Section, path: Path, *, least: int, most: int) -> tuple[str, ...] | None:
    """The options of a question, from `options` or from the lines of `options_file`."""
    if section.has("options") and section.has("options_file"):
        section.wrong("options_file", "must not stand beside options: write one of them")
        return None
    name = "options_file" if section.has("options_file") else "options"
    found = _from_file(section, path) if name == "options_file" else _listed(section)
    if found is None:
        return None
    if not least <= len(found) <= most:
        section.wrong(name, f"must be {least:,} to {most:,} options, not {len(found):,}")
        return None
    if why := why_no_labels(found):
        section.wrong(name, why)
        return None
    return tuple([str(label) for label in found])


def _listed(section: Section) -> Sequence[object] | None:
    found = section.values.get("options")
    if found is None:
        section.missing("options", 'options = ["blue", "green"]')
    elif not isinstance(found, list):
        section.wrong("options", f'must be a list such as ["blue", "green"], not {kind_of(found)}')
    else:
        return found
    return None


def why_no_labels(labels: Sequence[object]) -> str | None:
    """Why these cannot be options, with the first bad one; None if they can."""
    seen: dict[str, int] = {}
    for number, label in enumerate(labels, 1):
        if not isinstance(label, str):
            return f"option {number} must be a text in quotes, not {kind_of(label)}"
        if why := _why_no_label(label, number, seen):
            return f"option {number}, {quoted(label, at_most=40)}, {why}"
    return None


def _why_no_label(label: str, number: int, seen: dict[str, int]) -> str | None:
    if not label or label != label.strip() or not label.isprintable() or len(label) > LABEL_AT_MOST:
        return (
            f"must be printable, on one line, without spaces around it, of at most {LABEL_AT_MOST} letters"
        )
    key = unicodedata.normalize("NFKC", label).casefold()
    if key == NO_ANSWER:
        return "is there already: write no_answer = false to have it not"
    if seen.setdefault(key, number) != number:
        return f"is the same as option {seen[key]}"
    return None


def _from_file(section: Section, path: Path) -> Sequence[object] | None:
    name = section.text("options_file")
    if name is None:
        return None
    place = path.parent / name
    if not os.path.isfile(place):
        section.wrong("options_file", f"{quoted(name, at_most=80)} is no file beside the survey")
        return None
    try:
        with place.open("rb") as file:
            raw = file.read(FILE_AT_MOST + 1)
        if len(raw) > FILE_AT_MOST:
            section.wrong("options_file", "is larger than 64 MiB")
            return None
        lines = raw.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except OSError as error:
        section.wrong("options_file", f"cannot be read ({error.strerror})")
        return None
    except UnicodeDecodeError:
        section.wrong("options_file", "is not UTF-8. Save the file as UTF-8, one option on each line")
        return None
    return lines
