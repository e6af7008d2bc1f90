"""Streams for tests only: repeatable, scripted, counting, refusing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lapwing.core.random_stream import RandomStream

ONES = (1 << 64) - 1


class SeededStream(RandomStream):
    """The same bytes for the same seed: statistical tests stay as green as they once were."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def take(self, size: int) -> bytes:
        return self._generator.bytes(size)


class ScriptedStream(RandomStream):
    """Scripted 64-bit words and 16-bit halves first; afterwards a `SeededStream`."""

    def __init__(self, words: Iterable[int] = (), halves: Iterable[int] = (), *, seed: int = 0) -> None:
        self._words, self._halves = deque(words), deque(halves)
        self._after = SeededStream(seed)

    @property
    def unused(self) -> int:
        """How much of the script has not been asked for."""
        return len(self._words) + len(self._halves)

    def take(self, size: int) -> bytes:
        raise AssertionError("a scripted stream gives words and halves, not bytes")

    def words(self, count: int) -> NDArray[np.uint64]:
        drawn = self._after.words(count).copy()
        for i in range(min(count, len(self._words))):
            drawn[i] = self._words.popleft()
        return drawn

    def halves(self, count: int) -> NDArray[np.uint16]:
        drawn = self._after.halves(count).copy()
        for i in range(min(count, len(self._halves))):
            drawn[i] = self._halves.popleft()
        return drawn

    def word(self) -> int:
        return int(self.words(1)[0])


class CountingStream(RandomStream):
    """Counts the bytes taken from another stream."""

    def __init__(self, inner: RandomStream) -> None:
        self._inner = inner
        self.bytes_taken = 0

    def take(self, size: int) -> bytes:
        self.bytes_taken += size
        return self._inner.take(size)

    def words(self, count: int) -> NDArray[np.uint64]:
        self.bytes_taken += 8 * count
        return self._inner.words(count)

    def halves(self, count: int) -> NDArray[np.uint16]:
        self.bytes_taken += 2 * count
        return self._inner.halves(count)

    def word(self) -> int:
        self.bytes_taken += 8
        return self._inner.word()


class RefusingStream(RandomStream):
    """Fails the test as soon as anything is drawn."""

    def take(self, size: int) -> bytes:
        raise AssertionError(f"{size} bytes were drawn although nothing may be")
