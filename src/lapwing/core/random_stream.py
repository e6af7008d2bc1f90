"""The one source of random bits, and uniform whole numbers and permutations drawn from it.

Stream: an AES-256-CTR keystream that is keyed by the operating system.

Claim    every byte is drawn under a key that no other process or thread uses, or an error is
         raised.
Because  each thread holds its own key from the operating system. The key is dropped after a fork
         (noticed by a fork hook and by the process id) and after `REKEY_AFTER` bytes. Nothing ever
         seeds it. A key that this process or its parent has had recently is refused.
Test     tests/core/test_random_stream.py, tests/faults/test_randomness.py

There is no seed here, and no setting that adds one. Tests use a `RandomStream` of their own.

Uniform numbers and permutations:

Claim    every number of the range, and every order of the items, is equally likely.
Because  words beyond the last whole multiple of the range are drawn again (probability below
         range / 2^64). Sorting by distinct random keys is fair, and keys are drawn again when two
         are equal.
Test     tests/core/test_random_stream_uniform.py

How often something is drawn again is independent of the result.
"""

from __future__ import annotations

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections import deque

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from lapwing.errors import NoEntropy

REKEY_AFTER = 1 << 30
KEY_BYTES = 32
KEYS_REMEMBERED = 1024
_ZEROS = bytes(1 << 19)


class RandomStream(ABC):
    """A source of independent uniform bits, of any length."""

    @abstractmethod
    def take(self, size: int) -> bytes:
        """Return `size` fresh random bytes."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return fresh 64-bit words."""
        return np.frombuffer(self.take(8 * count), dtype=np.uint64)

    def halves(self, count: int) -> NDArray[np.uint16]:
        """Return fresh 16-bit words."""
        return np.frombuffer(self.take(2 * count), dtype=np.uint16)

    def word(self) -> int:
        """Return one fresh 64-bit word."""
        return int.from_bytes(self.take(8), "little")


# Digests of the latest keys of all threads, kept over a fork: a source that repeats a key is stuck.
_recent_keys: deque[bytes] = deque(maxlen=KEYS_REMEMBERED)


def _key_from_system() -> bytes:
    try:
        key = os.urandom(KEY_BYTES)
    except (OSError, NotImplementedError) as cause:
        raise NoEntropy("the operating system gave no randomness") from cause
    digest = hashlib.sha256(key).digest()
    # First append, then count: if two threads get the same key, the later one sees both.
    _recent_keys.append(digest)
    if len(key) != KEY_BYTES or len(set(key)) == 1 or _recent_keys.count(digest) > 1:
        raise NoEntropy("the operating system's randomness is stuck or short")
    return key


class _Keystream(RandomStream):
    """The keystream of one thread. It is not shared, so it needs no lock that a fork could leave locked."""

    def __init__(self, key: bytes) -> None:
        self._cipher: CipherContext = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self.left = REKEY_AFTER

    def take(self, size: int) -> bytes:
        self.left -= size
        if size <= len(_ZEROS):
            return self._cipher.update(memoryview(_ZEROS)[:size])
        return self._cipher.update(bytes(size))


class SystemStream(RandomStream):
    """The stream of the process: one keystream per thread, with a new key after a fork and after 1 GiB."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._of_thread = threading.local()

    def take(self, size: int) -> bytes:
        """Return `size` fresh random bytes, or raise NoEntropy."""
        own = self._of_thread
        keystream: _Keystream | None = getattr(own, "keystream", None)
        # The process id catches forks that Python did not see (a C library's fork).
        if keystream is None or keystream.left < size or own.process != os.getpid():
            keystream = own.keystream = _Keystream(_key_from_system())
            own.process = os.getpid()
        return keystream.take(size)


SYSTEM = SystemStream()


def uniform_below(stream: RandomStream, count: int, size: int) -> NDArray[np.uint64]:
    """Draw `size` numbers from 0 .. count - 1, where count <= 2^64."""
    words = stream.words(size).copy()
    if count == 1 << 64:
        return words
    fair = (1 << 64) // count * count
    if fair < 1 << 64:
        while len(again := np.flatnonzero(words >= np.uint64(fair))):
            words[again] = stream.words(len(again))
    words %= np.uint64(count)
    return words


def permutation(stream: RandomStream, count: int) -> NDArray[np.int64]:
    """Return 0 .. count - 1 in a uniformly random order."""
    while True:
        keys = stream.words(count)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        if not np.any(ranked[1:] == ranked[:-1]):
            return order.astype(np.int64)
