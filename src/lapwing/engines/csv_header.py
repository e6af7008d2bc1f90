"""The first line of CSV files: the names of columns and what stands between them. No row is read."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import pyarrow as pa

from lapwing.errors import BadParameter

SEPARATORS = ",;\t|"
_LONGEST = 1 << 20


def read_header(paths: Sequence[str]) -> tuple[str, list[str]]:
    """What separates columns, and their names, which must be the same in all files."""
    found = {_first_line(path) for path in paths}
    if len(found) != 1:
        raise BadParameter("source", "its CSV files have different first lines, and so different columns")
    line = found.pop()
    separator = max(SEPARATORS, key=line.count)  # the first of them, if there is one column only
    names: list[str] = []
    taken: set[str] = set()
    for number, written in enumerate(next(csv.reader([line], delimiter=separator), []), start=1):
        name, again = written.strip() or f"column{number}", 1
        while name.lower() in taken:  # the engine does not tell upper case from lower case
            name, again = f"{written.strip() or f'column{number}'}_{again}", again + 1
        taken.add(name.lower())
        names.append(name)
    if not names:
        raise BadParameter("source", "is a CSV file without a first line of column names")
    return separator, names


def _first_line(path: str) -> str:
    with pa.input_stream(path, compression="detect") as file:
        start: bytes = file.read(_LONGEST)
    try:
        text = start.split(b"\n", 1)[0].removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadParameter("source", "has column names that are not in UTF-8") from None
    if "\r" in text:
        text = text.split("\r", 1)[0]
    return text
