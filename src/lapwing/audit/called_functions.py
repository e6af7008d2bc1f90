"""Record which functions of Lapwing a piece of code calls.

A case says which claims it covers. The functions that its stages call show whether that is true. The
mutation run uses the same record: a change of a function can only be seen by stages that call it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import lapwing

_PACKAGE = Path(lapwing.__file__).parent


@contextmanager
def called_functions() -> Iterator[set[str]]:
    """Yield a set that holds, once the block ends, the functions of Lapwing that were called in it.

    A name is like "core/laplace.py: Laplace.sample". A function inside of another counts as that one.
    Calls in other processes are not seen. Everything takes about twice as long.
    """
    seen: set[CodeType] = set()
    names: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        for code in seen:
            path = Path(code.co_filename)
            if path.is_relative_to(_PACKAGE) and path != Path(__file__):
                function = code.co_qualname.split(".<locals>")[0]
                names.add(f"{path.relative_to(_PACKAGE).as_posix()}: {function}")
