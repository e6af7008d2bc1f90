"""Reports in a file: one line that says of which survey, then report after report."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.planning.design import Design

MARK = b"lapwing reports 1 "
BYTES_AT_MOST = 1 << 33


def write_reports(path: Path, design: Design, reports: NDArray[np.uint8]) -> None:
    """Write reports of this design into a new file; nothing is written over."""
    try:
        with path.open("xb") as file:
            file.write(MARK + design.digest.encode() + b"\n")
            file.write(reports.tobytes())
    except FileExistsError:
        raise BadParameter("out", f"{path} exists: nothing is written over") from None
    except OSError as error:
        raise BadParameter("out", f"{path} cannot be written ({error.strerror})") from None


def read_reports(path: Path, design: Design) -> NDArray[np.uint8]:
    """The reports in a file, of shape (n, report_size). `BadParameter` unless they are of this design."""
    if not os.path.isfile(path):
        raise BadParameter("reports", f"there is no file {path}")
    try:
        if path.stat().st_size > BYTES_AT_MOST:
            raise BadParameter("reports", f"{path} is larger than 8 GiB")
        raw = path.read_bytes()
    except OSError as error:
        raise BadParameter("reports", f"{path} cannot be read ({error.strerror})") from None
    head, _, body = raw.partition(b"\n")
    if not head.startswith(MARK):
        raise BadParameter("reports", f"{path} is not a file of reports")
    if head != MARK + design.digest.encode():
        raise BadParameter("reports", f"{path} has reports to another survey, or to an earlier form of it")
    if len(body) % design.report_size:
        raise BadParameter("reports", f"{path} is cut off: its last report is not whole")
    return np.frombuffer(body, dtype=np.uint8).reshape(-1, design.report_size)
