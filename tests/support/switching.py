"""Threads that take turns far more often than usual."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def in_switching_threads(work: Callable[[], None], count: int) -> None:
    """Run the same work in several threads, with a switch every ten microseconds, until all have ended."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
