"""Outputs of any form, brought to one form: numbers, keys, and a code that is equal iff outputs are equal.

Outputs are an array (one output per row) or a list of objects: numbers, texts, lists of keys, None, errors.
Floats are told apart by their bits, so that 0.0 and -0.0 differ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import permutation, random_bytes

Outputs = NDArray[Any] | Sequence[object]
Codes = NDArray[np.int64]
_MOST_COLUMNS = 32
_MOST_TEXT = 500  # characters of an error's message
_MOST_SHOWN = 60  # characters of an output in a witness
_SIMPLE = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Raised:
    """An error as an output: its class and its message."""

    kind: str
    message: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Return the output that stands for an error."""
        return cls(type(error).__name__, str(error)[:_MOST_TEXT])


def outcomes(release: Callable[[], object]) -> Callable[[int], list[object]]:
    """Return draws of a release that gives one output a call. What it raises is an output, too."""

    def one() -> object:
        try:
            return release()
        except Exception as error:  # noqa: BLE001, RUF100  any error of the release tells something
            return Raised.of(error)

    return lambda size: [one() for _ in range(size)]


@dataclass(frozen=True, slots=True)
class Pool:
    """All draws on both inputs, in a random order, and which of them choose events.

    Args:
        exact: One code per output, equal iff the outputs are equal.
        numbers: The outputs as rows of whole numbers or floats; None if no output is a number. What is no
            number is NaN.
        kinds: One code per output for its type, its length and the class of its error.
        tokens: The keys (elements) of each output; None if no output is a collection.
        is_other: Whether an output was drawn on the second input.
        chooses: Whether an output is in the half that chooses events. The rest is fresh.
        nans: The number of outputs with NaN in them.
        outputs: The outputs themselves.
    """

    exact: Codes
    numbers: NDArray[Any] | None
    kinds: Codes
    tokens: list[tuple[str, ...]] | None
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


def pooled(one: Outputs, other: Outputs) -> Pool:
    """Return both inputs' draws (equally many) as a pool, half of which chooses events."""
    size = len(one)
    order = np.concatenate([permutation(size), size + permutation(size)])
    is_other = np.arange(2 * size) >= size
    chooses = np.arange(2 * size) % size < size // 2
    both = _together(one, other)
    if isinstance(both, np.ndarray):
        rows = both[order]
        kinds = np.zeros(2 * size, dtype=np.int64)
        nans = int(np.isnan(rows).any(axis=1).sum())
        return Pool(_equal_rows(rows), rows, kinds, None, is_other, chooses, nans, rows)
    mixed = [both[place] for place in order]
    texts = [canonical(value) for value in mixed]
    return Pool(
        _equal_texts(texts), _numbers(mixed, chooses), _equal_texts([kind_of(value) for value in mixed]),
        _tokens(mixed), is_other, chooses, sum(kind_of(value) == "NaN" for value in mixed), mixed,
    )  # fmt: skip


def _together(one: Outputs, other: Outputs) -> NDArray[Any] | list[object]:
    """Return rows of whole numbers or floats if all outputs are such rows of one form; else a list."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape:
        first, second = _rows(one), _rows(other)
        if first is not None and second is not None and first.dtype == second.dtype:
            return np.concatenate([first, second])
    return [*_listed(one), *_listed(other)]


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
    """Return one number per text, equal iff the texts are."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)


def canonical(value: object) -> str:
    """Return a text that is equal iff two outputs are. Of an unknown class it is the class's name."""
    value = _plain(value)
    if isinstance(value, float):
        text = value.hex()
    elif isinstance(value, _SIMPLE):
        text = repr(value)
    elif isinstance(value, list | tuple):
        text = f"[{','.join(map(canonical, value))}]"
    elif isinstance(value, set | frozenset):
        text = f"{{{','.join(sorted(map(canonical, value)))}}}"
    elif isinstance(value, dict):
        text = f"{{{','.join(f'{canonical(key)}:{canonical(item)}' for key, item in value.items())}}}"
    elif isinstance(value, Raised):
        text = f"raised {value.kind}: {value.message}"
    else:
        text = type(value).__qualname__
    return text


def _plain(value: object) -> object:
    """Return NumPy's numbers and arrays as Python's, and an error as what it raised."""
    if isinstance(value, np.generic | np.ndarray):
        plain: object = value.tolist()
        return plain
    return Raised.of(value) if isinstance(value, BaseException) else value


def kind_of(value: object) -> str:
    """Return an output's type, its length and the class of its error, in words."""
    value = _plain(value)
    if isinstance(value, Raised):
        return f"raised {value.kind}"
    if isinstance(value, list | tuple | set | frozenset | dict | str | bytes):
        return f"{type(value).__name__} of length {len(value)}"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return type(value).__name__


def _numbers(values: Sequence[object], chooses: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """Return the numbers in the outputs as rows of floats; NaN where an output has none.

    A single number is one column; of a list each place, and of a mapping each key, is a column. Only
    columns that are frequent in the choosing half are taken.
    """
    entries = [dict(_entries(value)) for value in values]
    seen = Counter(name for each, is_in in zip(entries, chooses, strict=True) if is_in for name in each)
    columns = {name: place for place, (name, _) in enumerate(seen.most_common(_MOST_COLUMNS))}
    if not columns:
        return None
    rows = np.full((len(values), len(columns)), np.nan)
    for place, each in enumerate(entries):
        for name, number in each.items():
            if name in columns:
                rows[place, columns[name]] = number
    return rows


def _entries(value: object) -> Iterator[tuple[str, float]]:
    """Yield the numbers of one output by the names of their columns."""
    value = _plain(value)
    if isinstance(value, dict):
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value[:_MOST_COLUMNS])
    else:
        items = ((None, value),)
    for name, number in items:
        if isinstance(number, bool | int | float):
            try:
                yield canonical(name), float(number)
            except OverflowError:
                yield canonical(name), float("inf")


def _tokens(values: Sequence[object]) -> list[tuple[str, ...]] | None:
    """Return the keys of each output that is a collection."""
    tokens = [_keys(value) for value in values]
    return tokens if any(tokens) else None


def _keys(value: object) -> tuple[str, ...]:
    value = _plain(value)
    if isinstance(value, dict):
        return tuple({canonical(key) for key in value})
    if isinstance(value, list | tuple | set | frozenset):
        return tuple({canonical(item) for item in value})
    return ()
