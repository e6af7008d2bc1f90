"""Coupled random numbers: two neighbouring runs draw the same coins for every unit that both have.

A replay compares two runs of a computation that also draws outside of its mechanisms: which units are in a
step, which row of a unit counts, where a search begins. If these draws differed, all sums would.

Claim    inside `coupled(seed)`, the k-th draw at a place in the code, since the last call of a mechanism,
         begins with the same bytes in each run. So if a unit is added as the last one, with the last rows,
         all other units draw what they drew without it.
Because  the bytes follow from the seed, the number of calls of mechanisms so far, the place in the code
         and k alone. A longer draw continues a shorter one. One word is drawn for each unit or row.
Test     tests/audit/stages/test_coupling.py

Only this context draws from the seed. Other threads, and draws inside mechanisms, stay random and secret.
Nothing private may be computed in such a context: it is for generated data.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from lapwing.core import noise
from lapwing.core.observed import observed_call, observing
from lapwing.core.random_stream import SYSTEM, SystemStream

_CORE = "lapwing.core."
_NAME = "SYSTEM"  # under which all draws of `lapwing.core.noise` find their stream


class _Draws:
    """The draws of one coupled run."""

    def __init__(self, seed: int) -> None:
        self._seed, self._calls = seed, 0
        self.is_over = False  # a task that was started in the block may outlive it
        self._places: dict[str, int] = {}

    def next_call(self) -> None:
        """Begin anew after the call of a mechanism."""
        self._calls += 1
        self._places.clear()

    def take(self, size: int, place: str) -> bytes:
        """Return bytes that follow from the seed, the calls so far, and the place."""
        number = self._places.get(place, 0)
        self._places[place] = number + 1
        name = repr((self._seed, self._calls, place, number)).encode()
        cipher = Cipher(algorithms.AES256(hashlib.sha256(name).digest()), modes.CTR(bytes(16)))
        return cipher.encryptor().update(bytes(size))


_DRAWS: ContextVar[_Draws | None] = ContextVar("lapwing_coupled_draws", default=None)


class _CoupledStream(SystemStream):
    """The system's stream for everybody, except for a context that draws from a seed."""

    def take(self, size: int) -> bytes:
        draws = _DRAWS.get()
        if draws is None or draws.is_over:
            return super().take(size)
        return draws.take(size, _place())


def _place() -> str:
    """Return the place in the code, outside of `lapwing.core`, that asked for random numbers."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_CORE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_lock = threading.Lock()
_users: set[int] = set()
_stream = _CoupledStream()


@contextmanager
def _installed(draws: _Draws) -> Iterator[None]:
    """Make all draws go through the coupled stream, which asks for the context of each."""
    with _lock:
        _users.add(id(draws))
        vars(noise)[_NAME] = _stream
    try:
        yield
    finally:
        with _lock:
            _users.discard(id(draws))
            if not _users:
                vars(noise)[_NAME] = SYSTEM


def call_outside(outside: Context, mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
    """Let the observer of another context decide about a call."""
    return outside.copy().run(lambda: observed_call(mechanism, draw, **inputs))


@contextmanager
def coupled(seed: int) -> Iterator[None]:
    """Draw all random numbers outside of mechanisms from a seed, in this context.

    An observer that is set outside of the block still sees all calls of mechanisms.
    """
    outside = copy_context()
    draws = _Draws(seed)

    def observer(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
        try:
            return call_outside(outside, mechanism, inputs, draw)  # which draws without a seed
        finally:
            draws.next_call()

    token = _DRAWS.set(draws)
    try:
        with _installed(draws), observing(observer):
            yield
    finally:
        draws.is_over = True
        _DRAWS.reset(token)
