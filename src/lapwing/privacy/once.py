"""Things that must exist once: a copy would be a second budget, or a second set of answers."""

from __future__ import annotations

import os
from typing import NoReturn

from lapwing.errors import SessionOver


class _Forks:
    """How often this process was forked off since the module was loaded; asking costs no system call."""

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_child=self._one_more)

    def _one_more(self) -> None:
        self.count += 1


FORKS = _Forks()


class Once:
    """Lives in one process, and can be neither saved nor copied nor continued in a fork."""

    def __init__(self) -> None:
        self._forks = FORKS.count
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is the process that it was made in."""
        return self._forks == FORKS.count and self._process == os.getpid()

    def require_here(self) -> None:
        """Refuse to go on in a forked child."""
        if not self.is_here:
            raise SessionOver(f"this {type(self).__name__} belongs to another process; start a new one")

    def __reduce__(self) -> NoReturn:
        raise SessionOver(f"a {type(self).__name__} cannot be saved or copied: lost in a crash, it is over")
