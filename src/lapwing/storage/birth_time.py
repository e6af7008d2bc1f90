"""The time at which a file was made, which no program can set.

Inodes are given again: a new file may have the inode and, if times are copied, the time of change of one
that was deleted. It was still made later.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import Any

_HERE, _BIRTH = -100, 0x800  # AT_FDCWD, STATX_BTIME
_SIZE, _PLACE = 256, 80  # of struct statx, and of its birth time: 8 bytes of seconds, 4 of nanoseconds


@cache
def _statx() -> Any:
    """Return the C library's function; None on systems without it."""
    return getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def birth_time(path: str | os.PathLike[str]) -> int | None:
    """Return when a file was made, in ns since 1970; None if the system does not know."""
    born = getattr(os.stat(path), "st_birthtime", None)  # not on Linux
    if born is not None:
        return int(born * 10**9)
    statx, about = _statx(), ctypes.create_string_buffer(_SIZE)
    if statx is None or statx(_HERE, os.fsencode(path), 0, _BIRTH, about):
        return None
    (mask,) = struct.unpack_from("=I", about)
    seconds, nanoseconds = struct.unpack_from("=qI", about, _PLACE)
    return seconds * 10**9 + nanoseconds if mask & _BIRTH else None
