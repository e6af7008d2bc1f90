"""Errors as objects: with `--json`, a command that fails prints one on standard output.

`{"error": {"code": …, "message": …, "exit_code": …}}`, and the fields that the error has, such as `asked`
and `left` of `over-budget`. The codes are those of `docs/reference/errors.md`, and two more: `usage` for a
command line that cannot be understood, and `stopped` for a command that a person ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.cli.console import print_json
from lapwing.errors import LapwingError

USAGE, STOPPED = "usage", "stopped"


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON. Words after `--` are no options."""
    words = list(arguments)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def print_error(code: str, message: str, exit_code: int, fields: dict[str, Any] | None = None) -> None:
    """Print an error as one JSON object."""
    always = {"code": code, "message": message, "exit_code": exit_code}
    more = {name: value for name, value in (fields or {}).items() if name not in always}
    print_json({"error": {**always, **more}})


def fields_of(error: LapwingError) -> dict[str, Any]:
    """Return the public fields of an error as plain values. A field of another kind is left out."""
    found = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if value is not NotImplemented}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Fraction):
        return float(value) if math.isfinite(value) else NotImplemented
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return NotImplemented if NotImplemented in parts else parts
    return NotImplemented
