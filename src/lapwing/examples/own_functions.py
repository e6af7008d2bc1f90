"""Functions to audit: one private count that is right, and two that are not."""

from __future__ import annotations

from pathlib import Path

from lapwing.examples.visits import example_text, write_example

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
    text = example_text("own_mechanisms.txt")
    return [OWN_FUNCTIONS], write_example(folder, {OWN_FUNCTIONS: text}, {})
