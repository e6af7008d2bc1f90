"""Topics of `lapwing show` for tests: computed at given or default parameters, and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.show.topic import Chapter, Shown, to_json


@dataclass(frozen=True, slots=True)
class TopicRun:
    """A topic that was computed, and the progress that it reported."""

    shown: Shown
    reported: list[tuple[int, int]]

    @classmethod
    def of(cls, chapter: Chapter, name: str, **changed: str) -> TopicRun:
        """Compute a topic. Parameters are texts; those that are not given have their defaults."""
        [topic] = [one for one in chapter.topics if one.name == name]
        assert changed.keys() <= {one.name for one in topic.parameters}
        values = {
            one.name: Fraction(changed[one.name]) if one.name in changed else one.default
            for one in topic.parameters
        }
        assert all(one.least <= values[one.name] <= one.most for one in topic.parameters)
        reported: list[tuple[int, int]] = []
        shown = topic.compute(values, False, lambda done, whole: reported.append((done, whole)))
        assert to_json(topic, values, shown)["topic"] == name
        return cls(shown, reported)

    @property
    def text(self) -> str:
        """The headline and all sentences."""
        return " ".join((self.shown.headline, *self.shown.sentences))

    def table(self, number: int) -> tuple[tuple[Any, ...], ...]:
        """The rows of a table."""
        return self.shown.tables[number].rows

    def draw(self) -> None:
        """Draw the picture: it has a title and at least one panel."""
        figure = self.shown.picture()
        assert figure.get_label()
        assert figure.axes
        figure.canvas.draw()
