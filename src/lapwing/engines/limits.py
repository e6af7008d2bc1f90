"""How much of its machine an engine may use for one question: what is public, whatever the rows are."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

MEGABYTE = 10**6


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of memory and of temporary files, and threads.

    None is, of an engine within this process, a fifth of the memory (several questions may run at once),
    half of the free disk, and every core; of a server, what its owner gave it.
    """

    memory: int | None = None
    temporary: int | None = None
    threads: int | None = None

    def memory_here(self) -> int:
        """Return the bytes of memory that an engine within this process may use."""
        return self.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 5

    def temporary_in(self, folder: str) -> int:
        """Return the bytes that it may write into a folder."""
        return self.temporary or shutil.disk_usage(folder).free // 2


DEFAULTS = Limits()
