"""New and replaced files: private unless their mode says otherwise, and durable in full or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

from lapwing.errors import BadParameter, Unavailable

PRIVATE, PUBLIC = 0o600, 0o666  # less the umask
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LARGEST_KEY_FILE = 1 << 15


@contextmanager
def new_private_file(path: str | Path, *, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a new file to write, which is durable when the block ends, or removed if the block raises.

    An existing file or link is never replaced, and other users can never read the file, not even for a
    moment.

    Args:
        path: the new file, in a folder that exists.
        mode: the permissions of the file, less the umask, if it may be public.

    Yields:
        The open file.

    Raises:
        FileExistsError: if there is a file or link.
        OSError: if it cannot be written.
    """
    handle = os.open(path, _NEW | os.O_EXCL, mode)
    try:
        with open(handle, "wb") as file:
            yield file
            sync_file(file)
        sync_to_disk(Path(path).parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


@contextmanager
def replaced_private_file(path: Path, *, mode: int = PRIVATE, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write that replaces `path` when the block ends: all of it or nothing.

    Threads and processes that replace the same file at once do not disturb each other: the last one wins.

    Args:
        path: the file, in a folder that exists.
        mode: the permissions of the file, less the umask, if it may be public.
        durable: whether to wait until the file is on disk.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}.new")
    try:
        with open(os.open(beside, _NEW | os.O_TRUNC, mode), "wb") as file:
            yield file
            if durable:
                sync_file(file)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    if durable:
        sync_to_disk(path.parent)


def touch_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless there is a file."""
    with suppress(FileExistsError), new_private_file(path):
        pass


def read_key_file(path: str | Path, parameter: str) -> bytes:
    """Return the beginning of a key file, up to 32 KiB. Errors show nothing of it.

    Args:
        path: the file.
        parameter: the name of the parameter in errors.

    Raises:
        BadParameter: if it is not a plain file, or if other users can read it.
        Unavailable: if it cannot be read.
    """
    try:
        # O_NONBLOCK: a pipe in its place must not block. The opened file itself is checked, not its path.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                raise BadParameter(parameter, f"{path} is not a plain file")
            if mode & _OTHERS:
                raise BadParameter(parameter, f"others can use the keys in {path}: chmod 600 {path}")
            return os.read(file, _LARGEST_KEY_FILE)
        finally:
            os.close(file)
    except OSError as error:
        raise Unavailable(f"the key file {path} cannot be read: {error.strerror}") from error


def write_key_file(path: str | Path, content: bytes, parameter: str) -> None:
    """Write a new key file, which is durable when this returns.

    Args:
        path: the new file.
        content: its bytes.
        parameter: the name of the parameter in errors.

    Raises:
        BadParameter: if the file exists.
        Unavailable: if it cannot be written.
    """
    try:
        with new_private_file(path) as file:
            file.write(content)
    except FileExistsError:
        raise BadParameter(parameter, f"{path} exists already, and keys are never overwritten") from None
    except OSError as error:
        raise Unavailable(f"the key file {path} cannot be written: {error.strerror}") from error


def sync_to_disk(path: str | Path) -> None:
    """Make a file durable, or the names that were created or replaced in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(file: BinaryIO) -> None:
    """Make everything that was written to an open file durable."""
    file.flush()
    os.fsync(file.fileno())
