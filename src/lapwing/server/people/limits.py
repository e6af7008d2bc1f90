"""Limits of how often something may happen: requests, and failed sign-ins.

Claim    nobody is kept out for ever, and no address is kept longer than its limit needs it.
Because  a limit refills with time alone, and a key is forgotten when its limit is full again. Failed
         sign-ins of strangers count apart from those of browsers that have signed in before.
Test     tests/server/people/test_limits.py
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Hashable

from lapwing.errors import TooManyRequests

MOST_KEYS = 1 << 16


class RateLimit:
    """A bucket of `burst` for each key that refills at `per_minute`. Kept in memory alone.

    Only one number is kept for a key: when its bucket is full again.
    """

    def __init__(self, *, per_minute: float, burst: float) -> None:
        self._each = 60 / per_minute  # seconds that one takes to refill
        self._room = self._each * burst
        self._full_at: dict[Hashable, float] = {}
        self._turn = threading.Lock()

    def take(self, key: Hashable) -> None:
        """Take one from the bucket of a key. Raises TooManyRequests if it is empty."""
        now = time.monotonic()
        with self._turn:
            full_at = max(self._full_at.get(key, 0.0), now) + self._each
            if full_at - now > self._room:
                raise TooManyRequests(math.ceil(full_at - now - self._room))
            self._full_at.pop(key, None)  # the last one that was used comes last
            self._full_at[key] = full_at
            self._forget(now)

    def give_back(self, key: Hashable) -> None:
        """Give one back to the bucket of a key: what was feared did not happen."""
        with self._turn:
            if key in self._full_at:
                self._full_at[key] -= self._each

    def _forget(self, now: float) -> None:
        """Forget keys whose buckets are full: a few each time, and the oldest where there are too many."""
        for key in list(_first(self._full_at, 2)):
            if self._full_at[key] <= now or len(self._full_at) > MOST_KEYS:
                del self._full_at[key]

    def __len__(self) -> int:
        return len(self._full_at)


def _first(keys: dict[Hashable, float], count: int) -> list[Hashable]:
    return [key for key, _ in zip(keys, range(count), strict=False)]


class SignInLimits:
    """Limits of failed sign-ins: by address, and by account name or by browser; and of all of an account.

    Whoever has an account could otherwise keep the computation of passwords busy by signing in again and
    again.
    """

    def __init__(self) -> None:
        self._all = RateLimit(per_minute=60, burst=120)
        self._by_address = RateLimit(per_minute=6, burst=20)
        self._by_name = RateLimit(per_minute=1, burst=10)

    def begin(self, address: str, name: str, device: str) -> None:
        """Take one for an attempt. Raises TooManyRequests if there were too many failures.

        Args:
            address: Where the request comes from; "" if that is not known.
            name: The account's name, as it was given.
            device: The secret of a browser that has signed in as this account before; "" for others.
        """
        if address and not device:  # a neighbour's failures do not keep a known browser out
            self._by_address.take(address)
        try:
            self._by_name.take(device or ("", name))
            self._all.take(name)  # last: strangers get no further than the limit before
        except TooManyRequests:
            if address and not device:
                self._by_address.give_back(address)
            raise

    def not_failed(self, address: str, name: str, device: str) -> None:
        """Give back what an attempt took that was successful, or that was not looked at."""
        if not device:
            self._by_address.give_back(address)
        self._by_name.give_back(device or ("", name))
