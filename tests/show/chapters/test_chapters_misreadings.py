"""docs/misreadings.md quotes sentences of `lapwing show`. A quoted sentence must still be said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lapwing.show.chapters import topics
from support.shown import small

PAGE = Path(__file__).parents[3] / "docs" / "misreadings.md"


def quoted() -> dict[str, set[str]]:
    """The sentences by topic. A quotation without a topic belongs to the topic before it."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| misreading"):
            guards, name = line.split(" | ")[2], ""
            for topic, sentence in re.findall(r'(?:`([a-z-]+)`: )?"([^"]+)"', guards):
                name = topic or name
                found.setdefault(name, set()).add(sentence)
    return found


@pytest.mark.parametrize("name", list(topics()))
def test_every_topic_guards_against_something_and_still_says_so(name: str) -> None:
    text = small(name).text
    assert sorted(sentence for sentence in quoted()[name] if sentence not in text) == []


def test_every_quotation_is_of_a_topic() -> None:
    assert quoted().keys() == topics().keys()
