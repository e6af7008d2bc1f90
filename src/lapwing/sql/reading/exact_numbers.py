"""Exact numbers of a question, as they come from truncated tables. They are private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KeyTuple = tuple[Any, ...]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CodeCounts:
    """A spectrum: `rows[i]` rows of group `cells[i]` have the code `codes[i]`."""

    cells: Ints
    codes: Ints
    rows: Ints


@dataclass(frozen=True, slots=True)
class ExactGrouping:
    """Exact numbers of one grouping. Private: they go to `add_noise` only.

    `values` is [groups, numbers of all parts], of int64 or of Python integers. If all keys are declared,
    all groups are there, the last key runs fastest, and `keys` is None. Otherwise `keys` are the distinct
    keys of the rows, and `units` is the number of distinct units with each key.
    """

    values: NDArray[Any]
    spectra: tuple[CodeCounts, ...] = ()
    keys: Sequence[KeyTuple] | None = None
    units: Ints | None = None
