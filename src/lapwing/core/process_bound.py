"""Objects that exist in one process only, because a copy would spend a budget or draw noise again."""

from __future__ import annotations

import os
from typing import NoReturn

from lapwing.errors import SessionOver


class _ForkCounter:
    """The number of forks since this module was loaded, in this line of processes; needs no system call."""

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_child=self._increment)

    def _increment(self) -> None:
        self.count += 1


FORK_COUNTER = _ForkCounter()


class ProcessBound:
    """An object that must exist once: it can be neither saved, nor copied, nor continued in a forked child.

    A copy would be a second budget, or a second set of answers.
    """

    def __init__(self) -> None:
        self._forks, self._process = FORK_COUNTER.count, os.getpid()

    @property
    def is_here(self) -> bool:
        """True if this is the process in which the object was made."""
        return self._forks == FORK_COUNTER.count and self._process == os.getpid()

    def require_here(self) -> None:
        """Raise SessionOver in a forked child."""
        if not self.is_here:
            raise SessionOver(f"this {type(self).__name__} belongs to another process; start a new one")

    def __reduce__(self) -> NoReturn:
        raise SessionOver(f"a {type(self).__name__} cannot be saved or copied: start a new one")
