"""Clocks that say whatever they are told to."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Self

import pytest

from lapwing.ledger import padding


class Clock:
    """Stands for `lapwing.ledger.entry.time_ns`."""

    told = datetime(2026, 11, 15, 12, tzinfo=UTC)

    @classmethod
    def time_ns(cls) -> int:
        """The told time in nanoseconds."""
        return round(cls.told.timestamp() * 10**6) * 1000


class PaddingClock:
    """Stands for `monotonic` and `sleep` of `lapwing.ledger.padding`: who waits is there at once."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.worked = 0.0
        self._real = time.monotonic

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Return a clock that all padding of a test uses."""
        clock = cls()
        monkeypatch.setattr(padding, "monotonic", clock.monotonic)
        monkeypatch.setattr(padding, "sleep", clock.sleep)
        return clock

    def stop(self) -> None:
        """Let no time pass but that of `work` and of waits."""
        self._real = float

    def work(self, seconds: float) -> None:
        """Let time pass as if somebody worked."""
        self.worked += seconds

    def monotonic(self) -> float:
        """The seconds of work and of waits."""
        return self._real() + self.worked + sum(self.waits)

    def sleep(self, seconds: float) -> None:
        """Note a wait, and do not wait."""
        self.waits.append(seconds)
