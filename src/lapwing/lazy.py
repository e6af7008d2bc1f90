"""Packages whose public names are imported at their first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: The package's `__name__`.
        homes: For each public name, the module below `package` that defines it; "" if the name is a module.

    Returns:
        A function that imports a name when it is first used, and raises AttributeError for other names.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        return (
            getattr(import_module(f"{package}.{home}"), name)
            if home
            else import_module(f"{package}.{name}")
        )

    return find
