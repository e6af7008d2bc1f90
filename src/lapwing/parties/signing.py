"""Adding signatures to a consortium file that several members may sign at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lapwing.parties.consortium import Consortium
from lapwing.storage.private_file import PUBLIC, replaced_private_file


def write_signatures(path: Path, signed: Consortium) -> Consortium:
    """Add signatures to those in the file, and return the consortium with all of them.

    Others may have signed the same file meanwhile: none of their signatures is lost. The file is replaced
    as a whole or not at all. Raises `BadParameter`, `BadFile` or `OSError`.
    """
    with _locked(path):
        merged = Consortium.read(path).merged(signed)
        with replaced_private_file(path, mode=PUBLIC) as file:
            file.write(merged.to_text().encode())
    return merged


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file. If it was replaced during the wait, lock the new one."""
    while True:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                yield
                return
