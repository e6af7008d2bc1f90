"""The split of units into those that train and those that test: a keyed hash of the unit, fixed for ever.

Claim    a unit is in the same half in every attempt, whatever else is in the data and however its id was
         written; and the halves are disjoint sets of units.
Because  the half is a function of the key, the share and the id's normal form (`lapwing.ledger.unit_ids`)
         alone.
Test     tests/learn/test_unit_split.py

Keep the key and the share as long as the data: another key or share would test with units that have
trained.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from lapwing.core.exact import Number, inside_unit
from lapwing.errors import BadParameter, BadValue
from lapwing.ledger.unit_ids import Id, normal_id

_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_NUMBERS = 1 << 63
_HASH = np.dtype("<u8")
_LEAST_KEY, _MOST_KEY = 16, 64


def in_test_half(ids: Iterable[Id] | NDArray[Any], *, key: bytes, share: Number) -> NDArray[np.bool_]:
    """Return True for each id that tests: about this share of all units. The others train.

    Drop rows without a unit before: all of them together count as one unit.
    """
    part = inside_unit(share, "share")
    if not isinstance(key, bytes) or not _LEAST_KEY <= len(key) <= _MOST_KEY:
        raise BadParameter("key", "must be 16 to 64 secret bytes")
    below = np.uint64(math.floor(part * (1 << 64)))
    tests: NDArray[np.bool_] = _hashed(ids, key) < below
    return tests


def _hashed(ids: Iterable[Id] | NDArray[Any], key: bytes) -> NDArray[np.uint64]:
    """Return 64 bits for each id. Whole numbers, also as text, use a block cipher; others use BLAKE2b."""
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1:
            raise BadValue("unit ids must be in one dimension")
        if ids.dtype.kind == "i":
            return _of_numbers(ids.astype(np.int64), key)
        ids = ids.tolist()
    forms = [normal_id(given) for given in ids]
    is_number = np.array([_is_number(form) for form in forms], dtype=np.bool_)
    hashes = np.zeros(len(forms), np.uint64)
    numbers = [int(form) for form, number in zip(forms, is_number, strict=True) if number]
    hashes[is_number] = _of_numbers(np.array(numbers, dtype=np.int64), key)
    texts = [form for form, number in zip(forms, is_number, strict=True) if not number]
    hashes[~is_number] = np.array([_of_text(form, key) for form in texts], dtype=np.uint64)
    return hashes


def _is_number(form: bytes) -> bool:
    return bool(_NUMBER.fullmatch(form)) and -_NUMBERS <= int(form) < _NUMBERS


def _of_numbers(numbers: NDArray[np.int64], key: bytes) -> NDArray[np.uint64]:
    number_key = hashlib.blake2b(key=key, digest_size=32, person=b"lapwing half no").digest()
    blocks = np.zeros((len(numbers), 2), np.dtype("<i8"))
    blocks[:, 0] = numbers
    # One block each, so that the plainest mode is the right one: a permutation of blocks under the key.
    encrypt = Cipher(algorithms.AES(number_key), modes.ECB()).encryptor().update  # noqa: S305
    return np.frombuffer(encrypt(blocks.tobytes()), _HASH)[::2].astype(np.uint64)


def _of_text(form: bytes, key: bytes) -> int:
    digest = hashlib.blake2b(form, key=key, digest_size=8, person=b"lapwing half").digest()
    return int.from_bytes(digest, "little")
