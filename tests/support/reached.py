"""What reaches the mechanisms, before any noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lapwing.core.observed import observing


@dataclass(frozen=True)
class Reached:
    """A call of a mechanism."""

    mechanism: Any
    inputs: dict[str, Any]

    @property
    def values(self) -> list[int]:
        """The first input."""
        return [int(value) for value in next(iter(self.inputs.values()))]


@contextmanager
def reaching() -> Iterator[list[Reached]]:
    """Collect all calls of mechanisms in this block."""
    reached: list[Reached] = []

    def observer(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
        reached.append(Reached(mechanism, inputs))
        return draw()

    with observing(observer, during_charges=True):
        yield reached
