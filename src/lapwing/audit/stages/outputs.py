"""Outputs of any form, brought to one form: numbers, words, and a code that is equal iff outputs are equal.

Outputs are an array (one output per row) or a list of objects: numbers, texts, lists of keys, None, errors.
Floats are told apart by their bits, so that 0.0 and -0.0 differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.stages.inside import Inside, Raised, canonical, kind_of
from lapwing.core.noise import permutation, random_bytes

Outputs = NDArray[Any] | Sequence[object]
Codes = NDArray[np.int64]
MOST_COLUMNS = 128
_LOOKED_AT = 1000  # outputs on each side that choose the columns
_COMPARED = 400_000  # numbers that are compared in order to choose the columns
_MOST_SHOWN = 60  # characters of an output in a witness


def outcomes(release: Callable[[], object]) -> Callable[[int], list[object]]:
    """Return draws of a release that gives one output a call. What it raises is an output, too."""

    def outcome() -> object:
        try:
            return release()
        except Exception as error:  # noqa: BLE001, RUF100  any error of the release tells something
            return Raised.of(error)

    return lambda size: [outcome() for _ in range(size)]


@dataclass(frozen=True, slots=True)
class Pool:
    """All draws on both inputs, in a random order, and which of them choose events.

    Args:
        exact: One code per output, equal iff the outputs are equal.
        numbers: The numbers in the outputs as rows of floats, the columns that differ most in the choosing
            half first; None if there are none in that half. What is no number is NaN.
        whole: The same of outputs that are whole numbers of 64 bits, not rounded; None for others.
        kinds: One code per output for its type, its length and the class of its error.
        words: The keys, elements and words of each output; None if there are none in the choosing half.
        is_other: Whether an output was drawn on the second input.
        chooses: Whether an output is in the half that chooses events. The rest is fresh.
        nans: The number of outputs with NaN in them.
        outputs: The outputs themselves.
    """

    exact: Codes
    numbers: NDArray[np.float64] | None
    whole: NDArray[np.int64] | None
    kinds: Codes
    words: list[set[str]] | None
    is_other: NDArray[np.bool_]
    chooses: NDArray[np.bool_]
    nans: int
    outputs: NDArray[Any] | list[object]

    def shown(self, place: int) -> str:
        """Return one output as a short text."""
        value = self.outputs[place]
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        text = str(plain[0]) if isinstance(plain, list) and len(plain) == 1 else str(plain)
        return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def pooled(here: Outputs, there: Outputs) -> Pool:
    """Return both inputs' draws (equally many) as a pool, half of which chooses events."""
    size = len(here)
    order = np.concatenate([permutation(size), size + permutation(size)])
    is_other = np.arange(2 * size) >= size
    chooses = np.arange(2 * size) % size < size // 2
    both = _together(here, there)
    if isinstance(both, np.ndarray):
        rows = both[order]
        kinds = np.zeros(2 * size, dtype=np.int64)
        exact, numbers = _equal_rows(rows), rows.astype(np.float64)
        first = most_telling(numbers, chooses, is_other)
        whole = rows[:, first] if rows.dtype.kind == "i" else None
        nans = int(np.isnan(numbers).any(axis=1).sum())
        return Pool(exact, numbers[:, first], whole, kinds, None, is_other, chooses, nans, rows)
    mixed = [both[place] for place in order]
    kinds_of = [kind_of(value) for value in mixed]
    inside = [Inside(value) for value in mixed]
    words = [each.words for each in inside]
    return Pool(
        _equal_texts([canonical(value) for value in mixed]),
        _numbers([each.numbers for each in inside], chooses, is_other),
        None,
        _equal_texts(kinds_of),
        words if any(words[place] for place in np.flatnonzero(chooses)) else None,
        is_other, chooses, kinds_of.count("NaN"), mixed,
    )  # fmt: skip


def joined(parts: Sequence[Outputs | Raised]) -> Outputs:
    """Return the outputs of several calls as one; a call that raised is one output."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({(part.shape[1:], part.dtype) for part in arrays}) == 1:
        return np.concatenate(arrays)
    outputs: list[object] = []
    for part in parts:
        outputs += [part] if isinstance(part, Raised) else _listed(part)
    return outputs


def _together(here: Outputs, there: Outputs) -> NDArray[Any] | list[object]:
    """Return rows of whole numbers or floats if all outputs are such rows of one form; else a list."""
    if isinstance(here, np.ndarray) and isinstance(there, np.ndarray) and here.shape == there.shape:
        first, second = _rows(here), _rows(there)
        if first is not None and second is not None and here.dtype == there.dtype:
            return np.concatenate([first, second])
    return [*_listed(here), *_listed(there)]


def _listed(outputs: Outputs) -> list[object]:
    return list(outputs.tolist()) if isinstance(outputs, np.ndarray) else list(outputs)


def _rows(outputs: NDArray[Any]) -> NDArray[Any] | None:
    """Return an array of numbers as rows of int64 or float64; None if it has no such form."""
    flat = outputs.reshape(len(outputs), -1)
    if flat.shape[1] == 0:
        return None
    if flat.dtype.kind in "bi":
        return flat.astype(np.int64)
    if flat.dtype.kind == "u":
        return flat.astype(np.uint64).view(np.int64)
    if flat.dtype.kind == "f" and flat.dtype.itemsize <= 8:
        return flat.astype(np.float64)
    return None


def bits_of(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return numbers as 64 bits each."""
    return np.ascontiguousarray(rows).view(np.uint64)


def _equal_rows(rows: NDArray[Any]) -> Codes:
    """Return one code per row: of one number its bits, else a random fingerprint of all.

    Different rows get one code with probability below 2^-60. Then two outcomes count as one, which is
    still a sound event.
    """
    bits = bits_of(rows)
    if bits.shape[1] > 1:
        keys = np.frombuffer(random_bytes(8 * bits.shape[1]), dtype=np.uint64) | np.uint64(1)
        mixed = (bits ^ (bits >> np.uint64(32))) * keys
        bits = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64, keepdims=True)
    return np.unique(bits[:, 0], return_inverse=True)[1].reshape(-1).astype(np.int64)


def _equal_texts(texts: Sequence[str]) -> Codes:
    """Return one number per text, equal iff the texts are, in an order that no other text decides."""
    known = {text: code for code, text in enumerate(sorted(set(texts)))}
    return np.array([known[text] for text in texts], dtype=np.int64)


def most_telling(
    rows: NDArray[np.float64], chooses: NDArray[np.bool_], is_other: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the columns; first those whose distributions differ most in the choosing half."""
    if rows.shape[1] == 1:
        return np.zeros(1, dtype=np.int64)
    most = max(_COMPARED // (2 * rows.shape[1]), 100)
    places = np.concatenate([np.flatnonzero(chooses & side)[:most] for side in (~is_other, is_other)])
    return np.argsort(-separations(rows[places], is_other[places]), kind="stable").astype(np.int64)


def separations(rows: NDArray[np.float64], is_other: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return for each column the greatest difference of the two distribution functions (Kolmogorov)."""
    known = np.where(np.isnan(rows), -np.inf, rows)
    order = np.argsort(known, axis=0, kind="stable")
    ordered = np.take_along_axis(known, order, axis=0)
    first, second = max(int((~is_other).sum()), 1), max(int(is_other.sum()), 1)
    heights = np.cumsum(np.where(is_other[order], 1 / second, -1 / first), axis=0)
    is_end = np.ones(ordered.shape, dtype=bool)
    is_end[:-1] = ordered[1:] != ordered[:-1]
    apart: NDArray[np.float64] = (np.abs(heights) * is_end).max(axis=0)
    return apart


def _numbers(
    entries: Sequence[dict[str, float]], chooses: NDArray[np.bool_], is_other: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Return the numbers in the outputs as rows; NaN where an output has none.

    The columns are those that differ most between the inputs, among some of the choosing half.
    """
    looked_at = np.concatenate(
        [np.flatnonzero(chooses & side)[:_LOOKED_AT] for side in (~is_other, is_other)]
    )
    seen = Counter(name for place in looked_at for name in entries[place])
    most = max(_COMPARED * 5 // max(len(looked_at), 1), 1)
    names = [name for name, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:most]]
    if not names:
        return None
    tried = _table([entries[place] for place in looked_at], names)
    order = np.argsort(-separations(tried, is_other[looked_at]), kind="stable")
    return _table(entries, [names[column] for column in order[:MOST_COLUMNS]])


def _table(entries: Sequence[dict[str, float]], names: Sequence[str]) -> NDArray[np.float64]:
    nan = float("nan")
    return np.array([[each.get(name, nan) for name in names] for each in entries], dtype=np.float64)
