"""The chapters, in the order in which they are read."""

from __future__ import annotations

from importlib import import_module

from lapwing.show.topic import Chapter, Topic

_MODULES = (
    "one_answer", "rare_failures", "choosing", "many_answers", "people", "nobody_trusted",
    "several_parties", "learning", "society",
)  # fmt: skip


def chapters() -> tuple[Chapter, ...]:
    """Return all chapters. Importing them loads no extra: a topic loads what it needs when it runs."""
    return tuple(import_module(f"{__name__}.{module}").CHAPTER for module in _MODULES)


def topics() -> dict[str, Topic]:
    """Return all topics by name, in the order in which they are read."""
    return {topic.name: topic for chapter in chapters() for topic in chapter.topics}
