"""Texts for people elsewhere: no folder of this machine is in them."""

from __future__ import annotations

import re
from typing import Any

_FOLDERS = re.compile(r"(?<![\w/.])/(?:[^\s/\"'`]+/)+")  # of an absolute path


def without_places(value: Any) -> Any:
    """Return a value without folders in its texts: of a path, the name of the file stays."""
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, list):
        return [without_places(part) for part in value]
    if isinstance(value, dict):
        return {name: without_places(part) for name, part in value.items()}
    return value
