"""Errors that tests expect, by the parameter's name or the code instead of the wording."""

from __future__ import annotations

from collections.abc import Callable

from lapwing.errors import BadParameter, LapwingError


def named(name: str) -> Callable[[BadParameter], bool]:
    """Return a check for `pytest.raises`: the error is about this parameter."""
    return lambda error: error.name == name


def coded(code: str) -> Callable[[LapwingError], bool]:
    """Return a check for `pytest.raises`: the error has this code, and not that of a subclass."""
    return lambda error: error.code == code
