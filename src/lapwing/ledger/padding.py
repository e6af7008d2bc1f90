"""Padding: work on private rows ends, for everybody outside, at a rung of a random ladder.

Claim    if work takes t seconds with one person's rows and t + d with others, what is seen of its end (the
         reply, its entry's position, its status, times of files) differs with probability at most
         log2((t + d) / t); not at all if both are below one second.
Because  the rungs are s, 2s, 4s, … seconds after the charge, and log2 s is uniform in [0, 1). Work is
         followed by a wait until the next rung, so it is seen to end at another one only if a rung falls
         between t and t + d. Failures wait as answers do.
Test     tests/ledger/test_padding.py, tests/ledger/test_gate_padding.py
"""

from __future__ import annotations

from time import monotonic, sleep
from types import TracebackType

from lapwing.core.noise import random_bytes

_BITS = 52  # so that 2 to the power of any such fraction is below 2, as floats, too


def random_start() -> float:
    """Return a start of a ladder in [1, 2), whose logarithm is uniform."""
    bits = int.from_bytes(random_bytes(8)) >> (64 - _BITS)
    return float(2.0 ** (bits / 2**_BITS))


def next_rung(start: float, elapsed: float) -> float:
    """Return the first of start, 2 start, 4 start, … that is not below `elapsed`."""
    rung = start
    while rung < elapsed:
        rung *= 2
    return rung


class Ladder:
    """The moments at which one piece of work may be seen to end. It begins when it is made.

    As a context it waits for the next rung at its end, also after a failure. An interrupt (SIGINT) is
    raised at the rung, whether it comes during the work or the wait: it does not show whether work had
    ended.
    """

    def __init__(self) -> None:
        self._began, self._start = monotonic(), random_start()

    def wait(self) -> None:
        """Wait until the next rung."""
        end = self._began + next_rung(self._start, monotonic() - self._began)
        interrupt: KeyboardInterrupt | None = None
        while (left := end - monotonic()) > 0:
            try:
                sleep(left)
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.wait()


class NoLadder(Ladder):
    """No padding: work is seen to end when it ends."""

    def __init__(self) -> None:
        pass

    def wait(self) -> None:
        """Return at once."""


NO_LADDER = NoLadder()
