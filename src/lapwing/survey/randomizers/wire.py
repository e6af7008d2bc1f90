"""Answers and messages at the door: checked, and packed into bytes. No error shows a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadValue

WORD = 8  # bytes of a number in memory
MOST_MESSAGES = 1 << 62  # so that numbers of messages add up inside 64 bits


def checked_answers(answers: NDArray[np.int64] | Sequence[int], inputs: int) -> NDArray[np.int64]:
    """Whole numbers in 0 .. inputs - 1, one row each."""
    array = np.asarray(answers)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise BadValue("answers must be whole numbers in one dimension")
    if array.size and (array.min() < 0 or array.max() >= inputs):
        raise BadValue(f"answers must lie in 0 .. {inputs - 1}")
    return array.astype(np.int64, copy=False)


def checked_answer(answer: int, inputs: int) -> int:
    """One answer."""
    return int(checked_answers(np.array([answer]), inputs)[0])


def checked_rows(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Bytes as they came, of shape (n, size)."""
    if (
        not isinstance(rows, np.ndarray)
        or rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != size
    ):
        raise BadValue(f"messages must be of {size} bytes each")
    return np.ascontiguousarray(rows)


def row_of(message: bytes, size: int) -> NDArray[np.uint8]:
    """One message as an array of one row."""
    return checked_rows(np.frombuffer(message, dtype=np.uint8)[np.newaxis], size)


def index_size(messages: int) -> int:
    """Bytes for the numbers 0 .. messages - 1: at least one."""
    return max(1, -(-(messages - 1).bit_length() // 8))


def encode_index(messages: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """Numbers, big endian, in `size` bytes each."""
    if size == 1:
        return messages.astype(np.uint8)[:, np.newaxis]
    wide = messages.astype(">u8").view(np.uint8).reshape(-1, WORD)
    return np.ascontiguousarray(wide[:, WORD - size :])


def decode_index(rows: NDArray[np.uint8], messages: int) -> NDArray[np.int64]:
    """Numbers below `messages`, or `BadValue`."""
    size = index_size(messages)
    sent = checked_rows(rows, size)
    if size == 1:
        numbers = sent[:, 0].astype(np.int64)
    else:
        wide = np.zeros((len(sent), WORD), dtype=np.uint8)
        wide[:, WORD - size :] = sent
        numbers = wide.view(">u8")[:, 0].astype(np.uint64).view(np.int64)
    # 2^63 and more is negative as a signed number.
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= messages):
        raise BadValue(f"a message is impossible: its number must lie in 0 .. {messages - 1}")
    return numbers
