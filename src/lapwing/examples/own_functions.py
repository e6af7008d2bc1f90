"""Functions to audit: one private count that is right, and two that are not."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.examples.visits import already_written

OWN_FUNCTIONS = "own_mechanisms.py"


def write_own_functions(folder: Path) -> tuple[list[str], bool]:
    """Write the file into a folder, unless it is there unchanged.

    Args:
        folder: is created if it is missing.

    Returns:
        The names of the files, and whether they were written now.

    Raises:
        BadParameter: another file of this name is there, or the folder cannot be written.
    """
    source = files("lapwing.examples").joinpath("data", "own_mechanisms.txt")
    path, text = folder / OWN_FUNCTIONS, source.read_text(encoding="utf-8")
    if already_written({path: text}):
        return [OWN_FUNCTIONS], False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError:
        raise BadParameter("folder", f"{folder.resolve()} cannot be written") from None
    return [OWN_FUNCTIONS], True
