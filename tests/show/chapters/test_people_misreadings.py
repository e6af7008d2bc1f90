"""docs/misreadings.md quotes sentences of `lapwing show`. A quoted sentence must still be said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lapwing.show.chapters import many_answers, nobody_trusted, people
from support.shown import TopicRun
from support.streams import SeededStream

PAGE = Path(__file__).parents[3] / "docs" / "misreadings.md"
CHAPTERS = (many_answers.CHAPTER, people.CHAPTER, nobody_trusted.CHAPTER)
SMALL = {
    "trials": {"n": "10"},
    "daily-reset": {"n": "10"},
    "per-person": {"n": "4", "months": "4"},
    "curator-and-local": {"n": "100"},
}


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


def test_every_quoted_sentence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(2104))
    guards = quoted()
    topics = {topic.name: chapter for chapter in CHAPTERS for topic in chapter.topics}
    assert topics.keys() <= guards.keys(), "every topic of these chapters guards against something"
    for name, chapter in topics.items():
        text = TopicRun.of(chapter, name, **SMALL.get(name, {})).text
        assert sorted(sentence for sentence in guards[name] if sentence not in text) == [], name
