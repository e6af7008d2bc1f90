"""Passwords: Argon2id, at most two at once, and the same work for a name that does not exist.

Claim    the time of a failed sign-in does not tell whether the name exists, and sign-ins cannot use up
         the memory.
Because  where there is no password, a fixed hash of the same cost is checked. Two hashes are computed at
         once, a few wait in line, and whoever comes next is refused at once.
Test     tests/server/people/test_passwords.py
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, MissingExtra, TooManyRequests

try:
    from argon2 import PasswordHasher, Type
    from argon2.exceptions import Argon2Error, InvalidHashError
except ImportError:
    raise MissingExtra("server", "Serving data") from None

SHORTEST, LONGEST = 12, 1024  # characters
AT_ONCE, IN_LINE = 2, 8  # hashes that are computed, and those that wait
SECONDS_EACH = 1
# The second recommended choice of RFC 9106: 64 MiB, three passes, four lanes.
_HASHER = PasswordHasher(
    time_cost=3, memory_cost=64 * 1024, parallelism=4, hash_len=32, salt_len=16, type=Type.ID
)
# A hash that no password gives: its text was random and is forgotten. It has the cost of the others.
_NOBODY = (
    "$argon2id$v=19$m=65536,t=3,p=4$bm9ib2R5J3Mgc2FsdCEhIQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


class Passwords:
    """Checks and hashes of passwords, a few at once."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._places = threading.BoundedSemaphore(AT_ONCE + IN_LINE)

    def hash(self, password: str) -> str:
        """Return the text to store for a new password.

        Raises BadParameter if it is too short or too long, TooManyRequests if too many wait.
        """
        if not SHORTEST <= len(password) <= LONGEST:
            raise BadParameter("password", f"must have {SHORTEST} to {LONGEST} characters")
        with self._turn():
            return _HASHER.hash(_bytes(password), salt=random_bytes(16))

    def matches(self, stored: str | None, password: str) -> bool:
        """Return whether a password is the stored one. Without a stored one, it takes as long and is False.

        Raises TooManyRequests if too many wait.
        """
        given = _bytes(password[: LONGEST + 1])
        with self._turn():
            try:
                return _HASHER.verify(stored or _NOBODY, given) and stored is not None
            except (Argon2Error, InvalidHashError):
                return False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise TooManyRequests(IN_LINE * SECONDS_EACH)
        try:
            with self._turns:
                yield
        finally:
            self._places.release()


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
