"""How much work binding one question may take: a count, so that it depends on the text alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lapwing.query.binding.refused import Refused

MOST_EFFORT = 1_000_000  # parts of expressions
_left: ContextVar[list[int] | None] = ContextVar("effort left", default=None)


@contextmanager
def bounded_effort() -> Iterator[None]:
    """Within it, so much can be spent."""
    token = _left.set([MOST_EFFORT])
    try:
        yield
    finally:
        _left.reset(token)


def spend(parts: int) -> None:
    """So many parts of an expression were made."""
    left = _left.get()
    if left is not None:
        left[0] -= parts
        if left[0] < 0:
            raise Refused("the question has too many parts", "Ask a shorter one")
