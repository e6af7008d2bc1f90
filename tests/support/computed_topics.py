"""Topics of `lapwing show`, computed for tests."""

from __future__ import annotations

from typing import Any

from lapwing.show.chapters import topics
from lapwing.show.given_values import given_values
from lapwing.show.topic import Shown


def shown(name: str, **texts: Any) -> Shown:
    """Compute a topic, with these values and the defaults of the others."""
    topic = topics()[name]
    values = given_values(topic, {key: str(value) for key, value in texts.items()})
    return topic.compute(values, False, lambda _done, _total: None)


def column(one: Shown, head: str, table: int = 0) -> list[Any]:
    """Return the cells of a column."""
    place = one.tables[table].heads.index(head)
    return [row[place] for row in one.tables[table].rows]


def numbers(*cells: object) -> list[float]:
    """Return cells that must be numbers."""
    found = [cell for cell in cells if isinstance(cell, int | float)]
    assert len(found) == len(cells)
    return found
