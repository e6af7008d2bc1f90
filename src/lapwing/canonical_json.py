"""Canonical JSON: one text for a value, for digests, signatures and stored records.

Claim    equal plain values have equal texts, and these are the bytes that earlier versions wrote.
Because  names are sorted, and Python writes every number in one way. Numbers that JSON lacks are refused.
Test     tests/stored/test_canonical_json.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def canonical_json(
    value: object,
    *,
    spaces: bool = False,
    ascii_only: bool = True,
    other: Callable[[Any], Any] | None = None,
) -> str:
    """Return the one text of plain values: names sorted, and no number that JSON lacks.

    What was stored in a form can only be found again in the same form.

    Args:
        value: The value.
        spaces: Write a space after each comma and colon, as in requests that ledgers store.
        ascii_only: Write letters outside ASCII as escapes.
        other: Returns a plain value for a value that JSON has no form for. None: such a value is refused.

    Returns:
        The text.

    Raises:
        ValueError: If a number is infinite or not a number, or a value contains itself.
        TypeError: If JSON has no form for a value.
        RecursionError: If values are nested too deeply.

    Example:
        >>> canonical_json({"b": 1, "a": ["ward", 0.5]})
        '{"a":["ward",0.5],"b":1}'
    """
    separators = (", ", ": ") if spaces else (",", ":")
    return json.dumps(
        value,
        sort_keys=True,
        separators=separators,
        ensure_ascii=ascii_only,
        allow_nan=False,
        default=other,
    )
