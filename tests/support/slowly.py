"""Cases of which some run every time, and all in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The first cases run every time, the others are slow. A case that is a tuple has several values."""
    every = list(cases)
    return [
        *every[:count],
        *(slow(*case) if isinstance(case, tuple) else slow(case) for case in every[count:]),
    ]
