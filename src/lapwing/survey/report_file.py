"""Reports in a file: one line that names the survey, then report after report.

The line ends with 16 random bytes, the file's own mark. So equal reports of two people are files with
different contents, and the owner can tell a second person from a second copy.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter
from lapwing.survey.designing import Design

HEADER_START = b"lapwing reports 2 "
MARK_BYTES = 16
MOST_HEADER = 256
MOST_FILE_BYTES = 1 << 33
_HEAD = re.compile(rb"lapwing reports (?:1 ([0-9a-f]{64})|2 ([0-9a-f]{64})(?: [0-9a-f]{32})?)")


def report_file_header(digest: str, mark: bytes | None = None) -> bytes:
    """Return the first line of a report file. Without a mark it gets a random one."""
    own = random_bytes(MARK_BYTES) if mark is None else mark
    if len(own) != MARK_BYTES:
        raise BadParameter("mark", f"must be {MARK_BYTES} bytes")
    return HEADER_START + f"{digest} {own.hex()}\n".encode()


def write_reports(
    path: Path, design: Design, reports: NDArray[np.uint8], *, mark: bytes | None = None
) -> None:
    """Write reports of this design into a new file. Raise `BadParameter` if the file exists."""
    try:
        with path.open("xb") as file:
            file.write(report_file_header(design.digest, mark))
            file.write(reports.tobytes())
    except FileExistsError:
        raise BadParameter("out", f"{path} exists: nothing is written over") from None
    except OSError as error:
        raise BadParameter("out", f"{path} cannot be written ({error.strerror})") from None


def forget_reports(path: Path) -> None:
    """Remove a file of reports. Leave any other file, and a file that cannot be read, as it is."""
    try:
        with path.open("rb") as file:
            is_ours = _HEAD.match(file.readline(MOST_HEADER)) is not None
    except OSError:
        return
    if is_ours:
        path.unlink()


def read_reports(path: Path, design: Design) -> NDArray[np.uint8]:
    """Return the reports in a file, of shape (n, report_size).

    Raises `BadParameter` unless they are of this design.
    """
    if not os.path.isfile(path):
        raise BadParameter("reports", f"there is no file {path}")
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise BadParameter("reports", f"{path} is larger than 8 GiB")
        raw = path.read_bytes()
    except OSError as error:
        raise BadParameter("reports", f"{path} cannot be read ({error.strerror})") from None
    line, _, body = raw.partition(b"\n")
    head = _HEAD.fullmatch(line)
    if head is None:
        raise BadParameter("reports", f"{path} is not a file of reports")
    if (head[1] or head[2]) != design.digest.encode():
        raise BadParameter("reports", f"{path} has reports to another survey, or to an earlier form of it")
    if len(body) % design.report_size:
        raise BadParameter("reports", f"{path} is cut off: its last report is not whole")
    return np.frombuffer(body, dtype=np.uint8).reshape(-1, design.report_size)
