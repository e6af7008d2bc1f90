from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue
from lapwing.parties.protocols.masked_sum import Masks
from lapwing.parties.protocols.secret_sharing import FIELD

MASKS = Masks()


def test_both_sides_of_a_pair_have_the_same_seed_and_others_have_not() -> None:
    one, two, three = (random_bytes(32) for _ in range(3))
    seed = MASKS.seed(one, MASKS.public_key(two), b"context")
    assert seed == MASKS.seed(two, MASKS.public_key(one), b"context")
    assert seed != MASKS.seed(three, MASKS.public_key(one), b"context")
    assert seed != MASKS.seed(one, MASKS.public_key(two), b"another"), "fresh for each run and stage"


@pytest.mark.parametrize("modulus", [2, 3, 5, 257, FIELD])
def test_masks_are_the_keystream_and_uniform(modulus: int) -> None:
    """Each cell within 7 standard errors: false alarm below 1e-9 for the 262 cells together."""
    seed = random_bytes(32)
    count = 50_000
    mask = MASKS.expand(seed, modulus, count)
    assert len(mask) == count
    assert int(mask.max()) < modulus
    assert np.array_equal(mask[:100], MASKS.expand(seed, modulus, count)[:100])
    cells = min(modulus, 257)
    found = np.bincount((mask.astype(np.float64) * cells / modulus).astype(np.int64).clip(0, cells - 1))
    expected = count / cells
    assert np.abs(found - expected).max() < 7 * np.sqrt(expected)


def test_words_that_are_not_below_the_modulus_are_left_out() -> None:
    seed = bytes(range(32))
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor().update(bytes(8 * 4000))
    words = [int.from_bytes(stream[at : at + 8], "little") & 7 for at in range(0, len(stream), 8)]
    assert MASKS.expand(seed, 5, 1000).tolist() == [w for w in words if w < 5][:1000]


def test_a_secret_is_cut_and_joined() -> None:
    for secret in (bytes(32), b"\xff" * 32, random_bytes(32)):
        for modulus in (FIELD, 257):
            cut = MASKS.cut(secret, modulus)
            assert len(cut) == MASKS.pieces(modulus, 1)
            assert int(cut.max()) < modulus
            assert MASKS.join(cut, modulus) == secret
    assert MASKS.pieces(FIELD, 10_000) == 5


def test_what_is_no_secret_does_not_join() -> None:
    elements = MASKS.cut(random_bytes(32), FIELD)
    elements[4] = 1 << 40
    with pytest.raises(BadValue):
        MASKS.join(elements, FIELD)
    with pytest.raises(BadValue):
        MASKS.cut(bytes(32), 5)


@pytest.mark.parametrize("public", [bytes(32), b"\x01" + bytes(31), bytes(31), b""])
def test_public_keys_that_make_no_secret_are_refused(public: bytes) -> None:
    with pytest.raises(BadValue):
        MASKS.seed(random_bytes(32), public, b"")
