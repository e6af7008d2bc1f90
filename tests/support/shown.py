"""Topics of `lapwing show` for tests: computed at given, default or small parameters, and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from lapwing.show.chapters import topics
from lapwing.show.topic import Shown, to_json

# Parameters at which a topic takes less than a second. The others are quick at their defaults.
SMALL: dict[str, dict[str, Any]] = {
    "many-numbers": {"k": 10},
    "network-choice": {"n": 200},
    "per-person": {"n": 4, "months": 4},
    "trials": {"n": 10},
    "daily-reset": {"n": 10},
    "curator-and-local": {"n": 100},
    "coalition-size": {"members": 3},
    "parties-error": {"people": 100, "repetitions": 20},
    "bad-models": {"runs": 5, "rows": 16_000},
    "data-needed": {"runs": 5, "rows": 16_000},
    "release-time": {"hours": 80},
}


@dataclass(frozen=True, slots=True)
class TopicRun:
    """A topic that was computed, and the progress that it reported."""

    shown: Shown
    reported: list[tuple[int, int]]

    @classmethod
    def of(cls, name: str, *, full: bool = False, **changed: object) -> TopicRun:
        """Compute a topic. Parameters that are not given have their defaults."""
        topic = topics()[name]
        assert changed.keys() <= {one.name for one in topic.parameters}
        values = {one.name: Fraction(str(changed.get(one.name, one.default))) for one in topic.parameters}
        assert all(one.least <= values[one.name] <= one.most for one in topic.parameters)
        reported: list[tuple[int, int]] = []
        found = topic.compute(values, full, lambda done, whole: reported.append((done, whole)))
        assert to_json(topic, values, found)["topic"] == name
        return cls(found, reported)

    @property
    def text(self) -> str:
        """The headline and all sentences."""
        return " ".join((self.shown.headline, *self.shown.sentences))

    def table(self, number: int) -> tuple[tuple[Any, ...], ...]:
        """The rows of a table."""
        return self.shown.tables[number].rows


@cache
def small(name: str) -> TopicRun:
    """Compute a topic at its small parameters, once in a process."""
    return TopicRun.of(name, **SMALL.get(name, {}))


def shown(name: str, *, full: bool = False, **changed: object) -> Shown:
    """Compute a topic, with these values and the defaults of the others."""
    return TopicRun.of(name, full=full, **changed).shown


def column(one: Shown, head: str, table: int = 0) -> list[Any]:
    """Return the cells of a column."""
    place = one.tables[table].heads.index(head)
    return [row[place] for row in one.tables[table].rows]


def rows_of(one: Shown, table: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a table, each by its heads."""
    return [dict(zip(one.tables[table].heads, row, strict=True)) for row in one.tables[table].rows]


def numbers(*cells: object) -> list[float]:
    """Return cells that must be numbers."""
    found = [cell for cell in cells if isinstance(cell, int | float)]
    assert len(found) == len(cells)
    return found
