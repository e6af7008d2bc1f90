"""CSV on standard output: plain numbers, and no text that a terminal or a spreadsheet would run."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Annotated, Any

import typer

from lapwing.cli.console import printable
from lapwing.errors import BadParameter

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are full-width forms


def require_one_form(*, as_json: bool, as_csv: bool) -> None:
    """Raise BadParameter if a command is asked for JSON and CSV at once."""
    if as_json and as_csv:
        raise BadParameter("csv", "or --json: ask for one of them")


class CsvWriter:
    """Writes rows as they come, after one line of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        self.write(list(names))

    def write(self, values: Sequence[Any]) -> None:
        """Write one row."""
        self._csv.writerow([csv_cell(value) for value in values])


def csv_cell(value: Any) -> str | int | float:
    """Return a cell. A missing value and an infinite end of an interval are empty.

    Numbers have no separators of thousands. A text that a spreadsheet would take for a formula begins with
    an apostrophe.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        value = "; ".join(map(str, value))
    text = printable(value.isoformat() if isinstance(value, date) else str(value))
    # Some spreadsheets leave out spaces before they look for a formula; a tab has become a space.
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text
